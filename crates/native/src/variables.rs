//! The variables of a servable: which it has, and their values from the checkpoint.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::{Buffer, Owner};
use graph::VariableUse;
use ops::{Resources, Variable};
use savedmodel::{Checkpoint, SavedModel, Source};
use session::{Error, Result, Weights};
use tensor::{DType, Shape, Tensor};

use crate::error::{op_error, read_error};

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
) -> Result<Weights> {
    let mut weights = Weights::default();
    let sources = model.restore().map_err(|error| read_error(&error))?;
    let Some(checkpoint) = model.checkpoint().map_err(|error| read_error(&error))? else {
        return Ok(weights);
    };
    for assignment in sources.assignments {
        let id = assignment.variable;
        let key = (id.container, id.name);
        let Some(variable) = uses.get(&key) else { continue };
        let sharer = owner.filter(|_| !variable.is_written);
        let value = read(&checkpoint, &assignment.source, sharer)?;
        check(variable, &value)?;
        if let Some(owner) = owner {
            owner.note(&key.1, value.n_bytes() as u64);
        }
        weights.n_variables += 1;
        weights.bytes += value.n_bytes();
        let make = || Variable::new(&key.1, variable.dtype).with_dims(variable.dims.clone());
        let made = resources
            .get_or_create(&key.0, &key.1, make)
            .and_then(|variable| variable.assign(value));
        made.map_err(|error| op_error(&error, error.to_string()))?;
    }
    Ok(weights)
}

/// The bytes of the values that [`restore`] would read, without those of strings.
pub(crate) fn predict(model: &SavedModel, uses: &Uses) -> Result<u64> {
    let sources = model.restore().map_err(|error| read_error(&error))?;
    let Some(checkpoint) = model.checkpoint().map_err(|error| read_error(&error))? else {
        return Ok(0);
    };
    let mut bytes = 0u64;
    for assignment in sources.assignments {
        let id = assignment.variable;
        if uses.contains_key(&(id.container, id.name)) {
            let Source { key, part, .. } = &assignment.source;
            let entry = checkpoint.entry(key).map_err(|error| read_error(&error))?;
            let slice = part.as_ref().map(|part| &part.slice);
            let shape = checkpoint.shape(key, slice).map_err(|error| read_error(&error))?;
            if entry.dtype() != DType::String {
                bytes += (shape.n_elements() * entry.dtype().size()) as u64;
            }
        }
    }
    Ok(bytes)
}

/// Reads one tensor, or a part of one, straight into its own memory.
pub(crate) fn read(
    checkpoint: &Checkpoint,
    source: &Source,
    sharer: Option<&Arc<Owner>>,
) -> Result<Tensor> {
    let bad = |error: &savedmodel::Error| read_error(error);
    let memory = |error: tensor::Error| Error::ResourceExhausted(error.to_string());
    let entry = checkpoint.entry(&source.key).map_err(|error| bad(&error))?;
    let slice = source.part.as_ref().map(|part| &part.slice);
    if entry.dtype() == DType::String {
        let strings = checkpoint.read_strings(&source.key).map_err(|error| bad(&error))?;
        return Tensor::from_strings(entry.shape().clone(), strings).map_err(memory);
    }
    let shape = checkpoint.shape(&source.key, slice).map_err(|error| bad(&error))?;
    let n_bytes = shape.n_elements() * entry.dtype().size();
    let mut buffer =
        Buffer::allocate(n_bytes).map_err(|error| Error::ResourceExhausted(error.to_string()))?;
    let bytes = buffer.bytes_mut().expect("a new buffer has one owner");
    checkpoint.read_into(&source.key, slice, bytes).map_err(|error| bad(&error))?;
    if let Some(owner) = sharer {
        buffer = owner.space().share(buffer, owner);
    }
    Tensor::from_buffer(entry.dtype(), shape, buffer).map_err(memory)
}

/// Fails if a value is not what the graph says of its variable.
fn check(variable: &VariableUse, value: &Tensor) -> Result<()> {
    let fits = |shape: &Shape, dims: &[Option<i64>]| {
        shape.rank() == dims.len()
            && shape.to_i64().iter().zip(dims).all(|(size, dim)| dim.is_none_or(|dim| dim == *size))
    };
    let same_shape = variable.dims.as_ref().is_none_or(|dims| fits(value.shape(), dims));
    if value.dtype() == variable.dtype && same_shape {
        return Ok(());
    }
    let (name, got) = (&variable.name, format!("{}{}", value.dtype(), value.shape()));
    let want = format!("{} {:?}", variable.dtype, variable.dims);
    Err(Error::InvalidArgument(format!("variable {name} is {want} but the checkpoint has {got}")))
}
