//! `Vector`: a few floats that are computed at once.

/// A vector register of `f32`.
///
/// # Safety
/// Every function may be called only where the machine has the instruction set, and pointers must
/// be good for `LANES` floats.
pub(crate) trait Vector: Copy {
    /// The floats in it.
    const LANES: usize;

    /// All lanes the same.
    unsafe fn splat(x: f32) -> Self;
    /// Reads from memory of any alignment.
    unsafe fn load(from: *const f32) -> Self;
    /// Writes to memory of any alignment.
    unsafe fn store(self, to: *mut f32);
    /// The sum.
    unsafe fn plus(self, other: Self) -> Self;
    /// `self * factor + term`.
    unsafe fn times_plus(self, factor: Self, term: Self) -> Self;
    /// The smaller of each lane; not a number if `self` is.
    unsafe fn at_most(self, limit: Self) -> Self;
    /// The larger of each lane; not a number if `self` is.
    unsafe fn at_least(self, limit: Self) -> Self;
}
