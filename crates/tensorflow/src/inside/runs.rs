//! Runs inside a worker: inputs are wrapped where they lie, outputs copied once.

use std::sync::Arc;

use parking_lot::Mutex;
use prost::Message as _;
use proto::tensorflow::RunOptions;
use status::Code;
use tensor::{DType, Shape};

use super::Inside;
use crate::capi::{Endpoints, Keep, Session, SessionRun, TfTensor};
use crate::error::{Error, Result};
use crate::tensors::{self, INLINE_BYTES_MAX};
use crate::wire::{Done, Failure, Names, RunOrder, Tensors, Word};

/// A loaded model with its signatures.
pub(super) struct Model {
    session: Session<'static>,
    signatures: Vec<(Endpoints, Endpoints)>,
}

impl Model {
    /// Fails if a signature names tensors that the graph does not have.
    pub(super) fn new(session: Session<'static>, signatures: &[Names]) -> Result<Self> {
        let find = |names: &Names| {
            Ok((session.endpoints(&names.inputs)?, session.endpoints(&names.outputs)?))
        };
        let signatures = signatures.iter().map(find).collect::<Result<_>>()?;
        Ok(Self { session, signatures })
    }
}

impl Inside {
    /// Runs a signature and tells the server how it ended.
    pub(super) fn run(self: &Arc<Self>, order: RunOrder) {
        let id = order.id;
        let released = Arc::new(Mutex::new(Released::default()));
        let lease = Lease { id, released: Arc::clone(&released), inside: Arc::clone(self) };
        let outcome = self.outputs(order, Arc::new(lease));
        let (failure, outputs) = match outcome {
            Ok(outputs) => (None, Some(outputs)),
            Err(error) => (Some(Failure::from(error)), None),
        };
        let holds_inputs = {
            let mut released = released.lock();
            released.is_answered = true;
            !released.is_free
        };
        self.tell(Word::Done(Done { id, failure, outputs, holds_inputs }));
    }

    fn outputs(&self, order: RunOrder, lease: Keep) -> Result<Tensors> {
        let model = self.models.lock().get(&order.model).cloned();
        let unknown = || Error::Malformed("a model that is not loaded".to_owned());
        let model = model.ok_or_else(unknown)?;
        let signature = model.signatures.get(order.signature as usize);
        let (feeds, fetches) = signature.ok_or_else(unknown)?;
        let inputs = self.inputs(&order.inputs.unwrap_or_default(), &lease)?;
        drop(lease);
        let options = RunOptions { timeout_in_ms: order.timeout_millis, ..RunOptions::default() };
        let options = options.encode_to_vec();
        let run = SessionRun {
            feeds,
            inputs: &inputs,
            fetches,
            outputs: &order.outputs,
            options: &options,
        };
        let ran = model.session.run(&run);
        // Before the answer, so that their memory is free when it arrives.
        drop(inputs);
        self.give(&ran?)
    }

    /// The inputs of a run: plain ones where they lie, strings copied, as TensorFlow keeps them in
    /// a form of its own.
    fn inputs(&self, tensors: &Tensors, lease: &Keep) -> Result<Vec<TfTensor<'static>>> {
        let mut inputs = Vec::with_capacity(tensors.parts.len());
        for part in &tensors.parts {
            let dtype = DType::from_number(part.dtype)
                .ok_or_else(|| Error::Malformed(format!("dtype {}", part.dtype)))?;
            let span = self.inputs.span(tensors.offset + part.offset, part.len)?;
            let input = if dtype == DType::String {
                let shape = Shape::checked(part.dims.iter().copied())
                    .map_err(|error| Error::Malformed(error.to_string()))?;
                // SAFETY: the span lies inside the area (checked by `span`), which lives as long
                // as we do; the server does not write to it before it is released.
                let bytes = unsafe { span.as_ref() };
                let strings = tensors::get_strings(bytes, shape.n_elements())?;
                TfTensor::strings(self.api, &part.dims, strings.into_iter())?
            } else {
                // SAFETY: the span lies inside the area, which lives as long as we do; the server
                // does not use it again before the lease is dropped.
                unsafe { TfTensor::wrap(self.api, dtype, &part.dims, span, Arc::clone(lease)) }?
            };
            inputs.push(input);
        }
        Ok(inputs)
    }

    /// Copies outputs to where the server reads them.
    fn give(&self, outputs: &[TfTensor<'_>]) -> Result<Tensors> {
        for output in outputs {
            let dtype = DType::from_number(output.dtype());
            if !dtype.is_some_and(|dtype| dtype == DType::String || dtype.is_plain()) {
                let text = format!("an output has dtype {}, which cannot be sent", output.dtype());
                return Err(Error::TensorFlow { code: Code::Unimplemented, text });
            }
        }
        let size = |output: &TfTensor<'_>| {
            if output.dtype() != DType::String.number() {
                return output.bytes().len();
            }
            let mut len = 0;
            output.each_string(|string| len += tensors::strings_bytes([string].into_iter()));
            len
        };
        let sizes = outputs.iter().map(|output| (output.dtype(), output.dims(), size(output)));
        let (parts, len) = tensors::place(sizes);
        let mut tensors = Tensors { offset: 0, len: 0, parts, inline: prost::bytes::Bytes::new() };
        if len <= INLINE_BYTES_MAX {
            let mut bytes = vec![0; len];
            fill(&mut bytes, outputs, &tensors);
            tensors.inline = bytes.into();
            return Ok(tensors);
        }
        let mut block = self.outputs.allocate(len)?;
        fill(block.bytes_mut(), outputs, &tensors);
        (tensors.offset, tensors.len) = (block.offset(), block.len());
        self.blocks.lock().insert(block.offset(), block);
        Ok(tensors)
    }
}

fn fill(bytes: &mut [u8], outputs: &[TfTensor<'_>], tensors: &Tensors) {
    for (output, part) in outputs.iter().zip(&tensors.parts) {
        let slot = tensors::slot(bytes, part);
        if output.dtype() != DType::String.number() {
            slot.copy_from_slice(output.bytes());
            continue;
        }
        let mut strings: Vec<Vec<u8>> = Vec::new();
        output.each_string(|string| strings.push(string.to_vec()));
        tensors::put_strings(slot, strings.iter().map(Vec::as_slice));
    }
}

/// The two conditions for telling the server that the memory of a run's inputs is free.
#[derive(Default)]
struct Released {
    is_free: bool,
    is_answered: bool,
}

/// The right to read the inputs of a run. TensorFlow may keep it for longer than the run takes, in
/// a variable for example.
struct Lease {
    id: u64,
    released: Arc<Mutex<Released>>,
    inside: Arc<Inside>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        let is_late = {
            let mut released = self.released.lock();
            released.is_free = true;
            released.is_answered
        };
        if is_late {
            self.inside.tell(Word::Released(self.id));
        }
    }
}
