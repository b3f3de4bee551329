//! Moves of models to the devices on which they should be, in steps that fit one after another.
//!
//! What serves stays where it is unless another would find no place otherwise: then a few move, or
//! all that may ([`rearrange`]), then replicas beyond the first give way, and at last those of a
//! lower priority do. A model whose devices have changed moves, one that may have more replicas
//! gets them where there is room, and a device that idles gets one of those that crowd another.
//!
//! Whether there is a place for one more depends on what the others need, not on where they are:
//! so it does not matter in which order they came.

mod rearrange;

use std::collections::BTreeMap;

use crate::Replicas;

/// A model that is placed, or is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seat {
    /// For each device what it holds there or would take beside its runs; nothing where it may not
    /// be.
    pub bytes: Vec<Option<u64>>,
    /// For each device what its runs may take there. Seats share that: the most of any of them is
    /// kept free for all.
    pub runs: Vec<u64>,
    /// The bytes that it holds of each device that it is on.
    pub current: Vec<(usize, u64)>,
    /// The number of devices that it is to be on.
    pub replicas: Replicas,
    /// Those with a higher priority find their place first, and never give way to others.
    pub priority: i32,
    /// `true` if the seat has to stay as it is: it is being loaded, or a copy would be another
    /// model.
    pub stays: bool,
    /// A device where it may serve for a moment while others change places, and what it takes
    /// there.
    pub park: Option<(usize, u64)>,
}

/// One change of where models are. Each fits when those before it are done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A copy of a seat on one more device.
    Add {
        /// The index of the seat.
        seat: usize,
        /// The device, by its index.
        device: usize,
    },
    /// One copy less; a model without any has given way.
    Remove {
        /// The index of the seat.
        seat: usize,
        /// The device, by its index.
        device: usize,
    },
}

/// The steps from where the seats are to where they should be. `free_bytes` says what each device
/// has to give beside what the seats hold, for their runs too. Those that have no place find one in
/// the order of the seats, which is that in which they came, a higher priority first. A seat that
/// gets no step and is nowhere has no place.
///
/// Takes some milliseconds, and some tens of them if there is hardly a way to fit all in.
///
/// # Panics
/// If a seat has not as many figures as there are devices, or is on one that is not there.
pub fn adapt(free_bytes: &[u64], seats: &[Seat]) -> Vec<Step> {
    for seat in seats {
        let n_figures = [seat.bytes.len(), seat.runs.len()];
        assert_eq!(n_figures, [free_bytes.len(); 2], "a figure for each device");
        assert!(seat.current.iter().all(|(device, _)| *device < free_bytes.len()), "{seat:?}");
    }
    let mut board = Arrangement::new(free_bytes, seats);
    board.retire();
    for seat in board.arrivals() {
        if !board.has_place(seat) {
            board.find_place(seat);
        }
    }
    board.leave();
    board.replicate();
    board.spread();
    board.steps
}

/// The number of moves that are looked ahead to find a place for a seat that has none.
const N_MOVES_MAX: usize = 3;

/// The number of ways of moving that are looked at.
const N_TRIES_MAX: u32 = 20_000;

#[derive(Clone)]
struct Arrangement<'a> {
    seats: &'a [Seat],
    free: Vec<u64>,
    /// The bytes that each seat holds of the devices that it is on.
    on: Vec<BTreeMap<usize, u64>>,
    steps: Vec<Step>,
}

impl<'a> Arrangement<'a> {
    fn new(free_bytes: &[u64], seats: &'a [Seat]) -> Self {
        let on = seats.iter().map(|seat| seat.current.iter().copied().collect()).collect();
        Arrangement { seats, free: free_bytes.to_vec(), on, steps: Vec::new() }
    }

    /// The bytes that a seat holds of a device.
    fn held(&self, seat: usize, device: usize) -> u64 {
        self.on[seat].get(&device).copied().unwrap_or(0)
    }

    /// The bytes that a seat would take of a device that it may be added to.
    fn wants(&self, seat: usize, device: usize) -> Option<u64> {
        let is_new = !self.on[seat].contains_key(&device);
        self.seats[seat].bytes[device].filter(|_| is_new)
    }

    /// The bytes kept free of a device for runs of the seats on it, but for one of them.
    fn runs(&self, device: usize, but: Option<usize>) -> u64 {
        let there = self.seats_on(device).into_iter().filter(|seat| Some(*seat) != but);
        there.map(|seat| self.seats[seat].runs[device]).max().unwrap_or(0)
    }

    /// The bytes that could still be taken of a device.
    fn room(&self, device: usize) -> u64 {
        self.free[device].saturating_sub(self.runs(device, None))
    }

    fn fits(&self, seat: usize, device: usize) -> bool {
        self.fits_without(seat, device, None)
    }

    /// Returns whether a seat would fit on a device if another were gone from there.
    fn fits_without(&self, seat: usize, device: usize, other: Option<usize>) -> bool {
        let freed = other.map_or(0, |other| self.held(other, device));
        let runs = self.runs(device, other).max(self.seats[seat].runs[device]);
        let room = self.free[device].saturating_add(freed);
        self.wants(seat, device).is_some_and(|bytes| bytes.saturating_add(runs) <= room)
    }

    fn add(&mut self, seat: usize, device: usize) {
        assert!(self.fits(seat, device), "only what fits is added");
        let bytes = self.wants(seat, device).expect("what fits may be there");
        self.take(seat, device, bytes);
    }

    /// Adds a seat to a device where it takes so many bytes.
    fn take(&mut self, seat: usize, device: usize, bytes: u64) {
        self.free[device] -= bytes;
        self.on[seat].insert(device, bytes);
        self.steps.push(Step::Add { seat, device });
    }

    fn remove(&mut self, seat: usize, device: usize) {
        let bytes = self.on[seat].remove(&device).expect("only what is there is removed");
        self.free[device] = self.free[device].saturating_add(bytes);
        self.steps.push(Step::Remove { seat, device });
    }

    fn n_wanted(&self, seat: usize) -> usize {
        match self.seats[seat].replicas {
            Replicas::Number(n) => n.max(1),
            Replicas::All => self.free.len(),
        }
    }

    /// Returns whether a seat is on a device that it may be on.
    fn has_place(&self, seat: usize) -> bool {
        let Seat { bytes, stays, .. } = &self.seats[seat];
        let on = &self.on[seat];
        on.keys().any(|device| bytes[*device].is_some()) || (*stays && !on.is_empty())
    }

    /// By priority, and then as they came.
    fn arrivals(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.seats.len()).collect();
        order.sort_by_key(|seat| -i64::from(self.seats[*seat].priority));
        order
    }

    /// By priority, and the largest first, since small ones find gaps.
    fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.seats.len()).collect();
        order.sort_by_key(|seat| {
            let Seat { priority, bytes, .. } = &self.seats[*seat];
            (-i64::from(*priority), u64::MAX - bytes.iter().flatten().max().unwrap_or(&0))
        });
        order
    }

    fn seats_on(&self, device: usize) -> Vec<usize> {
        (0..self.seats.len()).filter(|seat| self.on[*seat].contains_key(&device)).collect()
    }

    /// Takes away the replicas that are too many: first where they may not be, then where the
    /// least is free.
    fn retire(&mut self) {
        for seat in (0..self.seats.len()).filter(|seat| !self.seats[*seat].stays) {
            while self.on[seat].len() > self.n_wanted(seat) {
                let is_allowed = |device: usize| self.seats[seat].bytes[device].is_some();
                let worst = self.on[seat].keys().copied();
                let worst = worst.min_by_key(|device| (is_allowed(*device), self.room(*device)));
                self.remove(seat, worst.expect("there are more than are wanted"));
            }
        }
    }

    /// Takes seats from devices that they may not be on any more, once they have another place.
    fn leave(&mut self) {
        for seat in 0..self.seats.len() {
            let gone = self.on[seat].keys().copied();
            let gone: Vec<usize> =
                gone.filter(|device| self.seats[seat].bytes[*device].is_none()).collect();
            if !gone.is_empty() && self.has_place(seat) && !self.seats[seat].stays {
                gone.into_iter().for_each(|device| self.remove(seat, device));
            }
        }
    }

    fn find_place(&mut self, seat: usize) {
        if self.place(seat) {
            return;
        }
        let ways: [fn(&Self, usize) -> Option<Self>; 5] = [
            Self::with_moves,
            Self::rearranged,
            Self::without_replicas,
            Self::rearranged_without_replicas,
            Self::without_lower,
        ];
        if let Some(board) = ways.iter().find_map(|way| way(self, seat)) {
            *self = board;
        }
    }

    /// Adds a seat where it fits: where the fewest are, then where the most is free.
    fn place(&mut self, seat: usize) -> bool {
        let fitting = (0..self.free.len()).filter(|device| self.fits(seat, *device));
        let key = |device: &usize| (self.seats_on(*device).len(), u64::MAX - self.room(*device));
        let Some(device) = fitting.min_by_key(key) else { return false };
        self.add(seat, device);
        true
    }

    /// The board with the seat on it after as few moves as possible.
    fn with_moves(&self, seat: usize) -> Option<Self> {
        let mut n_tries = 0;
        (1..=N_MOVES_MAX).find_map(|n_moves| self.clone().search(seat, n_moves, &mut n_tries))
    }

    fn search(mut self, seat: usize, n_moves: usize, n_tries: &mut u32) -> Option<Self> {
        if n_moves == 0 {
            return self.place(seat).then_some(self);
        }
        for (other, from, to) in self.moves(seat, n_moves) {
            *n_tries += 1;
            if *n_tries > N_TRIES_MAX {
                return None;
            }
            let mut next = self.clone();
            next.add(other, to);
            next.remove(other, from);
            if let Some(found) = next.search(seat, n_moves - 1, n_tries) {
                return Some(found);
            }
        }
        None
    }

    /// The moves that may help a seat, the smallest first. The last one has to make the room.
    fn moves(&self, seat: usize, n_moves: usize) -> Vec<(usize, usize, usize)> {
        let mut moves = Vec::new();
        for from in 0..self.free.len() {
            for other in self.seats_on(from) {
                let helps = self.fits_without(seat, from, Some(other));
                if self.seats[other].stays || (n_moves == 1 && !helps) {
                    continue;
                }
                let to = (0..self.free.len()).filter(|to| self.fits(other, *to));
                moves.extend(to.map(|to| (other, from, to)));
            }
        }
        moves.sort_by_key(|(other, from, to)| (self.held(*other, *from), *other, *to));
        moves
    }

    /// The board with the seat on it in place of replicas of which there are others, of no higher
    /// priority.
    fn without_replicas(&self, seat: usize) -> Option<Self> {
        let gives_way = |board: &Self, other: usize| {
            board.on[other].len() > 1
                && board.seats[other].priority <= board.seats[seat].priority
                && !board.seats[other].stays
        };
        self.without(seat, gives_way)
    }

    /// The board with the seat on the device where the least has to give way to it.
    fn without(&self, seat: usize, gives_way: impl Fn(&Self, usize) -> bool) -> Option<Self> {
        let mut best: Option<(u64, Self)> = None;
        for device in 0..self.free.len() {
            let Some(board) = self.without_on(seat, device, &gives_way) else { continue };
            let lost = board.free[device] + board.held(seat, device) - self.free[device];
            if best.as_ref().is_none_or(|(least, _)| lost < *least) {
                best = Some((lost, board));
            }
        }
        best.map(|(_, board)| board)
    }

    /// The same on one device: the lowest priority goes first, then the smallest that is enough.
    fn without_on(
        &self,
        seat: usize,
        device: usize,
        gives_way: impl Fn(&Self, usize) -> bool,
    ) -> Option<Self> {
        let wanted = self.wants(seat, device)?;
        let mut board = self.clone();
        while !board.fits(seat, device) {
            let runs = board.runs(device, None).max(self.seats[seat].runs[device]);
            let missing = wanted.saturating_add(runs).saturating_sub(board.free[device]);
            let there = board.seats_on(device).into_iter();
            let other = there.filter(|other| gives_way(&board, *other)).min_by_key(|other| {
                let held = board.held(*other, device);
                let is_enough = held >= missing;
                let size = if is_enough { held } else { u64::MAX - held };
                (board.seats[*other].priority, !is_enough, size, *other)
            })?;
            board.remove(other, device);
        }
        board.add(seat, device);
        Some(board)
    }

    /// Adds the replicas that are wanted where there is room: where most is free.
    fn replicate(&mut self) {
        for seat in self.order() {
            let is_open = self.has_place(seat) && !self.seats[seat].stays;
            while is_open && self.on[seat].len() < self.n_wanted(seat) {
                let fitting = (0..self.free.len()).filter(|device| self.fits(seat, *device));
                match fitting.min_by_key(|device| (u64::MAX - self.room(*device), *device)) {
                    Some(device) => self.add(seat, device),
                    None => break,
                }
            }
        }
    }

    /// Moves seats from devices with several to devices with none, the largest that fits.
    fn spread(&mut self) {
        for to in 0..self.free.len() {
            if !self.seats_on(to).is_empty() {
                continue;
            }
            let crowded = (0..self.free.len()).filter(|from| self.seats_on(*from).len() > 1);
            let movable = crowded
                .flat_map(|from| self.seats_on(from).into_iter().map(move |seat| (seat, from)))
                .filter(|(seat, _)| self.fits(*seat, to) && !self.seats[*seat].stays)
                .max_by_key(|(seat, from)| (self.held(*seat, *from), usize::MAX - *seat));
            if let Some((seat, from)) = movable {
                self.add(seat, to);
                self.remove(seat, from);
            }
        }
    }
}

#[cfg(test)]
mod tests;
