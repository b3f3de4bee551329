//! The clock of the lanes: one thread that answers expired tasks, takes memory ahead of tasks, and
//! gives the lane of an overdue run to others.

use std::sync::Arc;

use batch::Time;
use device::{Pages, Space};

use crate::agenda::OVERDUE_MIN;
use crate::memory::{spaces, workspace};
use crate::task::fail_expired;

use super::super::sync::{self, MutexGuard};
use super::{LanesShared, LanesState};

impl LanesShared {
    /// The loop of the clock: answers tasks that expire while every lane is busy, and takes memory
    /// for tasks that are on their way or wait, and behind that of tasks which needed more than any
    /// before.
    pub(super) fn keep_time(self: &Arc<Self>) {
        let mut pages: Vec<Pages> = Vec::new();
        let mut state = self.state.lock();
        while !state.is_ended {
            self.detach_overdue(&mut state);
            let expired = state.agenda.expire(self.now());
            if !expired.is_empty() {
                MutexGuard::unlocked(&mut state, || fail_expired(expired));
                continue;
            }
            let expected = std::mem::take(&mut state.expected);
            if !expected.is_empty() {
                let taken = |(space, bytes): &(Arc<Space>, u64)| {
                    [space.wake(), Some(space.grow_ahead(&[*bytes], 1))]
                };
                let taken = || expected.iter().flat_map(taken).flatten();
                MutexGuard::unlocked(&mut state, || pages.extend(taken()));
                continue;
            }
            if std::mem::take(&mut state.is_expecting) {
                let taken = |space: &Arc<Space>| [space.wake(), space.catch_up()];
                let taken = || self.owner.iter().flat_map(spaces).flat_map(taken).flatten();
                MutexGuard::unlocked(&mut state, || pages.extend(taken()));
                continue;
            }
            if let Some(mut some) = pages.pop() {
                // Step by step, since something may expire meanwhile.
                if MutexGuard::unlocked(&mut state, || some.step()) {
                    pages.push(some);
                }
                continue;
            }
            let now = self.now();
            let next_overdue = state.agenda.next_overdue(now);
            // A task that waits may find every lane taken by endless runs at any later moment.
            let next_look = (state.agenda.n_waiting() > 0).then(|| now.plus(OVERDUE_MIN));
            let next =
                state.agenda.next_deadline().into_iter().chain(next_overdue).chain(next_look);
            let next = next.min();
            state.clock_wakes = next;
            match state.clock_wakes.and_then(|time| self.instant(time)) {
                Some(instant) => drop(self.due.wait_until(&mut state, instant)),
                None => self.due.wait(&mut state),
            }
        }
    }

    /// Gives the lane of a run that is overdue to those who wait: a new workspace, and a thread.
    fn detach_overdue(self: &Arc<Self>, state: &mut LanesState) {
        let now = self.now();
        if state.agenda.next_overdue(now).is_none_or(|from| from > now) {
            return;
        }
        let Ok(workspace) = workspace(self.owner.as_ref()) else { return };
        let (shared, name) = (Arc::clone(self), "lane-spare".to_owned());
        let Ok(thread) = sync::spawn(name, move || shared.work()) else { return };
        state.spares.retain(|thread| !sync::is_finished(thread));
        state.spares.push(thread);
        match state.agenda.detach(now) {
            Some(lane) => state.workspaces[lane] = Some(workspace),
            None => state.n_surplus += 1,
        }
        self.changed.notify_all();
    }

    /// Tells a free lane that a task came, and the clock when the task expires. The clock also
    /// looks whether runs are overdue: the lane that is free now may take an endless run instead.
    pub(super) fn wake(&self, state: &mut LanesState, deadline: Option<Time>, now: Time) {
        if state.agenda.has_free_lane() {
            self.changed.notify_one();
        }
        let look = now.plus(OVERDUE_MIN);
        let due = deadline.map_or(look, |deadline| deadline.min(look));
        if state.clock_wakes.is_none_or(|wakes| due < wakes) {
            state.clock_wakes = Some(due);
            self.due.notify_one();
        }
    }
}
