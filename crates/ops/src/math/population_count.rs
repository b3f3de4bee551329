//! `PopulationCount`: the number of bits that are set.

use crate::prelude::*;

pub(super) const DEF: OpDef =
    OpDef::pure("PopulationCount", RowRule::Mixed, |_| Ok(Box::new(PopulationCount)));

struct PopulationCount;

impl Op for PopulationCount {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [x] = arity(inputs)?;
        Ok(vec![x.with_dtype(DType::U8)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let x = ctx.input(0);
        let mut out = ctx.output(0, DType::U8, x.shape())?;
        let out = out.as_mut_slice::<u8>();
        for_integer!(x.dtype(), T => {
            for (x, out) in x.as_slice::<T>().chunks(AT_ONCE).zip(out.chunks_mut(AT_ONCE)) {
                pace(x.len())?;
                out.iter_mut().zip(x).for_each(|(out, x)| *out = x.count_ones() as u8);
            }
        });
        Ok(())
    }
}
