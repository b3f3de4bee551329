//! `Tensors`: some tensors that a kernel holds while it runs.

use std::ops::Deref;

use device::BookedVec;
use tensor::Tensor;

use crate::error::Result;

/// The bytes that stand behind a tensor on the heap beside its elements.
const TENSOR_BYTES: usize = 160;

/// Tensors, booked with what stands behind them.
#[derive(Debug, Default)]
pub(super) struct Tensors {
    tensors: BookedVec<Tensor>,
    /// As many bytes as are behind the tensors: only counted.
    behind: Vec<device::Booked>,
    n_booked: usize,
}

impl Tensors {
    /// Adds a tensor. Fails without memory.
    pub(super) fn push(&mut self, tensor: Tensor) -> Result<()> {
        if self.n_booked == self.tensors.len() {
            // As many again, so that few pieces are booked.
            let more = self.n_booked.max(16);
            self.behind.push(device::Booked::new(more.saturating_mul(TENSOR_BYTES))?);
            self.n_booked += more;
        }
        Ok(self.tensors.push(tensor)?)
    }
}

impl Deref for Tensors {
    type Target = [Tensor];

    fn deref(&self) -> &[Tensor] {
        &self.tensors
    }
}
