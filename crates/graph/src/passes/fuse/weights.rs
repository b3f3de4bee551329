//! Weights times a scale for each channel.

use tensor::{Result, Tensor};

/// A new weight with each channel, the innermost elements, multiplied by its scale.
pub(super) fn scaled(weight: &Tensor, scale: &[f32]) -> Result<Tensor> {
    if weight.is_rehearsed() {
        return Tensor::zeros(weight.dtype(), weight.shape().clone());
    }
    let mut new =
        Tensor::from_bytes(weight.dtype(), weight.shape().clone(), weight.view().bytes())?;
    let mut view = new.view_mut().expect("a new tensor has one owner");
    for row in view.as_mut_slice::<f32>().chunks_exact_mut(scale.len().max(1)) {
        row.iter_mut().zip(scale).for_each(|(weight, scale)| *weight *= scale);
    }
    Ok(new)
}
