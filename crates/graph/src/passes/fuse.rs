//! Fuses what follows a matrix product or a convolution into it: scales and batch norm go into the
//! weights, sums with a constant become a bias, a sum with a value of the same shape and an
//! activation run on each tile while it is hot.
//!
//! A chain is followed only over values that nobody else reads, so nothing is computed twice.

mod chain;

use std::sync::Arc;

use ops::{Attrs, Env};
use proto::tensorflow::attr_value::Value;
use tensor::{DType, Tensor};

use super::edits::{Edits, Input, New, set, texts};
use super::specs::Specs;
use super::uses::Uses;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::program::Bindings;
use chain::{Chain, Look};

/// Replaces each product and what follows it by a fused op.
pub(super) fn fuse(graph: Graph, bindings: &Bindings<'_>, env: &Env<'_>) -> Result<Graph> {
    let scaled = |product: &FuseProduct, scale: &[f32]| match product.kind {
        // It is never packed.
        FuseKind::Depthwise => bindings.scaled.get(&product.weight, scale).map(Input::Value),
        // The product is made when it is packed, one at a time.
        FuseKind::Conv | FuseKind::MatMul | FuseKind::Linear => {
            Ok(Input::Scaled(product.weight.clone(), Arc::from(scale)))
        }
    };
    fuse_with(graph, env, &scaled)
}

/// The same with weights as they were: only the ops are as they should be.
pub(super) fn fuse_as_is(graph: Graph, _: &Bindings<'_>, env: &Env<'_>) -> Result<Graph> {
    fuse_with(graph, env, &|product, _| Ok(Input::Value(product.weight.clone())))
}

/// A function that multiplies a weight with a scale for each channel.
type Scale<'a> = &'a dyn Fn(&FuseProduct, &[f32]) -> tensor::Result<Input>;

fn fuse_with(graph: Graph, env: &Env<'_>, scale: Scale<'_>) -> Result<Graph> {
    let look =
        Look { graph: &graph, uses: Uses::from_graph(&graph), specs: Specs::infer(&graph, env) };
    let mut edits = Edits::for_graph(&graph);
    for number in 0..u32::try_from(graph.nodes.len()).expect("a graph is bounded") {
        let Some(product) = FuseProduct::at_node(&graph, number) else { continue };
        let Some(chain) = Chain::follow(&look, &edits, &product) else { continue };
        let last = *chain.nodes.last().expect("a chain has a last node");
        edits.replace(last, &chain.nodes, fused(&graph, &product, &chain, scale)?);
    }
    Ok(edits.apply(graph))
}

/// A product of an input and a constant weight.
struct FuseProduct {
    number: u32,
    kind: FuseKind,
    weight: Tensor,
    /// The channels of the output.
    n_channels: usize,
    /// The last dimensions of the output, which its channels are spread over.
    tail: Vec<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FuseKind {
    Conv,
    Depthwise,
    MatMul,
    Linear,
}

impl FuseProduct {
    fn at_node(graph: &Graph, number: u32) -> Option<Self> {
        let node = graph.node(number);
        (!node.is_conditional()).then_some(())?;
        let kind = match node.op_name() {
            "Conv2D" => FuseKind::Conv,
            "DepthwiseConv2dNative" => FuseKind::Depthwise,
            "MatMul" => FuseKind::MatMul,
            "_Linear" => FuseKind::Linear,
            _ => return None,
        };
        let attrs = Attrs::new(&node.attrs);
        let plain = match kind {
            FuseKind::MatMul => !attrs.bool_or("transpose_b", false).ok()?,
            FuseKind::Linear => true,
            FuseKind::Conv | FuseKind::Depthwise => {
                attrs.str_or("data_format", "NHWC").ok()? == "NHWC"
            }
        };
        let weight = graph.node(node.inputs.get(1)?.node).as_const()?.clone();
        let rank = if matches!(kind, FuseKind::MatMul | FuseKind::Linear) { 2 } else { 4 };
        if !plain || weight.dtype() != DType::F32 || weight.shape().rank() != rank {
            return None;
        }
        let shape = weight.shape();
        let n_channels = match kind {
            FuseKind::Depthwise => shape[2] * shape[3],
            FuseKind::Conv | FuseKind::MatMul | FuseKind::Linear => shape.last_dim(),
        };
        let tail = match kind {
            FuseKind::Linear => sizes(attrs.ints("tail").ok()?)?,
            FuseKind::Conv | FuseKind::Depthwise | FuseKind::MatMul => vec![n_channels],
        };
        let product = Self { number, kind, weight, n_channels, tail };
        ops::find(product.fused_name()).map(|_| product)
    }

    fn fused_name(&self) -> &'static str {
        match self.kind {
            FuseKind::Conv => "_FusedConv2D",
            FuseKind::Depthwise => "_FusedDepthwiseConv2dNative",
            FuseKind::MatMul => "_FusedMatMul",
            FuseKind::Linear => "_Linear",
        }
    }
}

/// The op for a product and what follows it.
fn fused(graph: &Graph, product: &FuseProduct, chain: &Chain, scale: Scale<'_>) -> Result<New> {
    let node = graph.node(product.number);
    let mut attrs = (*node.attrs).clone();
    let mut names: Vec<&str> = Vec::new();
    names.extend(chain.bias.is_some().then_some("BiasAdd"));
    names.extend(chain.residual.is_some().then_some("Add"));
    names.extend(chain.activation.as_ref().map(|activation| activation.name.as_str()));
    let n_args = usize::from(chain.bias.is_some()) + usize::from(chain.residual.is_some());
    set(&mut attrs, "fused_ops", texts(&names));
    set(&mut attrs, "num_args", Value::I(n_args as i64));
    if let Some(alpha) = chain.activation.as_ref().and_then(|activation| activation.alpha) {
        set(&mut attrs, "leakyrelu_alpha", Value::F(alpha));
    }
    let memory = |error: tensor::Error| Error::node(&node.name, error.into());
    let weight = match &chain.scale {
        None => Input::Value(product.weight.clone()),
        Some(by) => scale(product, by).map_err(memory)?,
    };
    let mut inputs = vec![Input::Old(node.inputs[0]), weight];
    if let Some(bias) = &chain.bias {
        inputs.push(Input::Value(Tensor::vector(bias).map_err(memory)?));
    }
    inputs.extend(chain.residual.map(Input::Old));
    New::build(&node.name, product.fused_name(), attrs, inputs)
}

fn sizes(numbers: &[i64]) -> Option<Vec<usize>> {
    numbers.iter().map(|number| usize::try_from(*number).ok()).collect()
}
