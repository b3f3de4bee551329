//! `Pixels`: a decoded image.

use device::Booked;

/// The most elements that a decoded image may have, however few bytes it came from.
pub(super) const MAX_ELEMENTS: usize = 1 << 28;

/// A decoded image, row by row, channels last.
#[derive(Debug)]
pub(super) struct Pixels<T = u8> {
    pub(super) height: usize,
    pub(super) width: usize,
    pub(super) channels: usize,
    pub(super) data: Vec<T>,
    /// For the elements; kept for its drop.
    pub(super) _booked: Booked,
}
