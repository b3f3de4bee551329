use super::*;
use crate::random::Random;
use crate::{Host, Limited, Simulated, SimulatedOptions};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

const GROWING: Growth = Growth::OnDemand { step_bytes: MIB };

fn host() -> Arc<dyn Driver> {
    Arc::new(Host::new("cpu:0", 256 * MIB))
}

fn gpu(capacity_bytes: u64) -> Arc<Simulated> {
    Arc::new(Simulated::gpu("gpu:0", capacity_bytes))
}

/// A GPU whose regions are committed as a whole.
fn old_gpu(capacity_bytes: u64) -> Arc<Simulated> {
    let options = SimulatedOptions::gpu("gpu:0", capacity_bytes);
    Arc::new(Simulated::new(SimulatedOptions { grows_in_place: false, ..options }))
}

fn arena(driver: Arc<dyn Driver>, growth: Growth) -> Arena {
    Arena::new(driver, growth).unwrap()
}

/// Frees what is left, trims, and asserts that everything went back.
#[track_caller]
fn finish(mut arena: Arena, chunks: impl IntoIterator<Item = Chunk>) {
    chunks.into_iter().for_each(|chunk| arena.free(chunk));
    arena.check();
    assert_eq!((arena.stats().in_use_bytes, arena.stats().requested_bytes), (0, 0));
    arena.trim(0).unwrap();
    arena.check();
    assert_eq!(arena.held_bytes(), 0, "an arena without chunks gives everything back");
    assert_eq!(arena.driver().held_bytes(), 0);
}

#[test]
fn chunks_are_aligned_and_apart() {
    let mut arena = arena(host(), GROWING);
    let sizes = [0, 1, 63, 64, 65, 512, 513, 4096, 5000, MIB, 3 * MIB + 1];
    let chunks: Vec<Chunk> = sizes.iter().map(|size| arena.allocate(*size).unwrap()).collect();
    for (i, a) in chunks.iter().enumerate() {
        assert_eq!(a.address() % 64, 0);
        assert_eq!(a.bytes(), sizes[i]);
        for b in &chunks[..i] {
            let apart =
                a.address() + a.bytes() <= b.address() || b.address() + b.bytes() <= a.address();
            assert!(apart && a.address() != b.address(), "{a:?} {b:?}");
        }
    }
    finish(arena, chunks);
}

#[test]
fn the_smallest_chunk_that_fits_is_taken_and_the_lowest_among_equals() {
    let mut arena = arena(host(), GROWING);
    let sizes = [8 * KIB, 64 * KIB, 8 * KIB, 32 * KIB, 8 * KIB, 32 * KIB, 8 * KIB];
    let mut chunks: Vec<_> = sizes.iter().map(|s| Some(arena.allocate(*s).unwrap())).collect();
    let holes = [1, 3, 5].map(|i| {
        let chunk = chunks[i].take().unwrap();
        let address = chunk.address();
        arena.free(chunk);
        address
    });
    let a = arena.allocate(30 * KIB).unwrap();
    let b = arena.allocate(32 * KIB).unwrap();
    let c = arena.allocate(33 * KIB).unwrap();
    assert_eq!([a.address(), b.address(), c.address()], [holes[1], holes[2], holes[0]]);
    finish(arena, chunks.into_iter().flatten().chain([a, b, c]));
}

#[test]
fn neighbours_that_are_free_become_one() {
    let mut arena = arena(host(), Growth::Reserved { bytes: MIB });
    let [a, b, c] = [0; 3].map(|_| arena.allocate(256 * KIB).unwrap());
    let lowest = a.address();
    arena.free(a);
    arena.free(c);
    assert!(arena.allocate(600 * KIB).is_err());
    arena.free(b);
    assert_eq!(arena.stats().n_chunks, 1);
    let whole = arena.allocate(MIB).unwrap();
    assert_eq!(whole.address(), lowest);
    arena.free(whole);
}

#[test]
fn an_arena_holds_what_it_needs_and_little_more() {
    let mut arena = arena(host(), GROWING);
    assert_eq!(arena.held_bytes(), 0, "nothing is taken before it is needed");
    let chunk = arena.allocate(10 * MIB).unwrap();
    assert_eq!(arena.held_bytes(), 10 * MIB);
    let small = arena.allocate(MIB / 4).unwrap();
    assert_eq!(arena.held_bytes(), 11 * MIB, "by a step at least");
    finish(arena, [chunk, small]);
}

#[test]
fn reserved_memory_is_taken_at_once_and_kept() {
    let gpu = gpu(8 * MIB);
    let mut arena = arena(gpu.clone(), Growth::Reserved { bytes: 6 * MIB });
    assert_eq!(gpu.held_bytes(), 6 * MIB);
    let calls = gpu.n_calls();
    let chunk = arena.allocate(5 * MIB).unwrap();
    let error = arena.allocate(2 * MIB).unwrap_err();
    let text = "gpu:0 has no room for 2097152 bytes: 1048576 of 6291456 are free";
    assert_eq!(error.to_string(), text);
    arena.free(chunk);
    assert_eq!(arena.trim(0).unwrap(), 0);
    assert_eq!((gpu.held_bytes(), gpu.n_calls()), (6 * MIB, calls));
    assert!(Arena::new(gpu, Growth::Reserved { bytes: 4 * MIB }).is_err());
}

#[test]
fn fragments_move_together_before_more_is_taken() {
    let gpu = gpu(10 * MIB);
    let mut arena = arena(gpu.clone(), GROWING);
    let chunks: Vec<Chunk> = (0..5).map(|_| arena.allocate(2 * MIB).unwrap()).collect();
    let mut kept = Vec::new();
    for (i, chunk) in chunks.into_iter().enumerate() {
        if i % 2 == 0 { arena.free(chunk) } else { kept.push(chunk) }
    }
    // Three holes of 2 MiB, a full device, and a request for all three in one piece.
    let large = arena.allocate(6 * MIB).unwrap();
    assert_eq!(gpu.held_bytes(), 10 * MIB);
    kept.push(large);
    finish(arena, kept);
}

#[test]
fn a_limit_is_met_to_the_granule() {
    for limit in [4 * KIB, 64 * KIB, 1000 * KIB] {
        let limited = Arc::new(Limited::new(host(), "model", limit));
        let mut arena = arena(limited.clone(), GROWING);
        let chunks: Vec<Chunk> = (0..limit / KIB).map(|_| arena.allocate(KIB).unwrap()).collect();
        assert!(arena.allocate(KIB).is_err());
        assert_eq!(limited.held_bytes(), limit);
        finish(arena, chunks);
    }
}

#[test]
fn scalars_cost_a_slot_each() {
    let mut arena = arena(host(), GROWING);
    let chunks: Vec<Chunk> = (0..1000).map(|_| arena.allocate(4).unwrap()).collect();
    let stats = arena.stats();
    assert_eq!((stats.in_use_bytes, stats.requested_bytes), (64_000, 4000));
    assert!(stats.n_chunks < 20, "{} chunks", stats.n_chunks);
    finish(arena, chunks);
}

#[test]
fn the_books_are_small() {
    let mut arena = arena(Arc::new(Host::new("cpu:0", 4 << 30)), GROWING);
    let chunks: Vec<Chunk> =
        (0..300).map(|n| arena.allocate(64 * KIB + n * 999).unwrap()).collect();
    let stats = arena.stats();
    let share = stats.bookkeeping_bytes as f64 / stats.held_bytes as f64;
    assert!(share <= 0.0005, "{} of {}", stats.bookkeeping_bytes, stats.held_bytes);
    finish(arena, chunks);
}

#[test]
fn trimming_keeps_as_much_as_is_asked() {
    let mut arena = arena(host(), GROWING);
    let chunk = arena.allocate(8 * MIB).unwrap();
    let kept = arena.allocate(MIB).unwrap();
    arena.free(chunk);
    assert_eq!(arena.trim(5 * MIB).unwrap(), 4 * MIB);
    assert_eq!(arena.stats().largest_free_bytes, 4 * MIB);
    finish(arena, [kept]);
}

#[test]
fn trimming_gives_back_the_room_of_empty_bins() {
    let mut arena = arena(host(), GROWING);
    let sizes = (0..12).map(|n| (64 << 10) << (n / 2));
    let chunks: Vec<_> = sizes.map(|bytes| arena.allocate(bytes).unwrap()).collect();
    let (even, odd): (Vec<_>, Vec<_>) = (0..).zip(chunks).partition(|(n, _)| n % 2 == 0);
    // First those between others, so that many sizes are free; then all are one.
    even.into_iter().chain(odd).for_each(|(_, chunk)| arena.free(chunk));
    let before = arena.stats().bookkeeping_bytes;
    arena.trim(0).unwrap();
    let after = arena.stats().bookkeeping_bytes;
    assert!(after + 4 * 64 <= before, "{before} became {after}");
    finish(arena, []);
}

#[test]
fn fragmentation_is_the_share_outside_the_largest_free_chunk() {
    let mut arena = arena(host(), Growth::Reserved { bytes: 4 * MIB });
    assert_eq!(arena.stats().fragmentation(), 0.0);
    let [a, b] = [MIB, MIB].map(|bytes| arena.allocate(bytes).unwrap());
    arena.free(a);
    assert!((arena.stats().fragmentation() - 1.0 / 3.0).abs() < 1e-9);
    arena.free(b);
}

/// A model's life: its weights, then runs of layers that free what the layer before made, with
/// residuals that live longer. Returns the most that was live at once.
fn infer(arena: &mut Arena, seed: u64) -> Result<u64> {
    let mut random = Random(seed);
    let (mut chunks, mut live, mut peak) = (Vec::new(), 0, 0);
    for _ in 0..200 {
        chunks.push(arena.allocate(1 + random.size(20))?);
    }
    live += chunks.iter().map(Chunk::bytes).sum::<u64>();
    for _ in 0..3 {
        let mut recent: Vec<Chunk> = Vec::new();
        for layer in 0..60 {
            for _ in 0..3 {
                let bytes = (1 << 16) + random.size(22 - layer / 15);
                recent.push(arena.allocate(bytes)?);
                live += bytes;
                peak = peak.max(live);
            }
            while recent.len() > 5 {
                let at = if random.below(4) == 0 { 1 } else { 0 };
                let chunk = recent.remove(at);
                live -= chunk.bytes();
                arena.free(chunk);
            }
        }
        for chunk in recent {
            live -= chunk.bytes();
            arena.free(chunk);
        }
    }
    chunks.into_iter().for_each(|chunk| arena.free(chunk));
    Ok(peak)
}

#[test]
fn little_more_is_held_than_is_live_and_a_limit_may_be_close_to_that() {
    for seed in 0..20 {
        let driver = Arc::new(Limited::new(host(), "host", u64::MAX));
        let mut growing = arena(driver.clone(), GROWING);
        let peak = infer(&mut growing, seed).unwrap();
        let held = driver.peak_bytes();
        assert!(held <= peak + peak / 100 + 4 * MIB, "{held} held for {peak}");
        let limit = peak + peak / 200;
        let mut limited = arena(Arc::new(Limited::new(host(), "host", limit)), GROWING);
        infer(&mut limited, seed).unwrap();
        finish(limited, []);
    }
}

/// Random work on an arena, and what must be true of it from outside.
struct Churn {
    random: Random,
    chunks: Vec<Chunk>,
    requested: u64,
}

impl Churn {
    fn new(seed: u64) -> Churn {
        Churn { random: Random(seed), chunks: Vec::new(), requested: 0 }
    }

    /// Allocates, frees or trims, and asserts that the books are right.
    fn step(&mut self, arena: &mut Arena) {
        let random = &mut self.random;
        let most = if random.below(100) < 2 { 0 } else { 60 };
        match random.below(200) {
            0 => drop(arena.trim(random.size(24)).ok()),
            n if n < 100 && self.chunks.len() as u64 > most => {
                let at = usize::try_from(random.below(self.chunks.len() as u64)).unwrap();
                let chunk = self.chunks.swap_remove(at);
                self.requested -= chunk.bytes();
                arena.free(chunk);
            }
            _ => {
                if let Ok(chunk) = arena.allocate(random.size(22)) {
                    self.requested += chunk.bytes();
                    self.chunks.push(chunk);
                }
            }
        }
        let stats = arena.stats();
        assert_eq!(stats.requested_bytes, self.requested);
        assert!(stats.requested_bytes <= stats.in_use_bytes);
        assert!(stats.in_use_bytes <= stats.held_bytes);
        assert_eq!(stats.held_bytes, arena.driver().held_bytes());
        assert!(arena.returnable_bytes() <= stats.free_bytes());
    }

    fn run(mut self, arena: &mut Arena, n_operations: u32) -> Vec<Chunk> {
        (0..n_operations).for_each(|_| self.step(arena));
        arena.check();
        self.chunks
    }
}

/// A quarter of a million operations; debug builds check every invariant after each of them.
#[track_caller]
fn check_churn(driver: Arc<dyn Driver>, seed: u64) {
    let mut arena = arena(driver, GROWING);
    let chunks = Churn::new(seed).run(&mut arena, 250_000);
    finish(arena, chunks);
}

#[test]
fn random_operations_on_the_host_keep_every_promise() {
    check_churn(host(), 1);
}

#[test]
fn random_operations_at_a_limit_keep_every_promise() {
    check_churn(Arc::new(Limited::new(host(), "model", 20 * MIB)), 2);
}

#[test]
fn random_operations_on_a_gpu_keep_every_promise() {
    check_churn(gpu(48 * MIB), 3);
}

#[test]
fn random_operations_on_whole_regions_keep_every_promise() {
    check_churn(old_gpu(64 * MIB), 4);
}

/// The models that are loaded and unloaded by turns, each with its chunks, on a GPU.
struct Models {
    arena: Arena,
    random: Random,
    loaded: Vec<(Vec<Chunk>, u64)>,
    needed: u64,
}

impl Models {
    /// A model of random tensors, and what it needs in whole units.
    fn sizes(&mut self) -> (Vec<u64>, u64) {
        let n_tensors = 5 + self.random.below(30);
        let sizes: Vec<u64> = (0..n_tensors).map(|_| 1 + self.random.size(22)).collect();
        let needed = sizes.iter().map(|bytes| bytes.next_multiple_of(256)).sum();
        (sizes, needed)
    }

    /// Loads a model after unloading others until `most` bytes are needed; what was needed when
    /// there was no room, if so.
    fn cycle(&mut self, most: u64) -> Option<u64> {
        let (sizes, needed) = self.sizes();
        while self.needed + needed > most {
            let at = usize::try_from(self.random.below(self.loaded.len() as u64)).unwrap();
            let (chunks, bytes) = self.loaded.swap_remove(at);
            chunks.into_iter().for_each(|chunk| self.arena.free(chunk));
            self.needed -= bytes;
        }
        let mut chunks = Vec::new();
        for bytes in sizes {
            match self.arena.allocate(bytes) {
                Ok(chunk) => chunks.push(chunk),
                Err(_) => {
                    chunks.into_iter().for_each(|chunk| self.arena.free(chunk));
                    return Some(self.needed);
                }
            }
        }
        self.needed += needed;
        self.loaded.push((chunks, needed));
        None
    }
}

#[test]
fn models_that_fit_together_are_never_refused() {
    let limit = 1 << 30;
    let arena = arena(gpu(limit), GROWING);
    let mut models = Models { arena, random: Random(8), loaded: Vec::new(), needed: 0 };
    for _ in 0..300 {
        assert_eq!(models.cycle(limit / 100 * 95), None, "at 95 %");
    }
    let chunks = models.loaded.into_iter().flat_map(|(chunks, _)| chunks);
    finish(models.arena, chunks);
}

/// The same work, of which the `n`-th driver call fails; whether there were as many.
fn loses_nothing(gpu: &Arc<Simulated>, n: u64) -> bool {
    let mut arena = arena(gpu.clone(), GROWING);
    let before = gpu.n_calls();
    gpu.fail_call(n);
    let chunks = Churn::new(5).run(&mut arena, 1500);
    let was_reached = gpu.n_calls() - before > n;
    gpu.fail_call(u64::MAX);
    finish(arena, chunks);
    was_reached
}

#[test]
fn a_driver_call_that_fails_costs_only_that_request() {
    for make in [gpu, old_gpu] {
        let gpu = make(24 * MIB);
        let n_failed = (0..).take_while(|n| loses_nothing(&gpu, *n)).count();
        assert!(n_failed > 20, "only {n_failed} calls");
    }
}
