//! The first elements of tensors, for messages.

use std::fmt;

use crate::prelude::*;

/// As `Tensor::SummarizeValue` of TensorFlow, each in brackets: the first `n_shown` elements (all
/// if negative), separated by blanks, with dots if there are more.
pub(super) struct Summaries<'v, 'a> {
    pub(super) views: &'v [View<'a>],
    pub(super) n_shown: i64,
    /// The text between two tensors.
    pub(super) between: &'static str,
}

impl fmt::Display for Summaries<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, view) in self.views.iter().enumerate() {
            f.write_str(if i == 0 { "" } else { self.between })?;
            let n_elements = view.n_elements();
            let count =
                usize::try_from(self.n_shown).map_or(n_elements, |shown| shown.min(n_elements));
            f.write_str("[")?;
            for at in 0..count {
                f.write_str(if at == 0 { "" } else { " " })?;
                write_element(f, view, at)?;
            }
            f.write_str(if count < n_elements { "...]" } else { "]" })?;
        }
        Ok(())
    }
}

fn write_element(f: &mut fmt::Formatter<'_>, view: &View<'_>, at: usize) -> fmt::Result {
    match view.dtype() {
        DType::String => write!(f, "{}", String::from_utf8_lossy(view.strings().get(at))),
        DType::F32 => write!(f, "{}", view.as_slice::<f32>()[at]),
        DType::F64 => write!(f, "{}", view.as_slice::<f64>()[at]),
        DType::F16 => write!(f, "{}", view.as_slice::<half::f16>()[at]),
        DType::BF16 => write!(f, "{}", view.as_slice::<half::bf16>()[at]),
        DType::I8 => write!(f, "{}", view.as_slice::<i8>()[at]),
        DType::I16 => write!(f, "{}", view.as_slice::<i16>()[at]),
        DType::I32 => write!(f, "{}", view.as_slice::<i32>()[at]),
        DType::I64 => write!(f, "{}", view.as_slice::<i64>()[at]),
        DType::U8 | DType::Bool => write!(f, "{}", view.as_slice::<u8>()[at]),
        DType::U16 => write!(f, "{}", view.as_slice::<u16>()[at]),
        DType::U32 => write!(f, "{}", view.as_slice::<u32>()[at]),
        DType::U64 => write!(f, "{}", view.as_slice::<u64>()[at]),
        other => write!(f, "?{other}"),
    }
}
