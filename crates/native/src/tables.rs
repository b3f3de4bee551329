//! Mutable tables whose entries are in the checkpoint.

use std::collections::BTreeMap;
use std::sync::Arc;

use graph::{Graph, Node, Port};
use ops::{Attrs, Kind, Resources, Table};
use savedmodel::SavedModel;
use session::Weights;
use status::{Result, Status};
use tensor::Tensor;

use crate::error::read_error;
use crate::variables::read;

/// Ops that make the handle of a mutable table.
const MUTABLE: &[&str] = &[
    "MutableDenseHashTableV2",
    "MutableHashTable",
    "MutableHashTableOfTensors",
    "MutableHashTableOfTensorsV2",
    "MutableHashTableV2",
];

/// A handle that graphs use.
struct Used<'a> {
    node: &'a Node,
    /// The constants that it is given; nothing if it is given anything else.
    inputs: Option<Vec<Tensor>>,
}

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
    let used = used_handles(graphs);
    for import in imports {
        let Some(used) = used.get(import.table.as_str()) else { continue };
        let _name = device::named(Arc::from(&*import.table));
        let named = |text: &str| format!("table {}: {text}", import.table);
        let bad = |error: ops::Error| Status::from(error).map_message(named);
        let table: Arc<Table> = used.table(resources).map_err(bad)?;
        let keys = read(&checkpoint, &import.keys, None)?;
        let values = read(&checkpoint, &import.values, None)?;
        table.import(&keys.view(), &values.view()).map_err(bad)?;
        weights.bytes += table.n_bytes();
    }
    Ok(())
}

impl Used<'_> {
    /// The table, empty if this is the first to ask for it. Fails if it is of a kind that we do not
    /// know how to fill: it would otherwise give nothing but defaults.
    fn table(&self, resources: &Resources) -> ops::Result<Arc<Table>> {
        let op = self.node.op_name();
        if !MUTABLE.contains(&op) {
            let why = format!("a {op} cannot be filled from the checkpoint");
            return Err(ops::Error::Unimplemented(why));
        }
        let Some(inputs) = self.inputs.clone() else {
            let why = format!("an input of its {op} is no constant");
            return Err(ops::Error::Unimplemented(why));
        };
        let attrs = Attrs::new(&self.node.attrs);
        let table = Table::mutable(&attrs, inputs)?;
        let (container, name) = (attrs.str_or("container", "")?, attrs.str_or("shared_name", "")?);
        resources.get_or_create(container, name, || table)
    }
}

/// The handles that graphs use, by the names of their nodes.
fn used_handles<'a>(graphs: impl Iterator<Item = &'a Graph>) -> BTreeMap<&'a str, Used<'a>> {
    let mut used = BTreeMap::new();
    for graph in graphs {
        for node in graph.nodes.iter().filter(|node| node.kind() == Kind::Handle) {
            let constant = |port: &Port| graph.nodes[port.node as usize].as_const().cloned();
            let inputs = node.inputs.iter().map(constant).collect();
            used.insert(&*node.name, Used { node, inputs });
        }
    }
    used
}
