//! `PopulationCount`: the number of bits that are set.

use crate::prelude::*;

pub(super) const DEF: OpDef = OpDef::pure("PopulationCount", |_| Ok(Box::new(PopulationCount)));

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
            let counts = x.as_slice::<T>().iter().map(|x| x.count_ones() as u8);
            out.iter_mut().zip(counts).for_each(|(out, count)| *out = count);
        });
        Ok(())
    }
}
