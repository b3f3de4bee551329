//! The memory of lanes.

use std::sync::Arc;

use device::{Owner, Space, Workspace};

use crate::options::Need;

/// An empty workspace, which `owner` pays for.
pub(crate) fn workspace(owner: Option<&Arc<Owner>>) -> device::Result<Workspace> {
    owner.map_or_else(|| Workspace::allocate(0), |owner| Workspace::for_owner(Arc::clone(owner)))
}

/// The memory that the runs of an owner's lanes take: the device's, and the host's beside it.
pub(crate) fn spaces(owner: &Arc<Owner>) -> impl Iterator<Item = &Arc<Space>> {
    let host = owner.is_split().then(|| owner.host().space());
    std::iter::once(owner.space()).chain(host)
}

/// Takes memory for runs on so many lanes that need so much, as far as there is enough.
pub(crate) fn grow_ahead(owner: &Arc<Owner>, need: &Need, n_lanes: usize) {
    let grow = |owner: &Arc<Owner>, sizes: [u64; 2]| {
        let mut pages = owner.space().grow_ahead(&sizes, n_lanes);
        while pages.step() {}
    };
    grow(owner, [need.work_bytes, need.open_bytes]);
    if owner.is_split() {
        grow(owner.host(), [need.host_work_bytes, need.host_open_bytes]);
    }
}
