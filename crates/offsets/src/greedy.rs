//! Greedy packings: place one span after the other, in several orders, and keep the lowest.

use std::collections::{BTreeMap, BTreeSet};

use super::Span;

/// The lowest packing found, as offsets and height; stops early at `lower_bound`.
pub(super) fn best(spans: &[Span], lower_bound: u64) -> (Vec<u64>, u64) {
    let mut best = online(spans);
    let n_tries = N_STEPS_MAX / (spans.len() * spans.len()).max(1);
    let tries =
        ORDERS.iter().flat_map(|order| [(order, GreedyFit::Lowest), (order, GreedyFit::Tightest)]);
    for (order, fit) in tries.take(n_tries) {
        if best.1 <= lower_bound {
            break;
        }
        let (offsets, height) = place(spans, &order(spans), fit);
        if height < best.1 {
            best = (offsets, height);
        }
    }
    best
}

/// Bounds the time of all orders together: each takes a step for every pair of spans.
const N_STEPS_MAX: usize = 400_000_000;

/// The gap that a span takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GreedyFit {
    /// The lowest that is large enough.
    Lowest,
    /// The smallest that is large enough.
    Tightest,
}

type GreedyOrder = fn(&[Span]) -> Vec<usize>;

/// The orders tried, the one that most often succeeds first.
const ORDERS: &[GreedyOrder] = &[by_size, by_breadth, by_area, by_length, by_first];

/// Largest first, longer-lived first among equals.
fn by_size(spans: &[Span]) -> Vec<usize> {
    sorted(spans, |s| (u64::MAX - s.bytes, u64::MAX - s.n_steps()))
}

/// Largest product of bytes and steps first.
fn by_area(spans: &[Span]) -> Vec<usize> {
    sorted(spans, |s| u128::MAX - u128::from(s.bytes) * u128::from(s.n_steps()))
}

/// Longest-lived first, larger first among equals.
fn by_length(spans: &[Span]) -> Vec<usize> {
    sorted(spans, |s| (u64::MAX - s.n_steps(), u64::MAX - s.bytes))
}

/// In the order of their births, as an allocator at run time sees them; larger first.
fn by_first(spans: &[Span]) -> Vec<usize> {
    sorted(spans, |s| (s.first, u64::MAX - s.bytes))
}

/// The spans of the fullest step first, largest first inside it; then of the next fullest.
fn by_breadth(spans: &[Span]) -> Vec<usize> {
    // The breadth can only be greatest where a span begins, so those steps are enough.
    let mut steps: Vec<u32> = spans.iter().map(|s| s.first).collect();
    steps.sort_unstable();
    steps.dedup();
    let at = |step: u32| steps.partition_point(|&s| s < step);
    let mut change = vec![0i128; steps.len() + 1];
    for span in spans {
        change[at(span.first)] += i128::from(span.bytes);
        change[steps.partition_point(|&s| s <= span.last)] -= i128::from(span.bytes);
    }
    let mut live = 0;
    let mut breadth: Vec<i128> = Vec::with_capacity(steps.len());
    for delta in &change[..steps.len()] {
        live += delta;
        breadth.push(live);
    }
    let widest = |s: &Span| {
        let end = steps.partition_point(|&step| step <= s.last);
        breadth[at(s.first)..end].iter().copied().max().unwrap_or(0)
    };
    sorted(spans, |s| (i128::MAX - widest(s), u64::MAX - s.bytes))
}

fn sorted<K: Ord>(spans: &[Span], key: impl Fn(&Span) -> K) -> Vec<usize> {
    let mut order: Vec<usize> = (0..spans.len()).collect();
    order.sort_by_cached_key(|&i| key(&spans[i]));
    order
}

/// Places the spans as an allocator at run time would: each when it begins, in the tightest gap
/// that what has ended until then leaves. Takes O(n log n).
fn online(spans: &[Span]) -> (Vec<u64>, u64) {
    let mut events: Vec<(u64, bool, usize)> = Vec::with_capacity(spans.len() * 2);
    for (i, span) in spans.iter().enumerate().filter(|(_, span)| span.bytes > 0) {
        events.push((u64::from(span.first), true, i));
        events.push((u64::from(span.last) + 1, false, i));
    }
    events.sort_unstable();
    let mut offsets = vec![0; spans.len()];
    let mut gaps = Gaps::default();
    for (_, begins, i) in events {
        match begins {
            true => offsets[i] = gaps.take(spans[i].bytes),
            false => gaps.put(offsets[i], spans[i].bytes),
        }
    }
    (offsets, gaps.height)
}

/// The gaps below the height, by offset and by size.
#[derive(Debug, Default)]
struct Gaps {
    by_offset: BTreeMap<u64, u64>,
    by_size: BTreeSet<(u64, u64)>,
    height: u64,
}

impl Gaps {
    fn take(&mut self, bytes: u64) -> u64 {
        if let Some(&(size, offset)) = self.by_size.range((bytes, 0)..).next() {
            self.remove(offset, size);
            self.insert(offset + bytes, size - bytes);
            return offset;
        }
        // The topmost gap grows, if there is one that ends at the height.
        let top = self.by_offset.last_key_value().map(|(offset, size)| (*offset, *size));
        let offset = match top {
            Some((offset, size)) if offset + size == self.height => {
                self.remove(offset, size);
                offset
            }
            _ => self.height,
        };
        self.height = offset.saturating_add(bytes);
        offset
    }

    fn put(&mut self, offset: u64, bytes: u64) {
        let (mut start, mut end) = (offset, offset.saturating_add(bytes));
        if let Some(&size) = self.by_offset.get(&end) {
            self.remove(end, size);
            end += size;
        }
        let below = self.by_offset.range(..start).next_back().map(|(o, size)| (*o, *size));
        if let Some((offset, size)) = below.filter(|(offset, size)| offset + size == start) {
            self.remove(offset, size);
            start = offset;
        }
        self.insert(start, end - start);
    }

    fn insert(&mut self, offset: u64, size: u64) {
        if size > 0 {
            self.by_offset.insert(offset, size);
            self.by_size.insert((size, offset));
        }
    }

    fn remove(&mut self, offset: u64, size: u64) {
        self.by_offset.remove(&offset);
        self.by_size.remove(&(size, offset));
    }
}

/// Places the spans in `order`; the placed ones are kept sorted by offset, so that one walk over
/// them meets the gaps from below.
fn place(spans: &[Span], order: &[usize], fit: GreedyFit) -> (Vec<u64>, u64) {
    let mut placed: Vec<(u64, Span)> = Vec::with_capacity(spans.len());
    let mut offsets = vec![0; spans.len()];
    let mut height = 0;
    for &i in order {
        let span = spans[i];
        if span.bytes == 0 {
            continue;
        }
        let offset = gap(&placed, &span, fit);
        offsets[i] = offset;
        height = offset.saturating_add(span.bytes).max(height);
        let at = placed.partition_point(|(o, _)| *o <= offset);
        placed.insert(at, (offset, span));
    }
    (offsets, height)
}

fn gap(placed: &[(u64, Span)], span: &Span, fit: GreedyFit) -> u64 {
    let mut end = 0u64;
    let mut tightest: Option<(u64, u64)> = None;
    for (offset, other) in placed.iter().filter(|(_, other)| other.overlaps(span)) {
        let room = offset.saturating_sub(end);
        if room >= span.bytes {
            if fit == GreedyFit::Lowest {
                return end;
            }
            if tightest.is_none_or(|(least, _)| room < least) {
                tightest = Some((room, end));
            }
        }
        end = end.max(offset.saturating_add(other.bytes));
    }
    tightest.map_or(end, |(_, at)| at)
}
