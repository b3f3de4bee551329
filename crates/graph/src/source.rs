//! `Source`: a `GraphDef` with its functions, indexed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use ops::{OutputArg, OutputCount};
use proto::tensorflow::attr_value::Value;
use proto::tensorflow::{AttrValue, FunctionDef, GraphDef, NodeDef, OpDef, OpList};
use rustc_hash::FxHashMap;
use tensor::Spec;

use crate::error::{Error, Result};

/// A graph and its functions, by name. Made once for a model; signatures are traced from it.
#[derive(Debug)]
pub struct Source {
    pub(crate) main: Body,
    functions: FxHashMap<String, Function>,
    /// The definitions of the ops, as the exporter wrote them beside the graph.
    ops: FxHashMap<String, OpDef>,
    /// The number of times that the main graph was traced.
    n_traces: AtomicUsize,
}

/// The parts of a graph to run: the tensors given, the tensors wanted, and nodes to run for their
/// effect.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// Names of fed tensors, such as `x:0`, and what is known of them.
    pub feeds: Vec<(String, Spec)>,
    /// Names of wanted tensors.
    pub fetches: Vec<String>,
    /// Names of nodes that run for their effect.
    pub targets: Vec<String>,
}

/// Nodes and their index by name.
#[derive(Debug, Default)]
pub(crate) struct Body {
    pub(crate) nodes: Vec<NodeDef>,
    by_name: FxHashMap<String, usize>,
    /// `true` if any node is part of a loop of TensorFlow 1.
    pub(crate) has_loops: bool,
}

/// A function of the library.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) signature: OpDef,
    pub(crate) body: Body,
    /// For each output argument, what it returns.
    pub(crate) ret: BTreeMap<String, String>,
    /// Nodes that run for their effect.
    pub(crate) control_ret: Vec<String>,
}

impl Source {
    /// Indexes a graph. `ops` are the definitions that the exporter wrote beside it. Fails if two
    /// nodes or two functions share a name.
    pub fn new(graph: GraphDef, ops: OpList) -> Result<Self> {
        let mut functions = FxHashMap::default();
        for function in graph.library.unwrap_or_default().function {
            let name = function.signature.as_ref().map_or("", |s| &s.name).to_owned();
            if functions.insert(name.clone(), Function::new(function)?).is_some() {
                return Err(Error::Malformed(format!("function {name} is defined twice")));
            }
        }
        let ops = ops.op.into_iter().map(|op| (op.name.clone(), op)).collect();
        Ok(Self { main: Body::new(graph.node)?, functions, ops, n_traces: AtomicUsize::new(0) })
    }

    pub(crate) fn function(&self, name: &str) -> Option<&Function> {
        self.functions.get(name)
    }

    /// A name for what the next trace of the main graph makes: no function has it.
    pub(crate) fn next_name(&self) -> String {
        format!("main {}", self.n_traces.fetch_add(1, Ordering::Relaxed))
    }

    /// A function by its name, with the name as long as the source lives.
    pub(crate) fn function_by_name(&self, name: &str) -> Result<(&str, &Function)> {
        let found = self.functions.get_key_value(name);
        let lost = || Error::NotFound { wanted: format!("function {name}"), by: String::new() };
        found.map(|(name, function)| (name.as_str(), function)).ok_or_else(lost)
    }

    /// The names of all functions.
    pub fn function_names(&self) -> impl Iterator<Item = &str> {
        self.functions.keys().map(String::as_str)
    }

    /// The output that `arg:index` means on a node, whose attributes `attr` finds: those of a
    /// function by its signature, those of an op by our own table, then by the definitions in the
    /// file, which exporters may strip. An op that neither lists is refused; one that we lack is
    /// reported as missing anyway, so any number does for it.
    pub(crate) fn output_number<'n>(
        &self,
        node: &NodeDef,
        arg: &str,
        index: usize,
        attr: impl Fn(&str) -> Option<&'n AttrValue>,
    ) -> Result<usize> {
        let listed = self.ops.get(&node.op);
        let found = if let Some(function) = self.functions.get(&node.op) {
            find_output(defined_outputs(&function.signature), arg, index, &attr)
        } else if let Some(known) = ops::outputs(&node.op) {
            find_output(known.iter().copied(), arg, index, &attr).or_else(|| {
                find_output(listed.into_iter().flat_map(defined_outputs), arg, index, &attr)
            })
        } else if let Some(listed) = listed {
            find_output(defined_outputs(listed), arg, index, &attr)
        } else {
            ops::find(&node.op).is_none().then_some(index)
        };
        found.ok_or_else(|| {
            let NodeDef { name, op, .. } = node;
            Error::Malformed(format!("node {name} ({op}) has no output {arg}:{index}"))
        })
    }
}

/// The output arguments of a definition.
fn defined_outputs(definition: &OpDef) -> impl Iterator<Item = OutputArg<'_>> {
    let default = |name: &str| {
        let attr = definition.attr.iter().find(|attr| attr.name == name)?;
        attr.default_value.as_ref().and_then(length)
    };
    definition.output_arg.iter().map(move |arg| {
        let by = [&arg.number_attr, &arg.type_list_attr].into_iter().find(|name| !name.is_empty());
        let count = match by {
            Some(name) => OutputCount::Attr { name, default: default(name) },
            None => OutputCount::One,
        };
        OutputArg { name: &arg.name, count }
    })
}

/// The number of the output that `arg:index` means among output arguments.
fn find_output<'a, 'n>(
    outputs: impl Iterator<Item = OutputArg<'a>>,
    arg: &str,
    index: usize,
    attr: impl Fn(&str) -> Option<&'n AttrValue>,
) -> Option<usize> {
    let mut before = 0usize;
    for output in outputs {
        let count = match output.count {
            OutputCount::One => 1,
            OutputCount::Attr { name, default } => attr(name).map_or(default, length)?,
        };
        if output.name == arg {
            return if index < count { before.checked_add(index) } else { None };
        }
        before = before.checked_add(count)?;
    }
    None
}

/// The number of tensors that the value of an attribute stands for.
fn length(attr: &AttrValue) -> Option<usize> {
    match attr.value.as_ref()? {
        Value::I(count) => usize::try_from(*count).ok(),
        Value::List(list) => Some(list.r#type.len()),
        _ => None,
    }
}

impl Body {
    fn new(nodes: Vec<NodeDef>) -> Result<Self> {
        let mut by_name = FxHashMap::default();
        for (i, node) in nodes.iter().enumerate() {
            if by_name.insert(node.name.clone(), i).is_some() {
                return Err(Error::Malformed(format!("node {} is defined twice", node.name)));
            }
        }
        let leads_in = |node: &NodeDef| {
            matches!(node.op.as_str(), "Enter" | "RefEnter" | "Exit" | "RefExit" | "NextIteration")
        };
        let has_loops = nodes.iter().any(leads_in);
        Ok(Self { nodes, by_name, has_loops })
    }

    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }
}

impl Function {
    fn new(def: FunctionDef) -> Result<Self> {
        Ok(Self {
            signature: def.signature.unwrap_or_default(),
            body: Body::new(def.node_def)?,
            ret: def.ret,
            control_ret: def.control_ret.into_values().collect(),
        })
    }

    /// The number of the argument called `name`.
    pub(crate) fn arg(&self, name: &str) -> Option<usize> {
        self.signature.input_arg.iter().position(|arg| arg.name == name)
    }
}
