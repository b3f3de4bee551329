//! The first elements of a tensor, for messages.

use crate::prelude::*;

/// As `Tensor::SummarizeValue` of TensorFlow: the first `n_shown` elements (all if negative),
/// separated by blanks, with dots if there are more.
pub(super) fn summary(view: &View<'_>, n_shown: i64) -> String {
    let n_elements = view.n_elements();
    let count = usize::try_from(n_shown).map_or(n_elements, |shown| shown.min(n_elements));
    let elements: Vec<String> = (0..count).map(|at| element(view, at)).collect();
    let dots = if count < n_elements { "..." } else { "" };
    elements.join(" ") + dots
}

fn element(view: &View<'_>, at: usize) -> String {
    match view.dtype() {
        DType::String => String::from_utf8_lossy(view.strings().get(at)).into_owned(),
        DType::F32 => view.as_slice::<f32>()[at].to_string(),
        DType::F64 => view.as_slice::<f64>()[at].to_string(),
        DType::F16 => view.as_slice::<half::f16>()[at].to_string(),
        DType::BF16 => view.as_slice::<half::bf16>()[at].to_string(),
        DType::I8 => view.as_slice::<i8>()[at].to_string(),
        DType::I16 => view.as_slice::<i16>()[at].to_string(),
        DType::I32 => view.as_slice::<i32>()[at].to_string(),
        DType::I64 => view.as_slice::<i64>()[at].to_string(),
        DType::U8 | DType::Bool => view.as_slice::<u8>()[at].to_string(),
        DType::U16 => view.as_slice::<u16>()[at].to_string(),
        DType::U32 => view.as_slice::<u32>()[at].to_string(),
        DType::U64 => view.as_slice::<u64>()[at].to_string(),
        other => format!("?{other}"),
    }
}
