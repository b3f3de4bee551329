//! Mutable tables whose entries are in the checkpoint.

use std::collections::BTreeMap;
use std::sync::Arc;

use graph::Graph;
use ops::{Attrs, Resources, Table};
use savedmodel::SavedModel;
use session::{Result, Weights};

use crate::error::{op_error, read_error};
use crate::variables::read;

/// Ops that make the handle of a mutable table.
const MUTABLE: &[&str] = &["MutableHashTable", "MutableHashTableV2", "MutableHashTableOfTensorsV2"];

/// Fills the tables that graphs use and the checkpoint has entries of; counts their bytes.
pub(crate) fn restore<'a>(
    model: &SavedModel,
    graphs: impl Iterator<Item = &'a Graph>,
    resources: &Resources,
    weights: &mut Weights,
) -> Result<()> {
    let imports = model.restore().map_err(|error| read_error(&error))?.tables;
    if imports.is_empty() {
        return Ok(());
    }
    let Some(checkpoint) = model.checkpoint().map_err(|error| read_error(&error))? else {
        return Ok(());
    };
    let used = used_tables(graphs);
    for import in imports {
        let Some(key) = used.get(&import.table) else { continue };
        let _name = device::named(Arc::from(&*import.table));
        let fill = || {
            let def = model.graph.node.iter().find(|node| node.name == import.table);
            let attrs = def.map(|node| node.attr.clone()).unwrap_or_default();
            let table = Table::mutable(&Attrs::new(&attrs))?;
            resources.get_or_create(&key.0, &key.1, || table)
        };
        let bad = |error: ops::Error| op_error(&error, format!("table {}: {error}", import.table));
        let table: Arc<Table> = fill().map_err(bad)?;
        let keys = read(&checkpoint, &import.keys, None)?;
        let values = read(&checkpoint, &import.values, None)?;
        table.import(&keys.view(), &values.view()).map_err(bad)?;
        weights.bytes += table.n_bytes();
    }
    Ok(())
}

/// The container and name of each mutable table that graphs use, by the name of its node.
fn used_tables<'a>(graphs: impl Iterator<Item = &'a Graph>) -> BTreeMap<String, (String, String)> {
    let mut used = BTreeMap::new();
    for node in graphs.flat_map(|graph| &graph.nodes) {
        if MUTABLE.contains(&node.op_name()) {
            let attrs = Attrs::new(&node.attrs);
            let text = |name| attrs.str_or(name, "").unwrap_or_default().to_owned();
            used.insert(node.name.to_string(), (text("container"), text("shared_name")));
        }
    }
    used
}
