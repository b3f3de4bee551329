//! `Adoption`: constants of a graph in memory of their reader's own.

use std::hash::Hasher as _;
use std::sync::Arc;

use device::Buffer;
use rustc_hash::{FxHashMap, FxHasher};
use tensor::{DType, Tensor};

use crate::digest::{mark, mixed};
use crate::error::{Error, Result};
use crate::graph::{Body, Graph};

/// Copies the constants of traced graphs, whose memory is that of whoever read the file, into
/// memory of whom this thread works for. Constants that are equal are copied once.
#[derive(Debug, Default)]
pub struct Adoption {
    /// The constants as they were, and their copies, by a hash of their bytes.
    known: FxHashMap<u64, Vec<(Tensor, Buffer)>>,
}

/// Smaller constants stay where they are.
pub(crate) const FROM_BYTES: usize = 4 << 10;

impl Adoption {
    /// The same graph with constants of its own. Fails without memory.
    pub fn take(&mut self, graph: &Graph) -> Result<Graph> {
        let mut graph = graph.clone();
        for node in &mut graph.nodes {
            let Some(value) = node.as_const() else { continue };
            let _name = device::named(Arc::clone(&node.name));
            let copy = match value.buffer() {
                Some(_) if value.n_bytes() < FROM_BYTES => continue,
                Some(_) => self.copy(value),
                None if value.dtype() == DType::String => own_strings(value),
                None => continue,
            };
            let copy = copy.map_err(|error| Error::node(&node.name, error.into()))?;
            node.body = Body::Const(copy);
        }
        Ok(graph)
    }

    fn copy(&mut self, value: &Tensor) -> tensor::Result<Tensor> {
        let bytes = value.view().bytes();
        let alike = self.known.entry(hash(bytes)).or_default();
        let buffer = match alike.iter().find(|(before, _)| before.view().bytes() == bytes) {
            Some((_, buffer)) => buffer.clone(),
            None => {
                let mut buffer = Buffer::allocate(value.n_bytes())?;
                if !buffer.is_rehearsed() {
                    let own = buffer.bytes_mut().expect("a new buffer has one owner");
                    own.copy_from_slice(bytes);
                    buffer = device::shared(buffer);
                }
                let mut copy = Tensor::from_buffer(value.dtype(), value.shape().clone(), buffer)?;
                mark(&mut copy, mixed(0, bytes));
                let buffer = copy.buffer().expect("it is plain").clone();
                alike.push((value.clone(), buffer.clone()));
                buffer
            }
        };
        Tensor::from_buffer(value.dtype(), value.shape().clone(), buffer)
    }
}

/// The same strings, paid for by whom this thread works for.
fn own_strings(value: &Tensor) -> tensor::Result<Tensor> {
    Tensor::from_strings(value.shape().clone(), value.strings().try_clone()?)
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(bytes);
    hasher.finish()
}
