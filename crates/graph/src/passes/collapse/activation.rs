//! Swish, hard swish and the forms of gelu.

use std::sync::Arc;

use tensor::DType;

use super::super::edits::{Input, New, NodeAttrs, set, text};
use super::terms::Terms;
use super::{CollapseMatch, CollapseScan, is_about};
use crate::graph::Port;

/// An activation that ends with a product.
pub(super) fn find(look: &CollapseScan<'_>, root: u32) -> Option<CollapseMatch> {
    let port = Port { node: root, output: 0 };
    matches!(look.op(port), "Mul" | "RealDiv").then_some(())?;
    (look.specs.dtype(port) == Some(DType::F32)).then_some(())?;
    let terms = Terms::from_product(look, port);
    let (name, x, inner) = terms.factors.iter().find_map(|gate| by_gate(look, &terms, *gate))?;
    let mut attrs = NodeAttrs::new();
    set(&mut attrs, "name", text(name));
    let node = look.graph.node(root);
    let new = New::build(&Arc::clone(&node.name), "_Activation", attrs, vec![Input::Old(x)]);
    let others = terms.nodes.into_iter().chain(inner).filter(|node| *node != root).collect();
    Some(CollapseMatch { new, others })
}

/// The activation that one factor makes of the product, what it is of, and the nodes within.
fn by_gate(
    look: &CollapseScan<'_>,
    terms: &Terms,
    gate: Port,
) -> Option<(&'static str, Port, Vec<u32>)> {
    let one = |inner: &Port| *inner;
    match look.op(gate) {
        "Sigmoid" => {
            let argument = look.inputs(gate).first().map(one)?;
            let [x] = terms.besides(gate)?[..] else { return None };
            is_about(terms.number, 1.).then_some(())?;
            if argument == x {
                return Some(("Swish", x, vec![gate.node]));
            }
            // Keras multiplies by its beta, which is 1.
            let inner = Terms::from_product(look, argument);
            is_about(inner.times(x)?, 1.).then_some(())?;
            Some(("Swish", x, inner.nodes.into_iter().chain([gate.node]).collect()))
        }
        "Relu6" => hard(look, terms, gate),
        "Erfc" => {
            let [x] = terms.besides(gate)?[..] else { return None };
            let inner = Terms::from_product(look, look.inputs(gate).first().map(one)?);
            let fits = is_about(inner.times(x)?, -std::f32::consts::FRAC_1_SQRT_2)
                && is_about(terms.number, 0.5);
            let nodes = inner.nodes.into_iter().chain([gate.node]).collect();
            fits.then_some(("GeluExact", x, nodes))
        }
        "AddV2" | "Add" => {
            let [x] = terms.besides(gate)?[..] else { return None };
            is_about(terms.number, 0.5).then_some(())?;
            let (_, curve) = look
                .either(gate, &["AddV2", "Add"])
                .into_iter()
                .find(|(a, _)| look.number(*a).is_some_and(|n| is_about(n, 1.)))?;
            let argument = look.inputs(curve).first().map(one)?;
            let (name, nodes) = match look.op(curve) {
                "Erf" => ("GeluExact", by_error(look, argument, x)?),
                "Tanh" => ("GeluApproximate", by_tangent(look, argument, x)?),
                _ => return None,
            };
            Some((name, x, nodes.into_iter().chain([gate.node, curve.node]).collect()))
        }
        _ => None,
    }
}

/// `relu6(x + 3) / 6`, and that times `x`.
fn hard(
    look: &CollapseScan<'_>,
    terms: &Terms,
    gate: Port,
) -> Option<(&'static str, Port, Vec<u32>)> {
    is_about(terms.number, 1. / 6.).then_some(())?;
    let sum = *look.inputs(gate).first()?;
    let (_, x) = look
        .either(sum, &["AddV2", "Add"])
        .into_iter()
        .find(|(a, _)| look.number(*a).is_some_and(|n| is_about(n, 3.)))?;
    let name = match terms.besides(gate)?[..] {
        [] => "HardSigmoid",
        [factor] if factor == x => "HardSwish",
        _ => return None,
    };
    Some((name, x, vec![gate.node, sum.node]))
}

/// The nodes of `x / sqrt(2)`.
fn by_error(look: &CollapseScan<'_>, argument: Port, x: Port) -> Option<Vec<u32>> {
    let terms = Terms::from_product(look, argument);
    is_about(terms.times(x)?, std::f32::consts::FRAC_1_SQRT_2).then_some(terms.nodes)
}

/// The nodes of `sqrt(2/π) (x + 0.044715 x³)`.
fn by_tangent(look: &CollapseScan<'_>, argument: Port, x: Port) -> Option<Vec<u32>> {
    let outer = Terms::from_product(look, argument);
    let [sum] = outer.factors[..] else { return None };
    is_about(outer.number, 0.797_884_6).then_some(())?;
    let (_, cubic) = look.either(sum, &["AddV2", "Add"]).into_iter().find(|(a, _)| *a == x)?;
    let cubic = Terms::from_product(look, cubic);
    is_about(cubic.number, 0.044_715).then_some(())?;
    let mut nodes: Vec<u32> = outer.nodes.into_iter().chain([sum.node]).collect();
    nodes.extend(&cubic.nodes);
    match cubic.factors[..] {
        [power] if look.op(power) == "Pow" => {
            let (base, exponent) = look.pair(power)?;
            let is_cube = base == x && look.number(exponent) == Some(3.);
            nodes.push(power.node);
            is_cube.then_some(nodes)
        }
        [a, b, c] => (a == x && b == x && c == x).then_some(nodes),
        _ => None,
    }
}
