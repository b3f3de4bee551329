//! `SparseTensorDenseMatMul`: a sparse matrix times a dense one.
//!
//! Follows `sparse_tensor_dense_matmul_op.cc` of TensorFlow.

use super::coo::checked_shape;
use super::number::{Number, for_any_number};
use crate::prelude::*;

pub(super) const DEF: OpDef = OpDef::pure("SparseTensorDenseMatMul", |attrs| {
    Ok(Box::new(MatMul {
        adjoint_a: attrs.bool_or("adjoint_a", false)?,
        adjoint_b: attrs.bool_or("adjoint_b", false)?,
    }))
});

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
        let Some(flat) = indices.to_i64() else {
            return invalid!("a_indices must be int32 or int64, not {}", indices.dtype());
        };
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
        let mut output = ctx.output(0, values.dtype(), &shape)?;
        let entries = self.entries(&flat, (m, k))?;
        for_any_number!(values.dtype(), T => {
            let b = self.rows_of_b::<T>(b);
            let a: &[T] = values.as_slice();
            let out: &mut [T] = output.as_mut_slice();
            out.fill(T::zero());
            for ((row, inner), a) in entries.iter().zip(a) {
                let a = if self.adjoint_a { a.conjugate() } else { *a };
                let b = &b[inner * n..(inner + 1) * n];
                let out = &mut out[row * n..(row + 1) * n];
                out.iter_mut().zip(b).for_each(|(out, b)| *out = out.plus(a.times(*b)));
            }
        });
        Ok(())
    }
}

impl MatMul {
    /// The row of the output and the row of `b` of each entry.
    fn entries(&self, flat: &[i64], (m, k): (i64, i64)) -> Result<Vec<(usize, usize)>> {
        let mut entries = Vec::with_capacity(flat.len() / 2);
        for (i, pair) in flat.chunks_exact(2).enumerate() {
            let (row, inner) = if self.adjoint_a { (pair[1], pair[0]) } else { (pair[0], pair[1]) };
            if !(0..k).contains(&inner) {
                return invalid!("k ({inner}) from index[{i}] out of bounds (>={k})");
            }
            if !(0..m).contains(&row) {
                return invalid!("m ({row}) from index[{i}] out of bounds (>={m})");
            }
            entries.push((row as usize, inner as usize));
        }
        Ok(entries)
    }

    /// The rows of `b`, turned round if it is adjoint.
    fn rows_of_b<'b, T: Number>(&self, b: View<'b>) -> std::borrow::Cow<'b, [T]> {
        let elements: &'b [T] = b.as_slice();
        if !self.adjoint_b {
            return elements.into();
        }
        let (n, k) = (b.shape()[0], b.shape()[1]);
        (0..k).flat_map(|i| (0..n).map(move |j| elements[j * k + i].conjugate())).collect()
    }
}
