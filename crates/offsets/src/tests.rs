use super::*;

/// A linear congruential generator: the same numbers each time.
struct Random(u64);

impl Random {
    /// A number below `n`.
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = self.0.wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n.max(1)
    }
}

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

/// Packs below `capacity`, and compares the verdict.
#[track_caller]
fn check_within(requests: &[Request], capacity: u64, expected: Verdict) {
    let (packing, verdict) = pack_within(requests, 1, capacity, || false);
    assert_valid(requests, 1, &packing);
    assert_eq!(verdict, expected, "{requests:?} in {capacity}");
    assert_eq!(packing.height <= capacity, verdict == Verdict::Fits);
}

/// Returns whether there is a packing: tries every order of offsets, each as low as those below
/// allow.
fn can_be_packed(requests: &[Request], capacity: u64, placed: &mut Vec<(usize, u64)>) -> bool {
    let last = placed.last().map_or(0, |(_, offset)| *offset);
    let is_placed = |i: usize| placed.iter().any(|(other, _)| *other == i);
    for i in (0..requests.len()).filter(|i| !is_placed(*i)).collect::<Vec<_>>() {
        let meets = |(j, _): &&(usize, u64)| {
            requests[*j].first <= requests[i].last && requests[i].first <= requests[*j].last
        };
        let ends = placed.iter().filter(meets).map(|(j, offset)| offset + requests[*j].bytes);
        let offset = ends.max().unwrap_or(0);
        if offset < last || offset + requests[i].bytes > capacity {
            continue;
        }
        placed.push((i, offset));
        let packed = placed.len() == requests.len() || can_be_packed(requests, capacity, placed);
        placed.pop();
        if packed {
            return true;
        }
    }
    false
}

/// Up to `n` requests that fill `bytes` bytes in every step, if they can be packed at all.
fn full(random: &mut Random, bytes: u64, n: usize) -> Vec<Request> {
    let mut requests: Vec<Request> = Vec::new();
    let mut live: Vec<usize> = Vec::new();
    for step in 0.. {
        let mut used: u64 = live.iter().map(|i| requests[*i].bytes).sum();
        while used < bytes {
            let more = 1 + random.below((bytes - used).min(5));
            live.push(requests.len());
            requests.push(Request { first: step, last: step, bytes: more });
            used += more;
        }
        if requests.len() >= n {
            break;
        }
        live.retain(|_| random.below(2) == 0);
        live.iter().for_each(|i| requests[*i].last = step + 1);
    }
    requests.truncate(n);
    requests
}

/// Compares the search with trying everything.
#[track_caller]
fn check_search(requests: &[Request], capacity: u64) -> bool {
    let problem = Problem::new(&spans(requests, 1), capacity).unwrap();
    let expected = can_be_packed(requests, capacity, &mut Vec::new());
    match search::search(&problem, &mut || false) {
        Outcome::Packed(offsets) => {
            let offsets = offsets.into_iter().map(|units| problem.bytes(units)).collect();
            let packing = Packing { offsets, height: capacity, lower_bound: 0 };
            assert_valid(requests, 1, &packing);
            assert!(expected);
        }
        Outcome::Impossible => assert!(!expected, "{requests:?} in {capacity}"),
        Outcome::Stopped => panic!("nobody said so"),
    }
    expected
}

#[test]
fn the_search_finds_every_packing_there_is() {
    let mut random = Random(11);
    for _ in 0..100 {
        let requests = full(&mut random, 9, 9);
        let height = lower_bound(&requests, 1);
        assert!(check_search(&requests, height) || check_search(&requests, height + 1));
        assert!(!check_search(&requests, height - 1));
    }
}

#[test]
fn the_search_knows_when_the_lower_bound_cannot_be_reached() {
    let instances = [
        (7, "4-4:5 4-7:1 4-7:1 5-5:4 5-10:1 7-11:1 8-10:5 11-15:2 11-13:2 11-11:2"),
        (9, "3-6:3 5-8:2 5-5:2 5-5:2 6-9:3 7-8:2 8-10:2 9-9:4 10-10:5"),
        (9, "0-3:4 2-5:1 3-6:4 4-12:1 5-6:2 6-7:2 7-8:5 8-8:3"),
        (6, "6-7:5 6-11:1 8-13:1 8-9:3 10-17:2 12-15:3 16-18:4"),
    ];
    for (bound, requests) in instances {
        let requests = parse(requests);
        assert_eq!(lower_bound(&requests, 1), bound);
        assert!(!check_search(&requests, bound));
        assert!(check_search(&requests, bound + 1));
    }
}

#[test]
fn a_puzzle_that_greedy_orders_do_not_solve_is_solved() {
    // A rectangle of 400 x 100, cut again and again at random: it can be packed without waste.
    let mut random = Random(3);
    let mut pieces = vec![(0, 99, 0, 400)];
    while pieces.len() < 100 {
        let area = |p: &(u32, u32, u64, u64)| u64::from(p.1 - p.0 + 1) * (p.3 - p.2);
        let at = (0..pieces.len()).max_by_key(|at| area(&pieces[*at])).unwrap();
        let (first, last, low, high) = pieces.swap_remove(at);
        if random.below(2) == 0 && high - low > 1 {
            let cut = low + 1 + random.below(high - low - 1);
            pieces.extend([(first, last, low, cut), (first, last, cut, high)]);
        } else if last > first {
            let cut = first + u32::try_from(random.below(u64::from(last - first))).unwrap();
            pieces.extend([(first, cut, low, high), (cut + 1, last, low, high)]);
        } else {
            pieces.push((first, last, low, high));
        }
    }
    let request = |&(first, last, low, high): &(u32, u32, u64, u64)| Request {
        first,
        last,
        bytes: high - low,
    };
    let requests: Vec<Request> = pieces.iter().map(request).collect();
    assert!(pack(&requests, 1).height > 400, "greedy orders solve it: cut it further");
    check_within(&requests, 400, Verdict::Fits);
    check_within(&requests, 399, Verdict::Impossible);
}

#[test]
fn a_search_that_is_told_to_stop_says_that_it_does_not_know() {
    let mut random = Random(5);
    let mut request = || {
        let first = u32::try_from(random.below(50)).unwrap();
        let last = first + u32::try_from(random.below(20)).unwrap();
        Request { first, last, bytes: 1 + random.below(1000) }
    };
    let requests: Vec<Request> = (0..200).map(|_| request()).collect();
    let greedy = pack(&requests, 1);
    assert!(greedy.height > greedy.lower_bound);
    let (packing, verdict) = pack_within(&requests, 1, greedy.lower_bound, || true);
    assert_eq!((packing, verdict), (greedy, Verdict::Unknown));
}

#[test]
fn a_capacity_below_the_lower_bound_is_impossible_at_once() {
    check_within(&parse("0-1:10 0-1:10"), 19, Verdict::Impossible);
}
