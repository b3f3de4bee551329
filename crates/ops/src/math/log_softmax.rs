//! `LogSoftmax` and the losses that are made of it.

use half::{bf16, f16};

use super::table::Narrow;
use super::{expand, rows};
use crate::error::unimplemented;
use crate::prelude::*;
use crate::simd::{Rounded, approx};

pub(super) const LOG_SOFTMAX: OpDef = OpDef::pure("LogSoftmax", |_| Ok(Box::new(LogSoftmax)));
pub(super) const CROSS_ENTROPY: OpDef =
    OpDef::pure("SoftmaxCrossEntropyWithLogits", |_| Ok(Box::new(CrossEntropy)));
pub(super) const SPARSE_CROSS_ENTROPY: OpDef =
    OpDef::pure("SparseSoftmaxCrossEntropyWithLogits", |_| Ok(Box::new(SparseCrossEntropy)));

struct LogSoftmax;
struct CrossEntropy;
struct SparseCrossEntropy;

/// A float whose rows are softmaxed.
trait Row: Element {
    /// Writes the logits minus their maximum to `shifted`; gives the logarithm of the sum of their
    /// exponentials.
    fn shift(logits: &[Self], shifted: &mut [Self]) -> Self;
    fn minus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    fn exp(self) -> Self;
    const ZERO: Self;
    const ONE: Self;
}

impl Row for f32 {
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

impl Row for f64 {
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
        let (x, mut out) = ctx.unary()?;
        if x.shape().rank() == 0 {
            return invalid!("expected rank at least 1 but got a scalar");
        }
        let width = x.shape().last_dim();
        match x.dtype() {
            DType::F32 => log_softmax::<f32>(x.as_slice(), out.as_mut_slice(), width),
            DType::F64 => log_softmax::<f64>(x.as_slice(), out.as_mut_slice(), width),
            DType::F16 => log_softmax_half::<f16>(x.as_slice(), out.as_mut_slice(), width),
            DType::BF16 => log_softmax_half::<bf16>(x.as_slice(), out.as_mut_slice(), width),
            other => return unimplemented!("dtype {other} is not supported here"),
        }
        Ok(())
    }
}

fn log_softmax<T: Row>(x: &[T], out: &mut [T], width: usize) {
    let width = width.max(1);
    for (x, out) in x.chunks_exact(width).zip(out.chunks_exact_mut(width)) {
        let log = T::shift(x, out);
        out.iter_mut().for_each(|y| *y = y.minus(log));
    }
}

fn log_softmax_half<T: Narrow>(x: &[T], out: &mut [T], width: usize) {
    let mut wide = vec![0f32; x.len()];
    let mut result = vec![0f32; x.len()];
    T::widen(x, &mut wide);
    log_softmax(&wide, &mut result, width);
    T::round(&result, out);
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
        let (mut loss, mut slope) = ctx.two_outputs((dtype, &batch), (dtype, &shape))?;
        macro_rules! entropy {
            ($T:ty) => {{
                let (x, y) = (logits.as_slice::<$T>(), labels.as_slice::<$T>());
                let wide_x = expand::expand(x, logits.shape(), &shape);
                let wide_y = expand::expand(y, labels.shape(), &shape);
                let (x, y) = (wide_x.as_deref().unwrap_or(x), wide_y.as_deref().unwrap_or(y));
                cross_entropy(x, y, loss.as_mut_slice(), slope.as_mut_slice());
            }};
        }
        macro_rules! half_entropy {
            ($T:ty) => {{
                let (x, y) = (widened::<$T>(logits.as_slice()), widened::<$T>(labels.as_slice()));
                let x = expand::expand(&x, logits.shape(), &shape).unwrap_or(x);
                let y = expand::expand(&y, labels.shape(), &shape).unwrap_or(y);
                let mut wide = (vec![0f32; batch.n_elements()], vec![0f32; shape.n_elements()]);
                cross_entropy(&x, &y, &mut wide.0, &mut wide.1);
                <$T>::round(&wide.0, loss.as_mut_slice());
                <$T>::round(&wide.1, slope.as_mut_slice());
            }};
        }
        match dtype {
            DType::F32 => entropy!(f32),
            DType::F64 => entropy!(f64),
            DType::F16 => half_entropy!(f16),
            DType::BF16 => half_entropy!(bf16),
            other => return unimplemented!("dtype {other} is not supported here"),
        }
        Ok(())
    }
}

/// Numbers as `f32`.
fn widened<T: Narrow>(x: &[T]) -> Vec<f32> {
    let mut wide = vec![0f32; x.len()];
    T::widen(x, &mut wide);
    wide
}

/// Writes the loss of each row, and the softmax minus the labels.
fn cross_entropy<T: Row>(logits: &[T], labels: &[T], loss: &mut [T], slope: &mut [T]) {
    let width = (slope.len() / loss.len().max(1)).max(1);
    loss.fill(T::ZERO);
    let rows = logits.chunks_exact(width).zip(labels.chunks_exact(width));
    for (((logits, labels), loss), slope) in rows.zip(loss).zip(slope.chunks_exact_mut(width)) {
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
        let (&[n, width], Some(list)) = (logits.shape().dims(), labels.to_i64()) else {
            return invalid!("logits must be 2-dimensional but have shape {}", logits.shape());
        };
        if list.len() != n || labels.shape().rank() != 1 {
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
        let classes: Vec<usize> =
            list.iter().map(|label| usize::try_from(*label).unwrap_or(usize::MAX)).collect();
        if let Some(at) = classes.iter().position(|class| *class >= width) {
            return invalid!(
                "Received a label value of {} which is outside the valid range of [0, {width})",
                list[at]
            );
        }
        let (dtype, batch) = (logits.dtype(), Shape::of(&[n]));
        let (mut loss, mut slope) = ctx.two_outputs((dtype, &batch), (dtype, logits.shape()))?;
        macro_rules! entropy {
            ($T:ty) => {{
                let (loss, slope) = (loss.as_mut_slice(), slope.as_mut_slice());
                sparse_cross_entropy::<$T>(logits.as_slice(), &classes, loss, slope);
            }};
        }
        macro_rules! half_entropy {
            ($T:ty) => {{
                let x = widened::<$T>(logits.as_slice());
                let mut wide = (vec![0f32; n], vec![0f32; x.len()]);
                sparse_cross_entropy(&x, &classes, &mut wide.0, &mut wide.1);
                <$T>::round(&wide.0, loss.as_mut_slice());
                <$T>::round(&wide.1, slope.as_mut_slice());
            }};
        }
        match dtype {
            DType::F32 => entropy!(f32),
            DType::F64 => entropy!(f64),
            DType::F16 => half_entropy!(f16),
            DType::BF16 => half_entropy!(bf16),
            other => return unimplemented!("dtype {other} is not supported here"),
        }
        Ok(())
    }
}

fn sparse_cross_entropy<T: Row>(x: &[T], classes: &[usize], loss: &mut [T], slope: &mut [T]) {
    let width = (slope.len() / loss.len().max(1)).max(1);
    let rows = x.chunks_exact(width).zip(slope.chunks_exact_mut(width));
    for (((x, slope), loss), class) in rows.zip(loss).zip(classes) {
        let log = T::shift(x, slope);
        *loss = log.minus(slope[*class]);
        for shifted in slope.iter_mut() {
            *shifted = shifted.minus(log).exp();
        }
        slope[*class] = slope[*class].minus(T::ONE);
    }
}
