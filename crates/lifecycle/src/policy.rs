//! Choice of the next action for one model: pure functions from the versions seen to an action.

use crate::state::State;

/// The way in which a model passes from one version to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Policy {
    /// Loads the new version beside the old one, and unloads the old one once the new one is
    /// available. Needs memory for both.
    #[default]
    AvailabilityPreserving,
    /// Unloads the old version first, and loads the new one when the old one is gone. Nothing is
    /// served in between.
    ResourcePreserving,
}

/// One version, as a policy sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) version: i64,
    pub(crate) state: State,
    pub(crate) is_aspired: bool,
}

impl Seen {
    /// Available, though nobody wants it any more.
    fn is_left_over(&self) -> bool {
        self.state == State::Available && !self.is_aspired
    }
}

/// The action that a policy wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Load(i64),
    Unload(i64),
}

impl Policy {
    /// The next action for a model with these versions, if there is one. Once it is taken, the
    /// version is loading or unloading, and the question may be asked again.
    pub(crate) fn next_action(self, seen: &[Seen]) -> Option<Action> {
        match self {
            Policy::AvailabilityPreserving => availability_preserving(seen),
            Policy::ResourcePreserving => resource_preserving(seen),
        }
    }
}

/// Follows `tensorflow_serving/core/availability_preserving_policy.cc`.
fn availability_preserving(seen: &[Seen]) -> Option<Action> {
    let has_aspired = seen.iter().any(|version| version.is_aspired);
    let is_served = seen.iter().any(|v| v.is_aspired && v.state == State::Available);
    let n_left_over = seen.iter().filter(|version| version.is_left_over()).count();
    let may_unload = !has_aspired || is_served || n_left_over > 1;
    lowest_left_over(seen).filter(|_| may_unload).or_else(|| highest_new(seen))
}

/// Follows `tensorflow_serving/core/resource_preserving_policy.cc`.
fn resource_preserving(seen: &[Seen]) -> Option<Action> {
    if let Some(unload) = lowest_left_over(seen) {
        return Some(unload);
    }
    if seen.iter().any(|version| !version.is_aspired && version.state != State::End) {
        return None;
    }
    highest_new(seen)
}

fn lowest_left_over(seen: &[Seen]) -> Option<Action> {
    let left_over = seen.iter().filter(|version| version.is_left_over());
    left_over.map(|found| found.version).min().map(Action::Unload)
}

fn highest_new(seen: &[Seen]) -> Option<Action> {
    let new = seen.iter().filter(|found| found.is_aspired && found.state == State::Start);
    new.map(|found| found.version).max().map(Action::Load)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `versions` is a list of `number:state`, with `*` behind those aspired.
    #[track_caller]
    fn check(policy: Policy, versions: &str, expected: Option<Action>) {
        let seen: Vec<Seen> = versions.split_whitespace().map(parse).collect();
        assert_eq!(policy.next_action(&seen), expected, "{versions}");
    }

    fn parse(text: &str) -> Seen {
        let (version, state) = text.split_once(':').unwrap();
        let state = match state.trim_end_matches('*') {
            "start" => State::Start,
            "loading" => State::Loading,
            "available" => State::Available,
            "unloading" => State::Unloading,
            "end" => State::End,
            other => panic!("no state: {other}"),
        };
        Seen { version: version.parse().unwrap(), state, is_aspired: text.ends_with('*') }
    }

    fn available(versions: &str, expected: Option<Action>) {
        check(Policy::AvailabilityPreserving, versions, expected);
    }

    fn resources(versions: &str, expected: Option<Action>) {
        check(Policy::ResourcePreserving, versions, expected);
    }

    #[test]
    fn serves_the_old_version_until_the_new_one_is_available() {
        available("1:available 2:start*", Some(Action::Load(2)));
        available("1:available 2:loading*", None);
        available("1:available 2:available*", Some(Action::Unload(1)));
        available("1:unloading 2:available*", None);
    }

    #[test]
    fn a_failed_new_version_leaves_the_old_one_alone() {
        available("1:available 2:end*", None);
    }

    #[test]
    fn of_several_old_versions_the_highest_is_kept_longest() {
        available("1:available 2:available 3:start*", Some(Action::Unload(1)));
        available("1:unloading 2:available 3:start*", Some(Action::Load(3)));
    }

    #[test]
    fn unloads_everything_when_nothing_is_aspired() {
        available("1:available 2:available", Some(Action::Unload(1)));
        available("1:end 2:available", Some(Action::Unload(2)));
        available("1:end 2:unloading", None);
        available("", None);
    }

    #[test]
    fn the_highest_new_version_is_loaded_first() {
        available("1:start* 2:start* 3:start*", Some(Action::Load(3)));
        available("1:start* 2:start* 3:loading*", Some(Action::Load(2)));
        resources("1:start* 2:start* 3:loading*", Some(Action::Load(2)));
    }

    #[test]
    fn a_version_that_is_still_going_is_not_loaded_again() {
        available("1:unloading*", None);
        available("1:start* 2:unloading", Some(Action::Load(1)));
    }

    #[test]
    fn frees_the_old_version_before_the_new_one_is_loaded() {
        resources("1:available 2:start*", Some(Action::Unload(1)));
        resources("1:unloading 2:start*", None);
        resources("1:end 2:start*", Some(Action::Load(2)));
        resources("1:loading 2:start*", None);
    }
}
