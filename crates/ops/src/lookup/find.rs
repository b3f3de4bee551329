//! `LookupTableFindV2`, `LookupTableSizeV2`, `LookupTableExportV2`: reading a table.

use super::table::{known_table, table};
use crate::prelude::*;

pub(super) const FIND: OpDef =
    OpDef::of_kind("LookupTableFind", Kind::Reads, RowRule::Lookup, Find::build).on_host();
pub(super) const FIND_V2: OpDef =
    OpDef::of_kind("LookupTableFindV2", Kind::Reads, RowRule::Lookup, Find::build).on_host();
pub(super) const SIZE: OpDef =
    OpDef::of_kind("LookupTableSize", Kind::Reads, RowRule::Mixed, |_| Ok(Box::new(FindSize)))
        .on_host();
pub(super) const SIZE_V2: OpDef =
    OpDef::of_kind("LookupTableSizeV2", Kind::Reads, RowRule::Mixed, |_| Ok(Box::new(FindSize)))
        .on_host();
pub(super) const EXPORT: OpDef =
    OpDef::of_kind("LookupTableExport", Kind::Reads, RowRule::Mixed, Export::build).on_host();
pub(super) const EXPORT_V2: OpDef =
    OpDef::of_kind("LookupTableExportV2", Kind::Reads, RowRule::Mixed, Export::build).on_host();

/// The value of each key, or a default.
struct Find {
    value: DType,
}

impl Find {
    fn build(attrs: &Attrs<'_>) -> Result<Box<dyn Op>> {
        Ok(Box::new(Self { value: attrs.dtype("Tout")? }))
    }
}

impl Op for Find {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [handle, keys, _] = arity(inputs)?;
        let (Some(table), Some(dims)) = (known_table(handle), keys.dims()) else {
            return Ok(vec![Spec::unknown(self.value)]);
        };
        let width = table.value_shape().iter().map(|size| Dim::of(*size));
        let Some(outer) = dims.len().checked_sub(table.key_shape().rank()) else {
            return Ok(vec![Spec::unknown(self.value)]);
        };
        Ok(vec![Spec::new(self.value, dims[..outer].iter().cloned().chain(width))])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (table, keys, default) = (table(ctx)?, ctx.input(1), ctx.input(2));
        let (key, value) = table.dtypes();
        // The texts are TensorFlow's (`lookup_interface.cc`).
        if keys.dtype() != key {
            return invalid!("Key must be type {key} but got {}", keys.dtype());
        }
        if default.dtype() != value || value != self.value {
            return invalid!("Default value must be type {value} but got {}", default.dtype());
        }
        let width = table.value_shape();
        let outer = table.outer(keys.shape())?;
        let shape = outer.iter().chain(width.iter()).map(|dim| *dim as i64);
        let shape = Shape::checked(shape)?;
        if default.shape() != width && *default.shape() != shape {
            let got = default.shape();
            return invalid!("Expected shape {width} or {shape} for default value, got {got}");
        }
        table.refuse_reserved(&keys)?;
        let map = table.map()?;
        map.find(&keys, &mut ctx.scratch())?.write(ctx, &map, default, &shape)
    }

    fn scratch_bytes(&self, inputs: &[Spec], _: &[Spec]) -> usize {
        Scratch::bytes_for::<usize>(&inputs[1])
    }
}

/// The number of keys.
struct FindSize;

impl Op for FindSize {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [_] = arity(inputs)?;
        Ok(vec![Spec::scalar(DType::I64)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let n_keys = table(ctx)?.n_keys();
        ctx.output(0, DType::I64, &Shape::scalar())?.as_mut_slice::<i64>()[0] = n_keys as i64;
        Ok(())
    }
}

/// All keys and values. Their order is the table's.
struct Export {
    key: DType,
    value: DType,
}

impl Export {
    fn build(attrs: &Attrs<'_>) -> Result<Box<dyn Op>> {
        Ok(Box::new(Self { key: attrs.dtype("Tkeys")?, value: attrs.dtype("Tvalues")? }))
    }
}

impl Op for Export {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [handle] = arity(inputs)?;
        let Some(table) = known_table(handle) else {
            return Ok(vec![Spec::unknown(self.key), Spec::unknown(self.value)]);
        };
        let rows = |dtype: DType, shape: &Shape| {
            let width = shape.iter().map(|size| Dim::of(*size));
            Spec::new(dtype, std::iter::once(Dim::Unknown).chain(width))
        };
        Ok(vec![rows(self.key, table.key_shape()), rows(self.value, table.value_shape())])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let table = table(ctx)?;
        if table.dtypes() != (self.key, self.value) {
            return invalid!("the table does not lead from {} to {}", self.key, self.value);
        }
        let map = table.map()?;
        ctx.set_output(0, map.keys()?)?;
        ctx.set_output(1, map.values().clone())
    }
}
