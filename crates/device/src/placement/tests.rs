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

/// The most bytes that can be placed, found by trying everything.
fn most_bytes(free: &mut [u64], sizes: &[u64]) -> u64 {
    let Some((first, others)) = sizes.split_first() else {
        return 0;
    };
    let mut most = most_bytes(free, others);
    for device in 0..free.len() {
        if *first <= free[device] {
            free[device] -= first;
            most = most.max(first + most_bytes(free, others));
            free[device] += first;
        }
    }
    most
}

#[test]
fn nearly_as_many_bytes_are_placed_as_can_be() {
    let mut random = Random(21);
    for _ in 0..300 {
        let n_devices = 2 + random.below(2);
        let free: Vec<u64> = (0..n_devices).map(|_| 1 + random.below(24)).collect();
        let free: Vec<u64> = free.into_iter().map(|gib| gib << 30).collect();
        let n_needs = 2 + random.below(6);
        let sizes: Vec<u64> = (0..n_needs).map(|_| (1 + random.below(12 << 10)) << 20).collect();
        let needs: Vec<Need> = sizes.iter().map(|bytes| need(*bytes)).collect();
        let placement = place(&slots(&free), &needs);
        assert_sound(&free, &needs, &placement);
        let placed: u64 = free.iter().sum::<u64>() - placement.free_bytes.iter().sum::<u64>();
        let most = most_bytes(&mut free.clone(), &sizes);
        assert!(placed >= most / 100 * 98, "{placed} of {most}: {free:?} {sizes:?}");
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
