//! Fuses what follows a matrix product or a convolution into it: scales and batch norm go into the
//! weights, sums with a constant become a bias, and an activation runs on each tile while it is
//! hot.
//!
//! A chain is followed only over values that nobody else reads, so nothing is computed twice.

mod chain;
mod weights;

use std::collections::BTreeMap;
use std::sync::Arc;

use ops::{Attrs, Env};
use proto::tensorflow::AttrValue;
use proto::tensorflow::attr_value::{ListValue, Value};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use tensor::{DType, Tensor};

use crate::error::{Error, Result};
use crate::graph::{Body, Graph, Node, Port};
use crate::program::Bindings;
use chain::{Chain, Uses};

/// Replaces each product and what follows it by a fused op.
pub(super) fn fuse(graph: Graph, _: &Bindings<'_>, _: &Env<'_>) -> Result<Graph> {
    let uses = Uses::of(&graph);
    let mut fused: FxHashMap<u32, Fused> = FxHashMap::default();
    let mut gone: FxHashSet<u32> = FxHashSet::default();
    for number in 0..u32::try_from(graph.nodes.len()).expect("a graph is bounded") {
        let Some(product) = Product::of(&graph, number) else { continue };
        let Some(chain) = Chain::follow(&graph, &uses, &product) else { continue };
        gone.extend(chain.nodes.iter().copied());
        let last = *chain.nodes.last().expect("a chain has a last node");
        fused.insert(last, Fused::new(&graph, &product, &chain)?);
    }
    Ok(rebuild(graph, fused, &gone))
}

/// A product of an input and a constant weight.
struct Product {
    number: u32,
    kind: Kind,
    weight: Tensor,
    /// The size of the last dimension of the output.
    n_channels: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Conv,
    Depthwise,
    MatMul,
}

impl Product {
    fn of(graph: &Graph, number: u32) -> Option<Self> {
        let node = graph.node(number);
        (!node.is_conditional()).then_some(())?;
        let kind = match node.op_name() {
            "Conv2D" => Kind::Conv,
            "DepthwiseConv2dNative" => Kind::Depthwise,
            "MatMul" => Kind::MatMul,
            _ => return None,
        };
        let attrs = Attrs::new(&node.attrs);
        let plain = match kind {
            Kind::MatMul => !attrs.bool_or("transpose_b", false).ok()?,
            Kind::Conv | Kind::Depthwise => attrs.str_or("data_format", "NHWC").ok()? == "NHWC",
        };
        let weight = graph.node(node.inputs.get(1)?.node).as_const()?.clone();
        let rank = if kind == Kind::MatMul { 2 } else { 4 };
        if !plain || weight.dtype() != DType::F32 || weight.shape().rank() != rank {
            return None;
        }
        let shape = weight.shape();
        let n_channels = match kind {
            Kind::Depthwise => shape[2] * shape[3],
            Kind::Conv | Kind::MatMul => shape.last_dim(),
        };
        let product = Self { number, kind, weight, n_channels };
        ops::find(product.fused_name()).map(|_| product)
    }

    fn fused_name(&self) -> &'static str {
        match self.kind {
            Kind::Conv => "_FusedConv2D",
            Kind::Depthwise => "_FusedDepthwiseConv2dNative",
            Kind::MatMul => "_FusedMatMul",
        }
    }
}

/// A fused op, before it is in the graph.
struct Fused {
    name: Arc<str>,
    input: Port,
    weight: Tensor,
    bias: Option<Tensor>,
    body: Body,
    attrs: Arc<BTreeMap<String, AttrValue>>,
}

impl Fused {
    fn new(graph: &Graph, product: &Product, chain: &Chain) -> Result<Self> {
        let node = graph.node(product.number);
        let mut attrs = (*node.attrs).clone();
        let mut names: Vec<&str> = Vec::new();
        names.extend(chain.bias.is_some().then_some("BiasAdd"));
        names.extend(chain.activation.map(|activation| activation.name));
        let list = ListValue {
            s: names.iter().map(|name| name.as_bytes().to_vec().into()).collect(),
            ..ListValue::default()
        };
        let mut set = |name: &str, value: Value| {
            attrs.insert(name.to_owned(), AttrValue { value: Some(value) });
        };
        set("fused_ops", Value::List(list));
        set("num_args", Value::I(i64::from(chain.bias.is_some())));
        if let Some(alpha) = chain.activation.and_then(|activation| activation.alpha) {
            set("leakyrelu_alpha", Value::F(alpha));
        }
        let missing = || Error::Malformed(format!("{} is not built in", product.fused_name()));
        let def = ops::find(product.fused_name()).ok_or_else(missing)?;
        let op =
            (def.build)(&Attrs::new(&attrs)).map_err(|error| Error::node(&node.name, error))?;
        let memory = |error: tensor::Error| Error::node(&node.name, error.into());
        let weight = match &chain.scale {
            None => product.weight.clone(),
            Some(scale) => weights::scaled(&product.weight, scale).map_err(memory)?,
        };
        let bias = chain.bias.as_deref().map(Tensor::vector).transpose().map_err(memory)?;
        Ok(Self {
            name: Arc::clone(&node.name),
            input: node.inputs[0],
            weight,
            bias,
            body: Body::Op { def, op: Arc::from(op) },
            attrs: Arc::new(attrs),
        })
    }
}

/// The graph with fused ops in place of the last nodes of their chains.
fn rebuild(graph: Graph, mut fused: FxHashMap<u32, Fused>, gone: &FxHashSet<u32>) -> Graph {
    let mut numbers = vec![0; graph.nodes.len()];
    let mut new = Graph { args: graph.args, ..Graph::default() };
    let moved = |numbers: &[u32], port: Port| Port {
        node: numbers[port.node as usize],
        output: port.output,
    };
    for (number, mut node) in (0u32..).zip(graph.nodes) {
        if let Some(fused) = fused.remove(&number) {
            let constant = |new: &mut Graph, value: Tensor| Port {
                node: new.push(Node::constant(&fused.name, value)),
                output: 0,
            };
            let mut inputs = vec![moved(&numbers, fused.input)];
            inputs.push(constant(&mut new, fused.weight));
            if let Some(bias) = fused.bias {
                inputs.push(constant(&mut new, bias));
            }
            let (name, attrs) = (Arc::clone(&fused.name), fused.attrs);
            let (body, when) = (fused.body, SmallVec::new());
            numbers[number as usize] = new.push(Node { name, body, inputs, when, attrs });
        } else if !gone.contains(&number) {
            node.inputs.iter_mut().for_each(|port| *port = moved(&numbers, *port));
            numbers[number as usize] = new.push(node);
        }
    }
    new.fetches = graph.fetches.iter().map(|port| moved(&numbers, *port)).collect();
    new
}
