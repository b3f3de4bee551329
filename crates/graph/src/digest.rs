//! Digests by which the large constants of a rehearsal are told apart, since their elements are not
//! there.

use std::hash::{Hash as _, Hasher as _};

use rustc_hash::FxHasher;
use tensor::Tensor;

/// The bytes at the beginning of a rehearsed constant that say what it would be.
const BYTES: usize = 8;

/// Says what a rehearsed tensor would be: those marked alike would be equal. With 0 it is like no
/// other. Other tensors stay as they are.
pub fn mark(tensor: &mut Tensor, digest: u64) {
    if tensor.is_rehearsed()
        && let Some(mut view) = tensor.view_mut()
    {
        view.bytes()[..BYTES].copy_from_slice(&digest.to_le_bytes());
    }
}

/// The digest of a plain tensor: the mark that it was given, or else that of its elements; `None`
/// if it is like no other.
pub(crate) fn digest(tensor: &Tensor) -> Option<u64> {
    let view = tensor.view();
    if tensor.is_rehearsed() {
        let mark = u64::from_le_bytes(view.bytes()[..BYTES].try_into().ok()?);
        return (mark != 0).then_some(mark);
    }
    Some(mixed(0, view.bytes()))
}

/// A digest of another one and of some bytes; never 0.
pub(crate) fn mixed(digest: u64, bytes: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    (digest, bytes).hash(&mut hasher);
    hasher.finish().max(1)
}
