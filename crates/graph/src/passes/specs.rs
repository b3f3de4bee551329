//! `Specs`: what is known of each value of a graph.

use ops::Env;
use tensor::{DType, Dim, Spec, Symbol};

use crate::graph::{Body, Graph, Port};

/// The specs of each node's outputs; none where they cannot be inferred.
pub(super) struct Specs(Vec<Vec<Spec>>);

impl Specs {
    pub(super) fn infer(graph: &Graph, env: &Env<'_>) -> Self {
        let mut specs: Vec<Vec<Spec>> = Vec::with_capacity(graph.nodes.len());
        for node in &graph.nodes {
            let known = match &node.body {
                Body::Arg(number) => vec![named(&graph.args[*number], *number)],
                Body::Const(tensor) => vec![Spec::constant(tensor.clone())],
                Body::Scaled(scaled) => vec![scaled.spec()],
                Body::Op { op, .. } => {
                    let find = |port: &Port| specs[port.node as usize].get(port.output as usize);
                    let inputs: Option<Vec<Spec>> =
                        node.inputs.iter().map(|port| find(port).cloned()).collect();
                    let outputs = inputs.map(|inputs| op.infer_with(&inputs, env.functions));
                    outputs.and_then(Result::ok).unwrap_or_default()
                }
            };
            specs.push(known);
        }
        Self(specs)
    }

    pub(super) fn get(&self, port: Port) -> Option<&Spec> {
        self.0[port.node as usize].get(port.output as usize)
    }

    pub(super) fn dtype(&self, port: Port) -> Option<DType> {
        self.get(port).map(|spec| spec.dtype)
    }

    pub(super) fn rank(&self, port: Port) -> Option<usize> {
        self.get(port)?.rank()
    }

    /// The size of the last dimension.
    pub(super) fn last_dim(&self, port: Port) -> Option<usize> {
        self.get(port)?.dims()?.last()?.size()
    }

    /// Returns whether two values surely have the same dtype and shape.
    pub(super) fn are_same(&self, a: Port, b: Port) -> bool {
        let (Some(a), Some(b)) = (self.get(a), self.get(b)) else { return false };
        let (Some(x), Some(y)) = (a.dims(), b.dims()) else { return false };
        a.dtype == b.dtype && x.len() == y.len() && x.iter().zip(y).all(|(x, y)| x.same(y))
    }
}

/// The spec with a symbol of its own for each size that is not known.
fn named(spec: &Spec, arg: usize) -> Spec {
    let Some(dims) = spec.dims() else { return spec.clone() };
    let name = |place: usize, dim: &Dim| match dim {
        // No argument has that many dimensions; the symbols are of this pass alone.
        Dim::Unknown => {
            let number = u32::try_from(arg * 256 + place);
            number.map_or(Dim::Unknown, |number| Dim::symbol(Symbol(number)))
        }
        Dim::Known(_) | Dim::Symbolic(_) => dim.clone(),
    };
    Spec::new(spec.dtype, dims.iter().enumerate().map(|(place, dim)| name(place, dim)))
}
