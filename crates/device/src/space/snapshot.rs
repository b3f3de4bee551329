//! A copy of a space's books for readers.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Space;
use super::arenas::Arenas;
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
    /// The device's kind.
    pub kind: Kind,
    /// The rule by which the space takes memory: as needed, or all at once.
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
    /// The idle bytes by the reason for which they are held, and the bytes lost to rounding.
    pub idle: Vec<(Idle, u64)>,
    /// The largest piece that could be given out without growing.
    pub largest_free_bytes: u64,
    /// The share of what is idle outside the largest piece, from 0 to 1.
    pub fragmentation: f64,
    /// The bytes of host memory that the bookkeeping takes.
    pub bookkeeping_bytes: u64,
    /// The number of growths.
    pub n_growths: u64,
    /// The number of releases.
    pub n_releases: u64,
    /// The growths and releases so far, by cause.
    pub events: Vec<EventTotal>,
    /// The rows of the books: each holder and its bytes.
    pub rows: Vec<Row>,
}

impl Space {
    /// A copy of what is held, and for whom.
    ///
    /// What is on the heap comes and goes while it is added up, and a limit may change meanwhile.
    /// Where the copy says that more is held than may be, which never is, it is made again.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::until_right(self, false)
    }

    /// The same with a row for each tensor that has a name, and who shares it: what is left of a
    /// category is one more row. It takes longer, and whoever allocates waits for it.
    pub fn ledger(&self) -> Snapshot {
        let mut ledger = Snapshot::until_right(self, true);
        let sharers = self.sharing.sharers();
        for row in ledger.rows.iter_mut().filter(|row| row.holder == Holder::Shared) {
            let of = sharers.get(&(row.category, Arc::clone(&row.tensor)));
            row.sharers = of.into_iter().flatten().cloned().collect();
        }
        ledger
    }

    /// Takes the growths and releases since the last call, of the whole device.
    pub fn take_events(&self) -> Recent {
        self.arenas.journal().take()
    }
}

/// The number of copies made at most until one is consistent.
const N_COPIES: usize = 100;

/// The bytes that the books take beside those of the arenas: holders, names, sharers and events.
fn books_bytes(space: &Space, tallies: &[Arc<Tally>]) -> u64 {
    let events = space.parent.is_none().then(|| space.arenas.journal().books_bytes());
    let tallies: usize = tallies.iter().map(|tally| tally.books_bytes()).sum();
    let books = tallies + space.sharing.books_bytes() + events.unwrap_or(0);
    (books + size_of::<Space>() + size_of::<Arenas>()) as u64
}

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

/// The number of holders that a refusal names.
const N_HOLDERS: usize = 3;

impl Snapshot {
    fn until_right(space: &Space, has_tensors: bool) -> Snapshot {
        let copies = std::iter::repeat_with(|| Snapshot::copy(space, has_tensors));
        let mut copies = copies.take(N_COPIES).skip_while(|it| it.held_bytes > it.limit_bytes);
        copies.next().unwrap_or_else(|| Snapshot::copy(space, has_tensors))
    }

    fn copy(space: &Space, has_tensors: bool) -> Snapshot {
        let (parent, growth) = (space.parent.as_ref(), space.growth());
        // With the arenas locked nothing of what they gave out changes hands.
        let arenas: Vec<_> = space.arenas.iter().map(|arena| arena.lock()).collect();
        let stats: Vec<Stats> = arenas.iter().map(|arena| arena.stats()).collect();
        let mut idle = Vec::new();
        for (arena, stats) in arenas.iter().zip(&stats) {
            let reasons = idle::reasons(stats, arena.returnable_bytes(), growth, parent.is_some());
            idle::add(&mut idle, reasons);
        }
        let spare_bytes = space.arenas.spare_bytes();
        idle::add(&mut idle, [(Idle::SetAside, spare_bytes)]);
        let tallies = space.books.tallies();
        let bookings: Vec<Booking> = tallies.iter().map(|tally| tally.copy(has_tensors)).collect();
        drop(arenas);
        let mut rows = rows(&tallies, &bookings);
        let heap_bytes: u64 = bookings.iter().map(|booking| booking.heap_bytes).sum();
        let sum = |of: fn(&Stats) -> u64| stats.iter().map(of).sum::<u64>();
        let requested = sum(|s| s.requested_bytes);
        let chunks: u64 = rows.iter().map(|row| row.bytes).sum::<u64>() - heap_bytes;
        assert_eq!(chunks, requested, "every chunk of {} is booked", space.name());
        let idle_bytes = sum(Stats::free_bytes) + spare_bytes;
        let spare = parent.map_or(Holder::Server, |parent| parent.holder.clone());
        let lost = sum(|s| s.in_use_bytes) - requested;
        add(&mut rows, &spare, Category::Fragmentation, lost);
        add(&mut rows, &spare, Category::Reserve, idle_bytes);
        let context_bytes = space.books.context_bytes();
        add(&mut rows, &Holder::Server, Category::Context, context_bytes);
        // The events of what was set aside are those of the device.
        let events = parent.map_or_else(|| space.arenas.journal().totals(), |_| Vec::new());
        let n = |change: Change| {
            let of = events.iter().filter(|total| total.change == change);
            of.map(EventTotal::n_events).sum()
        };
        let largest = stats.iter().map(|s| s.largest_free_bytes).max().unwrap_or(0);
        let mut snapshot = Snapshot {
            name: space.name().to_owned(),
            kind: space.kind(),
            growth,
            limit_bytes: space.account().limit_bytes(),
            held_bytes: sum(|s| s.held_bytes) + spare_bytes + heap_bytes + context_bytes,
            peak_held_bytes: space.account().peak_bytes(),
            in_use_bytes: requested + heap_bytes + context_bytes,
            peak_in_use_bytes: space.books.peak_in_use_bytes(),
            idle_bytes,
            idle,
            largest_free_bytes: largest,
            fragmentation: match idle_bytes {
                0 => 0.0,
                _ => (idle_bytes - largest) as f64 / idle_bytes as f64,
            },
            bookkeeping_bytes: sum(|s| s.bookkeeping_bytes) + books_bytes(space, &tallies),
            n_growths: n(Change::Growth),
            n_releases: n(Change::Release),
            events,
            rows,
        };
        let copy = |child: &Arc<Space>| if has_tensors { child.ledger() } else { child.snapshot() };
        space.children.living().iter().for_each(|child| snapshot.include(copy(child)));
        snapshot
    }

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
