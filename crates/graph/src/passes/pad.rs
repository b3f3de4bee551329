//! Takes zeros around an image into the padding of the convolution that reads them.

use ops::{Attrs, Env};
use tensor::DType;

use super::edits::{Edits, Input, New, ints, set, text};
use super::uses::Uses;
use crate::error::Result;
use crate::graph::{Graph, Node};
use crate::program::Bindings;

/// Replaces each convolution without padding of a padded image.
pub(super) fn pad(graph: Graph, _: &Bindings<'_>, _: &Env<'_>) -> Result<Graph> {
    let uses = Uses::from_graph(&graph);
    let mut edits = Edits::for_graph(&graph);
    for (number, node) in (0u32..).zip(&graph.nodes) {
        let Some(paddings) = paddings(&graph, node) else { continue };
        let pad = node.inputs[0].node;
        if !uses.are_private(&[pad], number) || edits.touches(pad) {
            continue;
        }
        let mut attrs = (*node.attrs).clone();
        set(&mut attrs, "padding", text("EXPLICIT"));
        set(&mut attrs, "explicit_paddings", ints(paddings));
        let mut inputs: Vec<Input> = node.inputs.iter().map(|port| Input::Old(*port)).collect();
        inputs[0] = Input::Old(graph.node(pad).inputs[0]);
        let new = New::build(&node.name, node.op_name(), attrs, inputs)?;
        edits.replace(number, &[pad], new);
    }
    Ok(edits.apply(graph))
}

/// The rows and columns of zeros before and after each dimension, if a convolution can add them.
fn paddings(graph: &Graph, node: &Node) -> Option<Vec<i64>> {
    matches!(node.op_name(), "Conv2D" | "DepthwiseConv2dNative").then_some(())?;
    let attrs = Attrs::new(&node.attrs);
    let is_nhwc = attrs.str_or("data_format", "NHWC").ok()? == "NHWC";
    (is_nhwc && attrs.str("padding").ok()? == "VALID").then_some(())?;
    (attrs.dtype("T").ok()? == DType::F32).then_some(())?;
    let pad = graph.node(node.inputs.first()?.node);
    (pad.op_name() == "Pad").then_some(())?;
    let paddings = graph.node(pad.inputs.get(1)?.node).as_const()?.view().to_i64()?;
    let around = |at: usize| paddings.get(at) == Some(&0);
    let fits = paddings.len() == 8
        && [0, 1, 6, 7].into_iter().all(around)
        && paddings.iter().all(|n| (0..64).contains(n));
    fits.then_some(paddings)
}
