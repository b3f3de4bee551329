//! `InitializeTableV2`, `LookupTableImportV2`, `LookupTableInsertV2`: filling a table from tensors.

use super::table::{Table, table};
use crate::prelude::*;

pub(super) const INITIALIZE: OpDef =
    OpDef::of_kind("InitializeTable", Kind::Writes, RowRule::Mixed, |_| Ok(Box::new(Initialize)))
        .on_host();
pub(super) const INITIALIZE_V2: OpDef =
    OpDef::of_kind("InitializeTableV2", Kind::Writes, RowRule::Mixed, |_| Ok(Box::new(Initialize)))
        .on_host();
pub(super) const IMPORT: OpDef =
    OpDef::of_kind("LookupTableImport", Kind::Writes, RowRule::Mixed, |_| {
        Ok(Box::new(Fill { how: Table::import }))
    })
    .on_host();
pub(super) const INSERT: OpDef =
    OpDef::of_kind("LookupTableInsert", Kind::Writes, RowRule::Mixed, |_| {
        Ok(Box::new(Fill { how: Table::insert }))
    })
    .on_host();
pub(super) const IMPORT_V2: OpDef =
    OpDef::of_kind("LookupTableImportV2", Kind::Writes, RowRule::Mixed, |_| {
        Ok(Box::new(Fill { how: Table::import }))
    })
    .on_host();
pub(super) const INSERT_V2: OpDef =
    OpDef::of_kind("LookupTableInsertV2", Kind::Writes, RowRule::Mixed, |_| {
        Ok(Box::new(Fill { how: Table::insert }))
    })
    .on_host();

struct Fill {
    how: fn(&Table, &View<'_>, &View<'_>) -> Result<()>,
}

impl Op for Fill {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [_, _, _] = arity(inputs)?;
        Ok(Vec::new())
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        (self.how)(table(ctx)?, &ctx.input(1), &ctx.input(2))
    }
}

/// Fills a table of constants, whose keys are a list.
struct Initialize;

impl Op for Initialize {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [_, keys, _] = arity(inputs)?;
        keys.require_rank(1)?;
        Ok(Vec::new())
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let keys = ctx.input(1);
        if keys.shape().rank() != 1 {
            // The texts are TensorFlow's (`lookup_table_init_op.cc`).
            return invalid!("Keys must be a vector, but received shape {}", keys.shape());
        }
        if keys.n_elements() == 0 || ctx.input(2).n_elements() == 0 {
            return invalid!("keys and values cannot be empty tensors.");
        }
        table(ctx)?.insert(&keys, &ctx.input(2))
    }
}
