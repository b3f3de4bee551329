//! The exact search for offsets, where it decides whether a run fits in the memory there is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ops::Env;
use tensor::Spec;

use crate::error::Result;
use crate::plan::{Plan, Room};
use crate::program::{Known, Program};

/// The searches of a program.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    n_searches: AtomicU64,
    n_found: AtomicU64,
}

/// The counts of searches for offsets that fit in less room, and of those that found some.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Searches {
    /// All of them.
    pub n_searches: u64,
    /// Those that found some.
    pub n_found: u64,
}

/// After so many searches in vain a program makes no more: whoever sends inputs of ever new shapes
/// to a model that has no room shall not keep its lanes busy.
const N_MISSED_MAX: u64 = 16;

impl Stats {
    fn snapshot(&self) -> Searches {
        let n_searches = self.n_searches.load(Ordering::Relaxed);
        Searches { n_searches, n_found: self.n_found.load(Ordering::Relaxed).min(n_searches) }
    }
}

impl Program {
    /// The counts of searches for offsets.
    pub fn searches(&self) -> Searches {
        self.stats().snapshot()
    }

    /// A plan that fits in `room`, if the one given does not, and other offsets are found that do
    /// before `should_stop` says so; it is kept in place of the other. Else the plan as it is.
    ///
    /// # Errors
    /// If the plan cannot be made again.
    pub fn lowered(
        &self,
        plan: Arc<Plan>,
        env: &Env<'_>,
        room: &Room,
        should_stop: &mut dyn FnMut() -> bool,
    ) -> Result<Arc<Plan>> {
        let Some(capacities) = plan.worth(room) else { return Ok(plan) };
        let Searches { n_searches, n_found } = self.searches();
        let specs: Option<Vec<Spec>> =
            self.with_key(&plan, |key| key.iter().map(Known::spec).collect());
        let Some(specs) = specs.filter(|_| n_searches - n_found < N_MISSED_MAX) else {
            return Ok(plan);
        };
        self.stats().n_searches.fetch_add(1, Ordering::Relaxed);
        let _scope = device::booked_as(device::Category::Plans);
        let found = self.with_own(env, |env| {
            Plan::build_within(self, &specs, env, (&capacities, should_stop))
        })?;
        let Some(lower) = found.map(Arc::new) else {
            plan.note_missed(&capacities);
            return Ok(plan);
        };
        assert!(lower.fits(room), "it was packed below what the room leaves");
        self.stats().n_found.fetch_add(1, Ordering::Relaxed);
        self.put_in_place(&plan, &lower);
        Ok(lower)
    }
}
