use super::*;
use crate::random::Random;

/// Each request is `first-last:bytes`.
fn parse(requests: &str) -> Vec<Request> {
    let one = |word: &str| {
        let (span, bytes) = word.split_once(':').unwrap();
        let (first, last) = span.split_once('-').unwrap();
        Request {
            first: first.parse().unwrap(),
            last: last.parse().unwrap(),
            bytes: bytes.parse().unwrap(),
        }
    };
    requests.split_whitespace().map(one).collect()
}

/// Asserts that no two buffers that live together overlap, and that the height is what it says.
#[track_caller]
fn assert_valid(requests: &[Request], alignment: u64, packing: &Packing) {
    assert_eq!(packing.offsets.len(), requests.len());
    let end = |i: usize| packing.offsets[i] + requests[i].bytes.next_multiple_of(alignment);
    for i in 0..requests.len() {
        assert_eq!(packing.offsets[i] % alignment, 0, "{i} is not aligned");
        assert!(end(i) <= packing.height, "{i} ends above {}", packing.height);
        for j in 0..i {
            let together =
                requests[i].first <= requests[j].last && requests[j].first <= requests[i].last;
            let apart = end(i) <= packing.offsets[j] || end(j) <= packing.offsets[i];
            assert!(!together || apart, "{i} and {j} overlap");
        }
    }
}

#[track_caller]
fn check(requests: &str, alignment: u64, height: u64, lower_bound: u64) {
    let requests = parse(requests);
    let packing = pack(&requests, alignment);
    assert_valid(&requests, alignment, &packing);
    assert_eq!((packing.height, packing.lower_bound), (height, lower_bound));
}

#[test]
fn no_buffers_need_no_memory() {
    check("", 64, 0, 0);
    check("0-5:0 1-2:0", 64, 0, 0);
}

#[test]
fn buffers_that_never_live_together_share_their_bytes() {
    check("0-1:100 2-3:80 4-9:90", 1, 100, 100);
}

#[test]
fn the_last_step_of_a_buffer_is_included() {
    check("0-2:10 2-3:10", 1, 20, 20);
    check("0-1:10 2-3:10", 1, 10, 10);
}

#[test]
fn sizes_are_rounded_up_to_the_alignment() {
    check("0-1:1 0-1:65", 64, 192, 192);
}

#[test]
fn a_chain_of_layers_reaches_the_lower_bound() {
    check("0-1:40 1-2:100 2-3:20 3-4:100 4-5:40 0-5:8", 1, 148, 148);
}

#[test]
fn sizes_that_do_not_add_up_are_no_overflow() {
    let requests =
        [Request { first: 0, last: 1, bytes: u64::MAX }, Request { first: 1, last: 2, bytes: 9 }];
    let packing = pack(&requests, 64);
    assert_eq!((packing.height, packing.lower_bound), (u64::MAX, u64::MAX));
}

#[test]
fn random_requests_never_overlap() {
    let mut random = Random(7);
    for round in 0..200 {
        let n = random.below(40);
        let requests: Vec<Request> = (0..n)
            .map(|_| {
                let first = u32::try_from(random.below(30)).unwrap();
                let last = first + u32::try_from(random.below(8)).unwrap();
                Request { first, last, bytes: random.below(1000) }
            })
            .collect();
        let alignment = 1 << (round % 8);
        let packing = pack(&requests, alignment);
        assert_valid(&requests, alignment, &packing);
        assert!(packing.height >= packing.lower_bound);
    }
}
