//! `SparseTensorDenseMatMul`: a sparse matrix times a dense one.
//!
//! Follows `sparse_tensor_dense_matmul_op.cc` of TensorFlow.

use super::coo::checked_shape;
use super::number::{Number, for_any_number};
use crate::facts::Cost;
use crate::prelude::*;

pub(super) const DEF: OpDef = OpDef::pure("SparseTensorDenseMatMul", RowRule::Mixed, |attrs| {
    Ok(Box::new(MatMul {
        adjoint_a: attrs.bool_or("adjoint_a", false)?,
        adjoint_b: attrs.bool_or("adjoint_b", false)?,
    }))
})
.costs(Cost::Product);

struct MatMul {
    adjoint_a: bool,
    adjoint_b: bool,
}

impl Op for MatMul {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [indices, values, shape, b] = arity(inputs)?;
        indices.require_rank(2)?;
        values.require_rank(1)?;
        shape.require_dtype(DType::I64)?;
        shape.require_rank(1)?;
        b.require_rank(2)?;
        b.require_dtype(values.dtype)?;
        let row_axis = usize::from(self.adjoint_a);
        let rows = shape.sizes().filter(|sizes| sizes.len() == 2);
        let rows = rows.map_or(Dim::Unknown, |sizes| sizes[row_axis].clone());
        let column_axis = usize::from(!self.adjoint_b);
        let columns = b.dims().map_or(Dim::Unknown, |dims| dims[column_axis].clone());
        Ok(vec![Spec::new(values.dtype, [rows, columns])])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (indices, values, b) = (ctx.input(0), ctx.input(1), ctx.input(3));
        if !matches!(indices.dtype(), DType::I32 | DType::I64) {
            return invalid!("a_indices must be int32 or int64, not {}", indices.dtype());
        }
        let dims: &[i64] = ctx.input(2).as_slice();
        let &[n_rows, n_inner] = dims else {
            return invalid!("Tensor 'a_shape' must have 2 elements");
        };
        let n_entries = values.n_elements();
        if indices.shape().dims() != [n_entries, 2] || b.shape().rank() != 2 {
            return invalid!(
                "a_indices, a_values and b do not fit together: {}, {} and {}",
                indices.shape(),
                values.shape(),
                b.shape()
            );
        }
        let (m, k) = if self.adjoint_a { (n_inner, n_rows) } else { (n_rows, n_inner) };
        let (first, second) = (b.shape()[0], b.shape()[1]);
        let (b_k, n) = if self.adjoint_b { (second, first) } else { (first, second) };
        if k != b_k as i64 {
            return invalid!(
                "Cannot multiply A and B because inner dimension does not match: {k} vs. {b_k}.  \
                 Did you forget a transpose?"
            );
        }
        let shape = checked_shape(values.dtype(), [m, n as i64])?;
        let mut scratch = ctx.scratch();
        let mut output = ctx.output(0, values.dtype(), &shape)?;
        for_any_number!(values.dtype(), T => {
            let mut turned = scratch.part::<T>(if self.adjoint_b { b.n_elements() } else { 0 })?;
            let b = self.rows_of_b::<T>(b, &mut turned);
            let a: &[T] = values.as_slice();
            let out: &mut [T] = output.as_mut_slice();
            out.fill(T::zero());
            for (i, a) in a.iter().enumerate() {
                pace(8 + n)?;
                let (row, inner) = self.entry(&indices, i, (m, k))?;
                let a = if self.adjoint_a { a.conjugate() } else { *a };
                let b = &b[inner * n..(inner + 1) * n];
                let out = &mut out[row * n..(row + 1) * n];
                out.iter_mut().zip(b).for_each(|(out, b)| *out = out.plus(a.times(*b)));
            }
        });
        Ok(())
    }

    fn scratch_bytes(&self, inputs: &[Spec], _: &[Spec]) -> usize {
        let b = &inputs[3];
        let n = b.shape().filter(|_| self.adjoint_b).map_or(0, |shape| shape.n_elements());
        Scratch::bytes_of::<u8>(n * b.dtype.size())
    }
}

impl MatMul {
    /// The row of the output and the row of `b` of entry number `i`.
    fn entry(&self, indices: &View<'_>, i: usize, (m, k): (i64, i64)) -> Result<(usize, usize)> {
        let (first, second) = (int_at(indices, 2 * i)?, int_at(indices, 2 * i + 1)?);
        let (row, inner) = if self.adjoint_a { (second, first) } else { (first, second) };
        if !(0..k).contains(&inner) {
            return invalid!("k ({inner}) from index[{i}] out of bounds (>={k})");
        }
        if !(0..m).contains(&row) {
            return invalid!("m ({row}) from index[{i}] out of bounds (>={m})");
        }
        Ok((row as usize, inner as usize))
    }

    /// The rows of `b`, turned round into `turned` if it is adjoint.
    fn rows_of_b<'b, T: Number>(&self, b: View<'b>, turned: &'b mut [T]) -> &'b [T] {
        let elements: &'b [T] = b.as_slice();
        if !self.adjoint_b {
            return elements;
        }
        let (n, k) = (b.shape()[0], b.shape()[1]);
        for (i, to) in turned.iter_mut().enumerate() {
            *to = elements[i % n * k + i / n].conjugate();
        }
        turned
    }
}
