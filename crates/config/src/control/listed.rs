//! The list of models, and what clients changed of it. Pure.

use std::collections::{BTreeMap, BTreeSet};

use proto::serving::ModelConfig;

/// The models to serve.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Listed {
    /// Those of the command line or the file, or those that a client put in their place.
    pub own: Vec<ModelConfig>,
    /// The side that named them.
    pub named_by: NamedBy,
    /// Applied on top of them.
    pub changes: Changes,
}

/// The origin of the models that were not added one by one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum NamedBy {
    /// The command line or the config file.
    #[default]
    Operator,
    /// A client of the API.
    Client,
}

/// The changes of clients, one model at a time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Changes {
    /// Added, or with another config than the file has.
    pub added: BTreeMap<String, ModelConfig>,
    /// Models of the file that are not to be served.
    pub removed: BTreeSet<String>,
}

impl Listed {
    /// All models that are to be served.
    pub fn models(&self) -> Vec<ModelConfig> {
        let Changes { added, removed } = &self.changes;
        let is_changed = |name: &str| added.contains_key(name) || removed.contains(name);
        let own = self.own.iter().filter(|model| !is_changed(&model.name));
        own.chain(added.values()).cloned().collect()
    }

    /// With another list of the file. What was taken away from the old one is forgotten if the new
    /// one does not have it.
    pub fn with_own(&self, own: Vec<ModelConfig>) -> Self {
        let mut changes = self.changes.clone();
        changes.removed.retain(|name| own.iter().any(|model| model.name == *name));
        Self { own, named_by: NamedBy::Operator, changes }
    }

    /// The base paths that clients named.
    pub fn named_by_clients(&self) -> BTreeSet<String> {
        let own = match self.named_by {
            NamedBy::Operator => &[][..],
            NamedBy::Client => &self.own,
        };
        let models = own.iter().chain(self.changes.added.values());
        models.map(|model| model.base_path.clone()).collect()
    }

    /// With one more model, or another config of one.
    pub fn with(&self, model: ModelConfig) -> Self {
        let mut new = self.clone();
        new.changes.removed.remove(&model.name);
        new.changes.added.insert(model.name.clone(), model);
        new
    }

    /// Without a model; `None` if it is not there.
    pub fn without(&self, name: &str) -> Option<Self> {
        let is_there = self.models().iter().any(|model| model.name == name);
        let mut new = self.clone();
        new.changes.added.remove(name);
        if new.own.iter().any(|model| model.name == name) {
            new.changes.removed.insert(name.to_owned());
        }
        is_there.then_some(new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model_config::model;

    fn list(names: &str) -> Vec<ModelConfig> {
        names.split_whitespace().map(|name| model(name.to_owned(), "/m".to_owned())).collect()
    }

    #[track_caller]
    fn check(listed: &Listed, expected: &str) {
        let names: Vec<String> = listed.models().into_iter().map(|model| model.name).collect();
        assert_eq!(names.join(" "), expected);
    }

    #[test]
    fn what_clients_changed_survives_another_list() {
        let listed = Listed { own: list("a b"), ..Listed::default() };
        let listed = listed.with(model("c".to_owned(), "/c".to_owned()));
        check(&listed, "a b c");
        let listed = listed.without("a").unwrap();
        check(&listed, "b c");
        check(&listed.with_own(list("a d")), "d c");
    }

    #[test]
    fn a_model_that_was_taken_away_can_come_back() {
        let listed = Listed { own: list("a"), ..Listed::default() };
        let without = listed.without("a").unwrap();
        assert!(without.without("a").is_none());
        check(&without.with(model("a".to_owned(), "/x".to_owned())), "a");
        // Gone from the file and back: what was taken away meanwhile does not count any more.
        check(&without.with_own(list("")).with_own(list("a")), "a");
    }

    #[test]
    fn a_model_may_have_another_config_than_the_file_says() {
        let listed = Listed { own: list("a b"), ..Listed::default() };
        let listed = listed.with(model("a".to_owned(), "/other".to_owned()));
        check(&listed, "b a");
        assert_eq!(listed.models()[1].base_path, "/other");
        check(&listed.without("a").unwrap(), "b");
    }
}
