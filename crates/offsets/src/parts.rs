//! A packing problem taken apart: what lives at different times is packed apart, and what lives
//! together with everything else lies below the rest.

use super::Span;

/// Spans that have to be packed together, above `base`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    /// The indices of the spans.
    pub(super) ids: Vec<usize>,
    /// The height below the spans.
    pub(super) base: u64,
}

/// Takes the spans that are not empty apart; writes the offsets of those that are in no part.
pub(super) fn take_apart(spans: &[Span], offsets: &mut [u64]) -> Vec<Part> {
    assert_eq!(spans.len(), offsets.len());
    let mut parts = Vec::new();
    let ids: Vec<usize> = (0..spans.len()).filter(|id| spans[*id].bytes > 0).collect();
    let mut open = vec![Part { ids, base: 0 }];
    while let Some(part) = open.pop() {
        for ids in split(spans, part.ids) {
            let (below, rest) = peel(spans, ids);
            let is_whole = below.is_empty();
            let mut base = part.base;
            for id in below {
                offsets[id] = base;
                base = base.saturating_add(spans[id].bytes);
            }
            let rest = Part { ids: rest, base };
            if is_whole { parts.push(rest) } else { open.push(rest) }
        }
    }
    parts
}

/// Groups of spans that overlap no span of another group.
fn split(spans: &[Span], mut ids: Vec<usize>) -> Vec<Vec<usize>> {
    ids.sort_by_key(|id| spans[*id].first);
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut end = 0;
    for id in ids {
        match groups.last_mut() {
            Some(group) if spans[id].first <= end => group.push(id),
            _ => groups.push(vec![id]),
        }
        end = end.max(spans[id].last);
    }
    groups
}

/// The spans that overlap every other, and the rest.
fn peel(spans: &[Span], ids: Vec<usize>) -> (Vec<usize>, Vec<usize>) {
    let first_end = ids.iter().map(|id| spans[*id].last).min().unwrap_or(0);
    let last_begin = ids.iter().map(|id| spans[*id].first).max().unwrap_or(0);
    let meets_all = |id: &usize| spans[*id].first <= first_end && spans[*id].last >= last_begin;
    ids.into_iter().partition(meets_all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(spans: &[(u32, u32)], offsets: &[u64], parts: &[(&[usize], u64)]) {
        let span = |&(first, last): &(u32, u32)| Span { first, last, bytes: 10 };
        let spans: Vec<Span> = spans.iter().map(span).collect();
        let mut found = vec![0; spans.len()];
        let mut taken = take_apart(&spans, &mut found);
        taken.sort_by_key(|part| part.ids.clone());
        let part = |(ids, base): &(&[usize], u64)| Part { ids: ids.to_vec(), base: *base };
        assert_eq!(found, offsets);
        assert_eq!(taken, parts.iter().map(part).collect::<Vec<_>>());
    }

    #[test]
    fn what_meets_everything_lies_below_and_leaves_nothing_to_pack() {
        check(&[(0, 9), (1, 2), (4, 5)], &[0, 10, 10], &[]);
        check(&[(0, 1), (1, 2)], &[0, 10], &[]);
    }

    #[test]
    fn times_apart_are_parts_apart() {
        let crossing = [(0, 2), (1, 4), (3, 6), (5, 7)];
        let later = crossing.map(|(first, last)| (first + 10, last + 10));
        let both: Vec<_> = crossing.iter().chain(&later).copied().collect();
        check(&both, &[0; 8], &[(&[0, 1, 2, 3], 0), (&[4, 5, 6, 7], 0)]);
    }

    #[test]
    fn parts_lie_above_what_was_peeled_off() {
        let spans = [(0, 20), (0, 2), (1, 4), (3, 6), (5, 7)];
        check(&spans, &[0; 5], &[(&[1, 2, 3, 4], 10)]);
    }
}
