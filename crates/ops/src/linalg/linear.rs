//! `_Linear`: rows times a matrix, and what comes after it. Graph passes make it.
//!
//! The last `contracted` dimensions of the first input are the rows' elements; in their place the
//! output has the dimensions `tail`, which the matrix's columns are spread over.

use kernels::{Epilogue, Form};

use super::batch::Stack;
use super::matmul_kernel::{self, Call, PackedRight};
use crate::facts::Cost;
use crate::nn::Steps;
use crate::op::Packed;
use crate::prelude::*;

pub(super) const DEF: OpDef = OpDef::pure("_Linear", RowRule::Linear, |attrs| {
    let tail = attrs.ints("tail")?.iter().map(|size| usize::try_from(*size).ok());
    let Some(tail) = tail.collect::<Option<Vec<usize>>>().filter(|tail| !tail.is_empty()) else {
        return invalid!("the tail has no or negative sizes");
    };
    let steps = if attrs.has("fused_ops") { Some(Steps::read(attrs)?) } else { None };
    Ok(Box::new(Linear { contracted: attrs.size("contracted")?, tail, steps }))
})
.costs(Cost::Product);

struct Linear {
    contracted: usize,
    tail: Vec<usize>,
    steps: Option<Steps>,
}

impl Op for Linear {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        arity_at_least(inputs, 2)?;
        let (x, weight) = (&inputs[0], &inputs[1]);
        weight.require_rank(2)?;
        if self.steps.is_none() {
            let [_, _] = arity(inputs)?;
        }
        let Some(dims) = x.dims() else { return Ok(vec![Spec::unknown(x.dtype)]) };
        if dims.len() < self.contracted {
            return invalid!("{x} has fewer than {} dimensions", self.contracted);
        }
        let (lead, inner) = dims.split_at(dims.len() - self.contracted);
        if let Some([rows, columns]) = weight.dims() {
            let inner = inner.iter().fold(Dim::Known(1), |all, dim| all.times(dim));
            let outer = Dim::of(self.tail.iter().product());
            if inner.differs(rows) || outer.differs(columns) {
                return invalid!("Matrix size-incompatible: In[0]: {x}, In[1]: {weight}");
            }
        }
        let tail = self.tail.iter().map(|size| Dim::of(*size));
        let output = Spec::new(x.dtype, lead.iter().cloned().chain(tail));
        if let Some(steps) = self.steps {
            steps.check_channels(inputs, &output, &Dim::of(self.tail.iter().product()))?;
        }
        Ok(vec![output])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (a, b, packed) = (ctx.input(0), ctx.input(1), ctx.packed::<PackedRight>(1));
        let b_shape = b.shape();
        let (dims, columns) = (a.shape().dims(), self.tail.iter().product());
        let &[inner, stored] = b_shape.dims() else { return invalid!("no matrix: {b_shape}") };
        if dims.len() < self.contracted || stored != columns {
            return invalid!("{} and {b_shape} do not fit together", a.shape());
        }
        let (lead, row) = dims.split_at(dims.len() - self.contracted);
        let rows: usize = lead.iter().product();
        if row.iter().product::<usize>() != inner {
            return invalid!("Matrix size-incompatible: In[0]: {}, In[1]: {b_shape}", a.shape());
        }
        let shape = Shape::checked(lead.iter().chain(&self.tail).map(|size| *size as i64))?;
        let epilogue = match self.steps {
            Some(steps) => steps.epilogue_of(ctx, &shape, columns)?,
            None => Epilogue::default(),
        };
        let call = Call {
            a,
            b,
            a_size: (rows, inner),
            b_size: (inner, columns),
            forms: (Form::Plain, Form::Plain),
            stack: Stack::new(&[], &[])?,
            packed,
            pool: ctx.env().pool,
            epilogue,
        };
        let scratch = ctx.scratch();
        let mut out = ctx.output(0, a.dtype(), &shape)?;
        call.run(scratch, &mut out)
    }

    fn pack(&self, input: usize, weight: &Tensor) -> Result<Option<Packed>> {
        let &[rows, columns] = weight.shape().dims() else { return Ok(None) };
        if input != 1 || weight.dtype() != DType::F32 || weight.n_elements() == 0 {
            return Ok(None);
        }
        PackedRight::pack(weight, (rows, columns), Form::Plain).map(Some)
    }

    fn scratch_bytes(&self, inputs: &[Spec], outputs: &[Spec]) -> usize {
        matmul_kernel::scratch_bytes(inputs, outputs, (Form::Plain, Form::Plain))
    }
}
