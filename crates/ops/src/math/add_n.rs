//! `AddN`: the sum of many tensors of one shape.

use half::{bf16, f16};

use super::binary::SUM;
use super::map::{CHEAP, lacking};
use super::merge::merge;
use super::table::{BLOCK, Column, for_column};
use super::zip;
use crate::prelude::*;

pub(super) const DEF: OpDef = OpDef::pure("AddN", RowRule::Elementwise, |_| Ok(Box::new(AddN)));

struct AddN;

impl Op for AddN {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        arity_at_least(inputs, 1)?;
        let mut spec = inputs[0].with_dtype(inputs[0].dtype);
        for input in &inputs[1..] {
            spec.dims = merge(&spec, input)?;
        }
        Ok(vec![spec])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let dtype = ctx.input(0).dtype();
        match dtype {
            DType::F16 => add::<f16>(ctx, zip::half(SUM.f32, dtype)?),
            DType::BF16 => add::<bf16>(ctx, zip::half(SUM.f32, dtype)?),
            _ => for_column!(dtype, T => {
                add::<T>(ctx, <T as Column>::of(&SUM).ok_or_else(|| lacking(dtype))?)
            }),
        }
    }
}

fn add<T: Element>(ctx: &mut Ctx<'_>, kernel: impl Fn(&[T], &[T], &mut [T]) + Sync) -> Result<()> {
    let pool = ctx.env().pool;
    let first = ctx.input(0);
    if let Some(other) = ctx.inputs().iter().find(|other| other.shape() != first.shape()) {
        return invalid!("inputs {} and {} differ in shape", first.shape(), other.shape());
    }
    let (inputs, mut out) = ctx.inputs_and_output(0, first.dtype(), first.shape())?;
    let (first, rest): (&[T], _) = (first.as_slice(), &inputs[1..]);
    in_pieces(pool, out.as_mut_slice::<T>(), CHEAP, |at, out| {
        let mut copy = [T::zeroed(); BLOCK];
        for (i, out) in out.chunks_mut(BLOCK).enumerate() {
            let from = at + i * BLOCK;
            let range = from..from + out.len();
            out.copy_from_slice(&first[range.clone()]);
            for other in rest {
                let copy = &mut copy[..out.len()];
                copy.copy_from_slice(out);
                kernel(copy, &other.as_slice()[range.clone()], out);
            }
        }
    });
    Ok(())
}
