//! The privileges of a worker: none, also when the server runs as root.

use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::{self, CapabilitySet, CapabilitySets};

/// The highest number that a capability could have.
const CAPABILITY_MAX: u32 = 63;

/// Gives up gaining privileges from programs, for good.
pub(super) fn gain_none() -> Result<(), String> {
    thread::set_no_new_privs(true).map_err(|error| error.to_string())
}

/// Drops all capabilities, and hides the memory and the environment from other processes of the
/// same user.
pub(super) fn drop_all() -> Result<(), String> {
    drop_capabilities().map_err(|error| error.to_string())?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(|error| error.to_string())
}

fn drop_capabilities() -> rustix::io::Result<()> {
    let held = thread::capabilities(None)?;
    // An ordinary user may not change the bounding set, and gains nothing from it: see `gain_none`.
    if held.effective.contains(CapabilitySet::SETPCAP) {
        for number in 0..=CAPABILITY_MAX {
            let one = CapabilitySet::from_bits_retain(1 << number);
            match thread::remove_capability_from_bounding_set(one) {
                // The kernel knows fewer.
                Err(rustix::io::Errno::INVAL) => break,
                outcome => outcome?,
            }
        }
    }
    thread::clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    thread::set_capabilities(
        None,
        CapabilitySets { effective: none, permitted: none, inheritable: none },
    )
}
