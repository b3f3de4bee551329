//! Tensors as people read them: large ones shortened.

use tensor::{DType, Tensor};

/// The elements that are all shown.
const WHOLE_MAX: usize = 64;

/// The number of parts of a dimension that are shown at either end.
const EDGE: usize = 3;

/// The characters of a string that are shown.
const STRING_CHARS_MAX: usize = 60;

/// An output with its name, dtype, shape and values.
pub(super) fn output(name: &str, tensor: &Tensor) -> String {
    let head = format!("{name}  {}{}", tensor.dtype(), tensor.shape());
    let Some(elements) = elements(tensor) else {
        return format!("{head}\n  --outputs FILE.npz writes its values");
    };
    let dims: Vec<usize> = tensor.shape().iter().copied().collect();
    let edge = if tensor.n_elements() > WHOLE_MAX { EDGE } else { usize::MAX };
    let shown = Shown { elements: &*elements, edge };
    format!("{head}\n  {}", shown.part(&dims, 0, 2))
}

/// The text of each element by its place; nothing for a dtype that has none.
fn elements(tensor: &Tensor) -> Option<Box<dyn Fn(usize) -> String + '_>> {
    macro_rules! of {
        ($element:ty) => {{
            let values = tensor.as_slice::<$element>();
            Some(Box::new(move |at| format!("{:?}", values[at])))
        }};
    }
    match tensor.dtype() {
        DType::F32 => of!(f32),
        DType::F64 => of!(f64),
        DType::I8 => of!(i8),
        DType::I16 => of!(i16),
        DType::I32 => of!(i32),
        DType::I64 => of!(i64),
        DType::U8 => of!(u8),
        DType::U16 => of!(u16),
        DType::U32 => of!(u32),
        DType::U64 => of!(u64),
        DType::F16 => of!(half::f16),
        DType::BF16 => of!(half::bf16),
        DType::Bool => {
            let values = tensor.as_slice::<u8>();
            Some(Box::new(move |at| (values[at] != 0).to_string()))
        }
        DType::String => Some(Box::new(|at| string(tensor.strings().get(at)))),
        _ => None,
    }
}

fn string(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    match text.char_indices().nth(STRING_CHARS_MAX) {
        Some((end, _)) => format!("{:?}... ({} bytes)", &text[..end], bytes.len()),
        None => format!("{text:?}"),
    }
}

/// The values of a tensor, of which some are shown.
struct Shown<'a> {
    elements: &'a dyn Fn(usize) -> String,
    /// The number of parts of a dimension at either end.
    edge: usize,
}

impl Shown<'_> {
    /// The part that begins with element `start`; its lists of lists stand below each other.
    fn part(&self, dims: &[usize], start: usize, indent: usize) -> String {
        let Some((&size, inner)) = dims.split_first() else { return (self.elements)(start) };
        let stride: usize = inner.iter().product();
        let is_cut = size > self.edge.saturating_mul(2);
        let mut parts = Vec::new();
        for at in 0..size {
            if is_cut && at == self.edge {
                parts.push("...".to_owned());
            }
            if !is_cut || at < self.edge || at >= size - self.edge {
                parts.push(self.part(inner, start + at * stride, indent + 1));
            }
        }
        let between = match inner.is_empty() {
            true => ", ".to_owned(),
            false => format!(",\n{}", " ".repeat(indent + 1)),
        };
        format!("[{}]", parts.join(&between))
    }
}

#[cfg(test)]
mod tests {
    use tensor::{Shape, Strings};

    use super::*;

    #[test]
    fn small_tensors_are_shown_whole_and_large_ones_at_their_edges() {
        let small = Tensor::from_slice(Shape::of(&[2, 2]), &[1.0f32, 2.5, -3.0, 0.25]).unwrap();
        assert_eq!(output("y", &small), "y  float[2,2]\n  [[1.0, 2.5],\n   [-3.0, 0.25]]");
        let values: Vec<i64> = (0..100).collect();
        let large = Tensor::from_slice(Shape::of(&[100]), &values).unwrap();
        assert_eq!(output("n", &large), "n  int64[100]\n  [0, 1, 2, ..., 97, 98, 99]");
        let scalar = Tensor::from_bytes(DType::Bool, Shape::scalar(), &[1]).unwrap();
        assert_eq!(output("b", &scalar), "b  bool[]\n  true");
        let long = Strings::collect(["x".repeat(70)]).unwrap();
        let long = Tensor::from_strings(Shape::of(&[1]), long).unwrap();
        assert!(output("s", &long).ends_with("x\"... (70 bytes)]"), "{}", output("s", &long));
    }
}
