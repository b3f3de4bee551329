use std::sync::Arc;

use fakecuda::{Counters, Fake, Gpu};

use super::*;
use crate::logical::{Environment, GpuOptions, configure};
use crate::{Arena, Growth, Region, conformance};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn found() -> Vec<Arc<Cuda>> {
    cuda_gpus().unwrap().into_iter().map(Arc::new).collect()
}

#[test]
fn every_gpu_is_a_driver() {
    let fake = Fake::start(&[Gpu::new(64 * MIB), Gpu { major: 9, ..Gpu::new(32 * MIB) }]);
    let gpus = found();
    let seen = |gpu: &Arc<Cuda>| (gpu.compute_capability(), gpu.properties().capacity_bytes);
    let seen: Vec<_> = gpus.iter().map(seen).collect();
    assert_eq!(seen, [((8, 0), 64 * MIB), ((9, 0), 32 * MIB)]);
    for gpu in gpus {
        assert_eq!(gpu.properties().granule_bytes, 2 * MIB);
        conformance::check(&(gpu.clone() as Arc<dyn Driver>));
        assert_eq!(gpu.free_bytes().unwrap(), gpu.properties().capacity_bytes);
    }
    assert!(fake.counters().is_empty(), "all is given back: {:?}", fake.counters());
}

#[test]
fn what_is_held_is_memory_of_that_gpu_until_it_is_dropped() {
    let fake = Fake::start(&[Gpu::new(16 * MIB), Gpu::new(16 * MIB)]);
    let gpus = found();
    let region = Region::committed(gpus[1].clone(), 6 * MIB).unwrap();
    assert_eq!(gpus[0].free_bytes().unwrap(), 16 * MIB);
    assert_eq!(gpus[1].free_bytes().unwrap(), 10 * MIB);
    let Counters { n_contexts, n_ranges, n_handles, n_mapped, used_bytes, .. } = fake.counters();
    assert_eq!((n_contexts, n_ranges, n_handles, n_mapped), (2, 1, 0, 3));
    assert_eq!(used_bytes, 6 * MIB);
    drop(region);
    drop(gpus);
    assert!(fake.counters().is_empty(), "all is given back: {:?}", fake.counters());
}

#[test]
fn what_a_context_takes_is_measured_and_known_to_be_ours() {
    let small = Gpu { context_bytes: 5 * MIB, taken_bytes: 3 * MIB, ..Gpu::new(64 * MIB) };
    let fake = Fake::start(&[small, Gpu { context_bytes: 40 * MIB, ..Gpu::new(64 * MIB) }]);
    let gpus = found();
    assert_eq!((gpus[0].context_bytes(), gpus[0].available_bytes()), (5 * MIB, 56 * MIB));
    let others = gpus[0].physical().unwrap();
    assert_eq!(others.free_bytes, 61 * MIB, "what others have not taken");
    conformance::check(&(gpus[0].clone() as Arc<dyn Driver>));
    // Two contexts have no room on the second, so that one cannot be measured.
    assert_eq!((gpus[1].context_bytes(), gpus[1].available_bytes()), (0, 24 * MIB));
    assert_eq!((fake.counters().n_contexts, fake.counters().used_bytes), (2, 45 * MIB));
    drop(gpus);
    assert!(fake.counters().is_empty(), "all is given back: {:?}", fake.counters());
}

/// Checks the number of GPUs, or the reason that it is unknown, if the first call returns `code`.
#[track_caller]
fn check_start(fake: &Fake, code: i32, expected: std::result::Result<usize, &str>) {
    fake.answer_call(0, code);
    let gpus = cuda_gpus().map(|gpus| gpus.len()).map_err(|error| error.to_string());
    assert_eq!(gpus, expected.map_err(str::to_owned), "{code}");
    assert!(fake.counters().is_empty());
}

#[test]
fn without_a_device_there_are_no_gpus_and_a_driver_that_fails_is_an_error() {
    let fake = Fake::start(&[]);
    assert!(cuda_gpus().unwrap().is_empty());
    fake.reset(&[Gpu::new(16 * MIB)]);
    check_start(&fake, 34, Ok(0));
    check_start(&fake, 100, Ok(0));
    check_start(&fake, 999, Err("cuInit failed on cuda: CUDA error 999"));
    fake.answer_call(1, 3);
    let error = cuda_gpus().unwrap_err().to_string();
    assert_eq!(error, "cuDeviceGetCount failed on cuda: CUDA error 3");
}

#[test]
fn a_gpu_without_virtual_memory_is_refused() {
    let _fake = Fake::start(&[Gpu { has_virtual_memory: 0, ..Gpu::new(16 * MIB) }]);
    let error = cuda_gpus().unwrap_err().to_string();
    let expected = "cuDeviceGetAttribute failed on gpu:0: it has no virtual memory management";
    assert_eq!(error, expected);
}

#[test]
fn a_code_that_nobody_knows_is_an_error_with_its_number() {
    let fake = Fake::start(&[Gpu::new(16 * MIB)]);
    for code in [9999, -1, i32::MIN] {
        check_start(&fake, code, Err(&format!("cuInit failed on cuda: CUDA error {code}")));
        let gpu = found().remove(0);
        // The context is made current first.
        for (n, call) in [(0, "cuCtxSetCurrent"), (1, "cuMemGetInfo")] {
            fake.answer_call(n, code);
            let error = gpu.free_bytes().unwrap_err().to_string();
            assert_eq!(error, format!("{call} failed on gpu:0: CUDA error {code}"));
        }
        fake.answer_call(1, code);
        assert!(Region::committed(gpu.clone(), 2 * MIB).is_err());
        assert_eq!(gpu.free_bytes().unwrap(), 16 * MIB);
    }
    assert!(fake.counters().is_empty(), "all is given back: {:?}", fake.counters());
}

#[test]
fn memory_of_others_is_not_available() {
    let taken = Gpu { taken_bytes: 62 * MIB, ..Gpu::new(64 * MIB) };
    let _fake = Fake::start(&[taken, Gpu::new(64 * MIB)]);
    let gpu = found().remove(0);
    assert_eq!(gpu.available_bytes(), 2 * MIB);
    let error = Region::committed(gpu.clone(), 4 * MIB).unwrap_err();
    assert!(matches!(error, Error::Exhausted { .. }), "{error}");
    assert_eq!(gpu.free_bytes().unwrap(), 2 * MIB, "what was mapped by then went back");
}

/// The limit that TensorFlow computes for a GPU of 8 GiB, of which others hold some.
#[track_caller]
fn check_limit(fake: &Fake, major: i32, taken_mib: u64, expected_mib: u64) {
    fake.reset(&[Gpu { major, taken_bytes: taken_mib * MIB, ..Gpu::new(8 << 30) }]);
    let found: Vec<Physical> = found().iter().map(|gpu| gpu.physical().unwrap()).collect();
    let made = configure(&GpuOptions::unset(), &Environment::unset(), &found).unwrap();
    assert_eq!(made.devices[0].limit_bytes / MIB, expected_mib, "{major} {taken_mib}");
}

#[test]
fn the_limit_is_what_is_free_less_a_reserve_for_its_generation() {
    let fake = Fake::start(&[]);
    for (major, reserve_mib) in [(6, 500), (7, 1050), (8, 1536), (9, 1800), (10, 1800)] {
        check_limit(&fake, major, 0, 8192 - reserve_mib);
        check_limit(&fake, major, 1000, 7192 - reserve_mib);
        check_limit(&fake, major, 8192 - 2047, 2047 - 225);
        check_limit(&fake, major, 8192 - 225, 225);
    }
}

/// Does `work` while the `n`-th call fails; whether there was such a call.
fn reaches(fake: &Fake, n: u64, work: impl FnOnce()) -> bool {
    let before = fake.counters().n_calls;
    fake.fail_call(n);
    work();
    let was_reached = fake.counters().n_calls - before > n;
    fake.fail_call(u64::MAX);
    was_reached
}

/// Grows, moves, trims, frees and copies.
fn work(gpu: &Arc<Cuda>) {
    let driver = Arc::clone(gpu) as Arc<dyn Driver>;
    let mut arena = Arena::new(driver, Growth::OnDemand { step_bytes: 32 * KIB }).unwrap();
    let sizes = [32 * KIB, 96 * KIB, 160 * KIB, 700, 192 * KIB];
    let mut chunks: Vec<_> = sizes.iter().filter_map(|s| arena.allocate(*s).ok()).collect();
    drop(arena.trim(0));
    arena.free(chunks.remove(0));
    chunks.extend(arena.allocate(64 * KIB));
    chunks.into_iter().for_each(|chunk| arena.free(chunk));
    arena.check();
    drop(arena.trim(0));
    arena.check();
    drop(arena);
    if let Ok(mut region) = Region::committed(gpu.clone(), 128 * KIB) {
        drop(region.write(0, &[7]));
        drop(region.copy(0, 64 * KIB, 1));
        drop(region.read(64 * KIB, &mut [0]));
    }
    drop(gpu.sync());
}

#[test]
fn any_call_may_fail_and_nothing_is_lost() {
    let fake = Fake::start(&[Gpu { granule_bytes: 64 * KIB, ..Gpu::new(512 * KIB) }]);
    let gpu = found().remove(0);
    let fails = |n: &u64| {
        let was_reached = reaches(&fake, *n, || work(&gpu));
        let Counters { n_ranges, n_handles, n_mapped, used_bytes, .. } = fake.counters();
        assert_eq!((n_ranges, n_handles, n_mapped, used_bytes), (0, 0, 0, 0), "call {n}");
        assert_eq!((gpu.free_bytes().unwrap(), gpu.held_bytes()), (512 * KIB, 0), "call {n}");
        was_reached
    };
    let n_failed = (0..).take_while(fails).count();
    assert!(n_failed > 100, "only {n_failed} calls");
}

#[test]
fn any_call_may_fail_while_gpus_are_found_and_given_back() {
    let gpu = Gpu { context_bytes: 5 * MIB, ..Gpu::new(16 * MIB) };
    let fake = Fake::start(&[gpu, gpu]);
    let fails = |n: &u64| {
        let was_reached = reaches(&fake, *n, || drop(cuda_gpus()));
        assert!(fake.counters().is_empty(), "call {n}: {:?}", fake.counters());
        was_reached
    };
    let n_failed = (0..).take_while(fails).count();
    assert!(n_failed > 15, "only {n_failed} calls");
    assert_eq!(found().len(), 2);
}
