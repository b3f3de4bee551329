//! Loads and unloads models at random on a GPU that is nearly full.
//!
//! `churn [--bytes BYTES] [--times N] [--fill PERCENT] [--seed N] [--trace FILE]` loads
//! models of random tensors until a GPU of so many bytes is that full, then unloads and loads
//! so many times, and at last loads models of at most a tenth of what is free until a tensor is
//! refused. Prints one JSON line: how many loads were refused although their needs were free, which
//! part of what is held then is stuck between chunks and cannot go back, and how full the GPU was
//! when the first tensor was refused at the end. Exits 0 if none was refused before. `--trace`
//! writes what was done as `+id,bytes` and `-id`, for other allocators.

mod report;

use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::Arc;

use device::{Arena, Chunk, Driver, Growth, Simulated};
use report::{Answer, Options};

fn main() -> ExitCode {
    report::print(run())
}

fn run() -> Result<(String, Answer), String> {
    let options = Options::new();
    options.only(&["--bytes", "--times", "--fill", "--seed", "--trace"])?;
    if !options.first().is_empty() {
        return Err("usage: churn [--bytes BYTES] [--times N] [--fill PERCENT]".to_owned());
    }
    let bytes = options.get("--bytes", 16u64 << 30)?;
    let gpu = Arc::new(Simulated::gpu("gpu:0", bytes));
    let growth = Growth::OnDemand { step_bytes: 1 << 20 };
    let mut churn = Churn {
        arena: Arena::new(gpu.clone(), growth).map_err(|e| e.to_string())?,
        unit_bytes: gpu.properties().alignment_bytes,
        limit_bytes: gpu.properties().capacity_bytes,
        random: Random(options.get("--seed", 1u64)?),
        models: Vec::new(),
        needed_bytes: 0,
        n_refused: 0,
        trace: String::new(),
        n_tensors: 0,
    };
    let fill = options.get("--fill", 95u64)?.min(100);
    for _ in 0..options.get("--times", 1000u32)? {
        churn.cycle(bytes / 100 * fill);
    }
    let n_refused = churn.n_refused;
    churn.arena.trim(0).map_err(|e| e.to_string())?;
    let stats = churn.arena.stats();
    let stuck = stats.free_bytes() as f64 / stats.held_bytes.max(1) as f64;
    let full = churn.fill_up();
    churn.arena.check();
    let trace: String = options.get("--trace", String::new())?;
    if !trace.is_empty() {
        std::fs::write(&trace, &churn.trace).map_err(|e| format!("{trace}: {e}"))?;
    }
    let line = format!(
        "{{\"refused\":{n_refused},\"models\":{},\"stuck\":{stuck:.4},\
         \"full_at_first_refusal\":{full:.4}}}",
        churn.models.len()
    );
    Ok((line, if n_refused == 0 { Answer::Yes } else { Answer::No }))
}

struct Churn {
    arena: Arena,
    unit_bytes: u64,
    limit_bytes: u64,
    random: Random,
    models: Vec<Model>,
    /// The bytes that the loaded models need, each tensor in whole units.
    needed_bytes: u64,
    n_refused: u32,
    trace: String,
    n_tensors: u32,
}

struct Model {
    chunks: Vec<(u32, Chunk)>,
    needed_bytes: u64,
}

impl Churn {
    /// Unloads models at random until another fits into so many bytes, and loads it.
    fn cycle(&mut self, most_bytes: u64) {
        let sizes = self.sizes(most_bytes);
        let needed = self.need(&sizes);
        while self.needed_bytes + needed > most_bytes && !self.models.is_empty() {
            let n_models = self.models.len() as u64;
            let at = usize::try_from(self.random.below(n_models)).unwrap_or(0);
            self.unload(at);
        }
        self.n_refused += u32::from(self.load(&sizes).is_err());
    }

    /// The tensors of a model: some dozens to some hundreds, of sizes of all magnitudes, together
    /// no more than a fifth of what there is.
    fn sizes(&mut self, most_bytes: u64) -> Vec<u64> {
        let n_tensors = 20 + self.random.below(200);
        let largest = 12 + self.random.below(15);
        let mut left = most_bytes / 5;
        let mut sizes = Vec::new();
        for _ in 0..n_tensors {
            let magnitude = 4 + self.random.below(largest);
            let bytes = (1 << magnitude) + self.random.below(1 << magnitude);
            if bytes <= left {
                left -= bytes;
                sizes.push(bytes);
            }
        }
        sizes
    }

    fn need(&self, sizes: &[u64]) -> u64 {
        sizes.iter().map(|bytes| bytes.next_multiple_of(self.unit_bytes)).sum()
    }

    /// Loads all tensors, or none: then how many bytes were in use when there was no room for one.
    fn load(&mut self, sizes: &[u64]) -> Result<(), u64> {
        let mut model = Model { chunks: Vec::new(), needed_bytes: self.need(sizes) };
        for bytes in sizes {
            let Ok(chunk) = self.arena.allocate(*bytes) else {
                let in_use = self.arena.stats().in_use_bytes;
                self.free(model.chunks);
                return Err(in_use);
            };
            // Writing to a string does not fail.
            let _ = writeln!(self.trace, "+{},{bytes}", self.n_tensors);
            model.chunks.push((self.n_tensors, chunk));
            self.n_tensors += 1;
        }
        self.needed_bytes += model.needed_bytes;
        self.models.push(model);
        Ok(())
    }

    fn unload(&mut self, at: usize) {
        let model = self.models.swap_remove(at);
        self.needed_bytes -= model.needed_bytes;
        self.free(model.chunks);
    }

    fn free(&mut self, chunks: Vec<(u32, Chunk)>) {
        for (id, chunk) in chunks {
            let _ = writeln!(self.trace, "-{id}");
            self.arena.free(chunk);
        }
    }

    /// Loads models of at most a tenth of what is free until a tensor is refused; how full it was
    /// then.
    fn fill_up(&mut self) -> f64 {
        loop {
            let free = self.limit_bytes - self.needed_bytes;
            let sizes = self.sizes(free / 2);
            let full = match self.need(&sizes) {
                0 => self.needed_bytes,
                needed if needed > free => continue,
                _ => match self.load(&sizes) {
                    Ok(()) => continue,
                    Err(in_use) => in_use,
                },
            };
            return full as f64 / self.limit_bytes as f64;
        }
    }
}

/// A linear congruential generator.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = self.0.wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}
