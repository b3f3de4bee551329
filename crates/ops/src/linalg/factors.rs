//! `Qr` and `Svd` of stacks of matrices.
//!
//! Follows `qr_op_impl.h` and `svd_op_impl.h`. The signs of singular vectors are not determined;
//! they need not be TensorFlow's.

use super::orthogonal::{Grid, qr, svd};
use super::square::{Field, Number, for_number_field};
use crate::prelude::*;

pub(super) const QR: OpDef =
    OpDef::pure("Qr", |attrs| Ok(Box::new(Qr { full: attrs.bool_or("full_matrices", false)? })));
pub(super) const SVD: OpDef = OpDef::pure("Svd", |attrs| {
    let vectors = attrs.bool_or("compute_uv", true)?;
    Ok(Box::new(Svd { vectors, full: attrs.bool_or("full_matrices", false)? }))
});

struct Qr {
    full: bool,
}

struct Svd {
    vectors: bool,
    full: bool,
}

impl Op for Qr {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [input] = arity(inputs)?;
        input.require_rank_at_least(2)?;
        let Some([stack @ .., rows, columns]) = input.dims() else {
            return Ok(vec![Spec::unknown(input.dtype), Spec::unknown(input.dtype)]);
        };
        let inner = if self.full { rows.clone() } else { least(rows, columns) };
        let spec = |a: &Dim, b: &Dim| {
            Spec::new(input.dtype, stack.iter().chain([a, b]).cloned().collect::<Vec<_>>())
        };
        Ok(vec![spec(rows, &inner), spec(&inner, columns)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let input = ctx.input(0);
        let (stack, rows, columns) = split(input.shape())?;
        let inner = if self.full { rows } else { rows.min(columns) };
        let shapes = (with(stack, &[rows, inner])?, with(stack, &[inner, columns])?);
        let dtype = input.dtype();
        let (mut q, mut r) = ctx.two_outputs((dtype, &shapes.0), (dtype, &shapes.1))?;
        for_number_field!(dtype, T => {
            let (q, r) = (q.as_mut_slice::<T>(), r.as_mut_slice::<T>());
            for (i, matrix) in matrices(input.as_slice::<T>(), stack, (rows, columns)).enumerate() {
                let factors = qr(matrix, self.full);
                narrow(&factors.0.data, &mut q[i * rows * inner..]);
                narrow(&factors.1.data, &mut r[i * inner * columns..]);
            }
        });
        Ok(())
    }
}

impl Op for Svd {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [input] = arity(inputs)?;
        input.require_rank_at_least(2)?;
        let Some([stack @ .., rows, columns]) = input.dims() else {
            return Ok(vec![Spec::unknown(input.dtype); 3]);
        };
        let inner = least(rows, columns);
        let spec = |dims: &[&Dim]| {
            let dims = stack.iter().chain(dims.iter().copied()).cloned();
            Spec::new(input.dtype, dims.collect::<Vec<_>>())
        };
        if !self.vectors {
            let none = || Spec::scalar(input.dtype);
            return Ok(vec![spec(&[&inner]), none(), none()]);
        }
        let (left, right) = if self.full { (rows, columns) } else { (&inner, &inner) };
        Ok(vec![spec(&[&inner]), spec(&[rows, left]), spec(&[columns, right])])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let input = ctx.input(0);
        let (stack, rows, columns) = split(input.shape())?;
        let inner = rows.min(columns);
        for_number_field!(input.dtype(), T => {
            let all: Vec<_> = matrices(input.as_slice::<T>(), stack, (rows, columns))
                .map(|matrix| svd(matrix, self.full))
                .collect();
            let mut out = ctx.output(0, input.dtype(), &with(stack, &[inner])?)?;
            let values = all.iter().flat_map(|(values, _, _)| values);
            let values: Vec<_> = values.map(|x| <T as Number>::Field::real(*x)).collect();
            narrow(&values, out.as_mut_slice::<T>());
            let (left, right) = if self.full { (rows, columns) } else { (inner, inner) };
            let shapes = match self.vectors {
                true => [with(stack, &[rows, left])?, with(stack, &[columns, right])?],
                false => [Shape::scalar(), Shape::scalar()],
            };
            for (side, shape) in shapes.iter().enumerate() {
                let mut out = ctx.output(1 + side, input.dtype(), shape)?;
                out.bytes().fill(0);
                let grids = all.iter().map(|(_, u, v)| if side == 0 { u } else { v });
                let data = grids.filter(|_| self.vectors).flat_map(|grid| &grid.data);
                narrow(&data.copied().collect::<Vec<_>>(), out.as_mut_slice::<T>());
            }
        });
        Ok(())
    }
}

/// The leading dimensions of a stack, and the size of its matrices.
fn split(shape: &Shape) -> Result<(&[usize], usize, usize)> {
    match shape.dims() {
        [stack @ .., rows, columns] => Ok((stack, *rows, *columns)),
        _ => invalid!("expected rank at least 2 but got {shape}"),
    }
}

fn with(stack: &[usize], last: &[usize]) -> Result<Shape> {
    Ok(Shape::checked(stack.iter().chain(last).map(|dim| *dim as i64))?)
}

/// The smaller of two sizes.
fn least(a: &Dim, b: &Dim) -> Dim {
    match (a.size(), b.size()) {
        (Some(a), Some(b)) => Dim::of(a.min(b)),
        _ => Dim::Unknown,
    }
}

/// The matrices of a stack.
fn matrices<T: Number>(
    data: &[T],
    stack: &[usize],
    (rows, columns): (usize, usize),
) -> impl Iterator<Item = Grid<T::Field>> {
    (0..stack.iter().product()).map(move |i| {
        let matrix = &data[i * rows * columns..][..rows * columns];
        Grid { rows, columns, data: matrix.iter().map(|x| x.widen()).collect() }
    })
}

fn narrow<T: Number>(wide: &[T::Field], out: &mut [T]) {
    out.iter_mut().zip(wide).for_each(|(out, x)| *out = T::narrow(*x));
}
