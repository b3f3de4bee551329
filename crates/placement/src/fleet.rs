//! A whole fleet: where seats are when they have come one after another. This is what a server
//! does as versions arrive, and what a plan says before it does.

use crate::adapt::{Seat, Step, adapt};

/// The devices of each seat of a fleet, and the bytes left beside them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fleet {
    /// For each seat the devices, by index, in ascending order; none if there is no place for it.
    pub devices: Vec<Vec<usize>>,
    /// The bytes left on each device, beside those that runs may take.
    pub free_bytes: Vec<u64>,
}

/// Seats that come in this order to devices with so much free. One that finds no place is tried
/// again when others have moved or gone.
///
/// # Panics
/// As [`adapt`].
pub fn fleet(free_bytes: &[u64], seats: &[Seat]) -> Fleet {
    let mut all = Arrivals { free: free_bytes.to_vec(), seats: seats.to_vec() };
    for newcomer in 0..seats.len() {
        all.admit(newcomer);
        // Those that gave way, or had no place before, may have one now.
        while (0..=newcomer).any(|seat| all.is_nowhere(seat) && all.admit(seat)) {}
    }
    all.end()
}

struct Arrivals {
    free: Vec<u64>,
    seats: Vec<Seat>,
}

impl Arrivals {
    fn is_nowhere(&self, seat: usize) -> bool {
        self.seats[seat].current.is_empty()
    }

    /// Looks for a place for a seat among those that have one; whether it has one then.
    fn admit(&mut self, newcomer: usize) -> bool {
        let here: Vec<usize> =
            (0..self.seats.len()).filter(|at| *at == newcomer || !self.is_nowhere(*at)).collect();
        let seats: Vec<Seat> = here.iter().map(|at| self.seats[*at].clone()).collect();
        for step in adapt(&self.free, &seats) {
            match step {
                Step::Add { seat, device } => self.add(here[seat], device),
                Step::Remove { seat, device } => self.remove(here[seat], device),
            }
        }
        !self.is_nowhere(newcomer)
    }

    fn add(&mut self, seat: usize, device: usize) {
        let Seat { bytes, current, park, .. } = &mut self.seats[seat];
        let parked = park.filter(|(at, _)| *at == device).map(|(_, bytes)| bytes);
        let bytes = bytes[device].or(parked).expect("only where it may be is it added");
        self.free[device] -= bytes;
        current.push((device, bytes));
    }

    fn remove(&mut self, seat: usize, device: usize) {
        let current = &mut self.seats[seat].current;
        let at = current.iter().position(|(at, _)| *at == device);
        let (_, bytes) = current.remove(at.expect("only what is there is removed"));
        self.free[device] += bytes;
    }

    fn end(self) -> Fleet {
        let mut free_bytes = self.free;
        for (device, free) in free_bytes.iter_mut().enumerate() {
            let is_on = |seat: &&Seat| seat.current.iter().any(|(at, _)| *at == device);
            let runs = self.seats.iter().filter(is_on).map(|seat| seat.runs[device]).max();
            *free = free.saturating_sub(runs.unwrap_or(0));
        }
        let on = |seat: &Seat| {
            let mut on: Vec<usize> = seat.current.iter().map(|(device, _)| *device).collect();
            on.sort_unstable();
            on
        };
        Fleet { devices: self.seats.iter().map(on).collect(), free_bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Replicas;
    use crate::exact::most_bytes;
    use crate::random::Random;

    /// One that takes as much of any of so many devices, and may wait on the last, which is none of
    /// them.
    fn seat(bytes: u64, n_devices: usize) -> Seat {
        let mut figures = vec![Some(bytes); n_devices];
        figures.push(None);
        Seat {
            bytes: figures,
            runs: vec![0; n_devices + 1],
            current: Vec::new(),
            replicas: Replicas::Number(1),
            priority: 0,
            stays: false,
            park: Some((n_devices, bytes)),
        }
    }

    /// The seats that have a place.
    fn placed(fleet: &Fleet) -> Vec<bool> {
        fleet.devices.iter().map(|on| !on.is_empty()).collect()
    }

    /// Asserts that seats of these sizes all have a place on two devices of 60, in this order.
    #[track_caller]
    fn check(sizes: &[u64]) {
        let seats: Vec<Seat> = sizes.iter().map(|bytes| seat(*bytes, 2)).collect();
        let fleet = fleet(&[60, 60, 1000], &seats);
        assert!(fleet.devices.iter().all(|on| on.len() == 1 && on[0] < 2), "{sizes:?} {fleet:?}");
        assert_eq!(fleet.free_bytes, [0, 0, 1000]);
    }

    #[test]
    fn all_fit_in_any_order_if_they_fit_at_all() {
        check(&[30, 30, 20, 20, 20]);
        check(&[20, 20, 20, 30, 30]);
        check(&[30, 20, 30, 20, 20]);
        check(&[20, 30, 20, 30, 20]);
    }

    #[test]
    fn what_gave_way_comes_back_when_it_can() {
        let urgent = |bytes| Seat { priority: 1, ..seat(bytes, 1) };
        let one = fleet(&[10, 0], &[seat(6, 1), seat(4, 1), urgent(5)]);
        assert_eq!(placed(&one), [false, true, true]);
        let other = fleet(&[10, 0], &[seat(4, 1), urgent(5), seat(6, 1)]);
        assert_eq!(placed(&other), [true, true, false]);
    }

    #[test]
    fn nobody_moves_who_may_wait_nowhere_and_has_no_other_place() {
        let stuck = |bytes| Seat { park: None, ..seat(bytes, 2) };
        let sizes = [30, 30, 20, 20, 20];
        let seats: Vec<Seat> = sizes.into_iter().map(stuck).collect();
        assert_eq!(placed(&fleet(&[60, 60, 1000], &seats)), [true, true, true, true, false]);
    }

    /// Unequal devices, and a fleet that may fit: some were cut from the devices, some not; with
    /// pins, runs and replicas.
    fn instance(random: &mut Random) -> (Vec<u64>, Vec<Seat>) {
        let n_devices = 1 + usize::try_from(random.below(4)).unwrap();
        let mut free = vec![0; n_devices];
        let mut seats = Vec::new();
        for _ in 0..1 + random.below(9) {
            let device = usize::try_from(random.below(n_devices as u64)).unwrap();
            let bytes = 1 + random.below(30);
            free[device] += bytes;
            let mut one = seat(bytes, n_devices);
            for (at, bytes) in one.bytes.iter_mut().take(n_devices).enumerate() {
                *bytes = bytes.filter(|_| at == device || random.below(4) > 0);
            }
            if random.below(4) == 0 {
                one.runs = vec![random.below(8); n_devices + 1];
            }
            if random.below(5) == 0 {
                one.replicas = Replicas::All;
            }
            seats.push(one);
        }
        for bytes in &mut free {
            // With a little room to spare for runs, or too little.
            *bytes = (*bytes + random.below(12)).saturating_sub(random.below(6));
        }
        free.push(10_000);
        (free, seats)
    }

    fn shuffled(random: &mut Random, n: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..n).collect();
        for at in (1..n).rev() {
            order.swap(at, usize::try_from(random.below(at as u64 + 1)).unwrap());
        }
        order
    }

    /// Asserts that each device holds what is on it, and gives who has a place.
    fn sound(free: &[u64], seats: &[Seat], order: &[usize]) -> Vec<bool> {
        let arriving: Vec<Seat> = order.iter().map(|at| seats[*at].clone()).collect();
        let fleet = fleet(free, &arriving);
        let mut has_place = vec![false; seats.len()];
        let (mut left, mut runs) = (free.to_vec(), vec![0; free.len()]);
        for ((seat, on), at) in arriving.iter().zip(&fleet.devices).zip(order) {
            has_place[*at] = !on.is_empty();
            for device in on {
                let bytes = seat.bytes[*device].expect("nobody stays where he only waited");
                left[*device] = left[*device].checked_sub(bytes).expect("within what is free");
                runs[*device] = seat.runs[*device].max(runs[*device]);
            }
        }
        assert!(left.iter().zip(&runs).all(|(left, runs)| runs <= left), "{free:?} {seats:?}");
        has_place
    }

    #[test]
    fn a_fleet_that_fits_in_one_order_fits_in_every_order() {
        let mut random = Random(18);
        let (mut n_fitting, mut n_refused) = (0, 0);
        for _ in 0..1_500 {
            let (free, seats) = instance(&mut random);
            let planned = sound(&free, &seats, &(0..seats.len()).collect::<Vec<_>>());
            let fits = planned.iter().all(|has_place| *has_place);
            *(if fits { &mut n_fitting } else { &mut n_refused }) += 1;
            for _ in 0..4 {
                let order = shuffled(&mut random, seats.len());
                let served = sound(&free, &seats, &order);
                let all = served.iter().all(|has_place| *has_place);
                assert_eq!(all, fits, "{order:?}: {free:?} {seats:?}");
            }
        }
        assert!(n_fitting > 300 && n_refused > 300, "{n_fitting} fit, {n_refused} do not");
    }

    #[test]
    fn all_that_could_be_placed_are_and_no_device_idles() {
        let mut random = Random(21);
        let mut n_fitting = 0;
        for _ in 0..1000 {
            let n_devices = 2 + usize::try_from(random.below(7)).unwrap();
            let free: Vec<u64> = (0..n_devices).map(|_| 1 + random.below(24)).collect();
            let sizes: Vec<u64> = (0..2 + random.below(9)).map(|_| 1 + random.below(12)).collect();
            let seats: Vec<Seat> = sizes.iter().map(|bytes| seat(*bytes, n_devices)).collect();
            let fleet = fleet(&[&free[..], &[1000]].concat(), &seats);
            let could_be = most_bytes(&free, &sizes) == sizes.iter().sum::<u64>();
            let are = placed(&fleet).iter().all(|is_placed| *is_placed);
            assert_eq!(are, could_be, "{free:?} {sizes:?} {fleet:?}");
            n_fitting += u32::from(could_be);
            let on = |device: usize| {
                let there = fleet.devices.iter().zip(&sizes);
                there.filter(move |(on, _)| on.contains(&device)).map(|(_, bytes)| *bytes)
            };
            for idle in (0..n_devices).filter(|device| on(*device).count() == 0) {
                let crowded = (0..n_devices).filter(|device| on(*device).count() > 1);
                let movable = crowded.flat_map(on).any(|bytes| bytes <= free[idle]);
                assert!(!movable, "{idle} idles: {free:?} {sizes:?} {fleet:?}");
            }
        }
        assert!((300..900).contains(&n_fitting), "{n_fitting} fit");
    }

    #[test]
    fn who_is_refused_does_not_depend_on_the_order_if_priorities_differ() {
        let mut random = Random(19);
        for _ in 0..800 {
            let (free, mut seats) = instance(&mut random);
            let priorities = shuffled(&mut random, seats.len());
            for (seat, priority) in seats.iter_mut().zip(priorities) {
                seat.priority = i32::try_from(priority).unwrap();
                // Replicas that were there first never give way to a lower priority.
                seat.replicas = Replicas::Number(1);
            }
            let planned = sound(&free, &seats, &(0..seats.len()).collect::<Vec<_>>());
            for _ in 0..3 {
                let order = shuffled(&mut random, seats.len());
                assert_eq!(sound(&free, &seats, &order), planned, "{order:?}: {free:?} {seats:?}");
            }
        }
    }
}
