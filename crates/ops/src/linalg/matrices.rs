//! `MatrixInverse`, `MatrixDeterminant`, `MatrixSolve`, `MatrixTriangularSolve` and `Cholesky`, on
//! stacks of matrices.
//!
//! Follows `matrix_inverse_op.cc`, `determinant_op.cc`, `matrix_solve_op.cc`,
//! `matrix_triangular_solve_op_impl.h` and `cholesky_op.cc`.

use super::batch::Stack;
use super::decompose::{Lu, Triangle, cholesky, solve_triangle};
use super::square::{Field, Number, field_bytes, for_number_field, require_square, square_size};
use crate::prelude::*;

pub(super) const INVERSE: OpDef = OpDef::pure("MatrixInverse", RowRule::Mixed, |attrs| {
    Ok(Box::new(Unary {
        task: MatricesTask::Inverse { adjoint: attrs.bool_or("adjoint", false)? },
    }))
});
pub(super) const DETERMINANT: OpDef = OpDef::pure("MatrixDeterminant", RowRule::Mixed, |_| {
    Ok(Box::new(Unary { task: MatricesTask::Determinant }))
});
pub(super) const CHOLESKY: OpDef = OpDef::pure("Cholesky", RowRule::Mixed, |_| {
    Ok(Box::new(Unary { task: MatricesTask::Cholesky }))
});
pub(super) const SOLVE: OpDef = OpDef::pure("MatrixSolve", RowRule::Mixed, |attrs| {
    Ok(Box::new(Solve { triangle: None, adjoint: attrs.bool_or("adjoint", false)? }))
});
pub(super) const TRIANGULAR_SOLVE: OpDef =
    OpDef::pure("MatrixTriangularSolve", RowRule::Mixed, |attrs| {
        let adjoint = attrs.bool_or("adjoint", false)?;
        let triangle = Triangle { lower: attrs.bool_or("lower", true)?, adjoint };
        Ok(Box::new(Solve { triangle: Some(triangle), adjoint }))
    });

struct Unary {
    task: MatricesTask,
}

#[derive(Debug, Clone, Copy)]
enum MatricesTask {
    Inverse { adjoint: bool },
    Determinant,
    Cholesky,
}

impl Op for Unary {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [matrices] = arity(inputs)?;
        require_square(matrices)?;
        let dims = matrices.dims().map(|dims| match self.task {
            MatricesTask::Determinant => &dims[..dims.len() - 2],
            MatricesTask::Inverse { .. } | MatricesTask::Cholesky => dims,
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
            MatricesTask::Determinant => Shape::of(&shape[..shape.rank() - 2]),
            MatricesTask::Inverse { .. } | MatricesTask::Cholesky => shape.clone(),
        };
        let scratch = ctx.scratch();
        let mut out = ctx.output(0, matrices.dtype(), &out_shape)?;
        for_number_field!(matrices.dtype(), T => {
            let room = MatricesRoom::new(scratch, n, n)?;
            self.compute::<T>(matrices.as_slice(), room, out.as_mut_slice())
        })
    }

    fn scratch_bytes(&self, inputs: &[Spec], _: &[Spec]) -> usize {
        let n = inputs[0].shape().map_or(0, |shape| shape.last_dim());
        room_bytes(inputs[0].dtype, n, n)
    }
}

/// Room for a matrix, the numbers of its rows, and a result.
struct MatricesRoom<'a, F> {
    matrix: Part<'a, F>,
    rows: Part<'a, usize>,
    result: Part<'a, F>,
}

impl<'a, F: Field> MatricesRoom<'a, F> {
    /// Room for matrices of `n` rows and results of so many columns.
    fn new(mut scratch: Scratch<'a>, n: usize, columns: usize) -> Result<Self> {
        let (matrix, rows) = (scratch.part(n * n)?, scratch.part(n)?);
        Ok(Self { matrix, rows, result: scratch.part(n * columns)? })
    }

    /// Takes a matrix over, or its adjoint.
    fn load<T: Number<Field = F>>(&mut self, matrix: &[T], adjoint: bool) {
        let n = self.rows.len();
        for (i, to) in self.matrix.iter_mut().enumerate() {
            *to = match adjoint {
                true => matrix[i % n * n + i / n].widen().conjugate(),
                false => matrix[i].widen(),
            };
        }
    }
}

fn room_bytes(dtype: DType, n: usize, columns: usize) -> usize {
    let numbers = |n: usize| field_bytes(dtype, n);
    numbers(n * n) + Scratch::bytes_of::<usize>(n) + numbers(n * columns)
}

impl Unary {
    fn compute<T: Number>(
        &self,
        matrices: &[T],
        mut room: MatricesRoom<'_, T::Field>,
        out: &mut [T],
    ) -> Result<()> {
        let n = room.rows.len();
        let step = match self.task {
            MatricesTask::Determinant => 1,
            MatricesTask::Inverse { .. } | MatricesTask::Cholesky => (n * n).max(1),
        };
        for (i, out) in out.chunks_exact_mut(step).enumerate() {
            pace(2 * n * n)?;
            let adjoint = matches!(self.task, MatricesTask::Inverse { adjoint: true });
            room.load(&matrices[i * n * n..][..n * n], adjoint);
            let MatricesRoom { matrix, rows, result } = &mut room;
            match self.task {
                MatricesTask::Determinant => {
                    out[0] = T::narrow(Lu::new(matrix, rows)?.determinant());
                    continue;
                }
                MatricesTask::Inverse { .. } => {
                    let lu = Lu::new(matrix, rows)?;
                    if !lu.is_regular() {
                        return invalid!("Input is not invertible.");
                    }
                    let (one, zero) = (Field::real(1.), Field::real(0.));
                    lu.solve(|row, column| if row == column { one } else { zero }, result)?;
                }
                MatricesTask::Cholesky => {
                    if !cholesky(matrix, n, result)? {
                        undefined_triangle(n, result);
                    }
                }
            }
            out.iter_mut().zip(result.iter()).for_each(|(out, x)| *out = T::narrow(*x));
        }
        Ok(())
    }
}

/// Writes the lower triangle of a matrix that has none.
fn undefined_triangle<F: Field>(n: usize, triangle: &mut [F]) {
    for (i, x) in triangle.iter_mut().enumerate() {
        *x = if i % n <= i / n { F::undefined() } else { F::zero() };
    }
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
        let scratch = ctx.scratch();
        let mut out = ctx.output(0, right.dtype(), &shape)?;
        for_number_field!(right.dtype(), T => {
            let sides = (matrices.as_slice::<T>(), right.as_slice::<T>());
            let room = MatricesRoom::new(scratch, n, *columns)?;
            self.compute(&stack, sides, room, out.as_mut_slice())
        })
    }

    fn scratch_bytes(&self, inputs: &[Spec], _: &[Spec]) -> usize {
        let shape = inputs[1].shape().unwrap_or_default();
        let [.., n, columns] = shape.dims() else { return 0 };
        room_bytes(inputs[1].dtype, *n, *columns)
    }
}

impl Solve {
    fn compute<T: Number>(
        &self,
        stack: &Stack,
        (matrices, right): (&[T], &[T]),
        mut room: MatricesRoom<'_, T::Field>,
        out: &mut [T],
    ) -> Result<()> {
        let (n, size) = (room.rows.len(), room.result.len());
        let columns = size.checked_div(n).unwrap_or(0);
        for (i, out) in out.chunks_exact_mut(size.max(1)).enumerate() {
            pace(2 * n * n)?;
            let (a, b) = stack.pair(i);
            let right = &right[b * size..][..size];
            // What counts of a triangle is read as it is meant.
            let adjoint = self.adjoint && self.triangle.is_none();
            room.load(&matrices[a * n * n..][..n * n], adjoint);
            let MatricesRoom { matrix, rows, result } = &mut room;
            if let Some(triangle) = self.triangle {
                result.iter_mut().zip(right).for_each(|(to, x)| *to = x.widen());
                solve_triangle(triangle, matrix, n, result)?;
            } else {
                let lu = Lu::new(matrix, rows)?;
                if !lu.is_regular() {
                    return invalid!("Input matrix is not invertible.");
                }
                lu.solve(|row, column| right[row * columns + column].widen(), result)?;
            }
            out.iter_mut().zip(result.iter()).for_each(|(out, x)| *out = T::narrow(*x));
        }
        Ok(())
    }
}
