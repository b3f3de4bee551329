//! The variables that a graph uses, and those of them that it may write.

use std::collections::BTreeMap;

use ops::{Attrs, Facts, PassThrough, VariableAccess};
use rustc_hash::FxHashMap;
use tensor::DType;

use crate::error::{Error, Result};
use crate::graph::{Graph, Node};
use crate::source::Source;

/// A variable that a graph uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VariableUse {
    /// The container, usually empty.
    pub container: String,
    /// The name within the container.
    pub name: String,
    /// The dtype.
    pub dtype: DType,
    /// The shape as far as the graph says it.
    pub dims: Option<Vec<Option<i64>>>,
    /// `true` if the graph may change it: it must then stay a variable.
    pub is_written: bool,
}

/// The variables that a graph uses, by container and name.
pub fn variables(
    graph: &Graph,
    source: &Source,
) -> Result<BTreeMap<(String, String), VariableUse>> {
    let mut uses = BTreeMap::new();
    let loops = graph.functions.clone();
    let mut functions = VariablesFunctions { source, loops, writes: FxHashMap::default() };
    let written = functions.written_nodes(graph)?;
    for (number, node) in graph.nodes.iter().enumerate() {
        if node.facts().variable != VariableAccess::Handle {
            continue;
        }
        let variable = variable(node, written[number])?;
        let key = (variable.container.clone(), variable.name.clone());
        let known = uses.entry(key).or_insert_with(|| variable.clone());
        known.is_written |= variable.is_written;
    }
    Ok(uses)
}

fn variable(node: &Node, is_written: bool) -> Result<VariableUse> {
    let attrs = Attrs::new(&node.attrs);
    let read = || {
        Ok(VariableUse {
            container: attrs.str_or("container", "")?.to_owned(),
            name: attrs.str_or("shared_name", "")?.to_owned(),
            dtype: attrs.dtype("dtype")?,
            dims: attrs.shape_or_unknown("shape")?,
            is_written,
        })
    };
    read().map_err(|error| Error::node(&node.name, error))
}

/// The arguments that functions may write to, looked up once each.
struct VariablesFunctions<'a> {
    source: &'a Source,
    /// Those that tracing made of loops.
    loops: BTreeMap<String, Graph>,
    writes: FxHashMap<String, Vec<bool>>,
}

impl VariablesFunctions<'_> {
    /// For each node, whether a variable whose handle it gives may be written.
    fn written_nodes(&mut self, graph: &Graph) -> Result<Vec<bool>> {
        let mut written = vec![false; graph.nodes.len()];
        // Backwards, so that a node's users are known before it: an identity passes them on.
        for (number, node) in graph.nodes.iter().enumerate().rev() {
            for (i, input) in node.inputs.iter().enumerate() {
                let is_read_only = match node.facts().passes {
                    PassThrough::Anything => !written[number],
                    PassThrough::Nothing | PassThrough::Tensor | PassThrough::Each => {
                        self.reads_only(node, i)?
                    }
                };
                if !is_read_only {
                    written[input.node as usize] = true;
                }
            }
        }
        Ok(written)
    }

    fn reads_only(&mut self, node: &Node, input: usize) -> Result<bool> {
        let Facts { variable, calls, .. } = node.facts();
        if variable.is_reading() {
            return Ok(true);
        }
        if !calls.is_control_flow() {
            return Ok(false);
        }
        let Some(arg) = input.checked_sub(calls.first_arg()) else { return Ok(true) };
        let names = calls.functions(&Attrs::new(&node.attrs));
        for name in names.map_err(|error| Error::node(&node.name, error))? {
            if self.writes_of(name)?.get(arg).copied().unwrap_or(true) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn writes_of(&mut self, function: &str) -> Result<Vec<bool>> {
        if let Some(writes) = self.writes.get(function) {
            return Ok(writes.clone());
        }
        let mut graph = match self.loops.remove(function) {
            Some(part) => part,
            None => self.source.trace_function(function)?,
        };
        self.loops.append(&mut graph.functions);
        // A function that is asked about while it is looked at recurs: it then writes everything.
        self.writes.insert(function.to_owned(), vec![true; graph.args.len()]);
        let written = self.written_nodes(&graph)?;
        // The first nodes of a function's graph are its arguments.
        let writes: Vec<bool> = written[..graph.args.len()].to_vec();
        self.writes.insert(function.to_owned(), writes.clone());
        Ok(writes)
    }
}
