//! `MatMul` and the `BatchMatMul` family: products of matrices, one or a stack of them.
//!
//! Follows `matmul_op_impl.h`.

use half::{bf16, f16};
use num_complex::Complex;

use super::Scalar;
use super::batch::Stack;
use super::product::{Form, Matrix, product};
use crate::error::unimplemented;
use crate::prelude::*;

pub(super) const MAT_MUL: OpDef = OpDef::pure("MatMul", |attrs| {
    Ok(Box::new(MatMul {
        a: Form::transposed(attrs.bool_or("transpose_a", false)?),
        b: Form::transposed(attrs.bool_or("transpose_b", false)?),
        stacks: Stacks::None,
        dtype: None,
    }))
});

pub(super) const BATCH_MAT_MUL: OpDef =
    OpDef::pure("BatchMatMul", |attrs| batch_mat_mul(attrs, Stacks::Equal, None));

pub(super) const BATCH_MAT_MUL_V2: OpDef =
    OpDef::pure("BatchMatMulV2", |attrs| batch_mat_mul(attrs, Stacks::Broadcast, None));

pub(super) const BATCH_MAT_MUL_V3: OpDef = OpDef::pure("BatchMatMulV3", |attrs| {
    batch_mat_mul(attrs, Stacks::Broadcast, Some(attrs.dtype("Tout")?))
});

fn batch_mat_mul(attrs: &Attrs<'_>, stacks: Stacks, dtype: Option<DType>) -> Result<Box<dyn Op>> {
    Ok(Box::new(MatMul {
        a: Form::adjoint(attrs.bool_or("adj_x", false)?),
        b: Form::adjoint(attrs.bool_or("adj_y", false)?),
        stacks,
        dtype,
    }))
}

struct MatMul {
    a: Form,
    b: Form,
    stacks: Stacks,
    /// The dtype of the output, if it may be another than the inputs'.
    dtype: Option<DType>,
}

/// What may stand before the two dimensions of a matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stacks {
    None,
    Equal,
    Broadcast,
}

impl Op for MatMul {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [a, b] = arity(inputs)?;
        let dtype = self.dtype.unwrap_or(a.dtype);
        for input in [a, b] {
            match self.stacks {
                Stacks::None => input.require_rank(2)?,
                Stacks::Equal | Stacks::Broadcast => input.require_rank_at_least(2)?,
            }
        }
        let (Some(a_dims), Some(b_dims)) = (a.dims(), b.dims()) else {
            return Ok(vec![Spec::unknown(dtype)]);
        };
        let (a_lead, a_matrix) = split(a_dims);
        let (b_lead, b_matrix) = split(b_dims);
        let (rows, inner) = self.a.orient(a_matrix);
        let (inner_too, columns) = self.b.orient(b_matrix);
        if inner.differs(inner_too) {
            return invalid!("Matrix size-incompatible: In[0]: {a}, In[1]: {b}");
        }
        if self.stacks == Stacks::Equal && a_lead.len() != b_lead.len() {
            return invalid!("In[0] and In[1] must have the same rank: {a} and {b}");
        }
        let lead = |dims: &[Dim]| Spec::new(dtype, dims.iter().cloned());
        let Some(mut dims) = broadcast(&lead(a_lead), &lead(b_lead))? else {
            return Ok(vec![Spec::unknown(dtype)]);
        };
        dims.extend([rows.clone(), columns.clone()]);
        Ok(vec![Spec::new(dtype, dims)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (a, b) = (ctx.input(0), ctx.input(1));
        let ranks_fit = |rank: usize| rank == 2 || rank > 2 && self.stacks != Stacks::None;
        if !ranks_fit(a.shape().rank()) || !ranks_fit(b.shape().rank()) {
            return invalid!("no matrices: {} and {}", a.shape(), b.shape());
        }
        let (a_lead, a_size) = split_sizes(a.shape());
        let (b_lead, b_size) = split_sizes(b.shape());
        let (rows, inner) = self.a.orient(a_size);
        let (inner_too, columns) = self.b.orient(b_size);
        if inner != inner_too {
            let (a, b) = (a.shape(), b.shape());
            return invalid!("Matrix size-incompatible: In[0]: {a}, In[1]: {b}");
        }
        if self.stacks == Stacks::Equal && a_lead != b_lead {
            return invalid!("In[0] and In[1] differ before the matrix: {a_lead:?} and {b_lead:?}");
        }
        let stack = Stack::new(a_lead, b_lead)?;
        let dims = stack.dims.iter().copied().chain([rows, columns]);
        let shape = Shape::checked(dims.map(|dim| dim as i64))?;
        let call = Call { a, b, a_size, b_size, forms: (self.a, self.b), stack };
        let mut out = ctx.output(0, self.dtype.unwrap_or(a.dtype()), &shape)?;
        call.run(&mut out)
    }
}

/// The leading dimensions and those of the matrix, of at least two.
fn split(dims: &[Dim]) -> (&[Dim], (&Dim, &Dim)) {
    let (lead, matrix) = dims.split_at(dims.len() - 2);
    (lead, (&matrix[0], &matrix[1]))
}

fn split_sizes(shape: &Shape) -> (&[usize], (usize, usize)) {
    let (lead, matrix) = shape.dims().split_at(shape.rank() - 2);
    (lead, (matrix[0], matrix[1]))
}

/// Checked inputs of one call.
struct Call<'a> {
    a: View<'a>,
    b: View<'a>,
    a_size: (usize, usize),
    b_size: (usize, usize),
    forms: (Form, Form),
    stack: Stack,
}

impl Call<'_> {
    fn run(&self, out: &mut ViewMut<'_>) -> Result<()> {
        let (a, b) = (self.a, self.b);
        if a.dtype() != out.dtype() || b.dtype() != out.dtype() {
            return self.widened(out);
        }
        match out.dtype() {
            DType::F32 => self.multiply::<f32>(a.as_slice(), b.as_slice(), out.as_mut_slice()),
            DType::F64 => self.multiply::<f64>(a.as_slice(), b.as_slice(), out.as_mut_slice()),
            DType::Complex64 => {
                self.multiply::<Complex<f32>>(a.as_slice(), b.as_slice(), out.as_mut_slice());
            }
            DType::Complex128 => {
                self.multiply::<Complex<f64>>(a.as_slice(), b.as_slice(), out.as_mut_slice());
            }
            DType::F16 => {
                let mut wide = vec![0.; out.shape().n_elements()];
                self.multiply(&widen::<f16>(a), &widen::<f16>(b), &mut wide);
                let narrow = out.as_mut_slice::<f16>().iter_mut();
                narrow.zip(wide).for_each(|(out, x)| *out = f16::from_f32(x));
            }
            DType::BF16 => {
                let mut wide = vec![0.; out.shape().n_elements()];
                self.multiply(&widen::<bf16>(a), &widen::<bf16>(b), &mut wide);
                let narrow = out.as_mut_slice::<bf16>().iter_mut();
                narrow.zip(wide).for_each(|(out, x)| *out = bf16::from_f32(x));
            }
            dtype => for_integer!(dtype, T => {
                self.multiply::<T>(a.as_slice(), b.as_slice(), out.as_mut_slice());
            }),
        }
        Ok(())
    }

    /// Small integers whose product is `int32`.
    fn widened(&self, out: &mut ViewMut<'_>) -> Result<()> {
        if out.dtype() != DType::I32 {
            let (a, b) = (self.a.dtype(), self.b.dtype());
            return unimplemented!("no product of {a} and {b} as {}", out.dtype());
        }
        self.multiply::<i32>(&to_i32(self.a)?, &to_i32(self.b)?, out.as_mut_slice());
        Ok(())
    }

    fn multiply<T: Scalar>(&self, a: &[T], b: &[T], out: &mut [T]) {
        let (a_len, b_len) = (self.a_size.0 * self.a_size.1, self.b_size.0 * self.b_size.1);
        let len = out.len().checked_div(self.stack.len()).unwrap_or(0);
        for (i, out) in out.chunks_exact_mut(len.max(1)).enumerate() {
            let (a_at, b_at) = self.stack.pair(i);
            let a = &a[a_at * a_len..][..a_len];
            let b = &b[b_at * b_len..][..b_len];
            let a = Matrix::new(a, self.a_size, self.forms.0);
            product(a, Matrix::new(b, self.b_size, self.forms.1), out);
        }
    }
}

/// The elements as `f32`.
fn widen<T: Element + Into<f32>>(view: View<'_>) -> Vec<f32> {
    view.as_slice::<T>().iter().map(|x| (*x).into()).collect()
}

fn to_i32(view: View<'_>) -> Result<Vec<i32>> {
    match view.dtype() {
        DType::I8 => Ok(view.as_slice::<i8>().iter().map(|x| i32::from(*x)).collect()),
        DType::U8 => Ok(view.as_slice::<u8>().iter().map(|x| i32::from(*x)).collect()),
        dtype => unimplemented!("no product of {dtype} as int32"),
    }
}
