//! Indices that count from the end if they are negative, as Keras's embeddings take them.

use std::sync::Arc;

use proto::tensorflow::attr_value::Value;

use super::super::edits::{Input, New, NodeAttrs, set};
use super::{CollapseMatch, CollapseScan};
use crate::graph::Port;

/// `select(x < 0, x + n, x)`.
pub(super) fn find(look: &CollapseScan<'_>, root: u32) -> Option<CollapseMatch> {
    let port = Port { node: root, output: 0 };
    (look.op(port) == "SelectV2").then_some(())?;
    let [test, wrapped, x] = look.inputs(port)[..] else { return None };
    (look.op(test) == "Less").then_some(())?;
    let (tested, zero) = look.pair(test)?;
    let (_, n) = look
        .either(wrapped, &["AddV2", "Add"])
        .into_iter()
        .find(|(a, b)| *a == x && integer(look, *b).is_some())?;
    let fits = tested == x && integer(look, zero) == Some(0);
    fits.then_some(())?;
    let mut attrs = NodeAttrs::new();
    set(&mut attrs, "size", Value::I(integer(look, n)?));
    let name = Arc::clone(&look.graph.node(root).name);
    let new = New::build(&name, "_WrapIndices", attrs, vec![Input::Old(x)]);
    Some(CollapseMatch { new, others: vec![test.node, wrapped.node] })
}

/// A constant that is one integer, without dimensions.
fn integer(look: &CollapseScan<'_>, port: Port) -> Option<i64> {
    let tensor = look.graph.node(port.node).as_const()?;
    let numbers = (tensor.shape().rank() == 0).then(|| tensor.view().to_i64()).flatten()?;
    numbers.first().copied()
}
