//! The offset planner: buffers with known lifespans and sizes get offsets in one arena.
//!
//! Two buffers whose lifespans overlap must not overlap in memory; the height, the end of the
//! highest buffer, is to be small. It can never be less than the lower bound, the most bytes that
//! are live in one step. Everything here is a pure function of its arguments.
//!
//! [`pack`] tries a handful of greedy orders and keeps the best: on inference graphs this almost
//! always reaches the lower bound, in well under ten milliseconds. [`pack_within`] is for the rest:
//! where it decides whether a model fits, it searches until it knows or its time is up.

#![forbid(unsafe_code)]

mod greedy;
mod parts;
mod problem;
mod reasons;
mod search;
mod skyline;
mod tree;
mod waste;

use problem::Problem;
use search::Outcome;

/// A buffer to place: live from step `first` to step `last`, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// The step that writes the buffer first.
    pub first: u32,
    /// The last step that reads or writes it; not before `first`.
    pub last: u32,
    /// The bytes that the buffer needs; an empty buffer takes no space.
    pub bytes: u64,
}

/// The offset of each buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packing {
    /// The offset of each request, in the order of the requests; a multiple of the alignment.
    pub offsets: Vec<u64>,
    /// The end of the highest buffer, rounded up to the alignment: what the arena must hold.
    /// `u64::MAX` if the sizes do not add up in 64 bits; the offsets mean nothing then.
    pub height: u64,
    /// The most aligned bytes live in one step: no packing is lower.
    pub lower_bound: u64,
}

/// Gives every request an offset, keeping the lowest of several greedy packings.
///
/// Takes O(n²) for n requests, a few milliseconds for a graph of a thousand nodes; of more than
/// some ten thousand it tries less.
///
/// # Panics
/// If `alignment` is not a power of two, or a request ends before it begins.
pub fn pack(requests: &[Request], alignment: u64) -> Packing {
    let spans = spans(requests, alignment);
    let lower_bound = live_bytes(&spans);
    let (offsets, height) = greedy::best(&spans, lower_bound);
    assert!(height >= lower_bound, "height {height} below the lower bound {lower_bound}");
    Packing { offsets, height, lower_bound }
}

/// The most aligned bytes live in one step: no packing is lower.
///
/// # Panics
/// As [`pack`].
pub fn lower_bound(requests: &[Request], alignment: u64) -> u64 {
    live_bytes(&spans(requests, alignment))
}

/// Gives every request an offset below `capacity`, if that is possible: first greedily, then by an
/// exact search that ends when `should_stop`, which is asked every few microseconds, says so.
///
/// Without a verdict the packing is the best greedy one.
///
/// # Panics
/// As [`pack`].
pub fn pack_within(
    requests: &[Request],
    alignment: u64,
    capacity: u64,
    mut should_stop: impl FnMut() -> bool,
) -> (Packing, Verdict) {
    let greedy = pack(requests, alignment);
    if greedy.height <= capacity {
        return (greedy, Verdict::Fits);
    }
    if greedy.lower_bound > capacity {
        return (greedy, Verdict::Impossible);
    }
    let spans = spans(requests, alignment);
    match pack_exactly(&spans, capacity, &mut should_stop) {
        Err(verdict) => (greedy, verdict),
        Ok(offsets) => {
            let ends = offsets.iter().zip(&spans).map(|(offset, span)| offset + span.bytes);
            let height = ends.max().unwrap_or(0);
            assert!(height <= capacity, "height {height} over {capacity}");
            (Packing { offsets, height, ..greedy }, Verdict::Fits)
        }
    }
}

/// Packs part by part, with the search where greedy is not enough. The capacity is not below the
/// lower bound.
fn pack_exactly(
    spans: &[Span],
    capacity: u64,
    should_stop: &mut dyn FnMut() -> bool,
) -> std::result::Result<Vec<u64>, Verdict> {
    let mut offsets = vec![0; spans.len()];
    for part in parts::take_apart(spans, &mut offsets) {
        let own: Vec<Span> = part.ids.iter().map(|id| spans[*id]).collect();
        let capacity = capacity.checked_sub(part.base).ok_or(Verdict::Impossible)?;
        let (mut found, height) = greedy::best(&own, 0);
        if height > capacity {
            let problem = Problem::new(&own, capacity).ok_or(Verdict::Unknown)?;
            found = match search::search(&problem, should_stop) {
                Outcome::Packed(units) => units.into_iter().map(|u| problem.bytes(u)).collect(),
                Outcome::Impossible => return Err(Verdict::Impossible),
                Outcome::Stopped => return Err(Verdict::Unknown),
            };
        }
        for (id, offset) in part.ids.into_iter().zip(found) {
            offsets[id] = part.base + offset;
        }
    }
    Ok(offsets)
}

/// The answer to whether a packing is below a capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is.
    Fits,
    /// It is not, and none is.
    Impossible,
    /// It is not, and the search was stopped before it could say more.
    Unknown,
}

/// A request with its bytes rounded up to the alignment.
#[derive(Debug, Clone, Copy)]
struct Span {
    first: u32,
    last: u32,
    bytes: u64,
}

impl Span {
    fn overlaps(&self, other: &Span) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// The number of steps that the span lives.
    fn n_steps(&self) -> u64 {
        u64::from(self.last - self.first) + 1
    }
}

fn spans(requests: &[Request], alignment: u64) -> Vec<Span> {
    assert!(alignment.is_power_of_two(), "alignment {alignment} is not a power of two");
    let span = |r: &Request| {
        assert!(r.first <= r.last, "a buffer lives from {} to {}", r.first, r.last);
        let bytes = r.bytes.checked_next_multiple_of(alignment).unwrap_or(u64::MAX);
        Span { first: r.first, last: r.last, bytes }
    };
    requests.iter().map(span).collect()
}

/// The most bytes live in one step, saturating.
fn live_bytes(spans: &[Span]) -> u64 {
    let mut events: Vec<(u64, bool, u64)> = Vec::with_capacity(spans.len() * 2);
    for span in spans {
        // The end comes first in a step: `false` sorts before `true`.
        events.push((u64::from(span.first), true, span.bytes));
        events.push((u64::from(span.last) + 1, false, span.bytes));
    }
    events.sort_unstable();
    let (mut live, mut peak) = (0u128, 0u128);
    for (_, begins, bytes) in events {
        if begins {
            live += u128::from(bytes);
            peak = peak.max(live);
        } else {
            live -= u128::from(bytes);
        }
    }
    u64::try_from(peak).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
