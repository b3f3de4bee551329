use super::*;
use crate::random::Random;

fn slots(free: &[u64]) -> Vec<Slot> {
    let slot = |(n, free): (usize, &u64)| Slot { device: format!("gpu:{n}"), free_bytes: *free };
    free.iter().enumerate().map(slot).collect()
}

fn need(bytes: u64) -> Need {
    let (pins, current) = (Vec::new(), Vec::new());
    Need { bytes, pins, replicas: Replicas::Number(1), priority: 0, current }
}

#[track_caller]
fn check(free: &[u64], needs: &[Need], expected: &[&[usize]]) {
    let placement = place(&slots(free), needs);
    assert_sound(free, needs, &placement);
    assert_eq!(placement.devices, expected);
}

/// Asserts that nothing is on a device twice, against its pins, or beyond what is free.
#[track_caller]
fn assert_sound(free: &[u64], needs: &[Need], placement: &Placement) {
    let mut left = free.to_vec();
    for (need, devices) in needs.iter().zip(&placement.devices) {
        assert!(devices.is_sorted_by(|a, b| a < b));
        for device in devices {
            assert!(need.pins.is_empty() || need.pins.contains(device));
            left[*device] = left[*device].checked_sub(need.bytes).expect("within the limit");
        }
    }
    assert_eq!(left, placement.free_bytes);
}

#[test]
fn models_spread_over_the_devices() {
    check(&[10, 10], &[need(3), need(3)], &[&[0], &[1]]);
    check(&[10, 10, 10], &[need(3)], &[&[0]]);
    check(&[], &[need(3)], &[&[]]);
}

#[test]
fn pins_are_kept() {
    check(&[10, 20], &[Need { pins: vec![0], ..need(8) }, need(9)], &[&[0], &[1]]);
    check(&[10, 20], &[Need { pins: vec![0], ..need(18) }], &[&[]]);
}

#[test]
fn replicas_take_what_is_left() {
    let all = Need { replicas: Replicas::All, ..need(4) };
    check(&[10, 3, 10], std::slice::from_ref(&all), &[&[0, 2]]);
    check(&[10, 10], &[all, need(9)], &[&[1], &[0]]);
    check(&[10, 20, 30], &[Need { replicas: Replicas::Number(2), ..need(4) }], &[&[0, 2]]);
    check(&[10, 10], &[Need { replicas: Replicas::Number(9), ..need(4) }], &[&[0, 1]]);
}

#[test]
fn what_is_placed_stays_if_all_fits_that_way() {
    check(&[10, 20], &[Need { current: vec![1], ..need(4) }, need(5)], &[&[1], &[0]]);
    // The small one has to make room for the one that fits nowhere else.
    check(&[10, 20], &[Need { current: vec![1], ..need(4) }, need(18)], &[&[0], &[1]]);
}

#[test]
fn higher_priorities_come_first() {
    let important = Need { priority: 1, ..need(6) };
    check(&[10], &[need(10), important.clone()], &[&[], &[0]]);
    check(&[10], &[need(10), need(6)], &[&[0], &[]]);
    check(&[10, 10], &[need(10), important, need(10)], &[&[1], &[0], &[]]);
}

#[test]
fn a_lost_device_moves_its_models() {
    let needs = [Need { current: vec![0], ..need(6) }, Need { current: vec![1], ..need(6) }];
    check(&[0, 12], &needs, &[&[1], &[1]]);
}

#[test]
fn a_third_device_makes_way_for_an_idle_one() {
    // Neither of the large ones fits the idle device, but the small one does.
    let current = |device: usize, bytes| Need { current: vec![device], ..need(bytes) };
    let needs = [current(0, 8), current(0, 8), current(1, 3)];
    check(&[16, 8, 4], &needs, &[&[1], &[0], &[2]]);
}

/// Two to eight unequal devices, and as many models as fill them more or less.
fn instance(random: &mut Random) -> (Vec<u64>, Vec<u64>) {
    let n_devices = 2 + random.below(7);
    let free: Vec<u64> = (0..n_devices).map(|_| (1 + random.below(24)) << 30).collect();
    let n_models = 2 + random.below(9);
    let sizes = (0..n_models).map(|_| (1 + random.below(12 << 10)) << 20).collect();
    (free, sizes)
}

/// Asserts that nearly as much is placed as can be, and that no device idles that another with
/// several models could give one to.
#[track_caller]
fn assert_good(free: &[u64], sizes: &[u64], needs: &[Need]) -> Placement {
    let placement = place(&slots(free), needs);
    assert_sound(free, needs, &placement);
    let placed: u64 = free.iter().sum::<u64>() - placement.free_bytes.iter().sum::<u64>();
    let most = most_bytes(free, sizes);
    assert!(placed >= most / 100 * 98, "{placed} of {most}: {free:?} {sizes:?}");
    let on = |device: usize| {
        let on = placement.devices.iter().enumerate().filter(move |(_, d)| d.contains(&device));
        on.map(|(need, _)| sizes[need]).collect::<Vec<u64>>()
    };
    for idle in (0..free.len()).filter(|device| on(*device).is_empty()) {
        let crowded = (0..free.len()).map(on).filter(|models| models.len() > 1);
        let movable = crowded.flatten().any(|bytes| bytes <= free[idle]);
        assert!(!movable, "{idle} idles: {free:?} {sizes:?} {placement:?}");
    }
    placement
}

#[test]
fn nearly_as_many_bytes_are_placed_as_can_be_and_no_device_idles() {
    let mut random = Random(21);
    for _ in 0..1000 {
        let (free, sizes) = instance(&mut random);
        let needs: Vec<Need> = sizes.iter().map(|bytes| need(*bytes)).collect();
        assert_good(&free, &sizes, &needs);
    }
}

#[test]
fn when_a_device_is_lost_the_others_take_what_they_can() {
    let mut random = Random(22);
    for _ in 0..300 {
        let (mut free, sizes) = instance(&mut random);
        let needs: Vec<Need> = sizes.iter().map(|bytes| need(*bytes)).collect();
        let before = assert_good(&free, &sizes, &needs);
        free.pop();
        let current = |at: usize| before.devices[at].iter().copied().filter(|d| *d < free.len());
        let needs: Vec<Need> = (0..needs.len())
            .map(|at| Need { current: current(at).collect(), ..need(sizes[at]) })
            .collect();
        assert_good(&free, &sizes, &needs);
    }
}

#[test]
fn many_models_fill_many_devices() {
    let mut random = Random(4);
    for _ in 0..20 {
        let n_devices = 2 + random.below(7);
        let free: Vec<u64> = (0..n_devices).map(|_| (4 + random.below(76)) << 30).collect();
        let room: u64 = free.iter().sum();
        let mut needs = Vec::new();
        let mut wanted = 0;
        while wanted < room + room / 4 {
            let bytes = (20 + random.below(3000)) << 20;
            wanted += bytes;
            needs.push(need(bytes));
        }
        let placement = place(&slots(&free), &needs);
        assert_sound(&free, &needs, &placement);
        let left: u64 = placement.free_bytes.iter().sum();
        assert!(left <= room / 50, "{left} of {room} are left");
        let on = |device: usize| placement.devices.iter().any(|d| d.contains(&device));
        assert!((0..free.len()).all(on), "a device idles");
    }
}
