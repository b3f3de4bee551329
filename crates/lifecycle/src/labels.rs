//! Names for versions of one model.

use std::collections::BTreeMap;

use crate::options::LabelRule;

/// The labels of one model: where each was sent, and where it points now.
#[derive(Debug, Default)]
pub(crate) struct Labels {
    labels: BTreeMap<String, Label>,
}

#[derive(Debug)]
struct Label {
    wanted: i64,
    /// Differs from `wanted` while a label that moves waits for its version.
    effective: i64,
}

impl Labels {
    /// The first version in `wanted` to which a label may not point.
    pub(crate) fn refused(
        &self,
        wanted: &BTreeMap<String, i64>,
        rule: LabelRule,
        is_available: impl Fn(i64) -> bool,
    ) -> Option<i64> {
        let moves = |label: &str, version| {
            self.labels.get(label).is_some_and(|label| label.wanted != version)
        };
        let is_fine = |label: &str, version: i64| match rule {
            LabelRule::Available => is_available(version),
            LabelRule::NewAnywhere => is_available(version) || !moves(label, version),
            LabelRule::Anywhere => true,
        };
        wanted
            .iter()
            .find(|(label, version)| !is_fine(label, **version))
            .map(|(_, version)| *version)
    }

    /// Replaces all labels.
    pub(crate) fn set(&mut self, wanted: &BTreeMap<String, i64>) {
        self.labels = wanted
            .iter()
            .map(|(name, wanted)| {
                let effective = self.labels.get(name).map_or(*wanted, |label| label.effective);
                (name.clone(), Label { wanted: *wanted, effective })
            })
            .collect();
    }

    /// Moves the labels whose versions came or went.
    pub(crate) fn update(&mut self, is_available: impl Fn(i64) -> bool) {
        for label in self.labels.values_mut() {
            if is_available(label.wanted) || !is_available(label.effective) {
                label.effective = label.wanted;
            }
        }
    }

    /// The version that each label points to now.
    pub(crate) fn effective(&self) -> BTreeMap<String, i64> {
        self.labels.iter().map(|(name, label)| (name.clone(), label.effective)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(labels: &[(&str, i64)]) -> BTreeMap<String, i64> {
        labels.iter().map(|(name, version)| ((*name).to_owned(), *version)).collect()
    }

    /// Checks whether `a` may be sent to version 2, if it was at `before` and only 1 is available.
    #[track_caller]
    fn check(rule: LabelRule, before: &[(&str, i64)], is_allowed: bool) {
        let mut labels = Labels::default();
        labels.set(&map(before));
        let refused = labels.refused(&map(&[("a", 2)]), rule, |version| version == 1);
        assert_eq!(refused.is_none(), is_allowed, "{rule:?} {before:?}");
    }

    #[test]
    fn a_label_to_an_unavailable_version_needs_leave() {
        check(LabelRule::Available, &[], false);
        check(LabelRule::Available, &[("a", 2)], false);
        check(LabelRule::NewAnywhere, &[], true);
        check(LabelRule::NewAnywhere, &[("a", 2)], true);
        check(LabelRule::NewAnywhere, &[("a", 1)], false);
        check(LabelRule::Anywhere, &[("a", 1)], true);
    }

    #[test]
    fn a_label_that_moves_waits_for_its_version() {
        let mut labels = Labels::default();
        labels.set(&map(&[("a", 1)]));
        labels.update(|version| version == 1);
        labels.set(&map(&[("a", 2), ("b", 3)]));
        labels.update(|version| version == 1);
        assert_eq!(labels.effective(), map(&[("a", 1), ("b", 3)]));
        labels.update(|_| true);
        assert_eq!(labels.effective(), map(&[("a", 2), ("b", 3)]));
    }

    #[test]
    fn a_label_does_not_stay_on_a_version_that_is_gone() {
        let mut labels = Labels::default();
        labels.set(&map(&[("a", 1)]));
        labels.set(&map(&[("a", 2)]));
        labels.update(|_| false);
        assert_eq!(labels.effective(), map(&[("a", 2)]));
    }
}
