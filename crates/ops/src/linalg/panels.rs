//! `Panels`: the right matrix of a product, packed for the kernels in a buffer of its own.

use device::Buffer;
use kernels::{Matrix, PanelsView};

use crate::error::{Error, Result};

/// A packed matrix of its own.
#[derive(Debug)]
pub(crate) struct Panels {
    data: Buffer,
    rows: usize,
    columns: usize,
}

impl Panels {
    /// Packs a matrix. Fails without memory.
    pub(crate) fn new(matrix: Matrix<'_, f32>) -> Result<Self> {
        let (rows, columns) = matrix.size;
        let n_bytes = PanelsView::len(rows, columns) * size_of::<f32>();
        let mut data = Buffer::allocate(n_bytes)
            .map_err(|error| Error::ResourceExhausted(error.to_string()))?;
        if !data.is_rehearsed() {
            let bytes = data.bytes_mut().expect("a new buffer has one owner");
            PanelsView::pack(matrix, bytemuck::cast_slice_mut(bytes));
            data = device::shared(data);
        }
        Ok(Self { data, rows, columns })
    }

    /// The bytes that it holds.
    pub(crate) fn n_bytes(&self) -> usize {
        self.data.len()
    }

    /// A view of it.
    pub(crate) fn view(&self) -> PanelsView<'_> {
        PanelsView::new(bytemuck::cast_slice(self.data.bytes()), self.rows, self.columns)
    }
}
