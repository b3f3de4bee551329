//! Weights times a scale for each channel.

use tensor::{Result, Tensor};

use crate::digest::{digest, mark, mixed};

/// A new weight with each channel, the innermost elements, multiplied by its scale.
pub(crate) fn scaled(weight: &Tensor, scale: &[f32]) -> Result<Tensor> {
    if weight.is_rehearsed() {
        let mut new = Tensor::zeros(weight.dtype(), weight.shape().clone())?;
        let scale: Vec<u8> = scale.iter().flat_map(|scale| scale.to_le_bytes()).collect();
        let of = digest(weight).map_or(0, |of| mixed(of, &scale));
        mark(&mut new, of);
        return Ok(new);
    }
    let mut new =
        Tensor::from_bytes(weight.dtype(), weight.shape().clone(), weight.view().bytes())?;
    let mut view = new.view_mut().expect("a new tensor has one owner");
    for row in view.as_mut_slice::<f32>().chunks_exact_mut(scale.len().max(1)) {
        row.iter_mut().zip(scale).for_each(|(weight, scale)| *weight *= scale);
    }
    Ok(new)
}
