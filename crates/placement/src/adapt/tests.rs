use super::*;
use crate::random::Random;

/// One that takes as much of any of so many devices.
fn seat(bytes: u64, n_devices: usize) -> Seat {
    Seat {
        bytes: vec![Some(bytes); n_devices],
        runs: vec![0; n_devices],
        current: Vec::new(),
        replicas: Replicas::Number(1),
        priority: 0,
        stays: false,
        park: None,
    }
}

/// The same, on a device.
fn on(device: usize, bytes: u64, n_devices: usize) -> Seat {
    Seat { current: vec![(device, bytes)], ..seat(bytes, n_devices) }
}

/// Expects steps such as `+0@1 -0@0`: seat 0 goes to device 1, and away from device 0.
#[track_caller]
fn check(free: &[u64], seats: &[Seat], expected: &str) {
    let steps = adapt(free, seats);
    let shown: Vec<String> = steps
        .iter()
        .map(|step| match step {
            Step::Add { seat, device } => format!("+{seat}@{device}"),
            Step::Remove { seat, device } => format!("-{seat}@{device}"),
        })
        .collect();
    assert_eq!(shown.join(" "), expected);
    assert_sound(free, seats, &steps);
}

/// Asserts that each step fits when those before it are done; gives what the seats then hold, and
/// what is free beside them.
#[track_caller]
fn assert_sound(free: &[u64], seats: &[Seat], steps: &[Step]) -> (Vec<u64>, Vec<Seat>) {
    let (mut free, mut after) = (free.to_vec(), seats.to_vec());
    for step in steps {
        match *step {
            Step::Add { seat, device } => {
                let bytes = seats[seat].bytes[device];
                let bytes = bytes.unwrap_or_else(|| panic!("{step:?} is against its pins"));
                let current = &mut after[seat].current;
                assert!(current.iter().all(|(at, _)| *at != device), "{step:?}: it is there");
                current.push((device, bytes));
                let left = free[device].checked_sub(bytes);
                free[device] = left.unwrap_or_else(|| panic!("{step:?} does not fit"));
            }
            Step::Remove { seat, device } => {
                let current = &mut after[seat].current;
                let at = current.iter().position(|(at, _)| *at == device);
                let at = at.filter(|_| !seats[seat].stays);
                let at = at.unwrap_or_else(|| panic!("{step:?} of one that is not there"));
                free[device] += current.remove(at).1;
            }
        }
    }
    (free, after)
}

#[test]
fn what_is_there_stays_and_the_new_goes_where_the_fewest_are() {
    check(&[6, 10], &[on(0, 4, 2), seat(5, 2)], "+1@1");
    check(&[6, 10], &[on(0, 4, 2), on(1, 4, 2), seat(5, 2)], "+2@1");
    check(&[6, 3], &[on(0, 4, 2), seat(5, 2)], "+1@0");
    check(&[1], &[on(0, 4, 1), seat(5, 1)], "");
}

#[test]
fn a_small_one_moves_for_a_large_one() {
    check(&[16, 10], &[on(0, 4, 2), seat(18, 2)], "+0@1 -0@0 +1@0");
    // Two must move, and the second only fits where the first was.
    let seats = [on(0, 6, 3), on(1, 5, 3), seat(16, 3)];
    check(&[10, 1, 5], &seats, "+1@2 -1@1 +0@1 -0@0 +2@0");
}

#[test]
fn what_must_stay_stays() {
    let fixed = Seat { stays: true, ..on(0, 4, 2) };
    check(&[16, 10], &[fixed.clone(), seat(18, 2)], "");
    let wanted = Seat { priority: 9, ..seat(18, 2) };
    check(&[16, 10], &[fixed, wanted], "");
}

#[test]
fn replicas_give_way_to_those_that_have_no_place() {
    let double = Seat { current: vec![(0, 6), (1, 6)], replicas: Replicas::All, ..seat(6, 2) };
    check(&[4, 4], &[double.clone(), seat(8, 2)], "-0@0 +1@0");
    let urgent = Seat { priority: 1, ..double };
    check(&[4, 4], &[urgent, seat(8, 2)], "");
}

#[test]
fn lower_priorities_give_way_and_equal_ones_do_not() {
    let urgent = Seat { priority: 2, ..seat(8, 1) };
    check(&[2], &[on(0, 8, 1), urgent.clone()], "-0@0 +1@0");
    check(&[2], &[Seat { priority: 2, ..on(0, 8, 1) }, urgent.clone()], "");
    // The lowest priority goes first, and of those as little as is enough.
    let seats = [on(0, 9, 1), on(0, 7, 1), Seat { priority: 1, ..on(0, 7, 1) }, urgent];
    check(&[1], &seats, "-1@0 +3@0");
    // One that waits has its place before those of a lower priority that come meanwhile.
    let waits = Seat { priority: 1, ..seat(8, 1) };
    check(&[8], &[seat(8, 1), waits], "+1@0");
}

#[test]
fn other_devices_and_numbers_of_replicas_are_followed() {
    let moved = Seat { bytes: vec![None, Some(4)], ..on(0, 4, 2) };
    check(&[6, 10], &[moved], "+0@1 -0@0");
    // Serving where it may not be is better than not serving.
    let stuck = Seat { bytes: vec![None, Some(4)], ..on(0, 4, 2) };
    check(&[6, 3], &[stuck], "");
    let more = Seat { replicas: Replicas::Number(2), ..on(0, 4, 3) };
    check(&[6, 8, 9], &[more], "+0@2");
    let fewer = Seat { current: vec![(0, 4), (1, 4)], ..seat(4, 2) };
    check(&[6, 5], &[fewer], "-0@1");
}

#[test]
fn an_idle_device_gets_one_of_a_crowded_one() {
    check(&[2, 10], &[on(0, 4, 2), on(0, 3, 2)], "+0@1 -0@0");
    check(&[2, 3], &[on(0, 4, 2), on(0, 3, 2)], "+1@1 -1@0");
    check(&[2, 2], &[on(0, 4, 2), on(0, 3, 2)], "");
    check(&[2, 10], &[on(0, 4, 2)], "");
}

/// Devices with models on them, and one that wants to be.
fn instance(random: &mut Random) -> (Vec<u64>, Vec<Seat>) {
    let n_devices = 1 + usize::try_from(random.below(5)).unwrap();
    let mut free: Vec<u64> = (0..n_devices).map(|_| 10 + random.below(90)).collect();
    let mut seats = Vec::new();
    for _ in 0..random.below(12) {
        let mut one = seat(1 + random.below(40), n_devices);
        for bytes in &mut one.bytes {
            *bytes = bytes.filter(|_| random.below(5) > 0).map(|bytes| bytes + random.below(3));
        }
        one.priority = i32::try_from(random.below(3)).unwrap();
        one.stays = random.below(6) == 0;
        let replicas = usize::try_from(random.below(3)).unwrap();
        one.replicas = [Replicas::Number(1), Replicas::Number(2), Replicas::All][replicas];
        for (device, free) in free.iter_mut().enumerate() {
            let held = 1 + random.below(40);
            if random.below(3) == 0 && held <= *free {
                *free -= held;
                one.current.push((device, held));
            }
        }
        seats.push(one);
    }
    (free, seats)
}

#[test]
fn random_steps_fit_one_after_another_and_lead_to_rest() {
    let mut random = Random(5);
    for _ in 0..5_000 {
        let (free, seats) = instance(&mut random);
        let steps = adapt(&free, &seats);
        let (mut free, mut after) = assert_sound(&free, &seats, &steps);
        let highest = seats.iter().map(|seat| seat.priority).max();
        for (seat, after) in seats.iter().zip(&after) {
            let is_lost = after.current.is_empty() && !seat.current.is_empty();
            assert!(!is_lost || Some(seat.priority) < highest, "the highest never give way");
        }
        let mut n_rounds = 0;
        loop {
            after.retain(|seat| !seat.current.is_empty());
            let steps = adapt(&free, &after);
            if steps.is_empty() {
                break;
            }
            n_rounds += 1;
            assert!(n_rounds < 5, "{steps:?} go on for ever: {free:?} {after:?}");
            (free, after) = assert_sound(&free, &after, &steps);
        }
    }
}

#[test]
fn most_that_fits_in_all_finds_its_place() {
    let mut random = Random(8);
    let (mut n_fitting, mut n_placed) = (0, 0);
    for _ in 0..1_000 {
        let n_devices = 2 + usize::try_from(random.below(3)).unwrap();
        let mut free = vec![0; n_devices];
        let mut seats = Vec::new();
        // Seats that are known to fit, shuffled over devices that are larger together.
        for device in &mut free {
            *device = 10;
            for _ in 0..3 {
                let bytes = 5 + random.below(30);
                *device += bytes;
                seats.push(seat(bytes, n_devices));
            }
        }
        let newcomer = seats.len() - 1;
        for seat in &mut seats[..newcomer] {
            let bytes = seat.bytes[0].unwrap();
            let fitting: Vec<usize> = (0..n_devices).filter(|d| free[*d] >= bytes).collect();
            if fitting.is_empty() {
                continue;
            }
            let at = usize::try_from(random.below(fitting.len() as u64)).unwrap();
            free[fitting[at]] -= bytes;
            seat.current.push((fitting[at], bytes));
        }
        if seats[..newcomer].iter().any(|seat| seat.current.is_empty()) {
            continue;
        }
        let (_, after) = assert_sound(&free, &seats, &adapt(&free, &seats));
        n_fitting += 1;
        n_placed += usize::from(!after[newcomer].current.is_empty());
    }
    assert!(n_fitting > 100 && n_placed * 2 > n_fitting, "{n_placed} of {n_fitting}");
}

#[test]
fn all_change_places_if_that_is_what_it_takes() {
    // No move fits before another: one waits on the last device, where nobody may be.
    let parked = |device: usize, bytes: u64| {
        let mut one = on(device, bytes, 3);
        one.bytes[2] = None;
        Seat { park: Some((2, bytes)), ..one }
    };
    let mut newcomer = seat(20, 3);
    newcomer.bytes[2] = None;
    let seats = [parked(0, 30), parked(0, 20), parked(1, 30), parked(1, 20), newcomer];
    let steps = adapt(&[10, 10, 100], &seats);
    let n_waits = |seat: &usize| steps.contains(&Step::Add { seat: *seat, device: 2 });
    assert_eq!((0..5).filter(n_waits).count(), 1, "{steps:?}");
    let is_placed = |step: &Step| matches!(step, Step::Add { seat: 4, .. });
    assert!(steps.iter().any(is_placed), "{steps:?}");
    // Without room for one that waits, all stay where they are.
    assert_eq!(adapt(&[10, 10, 19], &seats), []);
}

#[test]
fn what_runs_take_is_kept_free_once_for_all_of_a_device() {
    let running = |one: Seat, runs: u64| Seat { runs: vec![runs; one.bytes.len()], ..one };
    check(&[9], &[running(on(0, 4, 1), 3), running(seat(6, 1), 3)], "+1@0");
    check(&[9], &[running(on(0, 4, 1), 3), running(seat(6, 1), 4)], "");
    check(&[9], &[running(on(0, 4, 1), 4), seat(6, 1)], "");
}

#[test]
fn one_whose_devices_have_changed_finds_another_place_for_one_copy() {
    let moved = Seat { bytes: vec![None, Some(4), Some(4)], ..on(0, 4, 3) };
    // Both others have to move for it: one to the place that it leaves is not there yet.
    let seats = [moved, on(1, 7, 3), on(2, 6, 3)];
    let steps = adapt(&[9, 3, 1], &seats);
    let adds = steps.iter().filter(|step| matches!(step, Step::Add { seat: 0, .. })).count();
    assert_eq!(adds, 1, "{steps:?}");
}
