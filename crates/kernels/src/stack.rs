//! Many products of the same size at once, whose results lie interleaved in one tensor.

use pool::Pool;
use smallvec::SmallVec;

use super::gemm::{Out, multiply_at};
use super::{Epilogue, Left, PanelsView, Product, kernels};

/// Products of the same size: one for each place of `dims`.
#[derive(Debug, Clone, Copy)]
pub struct Stacked<'a> {
    /// For each dimension of the stack its size, and how far apart neighbours are in the left
    /// tensor, among the panels, and in the result.
    pub dims: &'a [(usize, usize, usize, usize)],
    /// The rows of a left matrix and of a result.
    pub rows: usize,
    /// The columns of a left matrix, and the rows of a right one.
    pub inner: usize,
    /// The columns of a right matrix and of a result.
    pub columns: usize,
    /// The distances between rows in the left tensor, and in the result.
    pub strides: (usize, usize),
}

/// Writes all products: of rows of `left` with the panels of each number.
///
/// # Panics
/// If the results do not fill `out` without overlap, or a slice is too short.
pub fn multiply_stack<'a>(
    pool: &Pool,
    stacked: &Stacked<'_>,
    left: &[f32],
    panels: &(dyn Fn(usize) -> PanelsView<'a> + Sync),
    out: &mut [f32],
) {
    assert!(stacked.fills(out.len()), "{stacked:?} does not fill {}", out.len());
    if out.is_empty() {
        return;
    }
    let start = Out(out.as_mut_ptr());
    let one = |number: usize| {
        let (left_at, panel, out_at) = stacked.at(number);
        let product = Product {
            rows: stacked.rows,
            left: Left::Matrix(&left[left_at..], stacked.strides.0),
            right: panels(panel),
            epilogue: Epilogue::default(),
            stride: stacked.strides.1,
        };
        assert!(product.right.rows == stacked.inner && product.right.columns == stacked.columns);
        // SAFETY: `fills` has checked that the products' places are all places of `out`, each once;
        // so this one's lie in it and are nobody else's.
        unsafe { multiply_at(kernels(), pool, &product, start.offset(out_at)) };
    };
    let n = stacked.len();
    if n >= pool.n_threads() {
        pool.run(n, &one);
    } else {
        (0..n).for_each(one);
    }
}

impl Stacked<'_> {
    fn len(&self) -> usize {
        self.dims.iter().map(|dim| dim.0).product()
    }

    /// Returns the place where product number `number` starts in the left tensor, among the panels
    /// and in the result.
    fn at(&self, number: usize) -> (usize, usize, usize) {
        let mut rest = number;
        let mut at = (0, 0, 0);
        for (size, left, right, out) in self.dims.iter().rev() {
            let i = rest % size;
            rest /= size;
            at = (at.0 + i * left, at.1 + i * right, at.2 + i * out);
        }
        at
    }

    /// Returns whether the results are a tensor of `n` elements, in whatever order of its
    /// dimensions.
    fn fills(&self, n: usize) -> bool {
        let mut dims: SmallVec<[(usize, usize); 8]> =
            self.dims.iter().map(|dim| (dim.3, dim.0)).collect();
        dims.extend([(self.strides.1, self.rows), (1, self.columns)]);
        if dims.iter().any(|(_, size)| *size == 0) {
            return n == 0;
        }
        dims.retain(|(_, size)| *size != 1);
        dims.sort_unstable();
        let mut reach = 1;
        for (stride, size) in dims {
            if stride != reach {
                return false;
            }
            reach *= size;
        }
        reach == n
    }
}
