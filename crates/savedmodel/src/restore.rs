//! The assignment of the checkpoint's tensors to variables.
//!
//! TensorFlow restores variables by running a part of the graph: `RestoreV2` reads tensors by name,
//! `Assign` and `AssignVariableOp` put them into variables; in TF2 that is in a function. All of it
//! is fixed when the model is saved, so the wiring tells, and nothing need be run.

mod frames;

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use proto::tensorflow as tf;
use proto::tensorflow::attr_value::Value;
use status::Code;
use tensor::{DType, Shape, Tensor};

use crate::checkpoint::{Checkpoint, Slice};
use crate::error::{Error, Fault, Result};
use frames::{Frames, Place};

/// The names of what one op restores are read at once.
const NAMES_LIMIT_BYTES: usize = 256 << 20;

/// The effect of restoring a model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Restore {
    /// The variables.
    pub assignments: Vec<Assignment>,
    /// The tables whose entries are in the checkpoint.
    pub tables: Vec<TableImport>,
}

/// A variable takes a tensor, or a part of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// The variable.
    pub variable: VariableId,
    /// The source of its value.
    pub source: Source,
}

/// A mutable table takes its keys and values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableImport {
    /// The node of the table.
    pub table: String,
    /// The tensor of its keys.
    pub keys: Source,
    /// The tensor of its values.
    pub values: Source,
}

/// A tensor of the checkpoint, or a part of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The key in the checkpoint.
    pub key: String,
    /// The part of the tensor; `None` for all of it.
    pub part: Option<Part>,
    /// The dtype that the graph expects.
    pub dtype: DType,
}

/// A part of a tensor of a shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The shape of the whole tensor.
    pub shape: Shape,
    /// The part.
    pub slice: Slice,
}

impl Source {
    /// The shape of what is read, once dtype and shape are known to be those that the graph
    /// expects; see [`Checkpoint::shape`].
    ///
    /// # Errors
    /// If the tensor is missing or damaged, or is another than expected.
    pub fn shape(&self, checkpoint: &Checkpoint) -> Result<Shape> {
        let entry = checkpoint.entry(&self.key)?;
        let differs = |expected: &dyn ToString, got: &dyn ToString| {
            let (expected, got) = (expected.to_string(), got.to_string());
            checkpoint.error(&self.key, Fault::Mismatch { expected, got })
        };
        if entry.dtype() != self.dtype {
            return Err(differs(&self.dtype, &entry.dtype()));
        }
        let Some(part) = &self.part else { return checkpoint.shape(&self.key, None) };
        if *entry.shape() != part.shape {
            return Err(differs(&part.shape, entry.shape()));
        }
        checkpoint.shape(&self.key, Some(&part.slice))
    }

    /// Reads it into its place; see [`Checkpoint::read_into`].
    ///
    /// # Errors
    /// As there, and as [`Source::shape`].
    pub fn read_into(&self, checkpoint: &Checkpoint, into: &mut [u8]) -> Result<()> {
        self.shape(checkpoint)?;
        checkpoint.read_into(&self.key, self.part.as_ref().map(|part| &part.slice), into)
    }
}

/// The identity of a variable: the same wherever the graph names it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VariableId {
    /// The container; mostly empty.
    pub container: String,
    /// The shared name; the name of the node if a reference variable has none.
    pub name: String,
    /// The kind of the variable: of TF1 and assigned by reference, or not.
    pub kind: VariableKind,
}

/// The two kinds of variables, which do not see each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum VariableKind {
    /// `VarHandleOp`.
    Resource,
    /// `Variable`, `VariableV2`.
    Reference,
}

impl VariableId {
    /// The variable that a node stands for; `None` if it is no variable.
    pub fn of(node: &tf::NodeDef) -> Option<Self> {
        let kind = match node.op.as_str() {
            "VarHandleOp" => VariableKind::Resource,
            "Variable" | "VariableV2" => VariableKind::Reference,
            _ => return None,
        };
        let mut name = string_attr(node, "shared_name");
        // The kernel of `VarHandleOp` takes the shared name as it is, even an empty one.
        if name.is_empty() && kind == VariableKind::Reference {
            name.clone_from(&node.name);
        }
        Some(Self { container: string_attr(node, "container"), name, kind })
    }
}

/// Follows the graph from the node `restore_op` to every assignment.
pub(crate) fn follow(graph: &tf::GraphDef, restore_op: &str) -> Result<Restore> {
    let mut walk =
        Walk { frames: Frames::of(graph), names: HashMap::new(), found: Restore::default() };
    let start = walk.frames.node(0, restore_op, restore_op)?;
    let mut todo = vec![start];
    let mut seen = HashSet::new();
    while let Some(place) = todo.pop() {
        if seen.insert(place.id()) {
            walk.visit(place, &mut todo)?;
        }
    }
    // They were found from the end.
    walk.found.assignments.reverse();
    walk.found.tables.reverse();
    Ok(walk.found)
}

struct Walk<'g> {
    frames: Frames<'g>,
    /// The names that each `RestoreV2` reads.
    names: HashMap<(usize, &'g str), Rc<Names>>,
    found: Restore,
}

/// The inputs of a `RestoreV2`.
struct Names {
    keys: Tensor,
    parts: Tensor,
    dtypes: Vec<i32>,
}

impl<'g> Walk<'g> {
    /// Notes what a node does, and adds what must run before it to `todo`.
    fn visit(&mut self, place: Place<'g>, todo: &mut Vec<Place<'g>>) -> Result<()> {
        let node = place.node;
        match node.op.as_str() {
            "Assign" | "AssignVariableOp" => {
                let assignment = self.assignment(place)?;
                self.found.assignments.push(assignment);
            }
            "LookupTableImport" | "LookupTableImportV2" => {
                let import = self.table_import(place)?;
                self.found.tables.push(import);
            }
            "PartitionedCall" | "StatefulPartitionedCall" => {
                let callee = self.frames.enter(place)?;
                todo.extend(self.frames.nodes(callee));
            }
            "Restore" | "RestoreSlice" => {
                return Err(unsupported(node, "checkpoints of version 1 are not supported"));
            }
            _ => {}
        }
        for input in &node.input {
            if let Some(before) = self.frames.before(place, input)? {
                todo.push(before);
            }
        }
        Ok(())
    }

    fn assignment(&mut self, place: Place<'g>) -> Result<Assignment> {
        let target = self.frames.origin(place, 0)?.0;
        let variable = VariableId::of(target.node).ok_or_else(|| {
            let op = &target.node.op;
            wrong(place.node, format!("it assigns to {:?}, a {op}", target.node.name))
        })?;
        Ok(Assignment { variable, source: self.source(place, 1)? })
    }

    fn table_import(&mut self, place: Place<'g>) -> Result<TableImport> {
        let table = self.frames.origin(place, 0)?.0.node.name.clone();
        Ok(TableImport { table, keys: self.source(place, 1)?, values: self.source(place, 2)? })
    }

    /// The tensor of the checkpoint that comes in at `input` of a node.
    fn source(&mut self, place: Place<'g>, input: usize) -> Result<Source> {
        let (origin, output) = self.frames.origin(place, input)?;
        if origin.node.op != "RestoreV2" {
            let reason = format!("its value comes from {:?}", origin.node.name);
            return Err(unsupported(place.node, &format!("{reason}, a {}", origin.node.op)));
        }
        let names = self.names(origin)?;
        names.source(origin.node, output)
    }

    fn names(&mut self, place: Place<'g>) -> Result<Rc<Names>> {
        if let Some(names) = self.names.get(&place.id()) {
            return Ok(Rc::clone(names));
        }
        let names = Rc::new(Names {
            keys: self.constant(place, 1)?,
            parts: self.constant(place, 2)?,
            dtypes: match attr(place.node, "dtypes") {
                Some(Value::List(list)) => list.r#type.clone(),
                _ => return Err(wrong(place.node, "it has no attribute dtypes".to_owned())),
            },
        });
        self.names.insert(place.id(), Rc::clone(&names));
        Ok(names)
    }

    fn constant(&mut self, place: Place<'g>, input: usize) -> Result<Tensor> {
        let origin = self.frames.origin(place, input)?.0.node;
        let Some(Value::Tensor(value)) = attr(origin, "value").filter(|_| origin.op == "Const")
        else {
            let reason = format!("{:?}, a {}, is no constant", origin.name, origin.op);
            return Err(unsupported(place.node, &reason));
        };
        let tensor = Tensor::from_proto(value, NAMES_LIMIT_BYTES).map_err(|err| {
            let (reason, code) = (err.to_string(), err.code());
            Error::Restore { node: origin.name.clone(), reason, code }
        })?;
        if tensor.dtype() != DType::String {
            return Err(wrong(origin, format!("expected string, got {}", tensor.dtype())));
        }
        Ok(tensor)
    }
}

impl Names {
    fn source(&self, node: &tf::NodeDef, output: usize) -> Result<Source> {
        let n_names = self.keys.n_elements().min(self.parts.n_elements());
        let dtype = self.dtypes.get(output).filter(|_| output < n_names);
        let Some(dtype) = dtype else {
            return Err(wrong(node, format!("it has no output {output}")));
        };
        let dtype = DType::from_number(*dtype)
            .ok_or_else(|| wrong(node, format!("output {output} has unknown dtype {dtype}")))?;
        let text = |tensor: &Tensor| {
            String::from_utf8(tensor.strings().get(output).to_vec())
                .map_err(|_| wrong(node, format!("a name of output {output} is not UTF-8")))
        };
        let part = text(&self.parts)?;
        Ok(Source { key: text(&self.keys)?, part: parse_part(node, &part)?, dtype })
    }
}

fn parse_part(node: &tf::NodeDef, text: &str) -> Result<Option<Part>> {
    if text.is_empty() {
        return Ok(None);
    }
    let malformed = || wrong(node, format!("{text:?} is no shape and slice"));
    let (shape, slice) = Slice::parse_with_shape(text).ok_or_else(malformed)?;
    let shape = Shape::checked(shape).map_err(|_| malformed())?;
    Ok(Some(Part { shape, slice }))
}

fn attr<'g>(node: &'g tf::NodeDef, name: &str) -> Option<&'g Value> {
    node.attr.get(name)?.value.as_ref()
}

fn string_attr(node: &tf::NodeDef, name: &str) -> String {
    match attr(node, name) {
        Some(Value::S(value)) => String::from_utf8_lossy(value).into_owned(),
        _ => String::new(),
    }
}

fn wrong(node: &tf::NodeDef, reason: String) -> Error {
    Error::Restore { node: node.name.clone(), reason, code: Code::InvalidArgument }
}

fn unsupported(node: &tf::NodeDef, reason: &str) -> Error {
    let (node, reason) = (node.name.clone(), reason.to_owned());
    Error::Restore { node, reason, code: Code::Unimplemented }
}

#[cfg(test)]
mod tests;
