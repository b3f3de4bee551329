//! Between channels-first and channels-last: our kernels know only the latter.

use super::window::Layout;
use crate::prelude::*;

/// An image and what is made of it, in one layout: the channels and pixels of each.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Turn {
    pub(crate) layout: Layout,
    pub(crate) image: (usize, usize),
    pub(crate) out: (usize, usize),
}

impl Turn {
    /// Runs a kernel with channels last, whatever the layout.
    pub(crate) fn run<T: bytemuck::Pod>(
        &self,
        (image, out): (&[T], &mut [T]),
        mut scratch: Scratch<'_>,
        mut kernel: impl FnMut(&[T], &mut [T]),
    ) -> Result<()> {
        if !self.layout.channels_first {
            kernel(image, out);
            return Ok(());
        }
        let (mut last, mut out_last) = (scratch.part(image.len())?, scratch.part(out.len())?);
        swap_last(image, &mut last, self.image.0, self.image.1);
        kernel(&last, &mut out_last);
        swap_last(&out_last, out, self.out.1, self.out.0);
        Ok(())
    }
}

/// The bytes of scratch memory that `Turn` takes for an image and an output of these specs, wide if
/// they are of half precision.
pub(crate) fn turned_bytes(layout: Layout, image: &Spec, out: &Spec) -> usize {
    let (true, Some(image_shape), Some(out_shape)) =
        (layout.channels_first, image.shape(), out.shape())
    else {
        return 0;
    };
    let all = [image_shape.n_elements(), out_shape.n_elements()].into_iter();
    match image.dtype {
        DType::F16 | DType::BF16 => all.map(Scratch::bytes_of::<f32>).sum(),
        dtype => all.map(|n| Scratch::bytes_of::<u8>(n.saturating_mul(dtype.size()))).sum(),
    }
}

/// Copies `[batch, rows, columns]` to `[batch, columns, rows]`.
pub(crate) fn swap_last<T: Copy>(from: &[T], to: &mut [T], rows: usize, columns: usize) {
    assert_eq!(from.len(), to.len());
    let size = (rows * columns).max(1);
    for (from, to) in from.chunks_exact(size).zip(to.chunks_exact_mut(size)) {
        for (column, to) in to.chunks_exact_mut(rows).enumerate() {
            if is_stopped(2 * rows) {
                return;
            }
            for (row, to) in to.iter_mut().enumerate() {
                *to = from[row * columns + column];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_become_columns() {
        let mut to = [0; 6];
        swap_last(&[1, 2, 3, 4, 5, 6], &mut to, 2, 3);
        assert_eq!(to, [1, 4, 2, 5, 3, 6]);
    }
}
