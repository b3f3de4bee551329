//! The check that the files of a model are all there, as far as that can be told without reading
//! weights.
//!
//! TensorFlow takes a SavedModel without `variables.index` for one without variables, and serves
//! signatures that then fail at every request. A folder that is still being copied looks like that,
//! so a version is incomplete if a signature reads a variable that only the checkpoint can give.

use std::collections::{HashMap, HashSet};

use proto::tensorflow as tf;
use proto::tensorflow::attr_value::Value;

use crate::error::{Error, Result};
use crate::model::{SavedModel, VARIABLES};
use crate::restore::{Restore, Source, VariableId};

impl SavedModel {
    /// Fails if there is no index of a checkpoint though a signature reads what is restored from
    /// it. Costs one look at the folder if the index is there.
    ///
    /// # Errors
    /// [`Error::NoIndex`], or if the folder cannot be read.
    pub fn check_index(&self) -> Result<()> {
        if self.dir().exists(&index())? {
            return Ok(());
        }
        let Some((signature, restored)) = self.restored_by_signatures().into_iter().next() else {
            return Ok(());
        };
        Err(Error::NoIndex { file: index(), signature, variable: restored.name })
    }

    /// Fails if a file is missing or too short that a signature needs: the index, or a data file
    /// with the value of a variable. Reads the index, but no value.
    ///
    /// # Errors
    /// As [`SavedModel::check_index`]; [`Error::Shard`] names a data file.
    pub fn check_files(&self) -> Result<()> {
        self.check_index()?;
        let Some(checkpoint) = self.checkpoint()? else { return Ok(()) };
        for (_, restored) in self.restored_by_signatures() {
            for source in restored.sources {
                checkpoint.check_data(&source.key)?;
            }
        }
        Ok(())
    }

    /// Returns the variables and tables that signatures read and the checkpoint gives, each with a
    /// signature that reads it. The init op may give a value to what it reaches. Where the restore
    /// op cannot be followed, the checkpoint may give a value to every variable.
    fn restored_by_signatures(&self) -> Vec<(String, Restored)> {
        let mut restored = self.restore().map_or_else(|_| all_variables(&self.graph), by_key);
        if restored.is_empty() {
            return Vec::new();
        }
        let graph = Reach::new(&self.graph);
        for key in graph.reached(self.init_op.iter().map(String::as_str), &HashSet::new()) {
            restored.remove(&key);
        }
        let mut found = Vec::new();
        let usable = self.signatures.values().filter(|one| one.unusable_inputs.is_empty());
        for signature in usable {
            let feeds = signature.inputs.values().map(|input| node_name(&input.tensor)).collect();
            let fetches = signature.outputs.values().map(|output| output.tensor.as_str());
            for key in graph.reached(fetches, &feeds) {
                found.extend(restored.remove(&key).map(|one| (signature.name.clone(), one)));
            }
        }
        found
    }
}

/// Something that is restored from a checkpoint.
struct Restored {
    name: String,
    sources: Vec<Source>,
}

/// The variable or table that a node of the graph stands for.
#[derive(PartialEq, Eq, Hash)]
enum Key {
    Variable(VariableId),
    /// The name of a node that makes a table.
    Table(String),
}

fn by_key(restore: Restore) -> HashMap<Key, Restored> {
    let variables = restore.assignments.into_iter().map(|one| {
        let name = one.variable.name.clone();
        (Key::Variable(one.variable), Restored { name, sources: vec![one.source] })
    });
    let tables = restore.tables.into_iter().map(|one| {
        let name = one.table.clone();
        (Key::Table(one.table), Restored { name, sources: vec![one.keys, one.values] })
    });
    variables.chain(tables).collect()
}

/// All variables of a graph and its functions, from sources that are not known.
fn all_variables(graph: &tf::GraphDef) -> HashMap<Key, Restored> {
    let functions = graph.library.iter().flat_map(|library| &library.function);
    let nodes = graph.node.iter().chain(functions.flat_map(|function| &function.node_def));
    let variables = nodes.filter_map(VariableId::of).map(|variable| {
        let restored = Restored { name: variable.name.clone(), sources: Vec::new() };
        (Key::Variable(variable), restored)
    });
    variables.collect()
}

/// The nodes of a graph and of its functions by name.
struct Reach<'g> {
    nodes: HashMap<&'g str, &'g tf::NodeDef>,
    functions: HashMap<&'g str, &'g tf::FunctionDef>,
}

impl<'g> Reach<'g> {
    fn new(graph: &'g tf::GraphDef) -> Self {
        let functions = graph.library.iter().flat_map(|library| &library.function);
        let name = |function: &'g tf::FunctionDef| Some(function.signature.as_ref()?.name.as_str());
        Self {
            nodes: graph.node.iter().map(|node| (node.name.as_str(), node)).collect(),
            functions: functions.filter_map(|one| Some((name(one)?, one))).collect(),
        }
    }

    /// The variables and tables on the way from tensors or nodes back to what is fed, functions
    /// that are called on the way as a whole included.
    fn reached<'a>(&self, from: impl Iterator<Item = &'a str>, feeds: &HashSet<&str>) -> Vec<Key>
    where
        'g: 'a,
    {
        let mut todo: Vec<&str> = from.map(node_name).collect();
        let (mut seen, mut entered) = (HashSet::new(), HashSet::new());
        let mut found = Vec::new();
        while let Some(name) = todo.pop() {
            let Some(node) = self.nodes.get(name).filter(|_| !feeds.contains(name)) else {
                continue;
            };
            if seen.insert(&*node.name) {
                let variable = VariableId::of(node).map(Key::Variable);
                found.push(variable.unwrap_or_else(|| Key::Table(node.name.clone())));
                todo.extend(node.input.iter().map(|input| node_name(input)));
                self.enter(node, &mut entered, &mut found);
            }
        }
        found
    }

    /// Adds the variables in the functions that a node calls. Names in a function are its own, so
    /// all of its nodes count as reached.
    fn enter(&self, call: &'g tf::NodeDef, entered: &mut HashSet<&'g str>, found: &mut Vec<Key>) {
        let mut calls = vec![call];
        while let Some(call) = calls.pop() {
            for name in called(call) {
                let function = self.functions.get(name).filter(|_| entered.insert(name));
                for node in function.into_iter().flat_map(|function| &function.node_def) {
                    found.extend(VariableId::of(node).map(Key::Variable));
                    calls.push(node);
                }
            }
        }
    }
}

/// The functions that a node names.
fn called(node: &tf::NodeDef) -> impl Iterator<Item = &str> {
    node.attr.values().flat_map(|attr| match &attr.value {
        Some(Value::Func(function)) => vec![function.name.as_str()],
        Some(Value::List(list)) => list.func.iter().map(|one| one.name.as_str()).collect(),
        _ => Vec::new(),
    })
}

/// The node that a tensor or a control input comes from: `x` for `x:0` and `^x`.
fn node_name(tensor: &str) -> &str {
    let name = tensor.strip_prefix('^').unwrap_or(tensor);
    name.split(':').next().unwrap_or_default()
}

fn index() -> String {
    format!("{VARIABLES}.index")
}

#[cfg(test)]
mod tests;
