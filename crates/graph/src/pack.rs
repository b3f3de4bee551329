//! Packs the weights of programs, each once, and lets go of those that are only used packed.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::Buffer;
use ops::{Attrs, Packed};
use proto::tensorflow::AttrValue;
use rustc_hash::{FxHashMap, FxHashSet};
use tensor::{DType, Shape, Tensor};

use crate::digest::digest;
use crate::error::{Error, Result};
use crate::functions::Library;
use crate::graph::{Body, Graph, Node, Port};
use crate::passes::linear::Rows;
use crate::program::Program;
use crate::scaled::scaled;
use crate::specialise::Handed;

/// The packed forms of what each node reads, by node.
pub(crate) type PackedInputs = Vec<Arc<[Option<Packed>]>>;

/// Packs the constant inputs of every node that wants them so, in all programs of a servable and in
/// the functions they call. A weight that several read is packed once for all that want it alike.
/// One that nobody reads but packed is given up as soon as it is packed, so that no more than one
/// is there twice; one that is used both ways stays, beside its packed form.
///
/// Programs that are packed run as before, but nothing can be built with them any more.
pub fn pack<'a>(
    programs: impl IntoIterator<Item = &'a mut Program>,
    library: &'a mut Library,
) -> Result<()> {
    let _scope = device::booked_as(device::Category::PackedWeights);
    let mut parts = Vec::new();
    for program in programs.into_iter().chain(library.programs_mut()) {
        program.parts(&mut parts);
    }
    let uses: Vec<PackUses> = parts.iter().map(|part| PackUses::from_graph(part.graph)).collect();
    let places = weights(&parts);
    // The bytes of packed forms cannot be compared in a rehearsal: what they are made of can.
    let is_rehearsal = places.iter().any(|places| parts[places[0].0].is_rehearsed(places[0].1));
    let mut known: FxHashMap<u64, Forms> = FxHashMap::default();
    for places in places {
        let read = parts[places[0].0].graph.node(places[0].1).as_weight().cloned();
        let digest = read.as_ref().filter(|_| is_rehearsal).and_then(digest);
        // A packed weight goes by the name of the weight, or else of the constant.
        let weight = read.as_ref().and_then(Tensor::buffer).and_then(Buffer::tensor);
        let node = || Arc::clone(&parts[places[0].0].graph.node(places[0].1).name);
        let _name = device::named(weight.unwrap_or_else(node));
        let mut forms = Vec::new();
        for (part, node) in &places {
            parts[*part].pack(*node, &uses[*part], &mut forms)?;
        }
        read.map_or(Ok(()), |read| settle(&mut parts, &places, &read))?;
        if let Some(digest) = digest {
            let alike = known.entry(digest).or_default();
            parts.iter_mut().for_each(|part| part.replace(&forms, alike));
            alike.extend(forms);
        }
    }
    Ok(())
}

/// The least that a device looks for among what it holds.
const SHARED_FROM_BYTES: usize = 4 << 10;

/// Packed forms, and what they depend on.
type Forms = Vec<(PackForm, Option<Packed>)>;

/// The part of a program that packing changes.
pub(crate) struct Part<'a> {
    pub(crate) graph: &'a mut Graph,
    pub(crate) packed: &'a mut PackedInputs,
    pub(crate) handed: &'a Handed,
}

/// The positions of the constants with memory of their own: the number of the part, and the node.
/// Those that share their memory come together.
fn weights(parts: &[Part<'_>]) -> Vec<Vec<(usize, u32)>> {
    let mut places: Vec<Vec<(usize, u32)>> = Vec::new();
    let mut known: FxHashMap<(usize, usize), usize> = FxHashMap::default();
    for (number, part) in parts.iter().enumerate() {
        for (node, body) in (0u32..).zip(&part.graph.nodes) {
            let Some(buffer) = body.as_weight().and_then(Tensor::buffer) else { continue };
            let key = (buffer.bytes().as_ptr().addr(), buffer.len());
            let at = *known.entry(key).or_insert_with(|| {
                places.push(Vec::new());
                places.len() - 1
            });
            places[at].push((number, node));
        }
    }
    places
}

/// Moves a weight to those that stay, if it is still used as it was read.
fn settle(parts: &mut [Part<'_>], places: &[(usize, u32)], read: &Tensor) -> Result<()> {
    let Some(buffer) = read.buffer() else { return Ok(()) };
    let is_left = |(part, node): &&(usize, u32)| {
        let weight = parts[*part].graph.node(*node).as_weight().and_then(Tensor::buffer);
        weight.is_some_and(|weight| weight.shares_memory_with(buffer))
    };
    let left: Vec<(usize, u32)> = places.iter().filter(is_left).copied().collect();
    let Some((part, node)) = left.first() else { return Ok(()) };
    let name = Arc::clone(&parts[*part].graph.node(*node).name);
    let refused = |error: device::Error| ops::Error::ResourceExhausted(error.to_string());
    let settled = device::settled(buffer, left.len() + 1).map_err(refused);
    let Some(buffer) = settled.map_err(|error| Error::node(&name, error))? else { return Ok(()) };
    for (part, node) in left {
        let place = &mut parts[part].graph.nodes[node as usize].body;
        let Body::Const(old) = place else { continue };
        let new = Tensor::from_buffer(old.dtype(), old.shape().clone(), buffer.clone());
        *old = new.map_err(|error| Error::node(&name, error.into()))?;
    }
    Ok(())
}

/// The readers of each node of a graph.
struct PackUses {
    /// For each node its readers, and as which of their inputs.
    readers: Vec<Vec<(u32, usize)>>,
    fetched: FxHashSet<u32>,
}

impl PackUses {
    fn from_graph(graph: &Graph) -> Self {
        let mut readers = vec![Vec::new(); graph.nodes.len()];
        for (number, node) in (0u32..).zip(&graph.nodes) {
            for (input, port) in node.inputs.iter().enumerate() {
                readers[port.node as usize].push((number, input));
            }
        }
        Self { readers, fetched: graph.fetches.iter().map(|port: &Port| port.node).collect() }
    }
}

/// The properties that the packed form of a weight depends on besides its elements.
#[derive(PartialEq)]
struct PackForm {
    op: String,
    attrs: BTreeMap<String, AttrValue>,
    input: usize,
    shape: Shape,
    scale: Option<Arc<[f32]>>,
}

impl PackForm {
    fn for_weight(node: &Node, input: usize, weight: &PackWeight) -> Self {
        let scale = weight.scale.clone();
        if let Some(shape) = matrix(node, input, &weight.tensor) {
            let op = "matrix".to_owned();
            return Self { op, attrs: BTreeMap::new(), input, shape, scale };
        }
        // What comes after a product does not change how its weight is packed.
        let is_after = |name: &str| {
            name.starts_with('_')
                || matches!(name, "fused_ops" | "num_args" | "epsilon" | "leakyrelu_alpha")
        };
        let attrs = node.attrs.iter().filter(|(name, _)| !is_after(name));
        Self {
            op: node.op_name().trim_start_matches("_Fused").to_owned(),
            attrs: attrs.map(|(name, value)| (name.clone(), value.clone())).collect(),
            input,
            shape: weight.tensor.shape().clone(),
            scale,
        }
    }
}

/// A constant, and what it is multiplied with before it is packed.
struct PackWeight {
    tensor: Tensor,
    scale: Option<Arc<[f32]>>,
}

impl PackWeight {
    fn from_node(node: &Node) -> Self {
        let tensor = node.as_weight().expect("it is a constant").clone();
        let scale = match &node.body {
            Body::Scaled(scaled) => Some(Arc::clone(&scaled.scale)),
            Body::Arg(_) | Body::Const(_) | Body::Op { .. } => None,
        };
        Self { tensor, scale }
    }

    /// The value that its readers read. It is with weights that were read: among packed ones, which
    /// stay, it would leave a hole.
    fn value(&self) -> tensor::Result<Tensor> {
        let _scope = device::booked_as(device::Category::Weights);
        match &self.scale {
            Some(scale) => scaled(&self.tensor, scale),
            None => Ok(self.tensor.clone()),
        }
    }
}

/// The rows and columns of a weight that rows are multiplied with as it is: all ops that do so want
/// it alike.
fn matrix(node: &Node, input: usize, weight: &Tensor) -> Option<Shape> {
    let attrs = Attrs::new(&node.attrs);
    let is = |name: &str| attrs.bool_or(name, false).unwrap_or(true);
    let dims = weight.shape().dims();
    let n_rows = match node.op_name() {
        _ if input != 1 || weight.dtype() != DType::F32 => return None,
        "_Linear" => 1,
        "MatMul" | "_FusedMatMul" if dims.len() == 2 && !is("transpose_b") => 1,
        "BatchMatMulV2" | "BatchMatMulV3" if dims.len() == 2 && !is("adj_y") => 1,
        "Einsum" => Rows::of_einsum(attrs.str("equation").ok()?, dims.len())?.inner,
        _ => return None,
    };
    let (rows, columns) = dims.split_at(n_rows);
    Some(Shape::of(&[rows.iter().product(), columns.iter().product()]))
}

impl Part<'_> {
    /// Packs a constant for all who read it; gives it up if they read nothing else of it.
    fn pack(&mut self, node: u32, uses: &PackUses, forms: &mut Forms) -> Result<()> {
        let weight = PackWeight::from_node(self.graph.node(node));
        let readers = &uses.readers[node as usize];
        let mut all = !readers.is_empty() && !uses.fetched.contains(&node);
        let reads = |place: &&(u32, usize)| !self.handed.contains(*place);
        let readers: Vec<(u32, usize)> = readers.iter().filter(reads).copied().collect();
        for (reader, input) in &readers {
            let packed = self.form(*reader, *input, &weight, forms)?;
            all &= packed.is_some();
            if packed.is_some() {
                self.keep(*reader, *input, packed);
            }
        }
        let left = match (all, &weight.scale) {
            (true, _) => Tensor::vacant(weight.tensor.dtype(), weight.tensor.shape().clone()),
            (false, Some(_)) => weight.value(),
            (false, None) => return Ok(()),
        };
        let name = Arc::clone(&self.graph.node(node).name);
        let left = left.map_err(|error| Error::node(&name, error.into()))?;
        self.graph.nodes[node as usize].body = Body::Const(left);
        Ok(())
    }

    fn is_rehearsed(&self, node: u32) -> bool {
        self.graph.node(node).as_weight().is_some_and(Tensor::is_rehearsed)
    }

    /// Puts forms that are known already in place of new ones that would be equal.
    fn replace(&mut self, new: &Forms, known: &Forms) {
        for (form, packed) in new {
            // Smaller buffers are never shared.
            let Some(packed) = packed.as_ref().filter(|one| one.n_bytes >= SHARED_FROM_BYTES)
            else {
                continue;
            };
            let Some((_, Some(same))) = known.iter().find(|(other, _)| other == form) else {
                continue;
            };
            let is_new = |one: &Option<Packed>| {
                one.as_ref().is_some_and(|one| one.object.is_same(&packed.object))
            };
            for inputs in self.packed.iter_mut().filter(|inputs| inputs.iter().any(is_new)) {
                let swap = |one: &Option<Packed>| {
                    if is_new(one) { Some(same.clone()) } else { one.clone() }
                };
                *inputs = inputs.iter().map(swap).collect();
            }
        }
    }

    /// The packed form that a reader wants, if it wants one.
    fn form(
        &self,
        reader: u32,
        input: usize,
        weight: &PackWeight,
        forms: &mut Forms,
    ) -> Result<Option<Packed>> {
        let node = self.graph.node(reader);
        let Body::Op { op, .. } = &node.body else { return Ok(None) };
        if input >= node.operands().len() {
            return Ok(None);
        }
        let form = PackForm::for_weight(node, input, weight);
        if let Some((_, packed)) = forms.iter().find(|(known, _)| *known == form) {
            return Ok(packed.clone());
        }
        let failed = |error: ops::Error| Error::node(&node.name, error);
        let value = weight.value().map_err(|error| failed(error.into()))?;
        let packed = op.pack(input, &value).map_err(failed)?;
        forms.push((form, packed.clone()));
        Ok(packed)
    }

    fn keep(&mut self, reader: u32, input: usize, packed: Option<Packed>) {
        let n_inputs = self.graph.node(reader).operands().len();
        let kept = &mut self.packed[reader as usize];
        let mut all = vec![None; n_inputs];
        all[..kept.len()].clone_from_slice(kept);
        all[input] = packed;
        *kept = all.into();
    }
}
