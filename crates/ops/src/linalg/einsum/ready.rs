//! `ReadyEinsum`: an einsum of two `f32` operands of known shapes.

use super::Call;
use super::contract::{Contraction, Sides};
use super::equation::Equation;
use super::layout::Operand;
use crate::linalg::matmul_kernel::PackedRight;
use crate::prelude::*;
use crate::simd;

/// All that depends on the shapes is done beforehand.
pub(super) struct ReadyEinsum {
    shapes: [Shape; 2],
    shape: Shape,
    contraction: Contraction,
    /// Whether the second operand is a constant, and so packed.
    is_packed: bool,
}

impl ReadyEinsum {
    /// The einsum of these operands; `None` if they are others, or if one must be summed first.
    pub(super) fn new(equation: &Equation, inputs: &[Spec], shape: Shape) -> Option<Self> {
        let [a, b] = inputs else { return None };
        if a.dtype != DType::F32 || b.dtype != DType::F32 {
            return None;
        }
        let shapes = [a.shape()?, b.shape()?];
        let call = Call { equation, shapes: shapes.iter().collect(), shape, packed: None };
        let (operands, output) = call.operands().ok()?;
        let [left, right] = &operands[..] else { return None };
        let meets = |operand: &Operand, other: &Operand| {
            operand.dims.iter().all(|dim| other.has(dim.label) || output.has(dim.label))
        };
        let is_whole = output.n_elements() == call.shape.n_elements();
        if !is_whole || !meets(left, right) || !meets(right, left) {
            return None;
        }
        let contraction = Contraction::new(&Sides::new(left, right, &output));
        let (shape, is_packed) = (call.shape, b.as_constant().is_some());
        Some(Self { shapes, shape, contraction, is_packed })
    }
}

impl Op for ReadyEinsum {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [_, _] = arity(inputs)?;
        Ok(vec![Spec::concrete(DType::F32, &self.shape)])
    }

    fn scratch_bytes(&self, _: &[Spec], _: &[Spec]) -> usize {
        self.contraction.scratch_len(self.is_packed) * size_of::<f32>()
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (left, right) = (ctx.input(0), ctx.input(1));
        let packed = ctx.packed::<PackedRight>(1);
        if left.shape() != &self.shapes[0] || right.shape() != &self.shapes[1] {
            return Err(Error::Internal("an einsum was planned for other shapes".to_owned()));
        }
        let pool = ctx.env().pool;
        let (scratch, mut own) = (ctx.take_scratch(), Vec::new());
        let len = self.contraction.scratch_len(packed.is_some());
        let scratch = simd::floats(scratch, len, &mut own);
        let right: &[f32] = if packed.is_some() { &[] } else { right.as_slice() };
        let right = (packed.map(|packed| &packed.panels[..]), right);
        let mut out = ctx.output(0, DType::F32, &self.shape)?;
        self.contraction.run(pool, left.as_slice(), right, (scratch, out.as_mut_slice()));
        Ok(())
    }
}
