//! Where the bytes of a space are, as a copy for readers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Space;
use super::events::{Change, EventTotal, Recent};
use super::idle::{self, Idle};
use super::owner::{Booking, Tally};
use crate::arena::Stats;
use crate::driver::Kind;
use crate::ledger::{Category, Holder, Row};
use crate::logical::GrowthRule;

/// A copy of what a space holds and for whom. The rows sum to `held_bytes`.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The logical device's name.
    pub name: String,
    /// What kind of device it is.
    pub kind: Kind,
    /// Whether memory is taken as it is needed, or all at once.
    pub growth: GrowthRule,
    /// The most it may hold.
    pub limit_bytes: u64,
    /// Held from the device.
    pub held_bytes: u64,
    /// The most that was held at once.
    pub peak_held_bytes: u64,
    /// Given out.
    pub in_use_bytes: u64,
    /// The most that was given out at once.
    pub peak_in_use_bytes: u64,
    /// Held, but given out to nobody.
    pub idle_bytes: u64,
    /// Why each of these is held, and what is lost to rounding.
    pub idle: Vec<(Idle, u64)>,
    /// The largest piece that could be given out without growing.
    pub largest_free_bytes: u64,
    /// The share of what is idle outside the largest piece, from 0 to 1.
    pub fragmentation: f64,
    /// What the bookkeeping costs the host.
    pub bookkeeping_bytes: u64,
    /// How often it grew.
    pub n_growths: u64,
    /// How often it gave memory back.
    pub n_releases: u64,
    /// The growths and releases so far, by cause.
    pub events: Vec<EventTotal>,
    /// Who holds what.
    pub rows: Vec<Row>,
}

impl Space {
    /// A copy of what is held, and for whom.
    ///
    /// What is on the heap comes and goes while it is added up, and a limit may change meanwhile.
    /// Where the copy says that more is held than may be, which never is, it is made again.
    pub fn snapshot(&self) -> Snapshot {
        self.copy_until_right(false)
    }

    /// The same with a row for each tensor that has a name, and who shares it: what is left of a
    /// category is one more row. It takes longer, and whoever allocates waits for it.
    pub fn ledger(&self) -> Snapshot {
        let mut ledger = self.copy_until_right(true);
        let sharers = self.sharers();
        for row in ledger.rows.iter_mut().filter(|row| row.holder == Holder::Shared) {
            let of = sharers.get(&(row.category, Arc::clone(&row.tensor)));
            row.sharers = of.into_iter().flatten().cloned().collect();
        }
        ledger
    }

    fn copy_until_right(&self, has_tensors: bool) -> Snapshot {
        let copies = std::iter::repeat_with(|| self.copy(has_tensors));
        let mut copies = copies.take(N_COPIES).skip_while(|it| it.held_bytes > it.limit_bytes);
        copies.next().unwrap_or_else(|| self.copy(has_tensors))
    }

    fn copy(&self, has_tensors: bool) -> Snapshot {
        // With the arenas locked nothing of what they gave out changes hands.
        let arenas: Vec<_> = self.arenas().map(|arena| arena.lock()).collect();
        let stats: Vec<Stats> = arenas.iter().map(|arena| arena.stats()).collect();
        let mut idle = Vec::new();
        for (arena, stats) in arenas.iter().zip(&stats) {
            let is_set_aside = self.parent.is_some();
            let reasons = idle::reasons(stats, arena.returnable_bytes(), self.growth, is_set_aside);
            idle::add(&mut idle, reasons);
        }
        let spare_bytes = self.spare_bytes();
        idle::add(&mut idle, [(Idle::SetAside, spare_bytes)]);
        let tallies: Vec<Arc<Tally>> =
            self.tallies.lock().iter().filter_map(std::sync::Weak::upgrade).collect();
        let bookings: Vec<Booking> = tallies.iter().map(|tally| tally.copy(has_tensors)).collect();
        drop(arenas);
        let mut rows = rows(&tallies, &bookings);
        let heap_bytes: u64 = bookings.iter().map(|booking| booking.heap_bytes).sum();
        let sum = |of: fn(&Stats) -> u64| stats.iter().map(of).sum::<u64>();
        let requested = sum(|s| s.requested_bytes);
        let chunks: u64 = rows.iter().map(|row| row.bytes).sum::<u64>() - heap_bytes;
        assert_eq!(chunks, requested, "every chunk of {} is booked", self.name);
        let idle_bytes = sum(Stats::free_bytes) + spare_bytes;
        let spare = self.parent.as_ref().map_or(Holder::Server, |(_, holder)| holder.clone());
        let lost = sum(|s| s.in_use_bytes) - requested;
        add(&mut rows, &spare, Category::Fragmentation, lost);
        add(&mut rows, &spare, Category::Reserve, idle_bytes);
        let context_bytes = self.context_bytes();
        add(&mut rows, &Holder::Server, Category::Context, context_bytes);
        let events = self.events.totals();
        let n = |change: Change| {
            let of = events.iter().filter(|total| total.change == change);
            of.map(EventTotal::n_events).sum()
        };
        let largest = stats.iter().map(|s| s.largest_free_bytes).max().unwrap_or(0);
        let mut snapshot = Snapshot {
            name: self.name.clone(),
            kind: self.kind,
            growth: self.growth,
            limit_bytes: self.account().limit_bytes(),
            held_bytes: sum(|s| s.held_bytes) + spare_bytes + heap_bytes + context_bytes,
            peak_held_bytes: self.account().peak_bytes(),
            in_use_bytes: requested + heap_bytes + context_bytes,
            peak_in_use_bytes: self.peak_in_use.load(Ordering::Relaxed),
            idle_bytes,
            idle,
            largest_free_bytes: largest,
            fragmentation: match idle_bytes {
                0 => 0.0,
                _ => (idle_bytes - largest) as f64 / idle_bytes as f64,
            },
            bookkeeping_bytes: sum(|s| s.bookkeeping_bytes) + self.books_bytes(&tallies),
            n_growths: n(Change::Growth),
            n_releases: n(Change::Release),
            events,
            rows,
        };
        let copy = |child: &Arc<Space>| if has_tensors { child.ledger() } else { child.snapshot() };
        self.living().iter().for_each(|child| snapshot.include(copy(child)));
        snapshot
    }

    /// What the books take beside those of the arenas: who holds what, by which names, who shares
    /// it, and what happened.
    fn books_bytes(&self, tallies: &[Arc<Tally>]) -> u64 {
        let tallies: usize = tallies.iter().map(|tally| tally.books_bytes()).sum();
        let books = tallies + self.sharing.books_bytes() + self.events.books_bytes();
        (books + size_of::<Space>()) as u64
    }

    /// Takes the growths and releases since the last call.
    pub fn take_events(&self) -> Recent {
        self.events.take()
    }
}

/// How often a copy is made until it is right.
const N_COPIES: usize = 100;

/// One row for each holder, category and tensor with a name; what has none is one of them.
fn rows(tallies: &[Arc<Tally>], bookings: &[Booking]) -> Vec<Row> {
    let mut totals: BTreeMap<(Holder, Category, Arc<str>), u64> = BTreeMap::new();
    let nameless: Arc<str> = Arc::from("");
    for (tally, booking) in tallies.iter().zip(bookings) {
        let named: u64 = booking.tensors.iter().map(|(_, bytes)| bytes).sum();
        assert!(named <= booking.bytes, "no more has a name than is booked");
        let rest = (Arc::clone(&nameless), booking.bytes - named);
        for (tensor, bytes) in booking.tensors.iter().chain([&rest]) {
            let key = (tally.holder().clone(), tally.category(), Arc::clone(tensor));
            *totals.entry(key).or_insert(0) += bytes;
        }
    }
    let row = |((holder, category, tensor), bytes)| Row {
        holder,
        sharers: Vec::new(),
        category,
        tensor,
        bytes,
    };
    totals.into_iter().filter(|(_, bytes)| *bytes > 0).map(row).collect()
}

fn add(rows: &mut Vec<Row>, holder: &Holder, category: Category, bytes: u64) {
    if bytes > 0 {
        let (holder, sharers, tensor) = (holder.clone(), Vec::new(), Arc::from(""));
        rows.push(Row { holder, sharers, category, tensor, bytes });
    }
}

/// How many holders a refusal names.
const N_HOLDERS: usize = 3;

impl Snapshot {
    /// Adds what was set aside.
    fn include(&mut self, child: Snapshot) {
        self.held_bytes += child.held_bytes;
        self.in_use_bytes += child.in_use_bytes;
        self.peak_in_use_bytes += child.peak_in_use_bytes;
        self.idle_bytes += child.idle_bytes;
        idle::add(&mut self.idle, child.idle);
        self.bookkeeping_bytes += child.bookkeeping_bytes;
        self.rows.extend(child.rows);
    }

    /// The bytes of each holder, the largest first.
    pub fn holders(&self) -> Vec<(Holder, u64)> {
        let mut totals: BTreeMap<Holder, u64> = BTreeMap::new();
        for row in &self.rows {
            *totals.entry(row.holder.clone()).or_insert(0) += row.bytes;
        }
        let mut totals: Vec<(Holder, u64)> = totals.into_iter().collect();
        totals.sort_by_key(|(_, bytes)| u64::MAX - bytes);
        totals
    }

    /// The largest holders, for people.
    pub(super) fn top_holders(&self) -> String {
        let top = self.holders().into_iter().take(N_HOLDERS);
        let top: Vec<String> = top.map(|(holder, bytes)| format!("{holder} {bytes}")).collect();
        if top.is_empty() { "nobody".to_owned() } else { top.join(", ") }
    }
}
