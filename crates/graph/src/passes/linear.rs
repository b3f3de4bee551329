//! Products of rows with a constant matrix, in whatever way they were written: as an einsum, as a
//! product of stacks, or as a matrix product between two reshapes.

use std::sync::Arc;

use ops::{Attrs, Env};
use proto::tensorflow::attr_value::Value;
use tensor::{DType, Shape, Tensor};

use super::edits::{Edits, Input, New, NodeAttrs, ints, set};
use super::specs::Specs;
use super::uses::{Uses, first};
use crate::error::Result;
use crate::graph::{Graph, Node, Port};
use crate::program::Bindings;

/// Replaces each of them by a `_Linear`.
pub(super) fn linear(graph: Graph, _: &Bindings<'_>, env: &Env<'_>) -> Result<Graph> {
    let look = LinearScan {
        graph: &graph,
        uses: Uses::from_graph(&graph),
        specs: Specs::infer(&graph, env),
    };
    let mut edits = Edits::for_graph(&graph);
    for number in 0..u32::try_from(graph.nodes.len()).expect("a graph is bounded") {
        let Some(layer) = look.layer(number) else { continue };
        let mut attrs = NodeAttrs::new();
        set(&mut attrs, "contracted", Value::I(layer.contracted as i64));
        set(&mut attrs, "tail", ints(layer.tail.iter().map(|size| *size as i64)));
        let name = Arc::clone(&graph.node(layer.root).name);
        let inputs = vec![Input::Old(layer.x), Input::Value(layer.weight)];
        let new = New::build(&name, "_Linear", attrs, inputs)?;
        edits.replace(layer.root, &layer.others, new);
    }
    Ok(edits.apply(graph))
}

/// Rows that an einsum multiplies with a matrix.
pub(crate) struct Rows {
    /// The dimensions that tell rows apart.
    lead: usize,
    /// Those of a row, and of a column of the matrix.
    pub(crate) inner: usize,
}

impl Rows {
    /// The form of an equation that is `lead inner, inner tail -> lead tail`, all names different,
    /// if the second operand has this rank.
    pub(crate) fn of_einsum(equation: &str, rank: usize) -> Option<Self> {
        let (inputs, output) = equation.split_once("->")?;
        let (left, right) = inputs.split_once(',')?;
        let names = |term: &str| -> Option<Vec<char>> {
            let names: Vec<char> = term.trim().chars().collect();
            let is_plain = names.iter().all(char::is_ascii_alphabetic)
                && names.iter().enumerate().all(|(i, name)| !names[..i].contains(name));
            is_plain.then_some(names)
        };
        let (left, right, output) = (names(left)?, names(right)?, names(output)?);
        let lead = left.iter().zip(&output).take_while(|(a, b)| a == b).count();
        let (inner, tail) = (&left[lead..], &output[lead..]);
        let fits = right.len() == inner.len() + tail.len()
            && right.starts_with(inner)
            && right.ends_with(tail)
            && lead > 0
            && !inner.is_empty()
            && !tail.is_empty()
            && rank == right.len();
        fits.then_some(Self { lead, inner: inner.len() })
    }
}

struct LinearScan<'a> {
    graph: &'a Graph,
    uses: Uses,
    specs: Specs,
}

/// A product of rows with a matrix.
struct Layer {
    root: u32,
    others: Vec<u32>,
    x: Port,
    /// The matrix: rows for the contracted dimensions, columns for those of the tail.
    weight: Tensor,
    /// The number of dimensions at the end of `x` that are contracted.
    contracted: usize,
    /// The dimensions that the output has in their place.
    tail: Vec<usize>,
}

impl LinearScan<'_> {
    fn layer(&self, number: u32) -> Option<Layer> {
        let node = self.graph.node(number);
        match node.op_name() {
            "Einsum" => self.of_einsum(number, node),
            "BatchMatMulV2" | "BatchMatMulV3" => self.of_stack(number, node),
            "MatMul" => self.of_reshaped(number, node),
            _ => None,
        }
    }

    /// The constant of floats that is the second of two inputs.
    fn weight(&self, node: &Node) -> Option<(Port, &Tensor)> {
        let [x, weight] = node.inputs[..] else { return None };
        let weight = self.graph.node(weight.node).as_const()?;
        let fits = weight.dtype() == DType::F32 && weight.n_elements() > 0;
        (fits && self.specs.dtype(x) == Some(DType::F32)).then_some((x, weight))
    }

    /// `lead inner, inner tail -> lead tail`, all names different.
    fn of_einsum(&self, root: u32, node: &Node) -> Option<Layer> {
        let (x, weight) = self.weight(node)?;
        let equation = Attrs::new(&node.attrs).str("equation").ok()?;
        let Rows { lead, inner } = Rows::of_einsum(equation, weight.shape().rank())?;
        (self.specs.rank(x) == Some(lead + inner)).then_some(())?;
        let sizes = weight.shape().dims();
        let (rows, tail) = sizes.split_at(inner);
        let shape = Shape::of(&[rows.iter().product(), tail.iter().product()]);
        let (weight, tail) = (weight.reshaped(shape).ok()?, tail.to_vec());
        Some(Layer { root, others: Vec::new(), x, weight, contracted: inner, tail })
    }

    /// A stack of matrices times one matrix.
    fn of_stack(&self, root: u32, node: &Node) -> Option<Layer> {
        let (x, weight) = self.weight(node)?;
        let attrs = Attrs::new(&node.attrs);
        let same = attrs.dtype_or("Tout", DType::F32).ok()? == DType::F32;
        let plain = !attrs.bool_or("adj_x", false).ok()? && !attrs.bool_or("adj_y", false).ok()?;
        let fits = same && plain && weight.shape().rank() == 2 && self.specs.rank(x)? >= 2;
        fits.then(|| Layer::of_matrix(root, x, weight))
    }

    /// A matrix product between reshapes that only put rows together and apart again.
    fn of_reshaped(&self, number: u32, node: &Node) -> Option<Layer> {
        let (rows, weight) = self.weight(node)?;
        let attrs = Attrs::new(&node.attrs);
        let plain = !attrs.bool_or("transpose_a", false).ok()?
            && !attrs.bool_or("transpose_b", false).ok()?;
        let before = self.graph.node(rows.node);
        (plain && before.op_name() == "Reshape").then_some(())?;
        let x = *before.inputs.first()?;
        let [after] = *self.uses.readers(number) else { return None };
        let after_node = self.graph.node(after);
        let is_reshape =
            after_node.op_name() == "Reshape" && after_node.inputs.first() == Some(&first(number));
        is_reshape.then_some(())?;
        let (from, to) = (self.specs.get(x)?.dims()?, self.specs.get(first(after))?.dims()?);
        let (last, lead) = from.split_last()?;
        let (new_last, new_lead) = to.split_last()?;
        let fits = weight.shape().rank() == 2
            && last.size() == Some(weight.shape()[0])
            && new_last.size() == Some(weight.shape()[1])
            && !lead.is_empty()
            && lead.len() == new_lead.len()
            && lead.iter().zip(new_lead).all(|(a, b)| a.same(b));
        fits.then(|| {
            let mut layer = Layer::of_matrix(after, x, weight);
            layer.others.push(number);
            layer
        })
    }
}

impl Layer {
    fn of_matrix(root: u32, x: Port, weight: &Tensor) -> Self {
        let tail = vec![weight.shape()[1]];
        Self { root, others: Vec::new(), x, weight: weight.clone(), contracted: 1, tail }
    }
}
