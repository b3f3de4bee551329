//! Looks that come back when their model has left, changed or come again.

use super::*;
use crate::look::{Source, Tree};
use crate::versions::Child;

/// Nobody lists it here: the tests say themselves what a look found.
struct Unlisted;

impl Source for Unlisted {
    fn list(&self, _base_path: &str) -> Result<Vec<Child>, LoadError> {
        Ok(Vec::new())
    }

    fn tree(&self, path: &str) -> Result<Tree, LoadError> {
        Err(LoadError::new(Code::NotFound, path))
    }

    fn check(&self, _path: &str) -> Result<(), LoadError> {
        Ok(())
    }
}

fn views() -> Views {
    let options = crate::shell::tests::options();
    Views::new(Looker::new(Box::new(Unlisted), &options), &options)
}

fn configure(views: &mut Views, models: &[&str]) {
    let models: Vec<_> = models.iter().map(|name| Arc::new(ModelOptions::for_test(name))).collect();
    views.configure(&models, Instant::now());
}

fn begin(views: &mut Views) -> Glance {
    views.begin(&Arc::from("a")).expect("a look is due").0
}

fn end(views: &mut Views, glance: Glance) -> Vec<Event> {
    let error = LoadError::new(Code::NotFound, "no base path");
    let looked = Looked { glance, memory: Memory::default(), found: Err(error) };
    views.take(looked, Instant::now())
}

#[test]
fn a_look_from_before_a_model_left_neither_counts_nor_ends_the_one_after_it_came_back() {
    let mut views = views();
    configure(&mut views, &["a"]);
    let old = begin(&mut views);
    configure(&mut views, &[]);
    configure(&mut views, &["a"]);
    let new = begin(&mut views);
    assert!(views.late("a", old.number, Duration::from_secs(1)).is_none(), "nobody waits for it");
    assert!(end(&mut views, old).is_empty());
    assert!(views.begin(&Arc::from("a")).is_none(), "the new look is still in progress");
    assert!(matches!(end(&mut views, new)[..], [Event::LookFailed { .. }]));
    assert!(views.next_look().is_some(), "it is looked at again");
}

#[test]
fn a_look_at_a_model_that_changed_meanwhile_is_taken_again() {
    let mut views = views();
    configure(&mut views, &["a"]);
    let glance = begin(&mut views);
    configure(&mut views, &["a"]);
    assert!(!views.wants_look("a"), "one is in progress");
    assert!(end(&mut views, glance).is_empty());
    assert!(views.wants_look("a"));
}
