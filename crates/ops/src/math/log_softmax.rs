//! `LogSoftmax` and the losses that are made of it.

use half::{bf16, f16};
use kernels::{Rounded, approx};

use super::expand::expand_part;
use super::rows;
use super::table::Narrow;
use crate::error::unsupported;
use crate::nn::{Floats, narrow};
use crate::prelude::*;

pub(super) const LOG_SOFTMAX: OpDef =
    OpDef::pure("LogSoftmax", RowRule::LastAxis, |_| Ok(Box::new(LogSoftmax)));
pub(super) const CROSS_ENTROPY: OpDef =
    OpDef::pure("SoftmaxCrossEntropyWithLogits", RowRule::Mixed, |_| Ok(Box::new(CrossEntropy)));
pub(super) const SPARSE_CROSS_ENTROPY: OpDef =
    OpDef::pure("SparseSoftmaxCrossEntropyWithLogits", RowRule::Mixed, |_| {
        Ok(Box::new(SparseCrossEntropy))
    });

struct LogSoftmax;
struct CrossEntropy;
struct SparseCrossEntropy;

/// A float whose rows are softmaxed.
trait LogSoftmaxRow: Element {
    /// Writes the logits minus their maximum to `shifted`; gives the logarithm of the sum of their
    /// exponentials.
    fn shift(logits: &[Self], shifted: &mut [Self]) -> Self;
    fn minus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    fn exp(self) -> Self;
    const ZERO: Self;
    const ONE: Self;
}

impl LogSoftmaxRow for f32 {
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;

    fn shift(logits: &[Self], shifted: &mut [Self]) -> Self {
        let max = rows::max(logits);
        rows::exp_minus(logits, max, shifted);
        let log = approx::log::<Rounded>(rows::sum(shifted));
        shifted.iter_mut().zip(logits).for_each(|(y, x)| *y = x - max);
        log
    }

    fn minus(self, other: Self) -> Self {
        self - other
    }

    fn times(self, other: Self) -> Self {
        self * other
    }

    fn exp(self) -> Self {
        approx::exp::<Rounded>(self)
    }
}

impl LogSoftmaxRow for f64 {
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;

    fn shift(logits: &[Self], shifted: &mut [Self]) -> Self {
        let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        shifted.iter_mut().zip(logits).for_each(|(y, x)| *y = x - max);
        shifted.iter().map(|x| x.exp()).sum::<f64>().ln()
    }

    fn minus(self, other: Self) -> Self {
        self - other
    }

    fn times(self, other: Self) -> Self {
        self * other
    }

    fn exp(self) -> Self {
        f64::exp(self)
    }
}

impl Op for LogSoftmax {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [logits] = arity(inputs)?;
        logits.require_rank_at_least(1)?;
        Ok(vec![logits.with_dtype(logits.dtype)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let mut scratch = ctx.scratch();
        let (x, mut out) = ctx.unary()?;
        if x.shape().rank() == 0 {
            return invalid!("expected rank at least 1 but got a scalar");
        }
        let width = x.shape().last_dim();
        match x.dtype() {
            DType::F32 => log_softmax::<f32>(x.as_slice(), out.as_mut_slice(), width),
            DType::F64 => log_softmax::<f64>(x.as_slice(), out.as_mut_slice(), width),
            dtype => {
                let mut row = (scratch.part(width)?, scratch.part(width)?);
                let row = (&mut row.0[..], &mut row.1[..]);
                match dtype {
                    DType::F16 => log_softmax_half::<f16>(x.as_slice(), out.as_mut_slice(), row),
                    DType::BF16 => log_softmax_half::<bf16>(x.as_slice(), out.as_mut_slice(), row),
                    other => return unsupported!("dtype {other} is not supported here"),
                }
            }
        }
        Ok(())
    }

    fn scratch_bytes(&self, inputs: &[Spec], _: &[Spec]) -> usize {
        let width = inputs[0].shape().map_or(0, |shape| shape.last_dim());
        let is_half = matches!(inputs[0].dtype, DType::F16 | DType::BF16);
        if is_half { 2 * Scratch::bytes_of::<f32>(width) } else { 0 }
    }
}

fn log_softmax<T: LogSoftmaxRow>(x: &[T], out: &mut [T], width: usize) {
    let width = width.max(1);
    for (x, out) in x.chunks_exact(width).zip(out.chunks_exact_mut(width)) {
        if is_stopped(16 * width) {
            return;
        }
        let log = T::shift(x, out);
        out.iter_mut().for_each(|y| *y = y.minus(log));
    }
}

/// The same row by row, through wider ones.
fn log_softmax_half<T: Narrow>(x: &[T], out: &mut [T], (wide, result): (&mut [f32], &mut [f32])) {
    let width = wide.len().max(1);
    for (x, out) in x.chunks_exact(width).zip(out.chunks_exact_mut(width)) {
        if is_stopped(16 * width) {
            return;
        }
        T::widen(x, wide);
        log_softmax(wide, result, width);
        T::round(result, out);
    }
}

impl Op for CrossEntropy {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [logits, labels] = arity(inputs)?;
        let dims = broadcast(logits, labels)?;
        let both = Spec { dims, ..Spec::unknown(logits.dtype) };
        both.require_rank(2)?;
        let batch = both.dims().map_or(Dim::Unknown, |dims| dims[0].clone());
        let two = [batch.clone(), both.dims().map_or(Dim::Unknown, |dims| dims[1].clone())];
        Ok(vec![Spec::new(logits.dtype, [batch]), Spec::new(logits.dtype, two)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (logits, labels) = (ctx.input(0), ctx.input(1));
        let shape = broadcast_shapes(logits.shape(), labels.shape())?;
        if shape.rank() != 2 {
            return invalid!("logits must be 2-dimensional but have shape {shape}");
        }
        let dtype = logits.dtype();
        let batch = Shape::of(&shape[..1]);
        let mut scratch = ctx.scratch();
        let (mut loss, mut slope) = ctx.two_outputs([(dtype, &batch), (dtype, &shape)])?;
        let (a, b) = (logits.shape(), labels.shape());
        let shapes = CrossEntropyShapes { logits: a, labels: b, both: &shape };
        match dtype {
            DType::F32 => {
                let sides = [logits.as_slice::<f32>(), labels.as_slice()];
                let out = (loss.as_mut_slice(), slope.as_mut_slice());
                expanded_cross_entropy(sides, shapes, &mut scratch, out)?;
            }
            DType::F64 => {
                let sides = [logits.as_slice::<f64>(), labels.as_slice()];
                let out = (loss.as_mut_slice(), slope.as_mut_slice());
                expanded_cross_entropy(sides, shapes, &mut scratch, out)?;
            }
            _ => {
                let sides =
                    (Floats::of(&logits, &mut scratch)?, Floats::of(&labels, &mut scratch)?);
                let (Some(x), Some(y)) = sides else {
                    return unsupported!("dtype {dtype} is not supported here");
                };
                let (mut wide_loss, mut wide_slope) =
                    (scratch.part(batch.n_elements())?, scratch.part(shape.n_elements())?);
                let out = (&mut wide_loss[..], &mut wide_slope[..]);
                expanded_cross_entropy([&x, &y], shapes, &mut scratch, out)?;
                narrow(&wide_loss, &mut loss)?;
                narrow(&wide_slope, &mut slope)?;
            }
        }
        Ok(())
    }

    fn scratch_bytes(&self, inputs: &[Spec], outputs: &[Spec]) -> usize {
        let both = &outputs[1];
        let n = |spec: &Spec| spec.shape().map_or(0, |shape| shape.n_elements());
        let size = both.dtype.size().max(size_of::<f32>());
        let expanded = |input: &&Spec| n(input) != n(both);
        let n_expanded = inputs.iter().filter(expanded).count();
        half_bytes(inputs, outputs) + n_expanded * Scratch::bytes_of::<u8>(n(both) * size)
    }
}

/// The bytes of scratch memory that 16-bit inputs and outputs take as wider ones.
fn half_bytes(inputs: &[Spec], outputs: &[Spec]) -> usize {
    inputs.iter().chain(outputs).map(Floats::bytes).sum()
}

/// The shapes of the sides of a cross entropy, and the one that both are broadcast to.
#[derive(Clone, Copy)]
struct CrossEntropyShapes<'a> {
    logits: &'a Shape,
    labels: &'a Shape,
    both: &'a Shape,
}

/// The cross entropy of logits and labels that are broadcast to one shape.
fn expanded_cross_entropy<T: LogSoftmaxRow>(
    sides: [&[T]; 2],
    shapes: CrossEntropyShapes<'_>,
    scratch: &mut Scratch<'_>,
    (loss, slope): (&mut [T], &mut [T]),
) -> Result<()> {
    let ([x, y], CrossEntropyShapes { logits, labels, both }) = (sides, shapes);
    let all_x = expand_part(x, (logits, both), scratch)?;
    let all_y = expand_part(y, (labels, both), scratch)?;
    let (x, y) = (all_x.as_deref().unwrap_or(x), all_y.as_deref().unwrap_or(y));
    cross_entropy(x, y, loss, slope);
    Ok(())
}

/// Writes the loss of each row, and the softmax minus the labels.
fn cross_entropy<T: LogSoftmaxRow>(logits: &[T], labels: &[T], loss: &mut [T], slope: &mut [T]) {
    let width = (slope.len() / loss.len().max(1)).max(1);
    loss.fill(T::ZERO);
    let rows = logits.chunks_exact(width).zip(labels.chunks_exact(width));
    for (((logits, labels), loss), slope) in rows.zip(loss).zip(slope.chunks_exact_mut(width)) {
        if is_stopped(16 * width) {
            return;
        }
        let log = T::shift(logits, slope);
        for (shifted, label) in slope.iter_mut().zip(labels) {
            let cost = log.minus(*shifted);
            // The negation of the negated product is the product: minus is all there is.
            *loss = loss.minus(T::ZERO.minus(label.times(cost)));
            *shifted = T::ZERO.minus(cost).exp().minus(*label);
        }
    }
}

impl Op for SparseCrossEntropy {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [logits, labels] = arity(inputs)?;
        logits.require_rank(2)?;
        labels.require_rank(1)?;
        let batch = logits.dims().map_or(Dim::Unknown, |dims| dims[0].clone());
        if labels.dims().is_some_and(|dims| dims[0].differs(&batch)) {
            return invalid!("logits {logits} and labels {labels} differ in their first dimension");
        }
        let all = logits.with_dtype(logits.dtype);
        Ok(vec![Spec::new(logits.dtype, [batch]), all])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (logits, labels) = (ctx.input(0), ctx.input(1));
        let &[n, width] = logits.shape().dims() else {
            return invalid!("logits must be 2-dimensional but have shape {}", logits.shape());
        };
        if labels.n_elements() != n || labels.shape().rank() != 1 {
            return invalid!(
                "logits and labels must have the same first dimension, got logits shape {} and \
                 labels shape {}",
                logits.shape(),
                labels.shape()
            );
        }
        if n > 0 && width == 0 {
            return invalid!(
                "Must have at least one class, but got logits shape {}",
                logits.shape()
            );
        }
        let mut scratch = ctx.scratch();
        let mut classes = scratch.part(n)?;
        for (i, class) in classes.iter_mut().enumerate() {
            pace(2)?;
            let label = int_at(&labels, i)?;
            match usize::try_from(label) {
                Ok(label) if label < width => *class = label,
                _ => {
                    return invalid!(
                        "Received a label value of {label} which is outside the valid range of [0, \
                         {width})"
                    );
                }
            }
        }
        let (dtype, batch) = (logits.dtype(), Shape::of(&[n]));
        let (mut loss, mut slope) = ctx.two_outputs([(dtype, &batch), (dtype, logits.shape())])?;
        macro_rules! entropy {
            ($T:ty) => {{
                let (loss, slope) = (loss.as_mut_slice(), slope.as_mut_slice());
                sparse_cross_entropy::<$T>(logits.as_slice(), &classes, loss, slope);
            }};
        }
        match dtype {
            DType::F32 => entropy!(f32),
            DType::F64 => entropy!(f64),
            _ => {
                let Some(x) = Floats::of(&logits, &mut scratch)? else {
                    return unsupported!("dtype {dtype} is not supported here");
                };
                let (mut wide_loss, mut wide_slope) = (scratch.part(n)?, scratch.part(x.len())?);
                sparse_cross_entropy(&x, &classes, &mut wide_loss, &mut wide_slope);
                narrow(&wide_loss, &mut loss)?;
                narrow(&wide_slope, &mut slope)?;
            }
        }
        Ok(())
    }

    fn scratch_bytes(&self, inputs: &[Spec], outputs: &[Spec]) -> usize {
        half_bytes(inputs, outputs) + Scratch::bytes_for::<usize>(&inputs[1])
    }
}

fn sparse_cross_entropy<T: LogSoftmaxRow>(
    x: &[T],
    classes: &[usize],
    loss: &mut [T],
    slope: &mut [T],
) {
    let width = (slope.len() / loss.len().max(1)).max(1);
    let rows = x.chunks_exact(width).zip(slope.chunks_exact_mut(width));
    for (((x, slope), loss), class) in rows.zip(loss).zip(classes) {
        if is_stopped(16 * width) {
            return;
        }
        let log = T::shift(x, slope);
        *loss = log.minus(slope[*class]);
        for shifted in slope.iter_mut() {
            *shifted = shifted.minus(log).exp();
        }
        slope[*class] = slope[*class].minus(T::ONE);
    }
}
