//! `Qr` and `Svd` of stacks of matrices.
//!
//! Follows `qr_op_impl.h` and `svd_op_impl.h`. The signs of singular vectors are not determined;
//! they need not be TensorFlow's.

use super::orthogonal::{Grid, Svd as Values, qr};
use super::square::{Field, Number, field_bytes, for_number_field};
use crate::prelude::*;

pub(super) const QR: OpDef = OpDef::pure("Qr", RowRule::Mixed, |attrs| {
    Ok(Box::new(Qr { full: attrs.bool_or("full_matrices", false)? }))
});
pub(super) const SVD: OpDef = OpDef::pure("Svd", RowRule::Mixed, |attrs| {
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
        let mut scratch = ctx.scratch();
        let (mut q, mut r) = ctx.two_outputs([(dtype, &shapes.0), (dtype, &shapes.1)])?;
        for_number_field!(dtype, T => {
            type F = <T as Number>::Field;
            let mut room = scratch.part::<F>(rows + rows.min(columns))?;
            let (mut matrix, mut vectors) =
                (scratch.part::<F>(rows * columns)?, scratch.part::<F>(rows * inner)?);
            let (q, r) = (q.as_mut_slice::<T>(), r.as_mut_slice::<T>());
            let from = input.as_slice::<T>();
            for i in 0..stack.iter().product() {
                widen(&from[i * rows * columns..], &mut matrix);
                let mut matrix = Grid { rows, columns, data: &mut matrix };
                let mut vectors = Grid { rows, columns: inner, data: &mut vectors };
                qr(&mut matrix, &mut vectors, &mut room)?;
                narrow(vectors.data, &mut q[i * rows * inner..]);
                narrow(&matrix.data[..inner * columns], &mut r[i * inner * columns..]);
            }
        });
        Ok(())
    }

    fn scratch_bytes(&self, inputs: &[Spec], _: &[Spec]) -> usize {
        let shape = inputs[0].shape().unwrap_or_default();
        let [.., rows, columns] = shape.dims() else { return 0 };
        let inner = if self.full { *rows } else { *rows.min(columns) };
        let bytes = |n| field_bytes(inputs[0].dtype, n);
        bytes(rows + rows.min(columns)) + bytes(rows * columns) + bytes(rows * inner)
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
        let (left, right) = if self.full { (rows, columns) } else { (inner, inner) };
        let shapes = match self.vectors {
            true => [with(stack, &[rows, left])?, with(stack, &[columns, right])?],
            false => [Shape::scalar(), Shape::scalar()],
        };
        let dtype = input.dtype();
        let scratch = ctx.scratch();
        ctx.output(0, dtype, &with(stack, &[inner])?)?;
        for (side, shape) in shapes.iter().enumerate() {
            ctx.output(1 + side, dtype, shape)?.bytes().fill(0);
        }
        for_number_field!(dtype, T => {
            let sizes = MatrixStack { n_matrices: stack.iter().product(), rows, columns };
            self.compute(ctx, input.as_slice::<T>(), sizes, scratch)
        })
    }

    fn scratch_bytes(&self, inputs: &[Spec], _: &[Spec]) -> usize {
        let shape = inputs[0].shape().unwrap_or_default();
        let [.., rows, columns] = shape.dims() else { return 0 };
        let (long, short) = (*rows.max(columns), *rows.min(columns));
        let bytes = |n| field_bytes(inputs[0].dtype, n);
        let wide = if self.full { long } else { short };
        bytes(long * short)
            + bytes(short * short)
            + bytes(if self.vectors { long * wide } else { 0 })
            + Scratch::bytes_of::<f64>(short)
            + Scratch::bytes_of::<usize>(short)
    }
}

/// The sizes of a stack of matrices.
#[derive(Clone, Copy)]
struct MatrixStack {
    n_matrices: usize,
    rows: usize,
    columns: usize,
}

impl Svd {
    /// Decomposes the matrices and writes to the outputs, which are there.
    fn compute<T: Number>(
        &self,
        ctx: &mut Ctx<'_>,
        from: &[T],
        sizes: MatrixStack,
        mut scratch: Scratch<'_>,
    ) -> Result<()> {
        let MatrixStack { n_matrices, rows, columns } = sizes;
        // A wide matrix is decomposed lying on its side.
        let is_wide = rows < columns;
        let (long, short) = (rows.max(columns), rows.min(columns));
        let n_left = if self.full { long } else { short };
        let mut turned = scratch.part::<T::Field>(long * short)?;
        let mut right = scratch.part::<T::Field>(short * short)?;
        let mut left = scratch.part::<T::Field>(if self.vectors { long * n_left } else { 0 })?;
        let (mut norms, mut order) = (scratch.part::<f64>(short)?, scratch.part::<usize>(short)?);
        for i in 0..n_matrices {
            pace(2 * rows * columns)?;
            let matrix = &from[i * rows * columns..][..rows * columns];
            for (at, to) in turned.iter_mut().enumerate() {
                let (row, column) = (at / short, at % short);
                *to = match is_wide {
                    true => matrix[column * columns + row].widen().conjugate(),
                    false => matrix[at].widen(),
                };
            }
            let mut all = Values {
                turned: Grid { rows: long, columns: short, data: &mut turned },
                right: Grid { rows: short, columns: short, data: &mut right },
                left: Grid { rows: long, columns: n_left, data: &mut left },
                norms: &mut norms,
                order: &mut order,
            };
            all.turn()?;
            let mut out = ctx.output_again(0)?;
            let values = &mut out.as_mut_slice::<T>()[i * short..][..short];
            for (value, column) in values.iter_mut().zip(all.order.iter()) {
                *value = T::narrow(<T::Field as Field>::real(all.norms[*column]));
            }
            if !self.vectors {
                continue;
            }
            all.complete()?;
            let (outer, inner) = if is_wide { (2, 1) } else { (1, 2) };
            let size = long * n_left;
            let mut out = ctx.output_again(outer)?;
            narrow(all.left.data, &mut out.as_mut_slice::<T>()[i * size..]);
            let mut out = ctx.output_again(inner)?;
            let out = &mut out.as_mut_slice::<T>()[i * short * short..][..short * short];
            for (at, to) in out.iter_mut().enumerate() {
                *to = T::narrow(all.right.at(at / short, all.order[at % short]));
            }
        }
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

fn widen<T: Number>(from: &[T], wide: &mut [T::Field]) {
    wide.iter_mut().zip(from).for_each(|(wide, x)| *wide = x.widen());
}

fn narrow<T: Number>(wide: &[T::Field], out: &mut [T]) {
    out.iter_mut().zip(wide).for_each(|(out, x)| *out = T::narrow(*x));
}
