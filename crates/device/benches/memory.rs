//! Allocating and freeing, growing, and packing; on traces made here. The figures against the
//! goals come from the examples `replay`, `pack` and `grow` on recorded ones.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use device::{Arena, Chunk, Growth, Host};
use offsets::{Request, pack, pack_within};

const GROWING: Growth = Growth::OnDemand { step_bytes: 1 << 20 };

/// A linear congruential generator.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = self.0.wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

fn arena() -> Arena {
    Arena::new(Arc::new(Host::new("cpu:0", 32 << 30)), GROWING).expect("address space")
}

/// A warm arena: layers that allocate a few tensors each, and free those of the layer before.
fn layers(c: &mut Criterion) {
    let mut arena = arena();
    let mut random = Random(1);
    let sizes: Vec<u64> = (0..512).map(|_| 64 << random.below(18)).collect();
    let mut before: Vec<Chunk> = Vec::new();
    c.bench_function("arena: 512 allocations and frees in layers", |b| {
        b.iter(|| {
            for layer in sizes.chunks(4) {
                let chunks = layer.iter().map(|bytes| arena.allocate(*bytes).expect("room"));
                let chunks: Vec<Chunk> = chunks.collect();
                before.drain(..).for_each(|chunk| arena.free(chunk));
                before = chunks;
            }
        });
    });
}

fn pairs(c: &mut Criterion) {
    for bytes in [4u64, 4096, 1 << 20] {
        let mut arena = arena();
        c.bench_function(&format!("arena: allocate and free {bytes} bytes"), |b| {
            b.iter(|| {
                let chunk = arena.allocate(black_box(bytes)).expect("room");
                arena.free(chunk);
            });
        });
    }
}

fn growth(c: &mut Criterion) {
    c.bench_function("arena: grow to 64 MiB by 1 MiB, and give it back", |b| {
        let mut arena = arena();
        b.iter(|| {
            let chunks = (0..64).map(|_| arena.allocate(1 << 20).expect("room"));
            let chunks: Vec<Chunk> = chunks.collect();
            chunks.into_iter().for_each(|chunk| arena.free(chunk));
            arena.trim(0).expect("the host takes it")
        });
    });
}

/// A rectangle cut again and again at random: it can be packed without waste.
fn puzzle(n: usize) -> Vec<Request> {
    let mut random = Random(3);
    let mut pieces = vec![(0u32, 99u32, 0u64, 400u64)];
    while pieces.len() < n {
        let area = |p: &(u32, u32, u64, u64)| u64::from(p.1 - p.0 + 1) * (p.3 - p.2);
        let at = (0..pieces.len()).max_by_key(|at| area(&pieces[*at])).unwrap_or(0);
        let (first, last, low, high) = pieces.swap_remove(at);
        if random.below(2) == 0 && high - low > 1 {
            let cut = low + 1 + random.below(high - low - 1);
            pieces.extend([(first, last, low, cut), (first, last, cut, high)]);
        } else if last > first {
            let cut = first + u32::try_from(random.below(u64::from(last - first))).unwrap_or(0);
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
    pieces.iter().map(request).collect()
}

fn packing(c: &mut Criterion) {
    let requests = puzzle(100);
    c.bench_function("plan: a puzzle of 100 buffers, greedily", |b| {
        b.iter(|| pack(black_box(&requests), 1));
    });
    c.bench_function("plan: a puzzle of 100 buffers, exactly", |b| {
        b.iter(|| pack_within(black_box(&requests), 1, 400, || false));
    });
    let mut random = Random(5);
    let chain: Vec<Request> = (0..500)
        .map(|step| Request { first: step, last: step + 1, bytes: 64 << random.below(16) })
        .collect();
    c.bench_function("plan: a chain of 500 layers", |b| b.iter(|| pack(black_box(&chain), 64)));
}

criterion_group!(benches, pairs, layers, growth, packing);
criterion_main!(benches);
