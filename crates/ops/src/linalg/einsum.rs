//! `Einsum`: products and sums over named dimensions.
//!
//! Follows `einsum_op_impl.h`.

mod contract;
mod equation;
mod layout;
mod ready;

use std::sync::Arc;

use contract::{Contraction, Sides};
use equation::Equation;
use layout::{Operand, contiguous, sum_copy};
use num_complex::Complex;
use ready::ReadyEinsum;

use super::Scalar;
use super::matmul_kernel::PackedRight;
use crate::env::Env;
use crate::nn::{narrow, widen};
use crate::op::{Packed, ReadyOp};
use crate::prelude::*;

pub(super) const DEF: OpDef = OpDef::pure("Einsum", |attrs| {
    Ok(Box::new(Einsum { equation: Equation::parse(attrs.str("equation")?)? }))
});

struct Einsum {
    equation: Equation,
}

impl Op for Einsum {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        if inputs.len() != self.equation.n_inputs() {
            let n = self.equation.n_inputs();
            return invalid!("the equation has {n} inputs but got {}", inputs.len());
        }
        let dtype = inputs[0].dtype;
        let dims: Option<Vec<&[Dim]>> = inputs.iter().map(Spec::dims).collect();
        match dims {
            Some(dims) => Ok(vec![Spec::new(dtype, self.equation.infer(&dims)?)]),
            None => Ok(vec![Spec::unknown(dtype)]),
        }
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let inputs = ctx.inputs().to_vec();
        let packed = ctx.packed::<PackedRight>(1);
        let shapes: Vec<&Shape> = inputs.iter().map(View::shape).collect();
        let dims: Vec<Vec<Dim>> =
            shapes.iter().map(|shape| shape.iter().map(|d| Dim::of(*d)).collect()).collect();
        let dims: Vec<&[Dim]> = dims.iter().map(Vec::as_slice).collect();
        let out_dims: Option<Vec<i64>> =
            self.equation.infer(&dims)?.iter().map(Dim::known).collect();
        let shape = Shape::checked(out_dims.unwrap_or_default())?;
        let call = Call { equation: &self.equation, shapes, shape: shape.clone(), packed };
        let pool = ctx.env().pool;
        let mut out = ctx.output(0, inputs[0].dtype(), &shape)?;
        match out.dtype() {
            DType::F32 => call.run_f32(pool, &inputs, out.as_mut_slice()),
            DType::F64 => call.run::<f64>(&inputs, out.as_mut_slice()),
            DType::I32 => call.run::<i32>(&inputs, out.as_mut_slice()),
            DType::I64 => call.run::<i64>(&inputs, out.as_mut_slice()),
            DType::Complex64 => call.run::<Complex<f32>>(&inputs, out.as_mut_slice()),
            DType::Complex128 => call.run::<Complex<f64>>(&inputs, out.as_mut_slice()),
            dtype => {
                let wide: Option<Vec<Vec<f32>>> = inputs.iter().map(widen).collect();
                let Some(wide) = wide else {
                    return Err(Error::Unimplemented(format!(
                        "dtype {dtype} is not supported here"
                    )));
                };
                let wide: Vec<&[f32]> = wide.iter().map(Vec::as_slice).collect();
                let mut result = vec![0.; shape.n_elements()];
                call.plain(&wide, &mut result)?;
                narrow(&result, &mut out)
            }
        }
    }

    fn ready(&self, inputs: &[Spec], outputs: &[Spec], _: &Env<'_>) -> Option<ReadyOp> {
        let op = ReadyEinsum::new(&self.equation, inputs, outputs.first()?.shape()?)?;
        let (open_bytes, is_static, hands_on) = (0, true, Vec::new());
        Some(ReadyOp { op: Arc::new(op), open_bytes, is_static, hands_on })
    }

    fn pack(&self, input: usize, weight: &Tensor) -> Result<Option<Packed>> {
        let fits = weight.dtype() == DType::F32 && weight.n_elements() > 0;
        if input != 1 || !fits || self.equation.has_ellipsis() {
            return Ok(None);
        }
        contract::pack(&self.equation, weight)
    }
}

/// One call with all sizes known.
struct Call<'a> {
    equation: &'a Equation,
    shapes: Vec<&'a Shape>,
    shape: Shape,
    packed: Option<&'a PackedRight>,
}

impl Call<'_> {
    fn run<T: Scalar>(&self, inputs: &[View<'_>], out: &mut [T]) -> Result<()> {
        let data: Vec<&[T]> = inputs.iter().map(View::as_slice).collect();
        self.plain(&data, out)
    }

    /// The operands and the output as named dimensions of the elements they are stored in.
    fn operands(&self) -> Result<(Vec<Operand>, Operand)> {
        let ranks: Vec<usize> = self.shapes.iter().map(|shape| shape.rank()).collect();
        let (inputs, output) = self.equation.labels(&ranks)?;
        let operands = inputs
            .iter()
            .zip(&self.shapes)
            .map(|(labels, shape)| Operand::new(labels, shape))
            .collect();
        Ok((operands, Operand::new(&output, &self.shape)))
    }

    /// Any element: the plain product of copies.
    fn plain<T: Scalar>(&self, inputs: &[&[T]], out: &mut [T]) -> Result<()> {
        let (operands, output) = self.operands()?;
        out.fill(T::ZERO);
        match (&operands[..], inputs) {
            ([a], [data]) => sum_copy(a, data, &output, out),
            ([a, b], [left, right]) => {
                let (left, a) = reduced(a, left, &[b, &output]);
                let (right, b) = reduced(b, right, &[&a, &output]);
                let sides = Sides::new(&a, &b, &output);
                let left = contiguous(&left, &sides.left());
                let right = contiguous(&right, &sides.right());
                let product = sides.product(&left, &right);
                sides.spread(&product, out);
            }
            _ => return invalid!("Einsum takes one or two inputs, not {}", inputs.len()),
        }
        Ok(())
    }

    /// `f32`: where two operands meet, the products of the matrix kernels.
    fn run_f32(&self, pool: &pool::Pool, inputs: &[View<'_>], out: &mut [f32]) -> Result<()> {
        let [left, right] = inputs else { return self.run::<f32>(inputs, out) };
        let (operands, output) = self.operands()?;
        let [a, b] = &operands[..] else { return self.run::<f32>(inputs, out) };
        if output.n_elements() != out.len() {
            // The output is a diagonal: most of it is zero.
            return self.run::<f32>(inputs, out);
        }
        let left: &[f32] = left.as_slice();
        let (left, a) = reduced(a, left, &[b, &output]);
        let mut scratch = Vec::new();
        if let Some(packed) = self.packed {
            let contraction = Contraction::new(&Sides::new(&a, b, &output));
            scratch.resize(contraction.scratch_len(true), 0.);
            contraction.run(pool, &left, (Some(&packed.panels[..]), &[]), (&mut scratch, out));
            return Ok(());
        }
        let right: &[f32] = right.as_slice();
        let (right, b) = reduced(b, right, &[&a, &output]);
        let contraction = Contraction::new(&Sides::new(&a, &b, &output));
        scratch.resize(contraction.scratch_len(false), 0.);
        contraction.run(pool, &left, (None, &right), (&mut scratch, out));
        Ok(())
    }
}

/// The operand without the dimensions that nobody else has, which are summed over.
fn reduced<'a, T: Scalar>(
    operand: &Operand,
    data: &'a [T],
    others: &[&Operand],
) -> (std::borrow::Cow<'a, [T]>, Operand) {
    let kept: Vec<_> = operand
        .dims
        .iter()
        .filter(|dim| others.iter().any(|other| other.has(dim.label)))
        .copied()
        .collect();
    if kept.len() == operand.dims.len() {
        return (data.into(), operand.clone());
    }
    let target = Operand::packed(&kept);
    let mut sums = vec![T::ZERO; target.n_elements()];
    sum_copy(operand, data, &target, &mut sums);
    (sums.into(), target)
}
