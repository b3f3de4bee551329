//! `MatrixInverse`, `MatrixDeterminant`, `MatrixSolve`, `MatrixTriangularSolve` and `Cholesky`, on
//! stacks of matrices.
//!
//! Follows `matrix_inverse_op.cc`, `determinant_op.cc`, `matrix_solve_op.cc`,
//! `matrix_triangular_solve_op_impl.h` and `cholesky_op.cc`.

use super::batch::Stack;
use super::decompose::{Lu, Triangle, cholesky, solve_triangle};
use super::square::{Field, Number, for_number_field, require_square, square_size};
use crate::prelude::*;

pub(super) const INVERSE: OpDef = OpDef::pure("MatrixInverse", |attrs| {
    Ok(Box::new(Unary { task: Task::Inverse { adjoint: attrs.bool_or("adjoint", false)? } }))
});
pub(super) const DETERMINANT: OpDef =
    OpDef::pure("MatrixDeterminant", |_| Ok(Box::new(Unary { task: Task::Determinant })));
pub(super) const CHOLESKY: OpDef =
    OpDef::pure("Cholesky", |_| Ok(Box::new(Unary { task: Task::Cholesky })));
pub(super) const SOLVE: OpDef = OpDef::pure("MatrixSolve", |attrs| {
    Ok(Box::new(Solve { triangle: None, adjoint: attrs.bool_or("adjoint", false)? }))
});
pub(super) const TRIANGULAR_SOLVE: OpDef = OpDef::pure("MatrixTriangularSolve", |attrs| {
    let adjoint = attrs.bool_or("adjoint", false)?;
    let triangle = Triangle { lower: attrs.bool_or("lower", true)?, adjoint };
    Ok(Box::new(Solve { triangle: Some(triangle), adjoint }))
});

struct Unary {
    task: Task,
}

#[derive(Debug, Clone, Copy)]
enum Task {
    Inverse { adjoint: bool },
    Determinant,
    Cholesky,
}

impl Op for Unary {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [matrices] = arity(inputs)?;
        require_square(matrices)?;
        let dims = matrices.dims().map(|dims| match self.task {
            Task::Determinant => &dims[..dims.len() - 2],
            Task::Inverse { .. } | Task::Cholesky => dims,
        });
        Ok(vec![match dims {
            Some(dims) => Spec::new(matrices.dtype, dims.iter().cloned()),
            None => Spec::unknown(matrices.dtype),
        }])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let matrices = ctx.input(0);
        let shape = matrices.shape();
        let n = square_size(shape)?;
        let out_shape = match self.task {
            Task::Determinant => Shape::of(&shape[..shape.rank() - 2]),
            Task::Inverse { .. } | Task::Cholesky => shape.clone(),
        };
        let mut out = ctx.output(0, matrices.dtype(), &out_shape)?;
        for_number_field!(matrices.dtype(), T => {
            self.compute::<T>(matrices.as_slice(), n, out.as_mut_slice())
        })
    }
}

impl Unary {
    fn compute<T: Number>(&self, matrices: &[T], n: usize, out: &mut [T]) -> Result<()> {
        let step = match self.task {
            Task::Determinant => 1,
            Task::Inverse { .. } | Task::Cholesky => (n * n).max(1),
        };
        for (i, out) in out.chunks_exact_mut(step).enumerate() {
            let matrix: Vec<_> = matrices[i * n * n..][..n * n].iter().map(|x| x.widen()).collect();
            let result = match self.task {
                Task::Determinant => vec![Lu::determinant(&matrix, n)],
                Task::Inverse { adjoint } => {
                    let matrix = if adjoint { turned(&matrix, n) } else { matrix };
                    let Some(lu) = Lu::new(&matrix, n) else {
                        return invalid!("Input is not invertible.");
                    };
                    lu.solve(&identity(n), n)
                }
                Task::Cholesky => cholesky(&matrix, n).unwrap_or_else(|| undefined_triangle(n)),
            };
            out.iter_mut().zip(result).for_each(|(out, x)| *out = T::narrow(x));
        }
        Ok(())
    }
}

fn identity<F: Field>(n: usize) -> Vec<F> {
    (0..n * n).map(|i| if i / n == i % n { F::one() } else { F::zero() }).collect()
}

/// The lower triangle of a matrix that has none.
fn undefined_triangle<F: Field>(n: usize) -> Vec<F> {
    (0..n * n).map(|i| if i % n <= i / n { F::undefined() } else { F::zero() }).collect()
}

/// The adjoint of a square matrix.
fn turned<F: Field>(matrix: &[F], n: usize) -> Vec<F> {
    (0..n * n).map(|i| matrix[i % n * n + i / n].conjugate()).collect()
}

struct Solve {
    /// The triangle of the matrix that counts; all of it if there is none.
    triangle: Option<Triangle>,
    adjoint: bool,
}

impl Op for Solve {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [matrices, right] = arity(inputs)?;
        require_square(matrices)?;
        right.require_rank_at_least(2)?;
        let (Some(a), Some(b)) = (matrices.dims(), right.dims()) else {
            return Ok(vec![Spec::unknown(right.dtype)]);
        };
        let ((a_lead, a_matrix), (b_lead, b_matrix)) =
            (a.split_at(a.len() - 2), b.split_at(b.len() - 2));
        if a_matrix[0].differs(&b_matrix[0]) {
            return invalid!("{matrices} and {right} have different numbers of rows");
        }
        let lead = |dims: &[Dim]| Spec::new(right.dtype, dims.iter().cloned());
        let mut dims = match self.triangle {
            Some(_) => broadcast(&lead(a_lead), &lead(b_lead))?.unwrap_or_default(),
            None if a_lead.len() == b_lead.len() => b_lead.iter().cloned().collect(),
            None => return invalid!("{matrices} and {right} have different ranks"),
        };
        dims.extend(b_matrix.iter().cloned());
        Ok(vec![Spec::new(right.dtype, dims)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (matrices, right) = (ctx.input(0), ctx.input(1));
        let n = square_size(matrices.shape())?;
        let [b_lead @ .., rows, columns] = right.shape().dims() else {
            return invalid!("the right side must be matrices: {}", right.shape());
        };
        let a_lead = &matrices.shape()[..matrices.shape().rank() - 2];
        if *rows != n || self.triangle.is_none() && a_lead != b_lead {
            return invalid!("{} and {} do not fit", matrices.shape(), right.shape());
        }
        let stack = Stack::new(a_lead, b_lead)?;
        let dims = stack.dims.iter().copied().chain([n, *columns]);
        let shape = Shape::checked(dims.map(|dim| dim as i64))?;
        let mut out = ctx.output(0, right.dtype(), &shape)?;
        for_number_field!(right.dtype(), T => {
            let sides = (matrices.as_slice::<T>(), right.as_slice::<T>());
            self.compute(&stack, sides, (n, *columns), out.as_mut_slice())
        })
    }
}

impl Solve {
    fn compute<T: Number>(
        &self,
        stack: &Stack,
        (matrices, right): (&[T], &[T]),
        (n, columns): (usize, usize),
        out: &mut [T],
    ) -> Result<()> {
        let size = n * columns;
        for (i, out) in out.chunks_exact_mut(size.max(1)).enumerate() {
            let (a, b) = stack.pair(i);
            let widen = |x: &[T]| -> Vec<T::Field> { x.iter().map(|x| x.widen()).collect() };
            let matrix = widen(&matrices[a * n * n..][..n * n]);
            let right = widen(&right[b * size..][..size]);
            let solved = match self.triangle {
                Some(triangle) => Some(solve_triangle(triangle, &matrix, n, (&right, columns))),
                None => {
                    let matrix = if self.adjoint { turned(&matrix, n) } else { matrix };
                    Lu::new(&matrix, n).map(|lu| lu.solve(&right, columns))
                }
            };
            let Some(solved) = solved else { return invalid!("Input matrix is not invertible.") };
            out.iter_mut().zip(solved).for_each(|(out, x)| *out = T::narrow(x));
        }
        Ok(())
    }
}
