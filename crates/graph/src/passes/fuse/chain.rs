//! What follows a product: scales, sums, batch norm, an activation.

use ops::Attrs;
use tensor::{DType, Tensor};

use super::Product;
use crate::graph::{Graph, Node, Port};

/// Who reads each node's first output.
pub(super) struct Uses {
    readers: Vec<Vec<u32>>,
    /// Whether a node is fetched, or another output than its first is read.
    is_open: Vec<bool>,
}

impl Uses {
    pub(super) fn of(graph: &Graph) -> Self {
        let mut readers = vec![Vec::new(); graph.nodes.len()];
        let mut is_open = vec![false; graph.nodes.len()];
        graph.fetches.iter().for_each(|port| is_open[port.node as usize] = true);
        for (number, node) in (0u32..).zip(&graph.nodes) {
            for port in &node.inputs {
                readers[port.node as usize].push(number);
                is_open[port.node as usize] |= port.output != 0;
            }
        }
        Self { readers, is_open }
    }

    /// The readers of a node, unless others may see it.
    fn readers(&self, node: u32) -> &[u32] {
        if self.is_open[node as usize] { &[] } else { &self.readers[node as usize] }
    }
}

/// An activation and its parameter.
#[derive(Clone, Copy)]
pub(super) struct Activation {
    pub(super) name: &'static str,
    pub(super) alpha: Option<f32>,
}

/// What can be done together with a product.
pub(super) struct Chain {
    /// The nodes that it replaces, the product first.
    pub(super) nodes: Vec<u32>,
    pub(super) scale: Option<Vec<f32>>,
    pub(super) bias: Option<Vec<f32>>,
    pub(super) activation: Option<Activation>,
}

impl Chain {
    /// Follows the readers of a product as long as there is something to fuse. `None` if there is
    /// nothing.
    pub(super) fn follow(graph: &Graph, uses: &Uses, product: &Product) -> Option<Self> {
        let mut chain =
            Self { nodes: vec![product.number], scale: None, bias: None, activation: None };
        while chain.step(graph, uses, product.n_channels).is_some() {}
        (chain.nodes.len() > 1).then_some(chain)
    }

    /// Takes the next node in, if it can be.
    fn step(&mut self, graph: &Graph, uses: &Uses, n_channels: usize) -> Option<()> {
        if self.activation.is_some() {
            return None;
        }
        let last = *self.nodes.last()?;
        match *uses.readers(last) {
            [next] => {
                self.take(graph, last, next, n_channels)?;
                self.nodes.push(next);
                Some(())
            }
            [a, b] => self.take_swish(graph, uses, last, (a, b)),
            _ => None,
        }
    }

    fn take(&mut self, graph: &Graph, last: u32, next: u32, n: usize) -> Option<()> {
        let node = graph.node(next);
        (!node.is_conditional()).then_some(())?;
        match node.op_name() {
            "BiasAdd" => {
                let attrs = Attrs::new(&node.attrs);
                (attrs.str_or("data_format", "NHWC").ok()? == "NHWC").then_some(())?;
                self.add(&other(graph, node, last, n)?, 1.0);
            }
            "AddV2" | "Add" => self.add(&other(graph, node, last, n)?, 1.0),
            "Sub" if node.inputs.first()?.node == last => {
                self.add(&other(graph, node, last, n)?, -1.0);
            }
            "Mul" => self.multiply(&other(graph, node, last, n)?),
            "FusedBatchNorm" | "FusedBatchNormV2" | "FusedBatchNormV3" => {
                self.normalise(graph, node, last, n)?;
            }
            _ => self.activation = Some(activation(node)?),
        }
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
    fn normalise(&mut self, graph: &Graph, node: &Node, last: u32, n: usize) -> Option<()> {
        let attrs = Attrs::new(&node.attrs);
        let is_inference = !attrs.bool_or("is_training", true).ok()?;
        let is_nhwc = attrs.str_or("data_format", "NHWC").ok()? == "NHWC";
        (is_inference && is_nhwc && node.inputs.first()?.node == last).then_some(())?;
        let epsilon = attrs.float_or("epsilon", 0.0001).ok()?;
        let vector = |input: usize| {
            let tensor = graph.node(node.inputs.get(input)?.node).as_const()?;
            per_channel(tensor, n)
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

    /// Takes in `x * sigmoid(x)`: two readers, one of which reads the other.
    fn take_swish(
        &mut self,
        graph: &Graph,
        uses: &Uses,
        last: u32,
        (a, b): (u32, u32),
    ) -> Option<()> {
        let (sigmoid, product) = if graph.node(a).op_name() == "Sigmoid" { (a, b) } else { (b, a) };
        let port = |node: u32| Port { node, output: 0 };
        let multiplies = graph.node(product).inputs[..] == [port(last), port(sigmoid)]
            || graph.node(product).inputs[..] == [port(sigmoid), port(last)];
        let is_swish = graph.node(sigmoid).op_name() == "Sigmoid"
            && graph.node(product).op_name() == "Mul"
            && multiplies
            && uses.readers(sigmoid) == [product];
        is_swish.then_some(())?;
        self.activation = Some(Activation { name: "Swish", alpha: None });
        self.nodes.extend([sigmoid, product]);
        Some(())
    }
}

fn activation(node: &Node) -> Option<Activation> {
    let name = match node.op_name() {
        "Relu" => "Relu",
        "Relu6" => "Relu6",
        "Elu" => "Elu",
        "Sigmoid" => "Sigmoid",
        "Tanh" => "Tanh",
        "LeakyRelu" => {
            let alpha = Attrs::new(&node.attrs).float_or("alpha", 0.2).ok()?;
            return Some(Activation { name: "LeakyRelu", alpha: Some(alpha) });
        }
        _ => return None,
    };
    Some(Activation { name, alpha: None })
}

/// The constant that a node of two inputs combines with node `last`, one value a channel.
fn other(graph: &Graph, node: &Node, last: u32, n_channels: usize) -> Option<Vec<f32>> {
    let [a, b] = node.inputs[..] else { return None };
    let other = match (a.node == last, b.node == last) {
        (true, false) => b,
        (false, true) => a,
        _ => return None,
    };
    per_channel(graph.node(other.node).as_const()?, n_channels)
}

/// A tensor that is the same for all but the last dimension, as one value a channel.
fn per_channel(tensor: &Tensor, n_channels: usize) -> Option<Vec<f32>> {
    let shape = tensor.shape();
    if tensor.dtype() != DType::F32 || shape.rank() > 4 {
        return None;
    }
    let values = tensor.as_slice::<f32>();
    if values.len() == 1 && shape.rank() <= 1 {
        return Some(vec![values[0]; n_channels]);
    }
    let fits = shape.last_dim() == n_channels && values.len() == n_channels;
    fits.then(|| values.to_vec())
}
