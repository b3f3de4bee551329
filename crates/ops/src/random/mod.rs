//! Random numbers, seeded and not: TensorFlow's own streams where a seed is given.

mod categorical;
mod distribution;
mod philox;
mod shuffle;
mod stateful;
mod stateless;

use half::{bf16, f16};

use distribution::{Integers, Normal, Uniform, fill, fill_truncated};
use philox::Philox;

use crate::error::unsupported;
use crate::prelude::*;

/// The ops of this family.
pub(crate) const OPS: &[OpDef] = &[
    OpDef::of_kind("RandomUniform", Kind::Reads, RowRule::Mixed, |attrs| {
        stateful::build(attrs, Draw::Uniform)
    }),
    OpDef::of_kind("RandomStandardNormal", Kind::Reads, RowRule::Mixed, |a| {
        stateful::build(a, Draw::Normal)
    }),
    OpDef::of_kind("TruncatedNormal", Kind::Reads, RowRule::Mixed, |a| {
        stateful::build(a, Draw::Truncated)
    }),
    OpDef::of_kind("RandomUniformInt", Kind::Reads, RowRule::Mixed, stateful::build_int),
    OpDef::of_kind("RandomShuffle", Kind::Reads, RowRule::Mixed, shuffle::build),
    OpDef::of_kind("Multinomial", Kind::Reads, RowRule::Mixed, categorical::build),
    OpDef::pure("StatelessMultinomial", RowRule::Mixed, categorical::build_stateless),
    OpDef::pure("StatelessRandomUniform", RowRule::Mixed, |attrs| {
        stateless::build(attrs, Draw::Uniform)
    }),
    OpDef::pure("StatelessRandomNormal", RowRule::Mixed, |attrs| {
        stateless::build(attrs, Draw::Normal)
    }),
    OpDef::pure("StatelessTruncatedNormal", RowRule::Mixed, |attrs| {
        stateless::build(attrs, Draw::Truncated)
    }),
    OpDef::pure("StatelessRandomUniformInt", RowRule::Mixed, |attrs| {
        stateless::build(attrs, Draw::Integers)
    }),
    OpDef::pure("StatelessRandomUniformFullInt", RowRule::Mixed, |attrs| {
        stateless::build(attrs, Draw::Bits)
    }),
    OpDef::pure("StatelessRandomUniformV2", RowRule::Mixed, |attrs| {
        stateless::build_v2(attrs, Draw::Uniform)
    }),
    OpDef::pure("StatelessRandomNormalV2", RowRule::Mixed, |attrs| {
        stateless::build_v2(attrs, Draw::Normal)
    }),
    OpDef::pure("StatelessTruncatedNormalV2", RowRule::Mixed, |attrs| {
        stateless::build_v2(attrs, Draw::Truncated)
    }),
    OpDef::pure("StatelessRandomUniformIntV2", RowRule::Mixed, |a| {
        stateless::build_v2(a, Draw::Integers)
    }),
    OpDef::pure("StatelessRandomUniformFullIntV2", RowRule::Mixed, |a| {
        stateless::build_v2(a, Draw::Bits)
    }),
    OpDef::pure("StatelessRandomGetKeyCounter", RowRule::Mixed, |_| {
        Ok(Box::new(stateless::KeyCounter))
    }),
    OpDef::pure("StatelessRandomGetAlg", RowRule::Mixed, |_| Ok(Box::new(stateless::Algorithm))),
    OpDef::pure("StatelessRandomGetKeyCounterAlg", RowRule::Mixed, |_| {
        Ok(Box::new(stateless::KeyCounterAlgorithm))
    }),
];

/// The distribution that is drawn from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Draw {
    Uniform,
    Normal,
    /// Normal numbers between -2 and 2.
    Truncated,
    /// Integers from one input on, below another.
    Integers,
    /// Integers with any bits.
    Bits,
}

impl Draw {
    /// Fills output 0 of `dtype` and `shape`; `ends` are those of integers.
    #[expect(clippy::too_many_arguments, reason = "what is drawn, by what, and where to")]
    fn run(
        self,
        ctx: &mut Ctx<'_>,
        philox: Philox,
        dtype: DType,
        shape: &Shape,
        ends: Option<(View<'_>, View<'_>)>,
    ) -> Result<()> {
        let integers = match (self, ends) {
            (Self::Integers, Some((low, high))) => between(low, high)?,
            _ => Integers { low: 0, range: 0 },
        };
        let mut out = ctx.output(0, dtype, shape)?;
        match (self, dtype) {
            (Self::Truncated, DType::F16) => {
                fill_truncated(philox, out.as_mut_slice(), f16::from_f32);
            }
            (Self::Truncated, DType::BF16) => {
                fill_truncated(philox, out.as_mut_slice(), bf16::from_f32);
            }
            (Self::Uniform, DType::F32) => fill(philox, out.as_mut_slice::<f32>(), &Uniform),
            (Self::Uniform, DType::F64) => fill(philox, out.as_mut_slice::<f64>(), &Uniform),
            (Self::Uniform, DType::F16) => fill(philox, out.as_mut_slice::<f16>(), &Uniform),
            (Self::Uniform, DType::BF16) => fill(philox, out.as_mut_slice::<bf16>(), &Uniform),
            (Self::Normal, DType::F32) => fill(philox, out.as_mut_slice::<f32>(), &Normal),
            (Self::Normal, DType::F64) => fill(philox, out.as_mut_slice::<f64>(), &Normal),
            (Self::Normal, DType::F16) => fill(philox, out.as_mut_slice::<f16>(), &Normal),
            (Self::Normal, DType::BF16) => fill(philox, out.as_mut_slice::<bf16>(), &Normal),
            (Self::Truncated, DType::F32) => fill_truncated(philox, out.as_mut_slice(), |x: f32| x),
            (Self::Truncated, DType::F64) => fill_truncated(philox, out.as_mut_slice(), |x: f64| x),
            (Self::Integers | Self::Bits, DType::I32 | DType::U32) => {
                fill(philox, out.as_wide_mut::<i32>(), &integers);
            }
            (Self::Integers | Self::Bits, DType::I64 | DType::U64) => {
                fill(philox, out.as_wide_mut::<i64>(), &integers);
            }
            (_, other) => return unsupported!("dtype {other} is not supported here"),
        }
        Ok(())
    }
}

/// The integers from `low` on, below `high`.
fn between(low: View<'_>, high: View<'_>) -> Result<Integers> {
    let one = |view: View<'_>| -> Result<i64> {
        if view.n_elements() != 1 {
            return invalid!("minval and maxval must be 0-D, got shape {}", view.shape());
        }
        match view.dtype() {
            DType::I32 | DType::I64 => int_at(&view, 0),
            dtype => unsupported!("dtype {dtype} is not supported here"),
        }
    };
    let (low, high) = (one(low)?, one(high)?);
    if low >= high {
        return invalid!("Need minval < maxval, got {low} >= {high}");
    }
    Ok(Integers { low, range: high.wrapping_sub(low).cast_unsigned() })
}

/// The dimensions that a tensor of sizes gives, as far as they are known.
fn shape_spec(dtype: DType, shape: &Spec) -> Result<Spec> {
    shape.require_rank(1)?;
    if let Some(sizes) = shape.sizes() {
        if let Some(size) = sizes.iter().filter_map(Dim::known).find(|size| *size < 0) {
            return invalid!("Dimension {size} must be >= 0");
        }
        return Ok(Spec::new(dtype, sizes));
    }
    let rank = shape.dims().and_then(|dims| dims[0].size());
    Ok(Spec {
        dims: rank.map(|rank| (0..rank).map(|_| Dim::Unknown).collect()),
        ..Spec::unknown(dtype)
    })
}

/// The shape that a tensor of sizes gives.
fn shape_value(shape: View<'_>) -> Result<Shape> {
    match ints(&shape) {
        Ok(sizes) if shape.shape().rank() == 1 => Ok(Shape::checked(sizes)?),
        _ => invalid!("shape must be a vector of int32 or int64, got shape {}", shape.shape()),
    }
}
