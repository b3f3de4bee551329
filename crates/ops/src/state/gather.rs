//! `ResourceGather`: rows of a variable by index, such as an embedding's.

use super::handle::{variable, variable_spec};
use crate::array::gather::{gather, infer_gather};
use crate::facts::VariableAccess;
use crate::prelude::*;

pub(super) const GATHER: OpDef =
    OpDef::of_kind("ResourceGather", Kind::Reads, RowRule::Mixed, |attrs| {
        let batch_dims = attrs.int_or("batch_dims", 0)?;
        Ok(Box::new(ResourceGather { batch_dims, dtype: attrs.dtype("dtype")? }))
    })
    .uses(VariableAccess::Gather);

struct ResourceGather {
    batch_dims: i64,
    dtype: DType,
}

impl Op for ResourceGather {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [handle, indices] = arity(inputs)?;
        let params = variable_spec(handle, self.dtype);
        Ok(vec![infer_gather(&params, indices, Some(self.batch_dims), self.batch_dims)?])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let params = variable(ctx, 0)?.value()?;
        gather(ctx, params.view(), ctx.input(1), (self.batch_dims, self.batch_dims))
    }
}
