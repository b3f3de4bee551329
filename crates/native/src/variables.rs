//! The variables of a servable: which it has, and their values from the checkpoint.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::{Buffer, Category, Owner};
use graph::{Library, Node, Program, VariableUse};
use metrics::Headway;
use ops::{Kind, Resources, Variable};
use rustc_hash::FxHashMap;
use savedmodel::{Assignment, Checkpoint, Fault, SavedModel, Source, VariableKind};
use session::Weights;
use status::{Result, Status};
use tensor::{DType, Handle, Tensor};

use crate::error::read_error;

/// The variables that graphs use, by container and name.
pub(crate) type Uses = BTreeMap<(String, String), VariableUse>;

/// Adds the uses of another graph.
pub(crate) fn merge(uses: &mut Uses, more: Uses) {
    for (key, variable) in more {
        let known = uses.entry(key).or_insert_with(|| variable.clone());
        known.is_written |= variable.is_written;
    }
}

/// Makes the variables that are used, and reads the values of those that the checkpoint has.
/// Nothing else of the checkpoint is touched. Values that nobody writes are shared with those that
/// are equal in the owner's space.
pub(crate) fn restore(
    model: &SavedModel,
    uses: &Uses,
    resources: &Resources,
    owner: Option<&Arc<Owner>>,
    headway: Option<&Arc<Headway>>,
) -> Result<Weights> {
    let mut weights = Weights::default();
    let sources = model.restore().map_err(|error| read_error(&error))?;
    let Some(checkpoint) = model.checkpoint().map_err(|error| read_error(&error))? else {
        return Ok(weights);
    };
    let checkpoint = checkpoint.counted_in(headway.cloned());
    let mut alike = Alike::default();
    for assignment in sources.assignments {
        let id = assignment.variable;
        let key = (id.container, id.name);
        let Some(variable) = uses.get(&key) else { continue };
        let sharer = owner.filter(|_| !variable.is_written);
        let _name = device::named(Arc::from(&*key.1));
        let value = read(&checkpoint, &assignment.source, sharer)?;
        let value = alike.merge(&checkpoint, &assignment.source, sharer, value);
        let dims = fitting_dims(variable, id.kind, &value)?;
        weights.n_variables += 1;
        weights.bytes += value.n_bytes();
        let make = || Variable::new(&key.1, variable.dtype).with_dims(dims.clone());
        resources.get_or_create(&key.0, &key.1, make)?.assign(value)?;
    }
    Ok(weights)
}

/// Weights that a rehearsal takes for equal, since their bytes are not there to be compared.
#[derive(Default)]
struct Alike(FxHashMap<WeightKey, Tensor>);

/// Smaller weights are not shared.
const SHARED_FROM_BYTES: u64 = 4 << 10;

impl Alike {
    fn key(
        checkpoint: &Checkpoint,
        source: &Source,
        owner: Option<&Arc<Owner>>,
    ) -> Option<WeightKey> {
        owner.filter(|owner| owner.space().is_rehearsal() && source.part.is_none())?;
        let entry = checkpoint.entry(&source.key).ok()?;
        let bytes = (entry.shape().n_elements() * entry.dtype().size()) as u64;
        let checksum = entry.checksum()?;
        let is_shared = entry.dtype().is_plain() && bytes >= SHARED_FROM_BYTES;
        is_shared.then_some(WeightKey { checksum, bytes })
    }

    /// The first weight that is like this one, in its shape; else this one.
    fn merge(
        &mut self,
        checkpoint: &Checkpoint,
        source: &Source,
        owner: Option<&Arc<Owner>>,
        value: Tensor,
    ) -> Tensor {
        let Some(key) = Self::key(checkpoint, source, owner) else { return value };
        let mut value = value;
        graph::mark(&mut value, u64::from(key.checksum) << 32 | (key.bytes & 0xffff_ffff));
        let known = self.0.entry(key).or_insert_with(|| value.clone());
        let shared = known.buffer().map(|buffer| {
            Tensor::from_buffer(value.dtype(), value.shape().clone(), buffer.clone())
        });
        shared.and_then(std::result::Result::ok).unwrap_or(value)
    }
}

/// Takes the values of variables away that no program reads any more, as all that it needs of them
/// was folded into constants.
pub(crate) fn release<'a>(
    programs: impl Iterator<Item = &'a Program>,
    library: &Library,
    uses: &Uses,
    resources: &Resources,
) {
    let (mut read, mut has_unknown) = (Vec::new(), false);
    let mut look = |node: &Node| match node.as_const() {
        Some(value) if value.dtype() == DType::Resource => {
            read.extend(value.view().handles().iter().filter_map(Handle::get_shared::<Variable>));
        }
        // Which variable it finds is known only to itself.
        None if node.kind() == Kind::Handle => has_unknown = true,
        _ => {}
    };
    programs.for_each(|program| program.visit(&mut look));
    library.visit(&mut look);
    if has_unknown {
        return;
    }
    for (key, _) in uses.iter().filter(|(_, variable)| !variable.is_written) {
        let Some(variable) = resources.get::<Variable>(&key.0, &key.1) else { continue };
        if !read.iter().any(|other| Arc::ptr_eq(other, &variable)) {
            variable.clear();
        }
    }
}

/// The variables whose tensors the index of the checkpoint lacks, each with the tensor. Signatures
/// that read none of them can be run.
pub(crate) fn lacking(model: &SavedModel) -> BTreeMap<(String, String), String> {
    // Whoever reads the weights says why they cannot be read.
    let (Ok(sources), Ok(Some(checkpoint))) = (model.restore(), model.checkpoint()) else {
        return BTreeMap::new();
    };
    let is_lacking = |assignment: &Assignment| {
        let entry = checkpoint.entry(&assignment.source.key);
        matches!(entry, Err(savedmodel::Error::Tensor { fault: Fault::Missing, .. }))
    };
    let lacking = sources.assignments.into_iter().filter(is_lacking);
    lacking.map(|one| ((one.variable.container, one.variable.name), one.source.key)).collect()
}

/// The key of a weight before it is read: weights with the same key are most likely equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WeightKey {
    /// The checksum in the checkpoint's index.
    pub checksum: u32,
    /// Its bytes.
    pub bytes: u64,
}

/// The bytes of all values that [`restore`] would read, and their keys, without strings and slices.
pub(crate) fn predict(model: &SavedModel, uses: &Uses) -> Result<(u64, Vec<WeightKey>)> {
    let sources = model.restore().map_err(|error| read_error(&error))?;
    let Some(checkpoint) = model.checkpoint().map_err(|error| read_error(&error))? else {
        return Ok((0, Vec::new()));
    };
    let (mut bytes, mut keys) = (0u64, Vec::new());
    for assignment in sources.assignments {
        let id = assignment.variable;
        if uses.contains_key(&(id.container, id.name)) {
            let Source { key, part, .. } = &assignment.source;
            let entry = checkpoint.entry(key).map_err(|error| read_error(&error))?;
            let slice = part.as_ref().map(|part| &part.slice);
            let shape = checkpoint.shape(key, slice).map_err(|error| read_error(&error))?;
            if entry.dtype() != DType::String {
                let n_bytes = (shape.n_elements() * entry.dtype().size()) as u64;
                bytes += n_bytes;
                let whole = entry.checksum().filter(|_| slice.is_none());
                keys.extend(whole.map(|checksum| WeightKey { checksum, bytes: n_bytes }));
            }
        }
    }
    Ok((bytes, keys))
}

/// Reads one tensor, or a part of one, straight into its own memory.
pub(crate) fn read(
    checkpoint: &Checkpoint,
    source: &Source,
    sharer: Option<&Arc<Owner>>,
) -> Result<Tensor> {
    let bad = |error: &savedmodel::Error| read_error(error);
    let memory = |error: tensor::Error| Status::exhausted(error.to_string());
    let entry = checkpoint.entry(&source.key).map_err(|error| bad(&error))?;
    let slice = source.part.as_ref().map(|part| &part.slice);
    if entry.dtype() == DType::String {
        let strings = checkpoint.read_strings(&source.key).map_err(|error| bad(&error))?;
        return Tensor::from_strings(entry.shape().clone(), strings).map_err(memory);
    }
    let shape = checkpoint.shape(&source.key, slice).map_err(|error| bad(&error))?;
    let n_bytes = shape.n_elements() * entry.dtype().size();
    let mut buffer =
        Buffer::allocate(n_bytes).map_err(|error| Status::exhausted(error.to_string()))?;
    if !buffer.is_rehearsed() {
        let bytes = buffer.bytes_mut().expect("a new buffer has one owner");
        checkpoint.read_into(&source.key, slice, bytes).map_err(|error| bad(&error))?;
    }
    if let Some(owner) = sharer {
        buffer = owner.space().sharing().share(buffer, owner, Category::Weights);
    }
    let mut value = Tensor::from_buffer(entry.dtype(), shape, buffer).map_err(memory)?;
    graph::mark(&mut value, 0);
    Ok(value)
}

/// The dims of a variable that takes a value from the checkpoint. Where the graph says another
/// shape, a resource variable takes that of the value, as in TensorFlow: signatures that cannot
/// use it fail alone. Fails for another dtype, and for another shape of a reference variable,
/// whose assignment checks it.
fn fitting_dims(
    variable: &VariableUse,
    kind: VariableKind,
    value: &Tensor,
) -> Result<Option<Vec<Option<i64>>>> {
    let sizes = value.shape().to_i64();
    let fits = |dims: &Vec<Option<i64>>| {
        sizes.len() == dims.len()
            && sizes.iter().zip(dims).all(|(size, dim)| dim.is_none_or(|dim| dim == *size))
    };
    let has_shape = variable.dims.as_ref().is_none_or(fits);
    if value.dtype() == variable.dtype && (has_shape || kind == VariableKind::Resource) {
        let dims = if has_shape { variable.dims.clone() } else { Some(known(&sizes)) };
        return Ok(dims);
    }
    let (name, got) = (&variable.name, format!("{}{}", value.dtype(), value.shape()));
    let want = format!("{} {:?}", variable.dtype, variable.dims);
    Err(Status::invalid(format!("variable {name} is {want} but the checkpoint has {got}")))
}

fn known(sizes: &[i64]) -> Vec<Option<i64>> {
    sizes.iter().copied().map(Some).collect()
}
