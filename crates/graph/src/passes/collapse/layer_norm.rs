//! The mean and variance of each row taken out of it.

use std::sync::Arc;

use proto::tensorflow::attr_value::Value;
use tensor::{DType, Tensor};

use super::super::edits::{Input, New, NodeAttrs, set};
use super::{CollapseMatch, CollapseScan};
use crate::graph::Port;

const SUM: &[&str] = &["AddV2", "Add"];

/// The parts of a normalisation.
struct Norm {
    x: Port,
    scale: Port,
    shift: Port,
    epsilon: f32,
    nodes: Vec<u32>,
}

/// A normalisation along the last dimension, with a scale and a shift, that ends with a sum.
pub(super) fn find(look: &CollapseScan<'_>, root: u32) -> Option<CollapseMatch> {
    let port = Port { node: root, output: 0 };
    (look.specs.dtype(port) == Some(DType::F32)).then_some(())?;
    let norm = folded(look, port).or_else(|| plain(look, port))?;
    let row = (look.specs.rank(norm.x)?, look.specs.last_dim(norm.x)?);
    let scale = vector(look, norm.scale, row)?;
    let shift = vector(look, norm.shift, row)?;
    let mut attrs = NodeAttrs::new();
    set(&mut attrs, "epsilon", Value::F(norm.epsilon));
    let name = Arc::clone(&look.graph.node(root).name);
    let inputs = vec![Input::Old(norm.x), Input::Value(scale), Input::Value(shift)];
    Some(CollapseMatch { new: New::build(&name, "_LayerNorm", attrs, inputs), others: norm.nodes })
}

/// `x·f + (shift - mean·f)` where `f` is the scale over the deviation: `tf.nn.batch_normalization`
/// and Keras.
fn folded(look: &CollapseScan<'_>, root: Port) -> Option<Norm> {
    look.either(root, SUM).into_iter().find_map(|(product, rest)| {
        look.either(product, &["Mul"]).into_iter().find_map(|(x, factor)| {
            let (scale, deviation) = look
                .either(factor, &["Mul"])
                .into_iter()
                .find(|(_, deviation)| look.op(*deviation) == "Rsqrt")?;
            let moments = LayerNormMoments::from_deviation(look, deviation, x)?;
            let (shift, mut nodes) = offset(look, rest, moments.mean, factor)?;
            nodes.extend([product.node, rest.node, factor.node]);
            nodes.extend(moments.nodes);
            Some(Norm { x, scale, shift, epsilon: moments.epsilon, nodes })
        })
    })
}

/// The shift in `shift - mean·factor`, and the nodes in between.
fn offset(
    look: &CollapseScan<'_>,
    rest: Port,
    mean: Port,
    factor: Port,
) -> Option<(Port, Vec<u32>)> {
    let is_product = |port: Port, a: Port| {
        look.either(port, &["Mul"]).into_iter().any(|pair| pair == (a, factor))
    };
    if look.op(rest) == "Sub" {
        let (shift, product) = look.pair(rest)?;
        return is_product(product, mean).then(|| (shift, vec![product.node]));
    }
    look.either(rest, SUM).into_iter().find_map(|(product, shift)| {
        let (negated, _) = look
            .either(product, &["Mul"])
            .into_iter()
            .find(|(a, b)| look.op(*a) == "Neg" && *b == factor)?;
        let is_mean = look.inputs(negated)[..] == [mean];
        is_mean.then(|| (shift, vec![product.node, negated.node]))
    })
}

/// `(x - mean)·(1/deviation)·scale + shift`, as people write it.
fn plain(look: &CollapseScan<'_>, root: Port) -> Option<Norm> {
    look.either(root, SUM).into_iter().find_map(|(scaled, shift)| {
        look.either(scaled, &["Mul"]).into_iter().find_map(|(normal, scale)| {
            let (centred, deviation) = look
                .either(normal, &["Mul"])
                .into_iter()
                .find(|(a, b)| look.op(*a) == "Sub" && look.op(*b) == "Rsqrt")?;
            let (x, mean) = look.pair(centred)?;
            let moments = LayerNormMoments::from_deviation(look, deviation, x)?;
            let mut nodes = vec![scaled.node, normal.node, centred.node];
            nodes.extend(moments.nodes);
            let epsilon = moments.epsilon;
            (mean == moments.mean).then_some(Norm { x, scale, shift, epsilon, nodes })
        })
    })
}

/// The mean of each row, and what the inverse of its deviation is made of.
struct LayerNormMoments {
    mean: Port,
    epsilon: f32,
    nodes: Vec<u32>,
}

impl LayerNormMoments {
    /// Of `1 / sqrt(variance + epsilon)` of the rows of `x`.
    fn from_deviation(look: &CollapseScan<'_>, deviation: Port, x: Port) -> Option<Self> {
        let sum = *look.inputs(deviation).first()?;
        let (epsilon, variance) = look
            .either(sum, SUM)
            .into_iter()
            .find_map(|(a, b)| look.number(a).map(|epsilon| (epsilon, b)))?;
        let squares = of_rows(look, variance)?;
        let (a, b) = match look.op(squares) {
            "SquaredDifference" => look.pair(squares)?,
            _ => return None,
        };
        let mean = if a == x { b } else { a };
        let is_mean = (a == x || b == x) && of_rows(look, mean) == Some(x);
        let nodes = vec![deviation.node, sum.node, variance.node, squares.node, mean.node];
        is_mean.then_some(Self { mean, epsilon, nodes })
    }
}

/// The operand of a mean along the last dimension, which stays with size one.
fn of_rows(look: &CollapseScan<'_>, mean: Port) -> Option<Port> {
    (look.op(mean) == "Mean").then_some(())?;
    let (x, axes) = look.pair(mean)?;
    let attrs = ops::Attrs::new(&look.graph.node(mean.node).attrs);
    attrs.bool_or("keep_dims", false).ok()?.then_some(())?;
    let [axis] = look.graph.node(axes.node).as_const()?.view().to_i64()?[..] else { return None };
    let rank = i64::try_from(look.specs.rank(x)?).ok()?;
    (axis == -1 || axis == rank - 1).then_some(x)
}

/// A constant as one value for each of the `n` elements of a row of a tensor of this rank.
fn vector(look: &CollapseScan<'_>, port: Port, (rank, n): (usize, usize)) -> Option<Tensor> {
    let tensor = look.graph.node(port.node).as_const()?;
    let fits = tensor.dtype() == DType::F32
        && tensor.n_elements() == n
        && tensor.shape().last_dim() == n
        && tensor.shape().rank() <= rank
        && n > 0;
    fits.then(|| Tensor::vector(tensor.as_slice::<f32>()).ok()).flatten()
}
