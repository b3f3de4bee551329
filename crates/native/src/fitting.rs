//! Plans that fit in what memory there is: where greedy offsets do not, others are searched for.

use std::sync::Arc;
use std::time::{Duration, Instant};

use device::{Home, Owner, Workspace};
use graph::{Plan, Program, Room, Searches};
use ops::{Cancel, Env};
use pool::Pool;
use status::Result;

use crate::engine::Model;
use crate::programs::{Inputs, ProgramPick};
use crate::rehearsal::Batch;

/// The longest search for offsets: a plan is kept, so a run that has to wait for its own would have
/// failed, and the next one like it does not wait.
const SEARCH: Duration = Duration::from_millis(200);

/// Says when a search has taken long enough, or nobody waits for it any more.
pub(crate) fn enough(cancel: &Cancel) -> impl FnMut() -> bool {
    let start = Instant::now();
    move || start.elapsed() > SEARCH || cancel.check().is_err()
}

impl Model {
    /// The plan of a run on a lane: the one given, or one that fits if that does not.
    pub(crate) fn fitting(
        &self,
        plan: Arc<Plan>,
        (program, env): (&Program, &Env<'_>),
        lane: &Workspace,
    ) -> graph::Result<Arc<Plan>> {
        // Almost always there is nothing to be gained, and so nothing to be looked at.
        if plan.is_lowest() {
            return Ok(plan);
        }
        let room = Room {
            device_bytes: self.room(lane.room_bytes(Home::Device)),
            host_bytes: self.host_room(lane.room_bytes(Home::Host)),
        };
        program.lowered(plan, env, &room, &mut enough(env.cancel))
    }

    /// Makes the plan of a batch that needs a search now, so that no request waits for it. What
    /// cannot be planned fails when it is asked for.
    pub(crate) fn plan_ahead(&self, batch: &Batch, pool: &Pool) -> Result<()> {
        let Some(owner) = &self.lease.0 else { return Ok(()) };
        let cancel = Cancel::default();
        let lane = |owner: &Arc<Owner>| owner.space().root().free_bytes();
        let pick =
            ProgramPick { signature: &batch.signature, inputs: Inputs::Shapes(&batch.inputs) };
        self.with(pick, &cancel, pool, |program, env| {
            let plan = program.plan(&batch.inputs, env)?;
            let room = Room {
                device_bytes: self.room(lane(owner)),
                host_bytes: self.host_room(lane(owner.host())),
            };
            program.lowered(plan, env, &room, &mut enough(&cancel)).map(drop)
        })
    }

    /// The bytes that a run may need of the host, where that is another device.
    fn host_room(&self, free_bytes: u64) -> u64 {
        let Some(owner) = self.lease.0.as_ref().filter(|owner| owner.is_split()) else {
            return free_bytes;
        };
        owner.host().account().map_or(free_bytes, |account| free_bytes.min(account.free_bytes()))
    }

    /// The counts of searches for offsets, in all programs.
    pub(crate) fn searches(&self) -> Searches {
        let programs = self.programs.values().flat_map(|one| one.all());
        programs.map(Program::searches).fold(Searches::default(), |a, b| Searches {
            n_searches: a.n_searches + b.n_searches,
            n_found: a.n_found + b.n_found,
        })
    }
}
