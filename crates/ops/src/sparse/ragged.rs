//! Ragged tensors: `RaggedTensorToSparse` and `RaggedRange`.
//!
//! Follows `ragged_tensor_to_sparse_kernel.cc` and `ragged_range_op.cc` of TensorFlow.

use super::coo::checked_shape;
use crate::prelude::*;

pub(super) const TO_SPARSE: OpDef = OpDef::pure("RaggedTensorToSparse", RowRule::Mixed, |attrs| {
    match attrs.count("RAGGED_RANK")? {
        0 => invalid!("RAGGED_RANK must be at least 1"),
        ragged_rank => Ok(Box::new(ToSparse { ragged_rank })),
    }
});
pub(super) const RANGE: OpDef = OpDef::pure("RaggedRange", RowRule::Mixed, |attrs| {
    Ok(Box::new(Range { splits: attrs.dtype_or("Tsplits", DType::I64)? }))
});

/// Row splits as sizes. Fails unless they cut `n_values` values into rows.
pub(super) fn check_splits(splits: View<'_>, n_values: usize) -> Result<BookedVec<usize>> {
    let splits = read_splits(splits, n_values, &mut Scratch::default())?;
    Ok(BookedVec::from_slice(&splits)?)
}

/// The same in scratch memory.
pub(super) fn read_splits<'a>(
    splits: View<'_>,
    n_values: usize,
    scratch: &mut Scratch<'a>,
) -> Result<Part<'a, usize>> {
    if !matches!(splits.dtype(), DType::I32 | DType::I64) {
        return invalid!("splits must be int32 or int64, not {}", splits.dtype());
    }
    let n = splits.n_elements();
    if n == 0 {
        return invalid!("Splits must be non-empty");
    }
    let (first, last) = (int_at(&splits, 0)?, int_at(&splits, n - 1)?);
    if first != 0 {
        return invalid!("Splits must start with 0, not with {first}");
    }
    let mut numbers = scratch.part(n)?;
    let mut before = 0;
    for (i, number) in numbers.iter_mut().enumerate() {
        pace(2)?;
        let split = int_at(&splits, i)?;
        if split < before {
            return invalid!("Splits must not decrease");
        }
        (*number, before) = (split as usize, split);
    }
    if last != n_values as i64 {
        return invalid!(
            "Splits must end with the number of values, got {last} instead of {n_values}"
        );
    }
    Ok(numbers)
}

/// Splits in the dtype that an op gives them. Fails if they do not fit.
pub(super) fn splits_tensor(dtype: DType, splits: &[usize]) -> Result<Tensor> {
    if dtype == DType::I64 {
        return Ok(Tensor::vector(&BookedVec::collect(splits.iter().map(|split| *split as i64))?)?);
    }
    if splits.iter().any(|split| i32::try_from(*split).is_err()) {
        return invalid!("row splits do not fit in int32");
    }
    Ok(Tensor::vector(&BookedVec::collect(splits.iter().map(|split| *split as i32))?)?)
}

struct ToSparse {
    ragged_rank: usize,
}

impl Op for ToSparse {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        if inputs.len() != self.ragged_rank + 1 {
            return invalid!("expected {} inputs but got {}", self.ragged_rank + 1, inputs.len());
        }
        let values = &inputs[self.ragged_rank];
        values.require_rank_at_least(1)?;
        let rank = values.rank().map_or(Dim::Unknown, |rank| Dim::of(rank + self.ragged_rank));
        Ok(vec![
            Spec::new(DType::I64, [Dim::Unknown, rank.clone()]),
            Spec::new(values.dtype, [Dim::Unknown]),
            Spec::new(DType::I64, [rank]),
        ])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let values = ctx.input(self.ragged_rank);
        let Some((n_values, inner)) = values.shape().split_first() else {
            return invalid!("values must have at least rank 1");
        };
        let levels = self.levels(ctx, *n_values)?;
        let mut dims = vec![levels[0].len() as i64 - 1];
        for splits in &levels {
            dims.push(splits.windows(2).map(|p| p[1] - p[0]).max().unwrap_or(0) as i64);
        }
        dims.extend(inner.iter().map(|dim| *dim as i64));
        // The index of each value without its inner dimensions, one behind another.
        let mut prefixes = BookedVec::collect(0..levels[0].len() as i64 - 1)?;
        for (depth, splits) in levels.iter().enumerate() {
            let n_next = splits.last().copied().unwrap_or(0);
            let mut next = BookedVec::with_capacity(n_next.saturating_mul(depth + 2))?;
            for (prefix, pair) in prefixes.chunks_exact(depth + 1).zip(splits.windows(2)) {
                pace(8)?;
                for i in 0..pair[1] - pair[0] {
                    next.extend_from_slice(prefix)?;
                    next.push(i as i64)?;
                }
            }
            prefixes = next;
        }
        let element: Shape = inner.iter().copied().collect();
        let strides = element.strides();
        let mut indices =
            BookedVec::<i64>::with_capacity(values.n_elements().saturating_mul(dims.len()))?;
        for prefix in prefixes.chunks_exact(levels.len() + 1) {
            pace(element.n_elements())?;
            for i in 0..element.n_elements() {
                indices.extend_from_slice(prefix)?;
                let inner = strides.iter().zip(element.iter());
                indices.extend(inner.map(|(stride, dim)| (i / stride % dim) as i64))?;
            }
        }
        let n = values.n_elements();
        ctx.set_output(0, Tensor::from_slice(Shape::of(&[n, dims.len()]), &indices)?)?;
        ctx.forward(1, values, Shape::of(&[n]))?;
        ctx.set_output(2, Tensor::vector(&dims)?)
    }
}

impl ToSparse {
    /// The splits of each level, outermost first, each checked against the next.
    fn levels(&self, ctx: &Ctx<'_>, n_values: usize) -> Result<Vec<BookedVec<usize>>> {
        let mut levels = Vec::new();
        let mut n_below = n_values;
        for i in (0..self.ragged_rank).rev() {
            let splits = check_splits(ctx.input(i), n_below)?;
            n_below = splits.len() - 1;
            levels.push(splits);
        }
        levels.reverse();
        Ok(levels)
    }
}

struct Range {
    splits: DType,
}

impl Op for Range {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [starts, limits, deltas] = arity(inputs)?;
        for input in inputs {
            input.require_dtype(starts.dtype)?;
            if input.rank().is_some_and(|rank| rank > 1) {
                return invalid!(
                    "starts, limits and deltas must be scalars or vectors, not {input}"
                );
            }
        }
        let vector = [starts, limits, deltas].into_iter().find(|input| input.rank() == Some(1));
        let all_known = inputs.iter().all(|input| input.rank().is_some());
        let n_rows = match vector {
            Some(vector) => vector.dims().map_or(Dim::Unknown, |dims| dims[0].clone()),
            None if all_known => Dim::Known(1),
            None => Dim::Unknown,
        };
        let n_splits = n_rows.plus(&Dim::Known(1));
        Ok(vec![Spec::new(self.splits, [n_splits]), Spec::new(starts.dtype, [Dim::Unknown])])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let inputs = [ctx.input(0), ctx.input(1), ctx.input(2)];
        let mut n_rows = None;
        for input in inputs.iter().filter(|input| input.shape().rank() > 0) {
            let n = input.n_elements();
            if input.shape().rank() > 1 || n_rows.is_some_and(|rows| rows != n) {
                return invalid!("starts, limits, and deltas must have the same shape");
            }
            n_rows = Some(n);
        }
        let n_rows = n_rows.unwrap_or(1);
        macro_rules! ranges {
            ($T:ty, $count:expr, $at:expr) => {{
                let [starts, limits, deltas] = inputs.map(|input| input.as_slice::<$T>());
                let pick = |all: &[$T], scalar: bool, row| if scalar { all[0] } else { all[row] };
                let is_scalar = inputs.map(|input| input.shape().rank() == 0);
                let mut values = BookedVec::<$T>::new();
                let mut splits = BookedVec::with_capacity(n_rows + 1)?;
                splits.push(0)?;
                for row in 0..n_rows {
                    let start = pick(starts, is_scalar[0], row);
                    let limit = pick(limits, is_scalar[1], row);
                    let delta = pick(deltas, is_scalar[2], row);
                    let count = $count(start, limit, delta)?;
                    checked_shape(DType::I64, [values.len() as i64 + count])?;
                    ctx.env().cancel.check()?;
                    values.reserve(count as usize)?;
                    values.extend((0..count).map(|i| $at(start, delta, i)))?;
                    splits.push(values.len())?;
                }
                ctx.set_output(0, splits_tensor(self.splits, &splits)?)?;
                ctx.set_output(1, Tensor::vector(&values)?)
            }};
        }
        let float = |start: f64, limit: f64, delta: f64| float_count(start, limit, delta);
        let narrow = |a: i32, b: i32, c: i32| int_count(a.into(), b.into(), c.into());
        match inputs[0].dtype() {
            DType::I32 => ranges!(i32, narrow, |s: i32, d: i32, i: i64| s
                .wrapping_add(d.wrapping_mul(i as i32))),
            DType::I64 => {
                ranges!(i64, int_count, |s: i64, d: i64, i: i64| s.wrapping_add(d.wrapping_mul(i)))
            }
            DType::F32 => ranges!(
                f32,
                |a: f32, b: f32, c: f32| float(a.into(), b.into(), c.into()),
                |s: f32, d: f32, i: i64| s + d * i as f32
            ),
            DType::F64 => ranges!(f64, float, |s: f64, d: f64, i: i64| s + d * i as f64),
            other => crate::error::unsupported!("dtype {other} is not supported here"),
        }
    }
}

/// The numbers from `start` to before `limit`.
fn int_count(start: i64, limit: i64, delta: i64) -> Result<i64> {
    let (start, limit, delta) = (i128::from(start), i128::from(limit), i128::from(delta));
    if delta == 0 {
        return invalid!("Requires delta != 0");
    }
    let distance = if delta > 0 { limit - start } else { start - limit };
    let count = if distance <= 0 { 0 } else { (distance + delta.abs() - 1) / delta.abs() };
    match i32::try_from(count) {
        Ok(count) => Ok(count.into()),
        Err(_) => invalid!("Requires ((limit - start) / delta) <= {}", i32::MAX),
    }
}

fn float_count(start: f64, limit: f64, delta: f64) -> Result<i64> {
    if delta == 0.0 {
        return invalid!("Requires delta != 0");
    }
    let count = ((limit - start) / delta).ceil().max(0.0);
    if count > f64::from(i32::MAX) || count.is_nan() {
        return invalid!("Requires ((limit - start) / delta) <= {}", i32::MAX);
    }
    Ok(count as i64)
}
