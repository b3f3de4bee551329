//! Entry point of the fuzz target in `fuzz/`: messages of a worker that may say anything, since the
//! models that it runs are not trusted.

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

use std::cell::RefCell;
use std::sync::Arc;

use device::Buffer;
use prost::Message as _;

use crate::area::Area;
use crate::ring::{self, Direction, Reader};
use crate::tensors::{self, Received};
use crate::wire::{self, FromWorker, ToWorker, Word};

/// The bytes of the block that a worker's outputs are in.
const BLOCK_BYTES: usize = 64 << 10;

thread_local! {
    /// The rings, and the outputs, of a worker.
    static AREAS: RefCell<(Arc<Area>, Arc<Area>)> = RefCell::new((
        Arc::new(Area::create(c"rings", ring::RINGS_BYTES).expect("shared memory")),
        Arc::new(Area::create(c"outputs", BLOCK_BYTES).expect("shared memory")),
    ));
}

/// Takes the bytes for a message; then for the memory of a ring, in which the first word says how
/// much was written.
pub fn worker(bytes: &[u8]) {
    AREAS.with_borrow(|(rings, outputs)| {
        if let Ok(message) = FromWorker::decode(bytes) {
            take(message, outputs);
        }
        drop(ToWorker::decode(bytes));
        let (words, _) = bytes.as_chunks::<8>();
        let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let Some((written, words)) = words.split_first() else { return };
        ring::scribble(rings, Direction::Answers, words, *written as u32);
        let mut reader = Reader::new(rings, Direction::Answers);
        for _ in 0..=words.len() {
            match reader.next::<FromWorker>() {
                Ok(Some(message)) => take(message, outputs),
                Ok(None) | Err(_) => return,
            }
        }
    });
}

/// Takes the outputs of a message: where they lie, or out of the message.
fn take(message: FromWorker, area: &Arc<Area>) {
    let Some(Word::Done(wire::Done { outputs: Some(outputs), .. })) = message.word else { return };
    if let Ok(received) = Received::new(area, &outputs, Box::new(|| {})) {
        drop(tensors::take(&outputs, &Buffer::from_foreign(Box::new(received))));
    }
    if let Ok(buffer) = tensors::inline(&outputs.inline) {
        drop(tensors::take(&outputs, &buffer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_worker_do_no_harm() {
        replay::replay("worker", worker);
    }
}
