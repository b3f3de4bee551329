//! Who holds which bytes of a device.
//!
//! Memory is held as *holdings*: a region of weights, a lane's workspace, the device's arena. What
//! is known of a holding is booked: which model and version, what for, which tensor. What is not
//! booked is its spare, and booked as such, so that the ledger always sums to what is held. What
//! several models share is booked once, as shared.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The books of one device.
#[derive(Debug, Default)]
pub struct Ledger {
    holdings: BTreeMap<HoldingId, Holding>,
    next: u64,
}

/// A holding of one ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct HoldingId(u64);

/// Who holds bytes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Holder {
    /// The server itself, for all models.
    Server,
    /// A version of a model.
    Version {
        /// The model's name.
        model: Arc<str>,
        /// The version's number.
        version: i64,
    },
    /// Several versions together.
    Shared,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Holder::Server => f.write_str("server"),
            Holder::Version { model, version } => write!(f, "{model}:{version}"),
            Holder::Shared => f.write_str("shared"),
        }
    }
}

/// What bytes are held for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Category {
    /// Variables and constants as they were stored.
    Weights,
    /// Copies of weights in the layout of a kernel.
    PackedWeights,
    /// Compiled plans and their caches.
    Plans,
    /// What steps of a plan pass on to each other.
    Activations,
    /// Tensors of requests and replies, and of shapes unknown before running.
    Requests,
    /// Scratch memory of kernels.
    Workspace,
    /// What the device's driver needs for itself.
    Context,
    /// What is lost between and inside chunks and pages.
    Fragmentation,
    /// Memory that is kept to be given out.
    Reserve,
}

impl Category {
    /// Its name in replies and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Category::Weights => "weights",
            Category::PackedWeights => "packed_weights",
            Category::Plans => "plans",
            Category::Activations => "activations",
            Category::Requests => "requests",
            Category::Workspace => "workspace",
            Category::Context => "context",
            Category::Fragmentation => "fragmentation",
            Category::Reserve => "reserve",
        }
    }
}

/// A line of the books.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Who holds the bytes.
    pub holder: Holder,
    /// If they are shared, by whom; otherwise empty.
    pub sharers: Vec<Holder>,
    /// What for.
    pub category: Category,
    /// Which tensor; empty if they belong to none or many.
    pub tensor: Arc<str>,
    /// How many.
    pub bytes: u64,
}

#[derive(Debug)]
struct Holding {
    held_bytes: u64,
    booked_bytes: u64,
    /// Who holds what is not booked, and what for.
    owner: Holder,
    spare: Category,
    tensors: BTreeMap<(Category, Arc<str>), Tensor>,
    amounts: BTreeMap<(Holder, Category), u64>,
}

#[derive(Debug)]
struct Tensor {
    bytes: u64,
    /// How often each holder booked it.
    holders: BTreeMap<Holder, u32>,
}

impl Ledger {
    /// A ledger of nothing.
    pub fn new() -> Ledger {
        Ledger::default()
    }

    /// Opens a holding of `held_bytes` bytes; what is not booked of it is `owner`'s, as `spare`.
    pub fn open(&mut self, owner: Holder, spare: Category, held_bytes: u64) -> HoldingId {
        let id = HoldingId(self.next);
        self.next += 1;
        let (tensors, amounts) = (BTreeMap::new(), BTreeMap::new());
        let holding = Holding { held_bytes, booked_bytes: 0, owner, spare, tensors, amounts };
        self.holdings.insert(id, holding);
        id
    }

    /// Says that a holding is of another size now.
    ///
    /// # Panics
    /// If more is booked than is held then.
    pub fn resize(&mut self, id: HoldingId, held_bytes: u64) {
        let holding = self.holding(id);
        assert!(holding.booked_bytes <= held_bytes, "{} booked", holding.booked_bytes);
        holding.held_bytes = held_bytes;
    }

    /// Closes a holding, with everything booked in it.
    pub fn close(&mut self, id: HoldingId) {
        assert!(self.holdings.remove(&id).is_some(), "{id:?} is not open");
    }

    /// Books a tensor. One that is booked already is shared from now on.
    ///
    /// # Panics
    /// If more would be booked than is held, or the tensor is booked with another size.
    pub fn book(&mut self, id: HoldingId, holder: Holder, what: (Category, Arc<str>), bytes: u64) {
        let holding = self.holding(id);
        let tensor = holding.tensors.entry(what).or_insert_with(|| {
            holding.booked_bytes += bytes;
            Tensor { bytes, holders: BTreeMap::new() }
        });
        assert_eq!(tensor.bytes, bytes, "a tensor has one size");
        *tensor.holders.entry(holder).or_insert(0) += 1;
        holding.check();
    }

    /// Takes one booking of a tensor by a holder back; the last one removes it.
    ///
    /// # Panics
    /// If there is no such booking.
    pub fn unbook(&mut self, id: HoldingId, holder: &Holder, what: &(Category, Arc<str>)) {
        let holding = self.holding(id);
        let tensor = holding.tensors.get_mut(what).expect("the tensor is booked");
        let count = tensor.holders.get_mut(holder).expect("the holder booked it");
        *count -= 1;
        if *count == 0 {
            tensor.holders.remove(holder);
        }
        if tensor.holders.is_empty() {
            holding.booked_bytes -= tensor.bytes;
            holding.tensors.remove(what);
        }
    }

    /// Adds bytes of no particular tensor.
    ///
    /// # Panics
    /// If more would be booked than is held.
    pub fn add(&mut self, id: HoldingId, holder: Holder, category: Category, bytes: u64) {
        let holding = self.holding(id);
        if bytes == 0 {
            return;
        }
        *holding.amounts.entry((holder, category)).or_insert(0) += bytes;
        holding.booked_bytes += bytes;
        holding.check();
    }

    /// Takes bytes that were added back.
    ///
    /// # Panics
    /// If fewer were added.
    pub fn subtract(&mut self, id: HoldingId, holder: Holder, category: Category, bytes: u64) {
        let holding = self.holding(id);
        if bytes == 0 {
            return;
        }
        let key = (holder, category);
        let amount = holding.amounts.get_mut(&key).filter(|amount| **amount >= bytes);
        let amount = amount.expect("as much was added");
        *amount -= bytes;
        if *amount == 0 {
            holding.amounts.remove(&key);
        }
        holding.booked_bytes -= bytes;
    }

    /// All bytes held.
    pub fn held_bytes(&self) -> u64 {
        self.holdings.values().map(|holding| holding.held_bytes).sum()
    }

    /// Every line; together they are what is held.
    pub fn rows(&self) -> Vec<Row> {
        let rows: Vec<Row> = self.holdings.values().flat_map(Holding::rows).collect();
        let sum: u64 = rows.iter().map(|row| row.bytes).sum();
        assert_eq!(sum, self.held_bytes(), "the ledger sums to what is held");
        rows
    }

    /// The bytes of each holder, by category.
    pub fn totals(&self) -> BTreeMap<Holder, BTreeMap<Category, u64>> {
        let mut totals: BTreeMap<Holder, BTreeMap<Category, u64>> = BTreeMap::new();
        for row in self.rows() {
            *totals.entry(row.holder).or_default().entry(row.category).or_insert(0) += row.bytes;
        }
        totals
    }

    fn holding(&mut self, id: HoldingId) -> &mut Holding {
        self.holdings.get_mut(&id).expect("the holding is open")
    }
}

impl Holding {
    fn check(&self) {
        let Holding { booked_bytes, held_bytes, .. } = self;
        assert!(booked_bytes <= held_bytes, "{booked_bytes} bytes booked of {held_bytes} held");
    }

    fn rows(&self) -> impl Iterator<Item = Row> + '_ {
        let tensors = self.tensors.iter().map(|((category, name), tensor)| {
            let (holder, sharers) = tensor.holder();
            Row { holder, sharers, category: *category, tensor: name.clone(), bytes: tensor.bytes }
        });
        let amounts = self
            .amounts
            .iter()
            .map(|((holder, category), bytes)| anonymous(holder.clone(), *category, *bytes));
        let spare = self.held_bytes - self.booked_bytes;
        let spare = (spare > 0).then(|| anonymous(self.owner.clone(), self.spare, spare));
        tensors.chain(amounts).chain(spare)
    }
}

impl Tensor {
    fn holder(&self) -> (Holder, Vec<Holder>) {
        let mut holders = self.holders.keys();
        match (holders.next(), holders.next()) {
            (Some(only), None) => (only.clone(), Vec::new()),
            _ => (Holder::Shared, self.holders.keys().cloned().collect()),
        }
    }
}

fn anonymous(holder: Holder, category: Category, bytes: u64) -> Row {
    Row { holder, sharers: Vec::new(), category, tensor: Arc::from(""), bytes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn version(model: &str, version: i64) -> Holder {
        Holder::Version { model: Arc::from(model), version }
    }

    fn tensor(name: &str) -> (Category, Arc<str>) {
        (Category::Weights, Arc::from(name))
    }

    /// The lines as `holder category tensor bytes`.
    fn lines(ledger: &Ledger) -> Vec<String> {
        let name = |holder: &Holder| match holder {
            Holder::Server => "server".to_owned(),
            Holder::Version { model, version } => format!("{model}/{version}"),
            Holder::Shared => "shared".to_owned(),
        };
        let line = |row: &Row| {
            let category = row.category.name();
            format!("{} {category} {} {}", name(&row.holder), row.tensor, row.bytes)
        };
        ledger.rows().iter().map(line).collect()
    }

    #[test]
    fn what_is_not_booked_is_spare() {
        let mut ledger = Ledger::new();
        let id = ledger.open(version("a", 1), Category::Fragmentation, 4096);
        ledger.book(id, version("a", 1), tensor("w"), 4000);
        assert_eq!(lines(&ledger), ["a/1 weights w 4000", "a/1 fragmentation  96"]);
        ledger.resize(id, 8192);
        assert_eq!(ledger.totals()[&version("a", 1)][&Category::Fragmentation], 4192);
        ledger.close(id);
        assert_eq!((ledger.held_bytes(), ledger.rows()), (0, Vec::new()));
    }

    #[test]
    fn shared_bytes_are_booked_once() {
        let mut ledger = Ledger::new();
        let id = ledger.open(Holder::Server, Category::Fragmentation, 100);
        ledger.book(id, version("a", 1), tensor("w"), 100);
        ledger.book(id, version("a", 2), tensor("w"), 100);
        assert_eq!(lines(&ledger), ["shared weights w 100"]);
        assert_eq!(ledger.rows()[0].sharers, [version("a", 1), version("a", 2)]);
        ledger.unbook(id, &version("a", 1), &tensor("w"));
        assert_eq!(lines(&ledger), ["a/2 weights w 100"]);
        ledger.unbook(id, &version("a", 2), &tensor("w"));
        assert_eq!(lines(&ledger), ["server fragmentation  100"]);
    }

    #[test]
    fn amounts_come_and_go() {
        let mut ledger = Ledger::new();
        let id = ledger.open(Holder::Server, Category::Reserve, 1000);
        ledger.add(id, version("a", 1), Category::Requests, 300);
        ledger.add(id, version("a", 1), Category::Requests, 200);
        ledger.subtract(id, version("a", 1), Category::Requests, 300);
        assert_eq!(lines(&ledger), ["a/1 requests  200", "server reserve  800"]);
    }

    struct Open {
        id: HoldingId,
        free: u64,
        booked: Vec<(Holder, u64)>,
    }

    #[test]
    fn random_bookings_always_sum_to_what_is_held() {
        let mut random = Random(9);
        let mut ledger = Ledger::new();
        let mut open: Vec<Open> = Vec::new();
        for round in 0..100_000u32 {
            let at = usize::try_from(random.below(open.len() as u64)).unwrap();
            let holder = version("m", i64::try_from(random.below(5)).unwrap());
            match random.below(6) {
                0 if open.len() < 20 => {
                    let bytes = random.size(20);
                    let id = ledger.open(Holder::Server, Category::Reserve, bytes);
                    open.push(Open { id, free: bytes, booked: Vec::new() });
                }
                1 if open.len() > 10 => ledger.close(open.swap_remove(at).id),
                2 | 3 if !open.is_empty() => {
                    let Open { id, free, booked } = &mut open[at];
                    let bytes = random.below(*free + 1);
                    *free -= bytes;
                    ledger.add(*id, holder.clone(), Category::Requests, bytes);
                    booked.push((holder, bytes));
                }
                4 | 5 if !open.is_empty() => {
                    let Open { id, free, booked } = &mut open[at];
                    if let Some((holder, bytes)) = booked.pop() {
                        ledger.subtract(*id, holder, Category::Requests, bytes);
                        *free += bytes;
                    }
                }
                _ => {}
            }
            if round % 16 == 0 {
                ledger.rows();
            }
        }
    }
}
