//! `Graph`: a flat list of nodes in an order in which they can run.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use ops::{Facts, Kind, Op, OpDef, RowRule};
use proto::tensorflow::AttrValue;
use smallvec::SmallVec;
use tensor::{Spec, Tensor};

use crate::scaled::scaled;

/// Nodes in an order that respects data and control dependencies, with function bodies in place of
/// their calls. A node refers only to nodes before it.
#[derive(Debug, Clone, Default)]
pub struct Graph {
    /// The nodes.
    pub nodes: Vec<Node>,
    /// The spec of each feed, as far as it is known.
    pub args: Vec<Spec>,
    /// The tensors wanted.
    pub fetches: Vec<Port>,
    /// The functions that tracing made of loops, those in the functions included.
    pub functions: BTreeMap<String, Graph>,
}

/// An output of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Port {
    /// The node's place in the graph.
    pub node: u32,
    /// The output's number.
    pub output: u32,
}

/// One node.
#[derive(Clone)]
pub struct Node {
    /// The name in the `GraphDef`, with the names of the calls around it.
    pub name: Arc<str>,
    /// The node's body: a feed, a constant or an op.
    pub body: Body,
    /// The node's inputs: first those of its op, then its conditions.
    pub inputs: Vec<Port>,
    /// The value that each condition, a scalar bool among the last inputs, must have for the node
    /// to run. Else its outputs are dead: only nodes that do not run either read them, or a merge,
    /// which reads the values that are alive. A condition that is dead itself comes after one that
    /// does not hold.
    pub when: SmallVec<[bool; 2]>,
    /// The attributes, for passes that rewrite nodes.
    pub attrs: Arc<BTreeMap<String, AttrValue>>,
}

/// The body of a node.
#[derive(Clone)]
pub enum Body {
    /// A feed, by its number.
    Arg(usize),
    /// A value: a constant of the graph, a weight, or what was folded.
    Const(Tensor),
    /// A weight that is to be packed times a scale; until then nobody has the product.
    Scaled(Scaled),
    /// An op.
    Op {
        /// Its line in the table.
        def: &'static OpDef,
        /// Its meaning with the node's attributes.
        op: Arc<dyn Op>,
    },
}

/// A weight, and a scale for each of its channels, the innermost elements.
#[derive(Clone)]
pub struct Scaled {
    pub(crate) weight: Tensor,
    pub(crate) scale: Arc<[f32]>,
}

impl Scaled {
    /// The weight times its scale.
    pub(crate) fn product(&self) -> tensor::Result<Tensor> {
        scaled(&self.weight, &self.scale)
    }

    /// The known spec of the value.
    pub(crate) fn spec(&self) -> Spec {
        Spec::concrete(self.weight.dtype(), self.weight.shape())
    }
}

impl Graph {
    pub(crate) fn push(&mut self, node: Node) -> u32 {
        let number = u32::try_from(self.nodes.len()).expect("a graph is bounded");
        assert!(node.inputs.iter().all(|port| port.node < number), "inputs come first");
        self.nodes.push(node);
        number
    }

    pub(crate) fn node(&self, number: u32) -> &Node {
        &self.nodes[number as usize]
    }
}

impl Node {
    /// A constant.
    pub(crate) fn constant(name: &Arc<str>, value: Tensor) -> Self {
        Self {
            name: Arc::clone(name),
            body: Body::Const(value),
            inputs: Vec::new(),
            when: SmallVec::new(),
            attrs: Arc::default(),
        }
    }

    /// The inputs that its op reads.
    pub fn operands(&self) -> &[Port] {
        &self.inputs[..self.inputs.len() - self.when.len()]
    }

    /// The conditions that decide whether the node runs.
    pub fn conditions(&self) -> impl Iterator<Item = (Port, bool)> {
        let conditions = &self.inputs[self.inputs.len() - self.when.len()..];
        conditions.iter().copied().zip(self.when.iter().copied())
    }

    /// Returns whether the node may be left out of a run.
    pub fn is_conditional(&self) -> bool {
        !self.when.is_empty()
    }

    /// TensorFlow's name of its op; `Arg` for a feed.
    pub fn op_name(&self) -> &'static str {
        match &self.body {
            Body::Arg(_) => "Arg",
            Body::Const(_) | Body::Scaled(_) => "Const",
            Body::Op { def, .. } => def.name,
        }
    }

    /// The value, if it is a constant.
    pub fn as_const(&self) -> Option<&Tensor> {
        match &self.body {
            Body::Const(tensor) => Some(tensor),
            Body::Arg(_) | Body::Scaled(_) | Body::Op { .. } => None,
        }
    }

    /// The memory of a constant, whatever it is to be multiplied with.
    pub(crate) fn as_weight(&self) -> Option<&Tensor> {
        match &self.body {
            Body::Const(tensor) | Body::Scaled(Scaled { weight: tensor, .. }) => Some(tensor),
            Body::Arg(_) | Body::Op { .. } => None,
        }
    }

    /// The facts of its op; none for a feed and a constant.
    pub fn facts(&self) -> &'static Facts {
        static NOTHING: Facts = Facts::usual(RowRule::Mixed);
        match &self.body {
            Body::Arg(_) | Body::Const(_) | Body::Scaled(_) => &NOTHING,
            Body::Op { def, .. } => &def.facts,
        }
    }

    /// The effects of the node besides computing.
    pub fn kind(&self) -> Kind {
        match &self.body {
            Body::Arg(_) | Body::Const(_) | Body::Scaled(_) => Kind::Pure,
            Body::Op { def, .. } => def.kind,
        }
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}{:?}", self.name, self.op_name(), self.operands())?;
        self.conditions().try_for_each(|(port, when)| write!(f, " if {port:?} is {when}"))
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Arg(number) => write!(f, "Arg({number})"),
            Self::Const(tensor) => write!(f, "Const({}{})", tensor.dtype(), tensor.shape()),
            Self::Scaled(Scaled { weight, .. }) => {
                write!(f, "Scaled({}{})", weight.dtype(), weight.shape())
            }
            Self::Op { def, .. } => f.write_str(def.name),
        }
    }
}
