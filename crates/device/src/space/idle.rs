//! The reasons for which a space holds bytes that nobody uses.

use crate::arena::Stats;
use crate::logical::GrowthRule;

/// A reason for which bytes that nobody uses are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Idle {
    /// Whole granules that are kept for whoever asks next.
    Kept,
    /// The rest of granules, or of regions that go back as a whole, that are partly in use.
    PartlyUsed,
    /// The device does not grow: it is held up to its limit.
    Reserved,
    /// Set aside for a model.
    SetAside,
    /// The bytes by which sizes are rounded up.
    Rounding,
}

impl Idle {
    /// The reason, for people.
    pub fn reason(self) -> &'static str {
        match self {
            Idle::Kept => {
                "kept for the next request; goes back when it is idle, needed or asked for"
            }
            Idle::PartlyUsed => "the rest of granules that are partly in use",
            Idle::Reserved => "growth is off: the device is held up to its limit",
            Idle::SetAside => "set aside for a model",
            Idle::Rounding => "lost to alignment",
        }
    }
}

/// The reasons for all idle bytes of an arena; `returnable_bytes` are whole granules.
pub(super) fn reasons(
    stats: &Stats,
    returnable_bytes: u64,
    growth: GrowthRule,
    is_set_aside: bool,
) -> [(Idle, u64); 3] {
    let free = stats.free_bytes();
    let rounding = (Idle::Rounding, stats.in_use_bytes - stats.requested_bytes);
    assert!(returnable_bytes <= free, "what can go back is free");
    match growth {
        // What does not go back is what was set aside, or in granules that are partly in use.
        GrowthRule::OnDemand if is_set_aside => {
            [(Idle::Kept, returnable_bytes), (Idle::SetAside, free - returnable_bytes), rounding]
        }
        GrowthRule::OnDemand => {
            [(Idle::Kept, returnable_bytes), (Idle::PartlyUsed, free - returnable_bytes), rounding]
        }
        GrowthRule::Reserved if is_set_aside => [(Idle::SetAside, free), (Idle::Kept, 0), rounding],
        GrowthRule::Reserved => [(Idle::Reserved, free), (Idle::Kept, 0), rounding],
    }
}

/// Adds bytes to their reasons; none are left out.
pub(super) fn add(to: &mut Vec<(Idle, u64)>, reasons: impl IntoIterator<Item = (Idle, u64)>) {
    for (reason, bytes) in reasons {
        match to.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, sum)) => *sum += bytes,
            None if bytes > 0 => to.push((reason, bytes)),
            None => {}
        }
    }
    to.sort_unstable();
}
