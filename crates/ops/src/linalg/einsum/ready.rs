//! `ReadyEinsum`: an einsum of operands of known shapes.

use num_complex::Complex;
use smallvec::SmallVec;

use super::contract::{Contraction, EinsumRight, Sides};
use super::equation::Equation;
use super::layout::{Operand, Steps, sum, sum_steps};
use crate::error::unsupported;
use crate::linalg::Scalar;
use crate::linalg::matmul_kernel::PackedRight;
use crate::nn::{through_f32, wide_bytes};
use crate::prelude::*;

/// All that depends on the shapes is done beforehand.
pub(super) struct ReadyEinsum {
    dtype: DType,
    shapes: SmallVec<[Shape; 2]>,
    shape: Shape,
    how: How,
}

enum How {
    /// One operand: each element is added to its place.
    One(Steps),
    /// Two: each without the dimensions that nobody else has, which are summed over, and then
    /// multiplied.
    Two { sums: [Option<ReadySums>; 2], product: Box<Contraction>, path: Path },
}

/// Sums over some dimensions of an operand.
struct ReadySums {
    steps: Steps,
    /// The number of sums.
    n: usize,
}

/// The code that multiplies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Path {
    /// The loop for any element.
    Plain,
    /// The matrix kernels of `f32`.
    Fast,
    /// The same, with a second operand that is a constant and was packed.
    Packed,
}

impl ReadyEinsum {
    /// The einsum of operands of these specs. Fails if a shape is not known, or does not fit.
    pub(super) fn new(equation: &Equation, inputs: &[Spec]) -> Result<Self> {
        let shapes: Option<SmallVec<[Shape; 2]>> = inputs.iter().map(Spec::shape).collect();
        let dims: Option<Vec<&[Dim]>> = inputs.iter().map(Spec::dims).collect();
        let (Some(shapes), Some(dims)) = (shapes, dims) else {
            return Err(Error::Internal("an einsum of unknown shapes".to_owned()));
        };
        let out_dims: Option<Vec<i64>> = equation.infer(&dims)?.iter().map(Dim::known).collect();
        let shape = Shape::checked(out_dims.unwrap_or_default())?;
        let ranks: Vec<usize> = shapes.iter().map(Shape::rank).collect();
        let (labels, output) = equation.labels(&ranks)?;
        let operand = |(labels, shape): (&Vec<_>, &Shape)| Operand::new(labels, shape);
        let operands: Vec<Operand> = labels.iter().zip(&shapes).map(operand).collect();
        let output = Operand::new(&output, &shape);
        let dtype = inputs[0].dtype;
        let how = match &operands[..] {
            [a] => How::One(sum_steps(a, &output)),
            [a, b] => {
                // A diagonal is an output most of which is zero.
                let fast = dtype == DType::F32 && output.n_elements() == shape.n_elements();
                let is_constant = inputs[1].as_constant().is_some() && !equation.has_ellipsis();
                let path = match (fast, is_constant) {
                    (false, _) => Path::Plain,
                    (true, false) => Path::Fast,
                    (true, true) => Path::Packed,
                };
                How::two(a, b, &output, path)
            }
            _ => return invalid!("Einsum takes one or two inputs, not {}", operands.len()),
        };
        Ok(Self { dtype, shapes, shape, how })
    }

    /// The shape of the output.
    pub(super) fn shape(&self) -> &Shape {
        &self.shape
    }

    fn plain<'a, T: Scalar>(
        &self,
        inputs: &[&[T]],
        scratch: Scratch<'a>,
        out: &mut [T],
    ) -> Result<()> {
        out.fill(T::ZERO);
        match (&self.how, inputs) {
            (How::One(steps), [data]) => sum(steps, data, out),
            (How::Two { sums: [a, b], product, .. }, [left, right]) => {
                let mut scratch: Scratch<'a> = scratch;
                let left_sums = ReadySums::of(a, left, &mut scratch)?;
                let right_sums = ReadySums::of(b, right, &mut scratch)?;
                let left = left_sums.as_deref().unwrap_or(left);
                let right = right_sums.as_deref().unwrap_or(right);
                product.run_plain((left, right), &mut scratch, out)?;
            }
            _ => unreachable!("the inputs were counted"),
        }
        Ok(())
    }

    /// `f32`: where two operands meet, the products of the matrix kernels.
    fn run_f32(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let packed = ctx.packed::<PackedRight>(1);
        let (pool, mut scratch) = (ctx.env().pool, ctx.scratch());
        let How::Two { sums: [a, b], product, path: Path::Fast | Path::Packed } = &self.how else {
            return self.run_plain::<f32>(ctx, scratch);
        };
        let (left, right) = (ctx.input(0), ctx.input(1));
        let mut out = ctx.output(0, DType::F32, &self.shape)?;
        let left: &[f32] = left.as_slice();
        let left_sums = ReadySums::of(a, left, &mut scratch)?;
        let left = left_sums.as_deref().unwrap_or(left);
        let right: &[f32] = if packed.is_some() { &[] } else { right.as_slice() };
        let b = if packed.is_some() { &None } else { b };
        let right_sums = ReadySums::of(b, right, &mut scratch)?;
        let right = right_sums.as_deref().unwrap_or(right);
        let mut memory = scratch.part(product.scratch_len(packed.is_some()))?;
        let right =
            packed.map_or(EinsumRight::Plain(right), |packed| EinsumRight::Packed(&packed.panels));
        product.run(pool, left, right, (&mut memory, out.as_mut_slice()));
        Ok(())
    }

    fn run_plain<T: Scalar>(&self, ctx: &mut Ctx<'_>, scratch: Scratch<'_>) -> Result<()> {
        let (inputs, mut out) = ctx.inputs_and_output(0, self.dtype, &self.shape)?;
        let data: SmallVec<[&[T]; 2]> = inputs.iter().map(View::as_slice).collect();
        self.plain(&data, scratch, out.as_mut_slice())
    }
}

impl How {
    /// The product of two operands; a second one that is summed first is not packed.
    fn two(a: &Operand, b: &Operand, output: &Operand, path: Path) -> Self {
        let (left_sums, a) = reduced(a, &[b, output]);
        let (right_sums, b) = reduced(b, &[&a, output]);
        let path = match path {
            Path::Packed if right_sums.is_some() => Path::Fast,
            path => path,
        };
        let product = Box::new(Contraction::new(&Sides::new(&a, &b, output)));
        Self::Two { sums: [left_sums, right_sums], product, path }
    }
}

impl ReadySums {
    /// Sums in scratch memory, if there are any to be made.
    fn of<'a, T: Scalar>(
        sums: &Option<Self>,
        data: &[T],
        scratch: &mut Scratch<'a>,
    ) -> Result<Option<Part<'a, T>>> {
        let Some(Self { steps, n }) = sums else { return Ok(None) };
        let mut made = scratch.part(*n)?;
        made.fill(T::ZERO);
        sum(steps, data, &mut made);
        Ok(Some(made))
    }
}

/// The operand without the dimensions that nobody else has, and how they are summed over.
fn reduced(operand: &Operand, others: &[&Operand]) -> (Option<ReadySums>, Operand) {
    let is_kept = |label| others.iter().any(|other| other.has(label));
    let kept: Vec<_> = operand.dims.iter().filter(|dim| is_kept(dim.label)).copied().collect();
    if kept.len() == operand.dims.len() {
        return (None, operand.clone());
    }
    let target = Operand::packed(&kept);
    (Some(ReadySums { steps: sum_steps(operand, &target), n: target.n_elements() }), target)
}

impl Op for ReadyEinsum {
    fn infer(&self, _: &[Spec]) -> Result<Vec<Spec>> {
        Ok(vec![Spec::concrete(self.dtype, &self.shape)])
    }

    fn scratch_bytes(&self, inputs: &[Spec], outputs: &[Spec]) -> usize {
        let wide = wide_bytes(inputs, outputs);
        let size = if wide > 0 { size_of::<f32>() } else { self.dtype.size() };
        let How::Two { sums, product, path } = &self.how else { return wide };
        let sums = sums.iter().flatten().map(|sums| Scratch::bytes_of::<u8>(sums.n * size));
        let product = match path {
            Path::Plain => product.plain_bytes(size),
            path => Scratch::bytes_of::<f32>(product.scratch_len(*path == Path::Packed)),
        };
        wide + sums.sum::<usize>() + product
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let shapes = ctx.inputs().iter().map(View::shape);
        if ctx.n_inputs() != self.shapes.len() || !shapes.eq(&self.shapes) {
            return Err(Error::Internal("an einsum was planned for other shapes".to_owned()));
        }
        if self.dtype == DType::F32 {
            return self.run_f32(ctx);
        }
        let scratch = ctx.scratch();
        match self.dtype {
            DType::F64 => self.run_plain::<f64>(ctx, scratch),
            DType::I32 => self.run_plain::<i32>(ctx, scratch),
            DType::I64 => self.run_plain::<i64>(ctx, scratch),
            DType::Complex64 => self.run_plain::<Complex<f32>>(ctx, scratch),
            DType::Complex128 => self.run_plain::<Complex<f64>>(ctx, scratch),
            DType::F16 | DType::BF16 => {
                let (inputs, mut out) = ctx.inputs_and_output(0, self.dtype, &self.shape)?;
                through_f32(scratch, inputs, &mut out, |scratch, wide, out| {
                    let wide: SmallVec<[&[f32]; 2]> = wide.iter().map(|wide| &wide[..]).collect();
                    self.plain(&wide, scratch, out)
                })
            }
            dtype => unsupported!("dtype {dtype} is not supported here"),
        }
    }
}
