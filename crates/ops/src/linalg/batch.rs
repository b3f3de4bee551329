//! Stacks of matrices that are broadcast against each other.

use smallvec::SmallVec;

use crate::infer::broadcast_shapes;
use crate::prelude::*;

/// The matrices of each input that make each matrix of the output.
#[derive(Debug, Clone)]
pub(crate) struct Stack {
    /// The leading dimensions of the output.
    pub(crate) dims: Shape,
    a_strides: SmallVec<[usize; 5]>,
    b_strides: SmallVec<[usize; 5]>,
}

impl Stack {
    /// The stack for the leading dimensions of both inputs.
    pub(crate) fn new(a: &[usize], b: &[usize]) -> Result<Self> {
        let (a, b) = (Shape::of(a), Shape::of(b));
        let dims = broadcast_shapes(&a, &b)?;
        let strides = |shape: &Shape| {
            let own = shape.strides();
            let missing = dims.rank() - shape.rank();
            (0..dims.rank())
                .map(|i| match i.checked_sub(missing) {
                    Some(at) if shape[at] != 1 => own[at],
                    _ => 0,
                })
                .collect()
        };
        Ok(Self { a_strides: strides(&a), b_strides: strides(&b), dims })
    }

    /// The number of matrices in the output.
    pub(crate) fn len(&self) -> usize {
        self.dims.n_elements()
    }

    /// The matrices of both inputs for matrix number `index` of the output.
    pub(crate) fn pair(&self, index: usize) -> (usize, usize) {
        let (mut rest, mut a, mut b) = (index, 0, 0);
        for (i, dim) in self.dims.iter().enumerate().rev() {
            let at = rest % dim;
            rest /= dim;
            a += at * self.a_strides[i];
            b += at * self.b_strides[i];
        }
        (a, b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matrices_are_broadcast() {
        let stack = Stack::new(&[2, 1], &[3]).unwrap();
        assert_eq!(stack.dims, Shape::of(&[2, 3]));
        let pairs: Vec<_> = (0..stack.len()).map(|i| stack.pair(i)).collect();
        assert_eq!(pairs, [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]);
        assert!(Stack::new(&[2], &[3]).is_err());
    }
}
