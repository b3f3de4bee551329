//! The holders of bytes: as pages, and as events in the log.

mod devices;
mod page;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use device::{Event, EventSum, Recent};
use tokio_util::sync::CancellationToken;

use crate::devices::Devices;

pub(crate) use self::devices::{devices, growth};
pub(crate) use self::page::{memory, trim};

/// The time between two looks for unused memory.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// For how many looks a device must have given out nothing new before its memory goes back.
const N_IDLE_LOOKS: u32 = 3;

/// Until the token is cancelled: says what grew and what went back, gives back what devices have
/// not used for a while, and lets the host's limit follow what the process may have.
pub(crate) async fn watch(devices: Arc<Devices>, token: CancellationToken) {
    let mut looks: BTreeMap<String, (u64, u32)> = BTreeMap::new();
    let mut had_gone = false;
    while token.run_until_cancelled(tokio::time::sleep(LOOK_EVERY)).await.is_some() {
        devices.follow_host();
        // Threads that a load or an unload had give back what they kept when they end: by now.
        if std::mem::replace(&mut had_gone, devices.placement.forget_gone()) {
            crate::devices::trim_heap();
        }
        for logical in devices.all() {
            let space = &logical.space;
            // What a driver did not give back when its model went.
            space.arenas().take_lent();
            say(space.name(), &space.take_events());
            let snapshot = space.snapshot();
            let look = looks.entry(snapshot.name).or_default();
            let is_same = look.0 == snapshot.n_growths + snapshot.in_use_bytes;
            *look =
                (snapshot.n_growths + snapshot.in_use_bytes, if is_same { look.1 + 1 } else { 0 });
            if look.1 == N_IDLE_LOOKS && snapshot.idle_bytes > 0 {
                drop(space.rest());
            }
        }
    }
    // What changed since the last look.
    devices.all().iter().for_each(|one| say(one.space.name(), &one.space.take_events()));
}

/// Tells who debugs of each large growth and release, and of the small ones summed by cause; those
/// one by one at the level of traces.
fn say(device: &str, recent: &Recent) {
    for event in &recent.events {
        let Event { bytes, cause, duration } = event;
        match (event.is_large(), *bytes > 0) {
            (true, true) => tracing::debug!(device, bytes, cause, ?duration, "memory grew"),
            (true, false) => tracing::debug!(device, bytes, cause, ?duration, "memory went back"),
            (false, _) => tracing::trace!(device, bytes, cause, ?duration, "memory changed"),
        }
    }
    for EventSum { bytes, cause, n_events: times, longest } in &recent.sums {
        tracing::debug!(device, bytes, cause, times, ?longest, "memory changed by little");
    }
    if recent.n_summed > 0 {
        let n = recent.n_summed;
        tracing::debug!(device, "memory changed so often that {n} changes are only in the sums");
    }
}
