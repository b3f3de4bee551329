//! `MatMul` and the `BatchMatMul` family: products of matrices, one or a stack of them.
//!
//! Follows `matmul_op_impl.h`.

use kernels::{Epilogue, Form};

use super::batch::Stack;
use super::matmul_kernel::{self, Call, PackedRight};
use crate::facts::Cost;
use crate::op::Packed;
use crate::prelude::*;

pub(super) const MAT_MUL: OpDef =
    OpDef::pure("MatMul", RowRule::MatMul, |attrs| Ok(Box::new(MatMul::read(attrs)?)))
        .costs(Cost::Product);

pub(super) const BATCH_MAT_MUL: OpDef = OpDef::pure("BatchMatMul", RowRule::BatchMatMul, |attrs| {
    batch_mat_mul(attrs, Stacks::Equal, None)
})
.costs(Cost::Product);

pub(super) const BATCH_MAT_MUL_V2: OpDef =
    OpDef::pure("BatchMatMulV2", RowRule::BatchMatMul, |attrs| {
        batch_mat_mul(attrs, Stacks::Broadcast, None)
    })
    .costs(Cost::Product);

pub(super) const BATCH_MAT_MUL_V3: OpDef =
    OpDef::pure("BatchMatMulV3", RowRule::BatchMatMul, |attrs| {
        batch_mat_mul(attrs, Stacks::Broadcast, Some(attrs.dtype("Tout")?))
    })
    .costs(Cost::Product);

fn batch_mat_mul(attrs: &Attrs<'_>, stacks: Stacks, dtype: Option<DType>) -> Result<Box<dyn Op>> {
    Ok(Box::new(MatMul {
        a: form(attrs, "adj_x", Form::Adjoint)?,
        b: form(attrs, "adj_y", Form::Adjoint)?,
        stacks,
        dtype,
    }))
}

/// The form that a matrix has if the attribute is set; plain if not.
fn form(attrs: &Attrs<'_>, name: &str, if_set: Form) -> Result<Form> {
    Ok(if attrs.bool_or(name, false)? { if_set } else { Form::Plain })
}

pub(super) struct MatMul {
    a: Form,
    b: Form,
    stacks: Stacks,
    /// The dtype of the output, if it may be another than the inputs'.
    dtype: Option<DType>,
}

/// The dimensions that may stand before the two of a matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stacks {
    None,
    Equal,
    Broadcast,
}

impl Op for MatMul {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [a, b] = arity(inputs)?;
        self.infer_output(a, b)
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        self.run_with(ctx, Epilogue::default())
    }

    fn pack(&self, input: usize, weight: &Tensor) -> Result<Option<Packed>> {
        let same = self.dtype.is_none_or(|dtype| dtype == weight.dtype());
        let fits = weight.dtype() == DType::F32 && weight.shape().rank() >= 2;
        if input != 1 || !fits || !same || weight.n_elements() == 0 {
            return Ok(None);
        }
        PackedRight::pack(weight, split_sizes(weight.shape()).1, self.b).map(Some)
    }

    fn scratch_bytes(&self, inputs: &[Spec], outputs: &[Spec]) -> usize {
        matmul_kernel::scratch_bytes(inputs, outputs, (self.a, self.b))
    }
}

impl MatMul {
    /// A product of two matrices, not of stacks.
    pub(super) fn read(attrs: &Attrs<'_>) -> Result<Self> {
        Ok(Self {
            a: form(attrs, "transpose_a", Form::Transposed)?,
            b: form(attrs, "transpose_b", Form::Transposed)?,
            stacks: Stacks::None,
            dtype: None,
        })
    }

    /// The output's spec.
    pub(super) fn infer_output(&self, a: &Spec, b: &Spec) -> Result<Vec<Spec>> {
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

    /// The shape of the output of a call.
    pub(super) fn shape_of(&self, ctx: &Ctx<'_>) -> Result<Shape> {
        Ok(self.checked(ctx.input(0).shape(), ctx.input(1).shape())?.1)
    }

    /// Runs the product and what comes after it.
    pub(super) fn run_with(&self, ctx: &mut Ctx<'_>, epilogue: Epilogue<'_>) -> Result<()> {
        let (a, b, packed) = (ctx.input(0), ctx.input(1), ctx.packed::<PackedRight>(1));
        let b_shape = b.shape();
        let (stack, shape) = self.checked(a.shape(), b_shape)?;
        let call = Call {
            a,
            b,
            a_size: split_sizes(a.shape()).1,
            b_size: split_sizes(b_shape).1,
            forms: (self.a, self.b),
            stack,
            packed,
            pool: ctx.env().pool,
            epilogue,
        };
        let scratch = ctx.scratch();
        let mut out = ctx.output(0, self.dtype.unwrap_or(a.dtype()), &shape)?;
        call.run(scratch, &mut out)
    }

    /// Returns how the matrices of both inputs meet, and the shape of the output.
    fn checked(&self, a: &Shape, b: &Shape) -> Result<(Stack, Shape)> {
        let ranks_fit = |rank: usize| rank == 2 || rank > 2 && self.stacks != Stacks::None;
        if !ranks_fit(a.rank()) || !ranks_fit(b.rank()) {
            return invalid!("no matrices: {a} and {b}");
        }
        let ((a_lead, a_size), (b_lead, b_size)) = (split_sizes(a), split_sizes(b));
        let (rows, inner) = self.a.orient(a_size);
        let (inner_too, columns) = self.b.orient(b_size);
        if inner != inner_too {
            return invalid!("Matrix size-incompatible: In[0]: {a}, In[1]: {b}");
        }
        if self.stacks == Stacks::Equal && a_lead != b_lead {
            return invalid!("In[0] and In[1] differ before the matrix: {a_lead:?} and {b_lead:?}");
        }
        let stack = Stack::new(a_lead, b_lead)?;
        let dims = stack.dims.iter().copied().chain([rows, columns]);
        let shape = Shape::checked(dims.map(|dim| dim as i64))?;
        Ok((stack, shape))
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
