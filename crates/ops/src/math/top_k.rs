//! `TopKV2` and `InTopKV2`: the largest elements of each row, and whether one is among them.

use std::cmp::Ordering;

use half::{bf16, f16};

use super::arg::axis_value;
use crate::order::sort_by;
use crate::prelude::*;

pub(super) const TOP_K_V2: OpDef = OpDef::pure("TopKV2", RowRule::LastAxis, |attrs| {
    Ok(Box::new(TopK { index: attrs.dtype_or("index_type", DType::I32)?, k: None }))
});
pub(super) const TOP_K: OpDef = OpDef::pure("TopK", RowRule::Mixed, |attrs| {
    Ok(Box::new(TopK { index: DType::I32, k: Some(attrs.int("k")?) }))
});
pub(super) const IN_TOP_K: OpDef = OpDef::pure("InTopK", RowRule::Mixed, |attrs| {
    Ok(Box::new(InTopK { k: Some(attrs.int("k")?) }))
});
pub(super) const IN_TOP_K_V2: OpDef =
    OpDef::pure("InTopKV2", RowRule::Mixed, |_| Ok(Box::new(InTopK { k: None })));

struct TopK {
    index: DType,
    /// The number of elements; `None` if an input gives it.
    k: Option<i64>,
}

struct InTopK {
    /// The number of elements; `None` if an input gives it.
    k: Option<i64>,
}

impl Op for TopK {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let (x, k) = match self.k {
            Some(k) => (&arity::<1>(inputs)?[0], Dim::Known(k)),
            None => {
                let [x, k] = arity(inputs)?;
                k.require_rank(0)?;
                (x, k.sizes().and_then(|k| k.first().cloned()).unwrap_or(Dim::Unknown))
            }
        };
        x.require_rank_at_least(1)?;
        let Some([rest @ .., last]) = x.dims() else {
            return Ok(vec![Spec::unknown(x.dtype), Spec::unknown(self.index)]);
        };
        if let Some(k) = k.known() {
            check(k, last.known())?;
        }
        let dims: Vec<Dim> = rest.iter().cloned().chain([k]).collect();
        Ok(vec![Spec::new(x.dtype, dims.clone()), Spec::new(self.index, dims)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let x = ctx.input(0);
        let k = self.k.map_or_else(|| axis_value(ctx.input(1)), Ok)?;
        let Some((width, rest)) = x.shape().split_last() else {
            return invalid!("input must be >= 1-D, got shape {}", x.shape());
        };
        check(k, Some(*width as i64))?;
        let k = usize::try_from(k).unwrap_or(0);
        let shape: Shape = rest.iter().copied().chain([k]).collect();
        let mut scratch = ctx.scratch();
        let (mut order, mut places) = (scratch.part(*width)?, scratch.part(shape.n_elements())?);
        let (mut values, mut indices) =
            ctx.two_outputs([(x.dtype(), &shape), (self.index, &shape)])?;
        for_number!(x.dtype(), T => {
            top::<T>(x.as_slice(), values.as_mut_slice(), &mut places, &mut order)?;
        });
        for_integer!(self.index, T => {
            let indices = indices.as_mut_slice::<T>().iter_mut();
            indices.zip(places.iter()).for_each(|(index, place)| *index = *place as T);
        });
        Ok(())
    }

    fn scratch_bytes(&self, inputs: &[Spec], outputs: &[Spec]) -> usize {
        let (Some(x), Some(out)) = (inputs[0].shape(), outputs[0].shape()) else { return 0 };
        let bytes = Scratch::bytes_of::<usize>;
        bytes(x.last_dim()) + bytes(out.n_elements())
    }
}

fn check(k: i64, width: Option<i64>) -> Result<()> {
    if k < 0 {
        return invalid!("Need k >= 0, got {k}");
    }
    if width.is_some_and(|width| width < k) {
        return invalid!("input must have at least k columns, but k is {k}");
    }
    Ok(())
}

/// A number with an order.
trait Ordered: Copy {
    /// The order from large to small; NaN comes last.
    fn falling(self, other: Self) -> Ordering;
}

macro_rules! ordered {
    ($($float:ty)*; $($integer:ty)*) => {
        $(impl Ordered for $float {
            fn falling(self, other: Self) -> Ordering {
                other.partial_cmp(&self).unwrap_or_else(|| self.is_nan().cmp(&other.is_nan()))
            }
        })*
        $(impl Ordered for $integer {
            fn falling(self, other: Self) -> Ordering {
                other.cmp(&self)
            }
        })*
    };
}

ordered! { f32 f64 f16 bf16; i8 i16 i32 i64 u8 u16 u32 u64 }

/// Writes the largest elements of each row of `x`, large to small and left to right among equals,
/// and where they stand.
fn top<T: Ordered>(
    x: &[T],
    values: &mut [T],
    places: &mut [usize],
    order: &mut [usize],
) -> Result<()> {
    if values.is_empty() {
        return Ok(());
    }
    let width = order.len();
    let k = values.len() / (x.len() / width);
    let rows = x.chunks_exact(width);
    for (row, (values, places)) in rows.zip(values.chunks_mut(k).zip(places.chunks_mut(k))) {
        pace(4 * width)?;
        order.iter_mut().enumerate().for_each(|(i, place)| *place = i);
        let mut compare = |a: &usize, b: &usize| row[*a].falling(row[*b]).then(a.cmp(b));
        if k < width {
            order.select_nth_unstable_by(k - 1, &mut compare);
        }
        sort_by(&mut order[..k], &mut compare)?;
        for ((value, place), at) in values.iter_mut().zip(places).zip(&*order) {
            (*value, *place) = (row[*at], *at);
        }
    }
    Ok(())
}

impl Op for InTopK {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let expected = if self.k.is_some() { 2 } else { 3 };
        if inputs.len() != expected {
            return invalid!("expected {expected} inputs but got {}", inputs.len());
        }
        let (predictions, targets) = (&inputs[0], &inputs[1]);
        predictions.require_rank(2)?;
        targets.require_rank(1)?;
        inputs[2..].iter().try_for_each(|k| k.require_rank(0))?;
        let batch = predictions.dims().map_or(Dim::Unknown, |dims| dims[0].clone());
        let n = targets.dims().map_or(Dim::Unknown, |dims| dims[0].clone());
        if batch.differs(&n) {
            return invalid!("First dimension of predictions {predictions} must match {targets}");
        }
        Ok(vec![Spec::new(DType::Bool, [if batch.known().is_some() { batch } else { n }])])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (predictions, targets) = (ctx.input(0), ctx.input(1));
        let k = self.k.map_or_else(|| axis_value(ctx.input(2)), Ok)?;
        let &[n, width] = predictions.shape().dims() else {
            return invalid!("predictions must be 2-dimensional");
        };
        if targets.n_elements() != n {
            return invalid!("First dimension of predictions {n} must match {}", targets.shape());
        }
        let x: &[f32] = predictions.as_slice();
        let mut out = ctx.output(0, DType::Bool, &Shape::of(&[n]))?;
        for (i, out) in out.as_mut_slice::<u8>().iter_mut().enumerate() {
            pace(width)?;
            let row = &x[i * width..(i + 1) * width];
            *out = u8::from(is_in_top(row, int_at(&targets, i)?, k));
        }
        Ok(())
    }
}

/// Returns whether fewer than `k` elements are larger than that of `class`; not if one is not
/// finite.
fn is_in_top(row: &[f32], class: i64, k: i64) -> bool {
    let Some(target) = usize::try_from(class).ok().and_then(|class| row.get(class)) else {
        return false;
    };
    let finite = row.iter().all(|x| x.is_finite());
    finite && (row.iter().filter(|x| *x > target).count() as i64) < k
}
