//! Chains behind a product: scales, sums, batch norm, an activation.

use ops::Attrs;
use tensor::{DType, Tensor};

use super::super::edits::Edits;
use super::super::specs::Specs;
use super::super::uses::{Uses, first};
use super::{FuseKind, FuseProduct};
use crate::graph::{Graph, Node, Port};

/// The graph in which chains are looked for, and its analyses.
pub(super) struct Look<'a> {
    pub(super) graph: &'a Graph,
    pub(super) uses: Uses,
    pub(super) specs: Specs,
}

/// An activation and its parameter.
pub(super) struct Activation {
    pub(super) name: String,
    pub(super) alpha: Option<f32>,
}

/// The nodes that can be computed together with a product.
pub(super) struct Chain {
    /// The nodes that it replaces, the product first.
    pub(super) nodes: Vec<u32>,
    pub(super) scale: Option<Vec<f32>>,
    pub(super) bias: Option<Vec<f32>>,
    /// A value of the output's shape that is added.
    pub(super) residual: Option<Port>,
    pub(super) activation: Option<Activation>,
}

impl Chain {
    /// Follows the readers of a product as long as there is something to fuse. `None` if there is
    /// nothing.
    pub(super) fn follow(look: &Look<'_>, edits: &Edits, product: &FuseProduct) -> Option<Self> {
        let mut chain = Self {
            nodes: vec![product.number],
            scale: None,
            bias: None,
            residual: None,
            activation: None,
        };
        while chain.step(look, edits, product).is_some() {}
        (chain.nodes.len() > 1).then_some(chain)
    }

    /// Takes the next node in, if it can be.
    fn step(&mut self, look: &Look<'_>, edits: &Edits, product: &FuseProduct) -> Option<()> {
        let last = *self.nodes.last()?;
        let [next] = *look.uses.readers(last) else { return None };
        if self.activation.is_some() || edits.touches(next) {
            return None;
        }
        self.take(look, (last, next), product)?;
        self.nodes.push(next);
        Some(())
    }

    fn take(&mut self, look: &Look<'_>, at: (u32, u32), product: &FuseProduct) -> Option<()> {
        let (last, node) = (at.0, look.graph.node(at.1));
        let other = || other(look.graph, node, last, product);
        match node.op_name() {
            "BiasAdd" => {
                let attrs = Attrs::new(&node.attrs);
                (attrs.str_or("data_format", "NHWC").ok()? == "NHWC").then_some(())?;
                self.add(&other()?, 1.0);
            }
            "AddV2" | "Add" => match other() {
                Some(values) => self.add(&values, 1.0),
                None => self.add_value(look, at, product)?,
            },
            "Sub" if node.inputs.first()?.node == last => self.add(&other()?, -1.0),
            "Mul" if self.residual.is_none() => self.multiply(&other()?),
            "FusedBatchNorm" | "FusedBatchNormV2" | "FusedBatchNormV3"
                if self.residual.is_none() =>
            {
                self.normalise(look.graph, node, last, product)?;
            }
            _ => self.activation = Some(activation(node)?),
        }
        Some(())
    }

    /// Takes in the sum with another value, if nothing is broadcast.
    fn add_value(
        &mut self,
        look: &Look<'_>,
        (last, next): (u32, u32),
        product: &FuseProduct,
    ) -> Option<()> {
        let other = match look.graph.node(next).inputs[..] {
            [a, b] if a == first(last) && b.node != last => b,
            [a, b] if b == first(last) && a.node != last => a,
            _ => return None,
        };
        let fits = product.kind != FuseKind::Depthwise
            && self.residual.is_none()
            && look.specs.are_same(first(last), other)
            && look.specs.are_same(first(last), first(next));
        fits.then_some(())?;
        self.residual = Some(other);
        Some(())
    }

    fn add(&mut self, values: &[f32], sign: f32) {
        let bias = self.bias.get_or_insert_with(|| vec![0.0; values.len()]);
        bias.iter_mut().zip(values).for_each(|(b, v)| *b += sign * v);
    }

    fn multiply(&mut self, values: &[f32]) {
        let scale = self.scale.get_or_insert_with(|| vec![1.0; values.len()]);
        scale.iter_mut().zip(values).for_each(|(s, v)| *s *= v);
        if let Some(bias) = &mut self.bias {
            bias.iter_mut().zip(values).for_each(|(b, v)| *b *= v);
        }
    }

    /// Takes in `(x - mean) / sqrt(variance + epsilon) * scale + offset`.
    fn normalise(
        &mut self,
        graph: &Graph,
        node: &Node,
        last: u32,
        product: &FuseProduct,
    ) -> Option<()> {
        let attrs = Attrs::new(&node.attrs);
        let is_inference = !attrs.bool_or("is_training", true).ok()?;
        let is_nhwc = attrs.str_or("data_format", "NHWC").ok()? == "NHWC";
        (is_inference && is_nhwc && node.inputs.first()?.node == last).then_some(())?;
        let epsilon = attrs.float_or("epsilon", 0.0001).ok()?;
        let vector = |input: usize| {
            let tensor = graph.node(node.inputs.get(input)?.node).as_const()?;
            per_channel(tensor, product)
        };
        let (scale, offset) = (vector(1)?, vector(2)?);
        let (mean, variance) = (vector(3)?, vector(4)?);
        let factor: Vec<f32> =
            scale.iter().zip(&variance).map(|(s, v)| s / (v + epsilon).sqrt()).collect();
        self.add(&mean, -1.0);
        self.multiply(&factor);
        self.add(&offset, 1.0);
        Some(())
    }
}

fn activation(node: &Node) -> Option<Activation> {
    let attrs = Attrs::new(&node.attrs);
    let (name, alpha) = match node.op_name() {
        name @ ("Relu" | "Relu6" | "Elu" | "Sigmoid" | "Tanh") => (name, None),
        "LeakyRelu" => ("LeakyRelu", Some(attrs.float_or("alpha", 0.2).ok()?)),
        "_Activation" => (attrs.str("name").ok()?, None),
        _ => return None,
    };
    Some(Activation { name: name.to_owned(), alpha })
}

/// The constant that a node of two inputs combines with node `last`, one value a channel.
fn other(graph: &Graph, node: &Node, last: u32, product: &FuseProduct) -> Option<Vec<f32>> {
    let [a, b] = node.inputs[..] else { return None };
    let other = match (a.node == last, b.node == last) {
        (true, false) => b,
        (false, true) => a,
        _ => return None,
    };
    per_channel(graph.node(other.node).as_const()?, product)
}

/// A tensor that is the same for all but the dimensions of the channels, as one value a channel.
fn per_channel(tensor: &Tensor, product: &FuseProduct) -> Option<Vec<f32>> {
    let shape = tensor.shape();
    // A constant of more dimensions than the output would give it more.
    let rank_max = if product.weight.shape().rank() == 4 { 4 } else { product.tail.len() + 1 };
    if tensor.dtype() != DType::F32 || shape.rank() > rank_max {
        return None;
    }
    let values = tensor.as_slice::<f32>();
    if values.len() == 1 && shape.rank() <= 1 {
        return Some(vec![values[0]; product.n_channels]);
    }
    let fits = shape.dims().ends_with(&product.tail) && values.len() == product.n_channels;
    fits.then(|| values.to_vec())
}
