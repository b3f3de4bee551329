//! Scripts of events, with the orders and states that must follow.

mod random;

use status::Code;

use super::*;
use crate::policy::Policy;
use crate::state::{Retried, State};

/// One model `m`, with two retries, ten seconds apart.
struct Bench {
    machine: Machine,
    options: ModelOptions,
    now: Duration,
}

impl Bench {
    fn new(policy: Policy) -> Self {
        let interval = Duration::from_secs(10);
        let retries = Retries { max: 2, rule: RetryRule::All, first: interval, interval };
        let options = ModelOptions { policy, ..ModelOptions::for_test("m") };
        let mut bench =
            Bench { machine: Machine::new(retries, Missing::Fails), options, now: Duration::ZERO };
        bench.run("config");
        bench
    }

    /// Runs one event, and returns what was ordered besides publishing.
    fn run(&mut self, event: &str) -> String {
        let event = self.parse(event);
        let orders = self.machine.apply(event, self.now);
        self.machine.check();
        let said: Vec<String> = orders.iter().filter_map(show).collect();
        said.join(", ")
    }

    fn parse(&mut self, text: &str) -> Event {
        let mut words = text.split_whitespace();
        let word = words.next().expect("an event has a name");
        let words: Vec<&str> = words.collect();
        let id = || Id { model: "m".into(), version: words[0].parse().unwrap() };
        let error = LoadError::new(Code::DataLoss, "bad");
        match word {
            "config" => Event::Configured(vec![Arc::new(self.options.clone())]),
            "leave" => Event::Configured(Vec::new()),
            "aspire" => {
                let versions = words.iter().map(|word| aspired(word)).collect();
                Event::Aspired { model: "m".into(), versions }
            }
            "lookfailed" => Event::LookFailed { model: "m".into(), error },
            "loaded" => Event::Loaded(id()),
            "failed" => Event::LoadFailed(id(), error),
            "broken" => Event::LoadFailed(id(), LoadError::new(Code::Unavailable, "disk")),
            "toolarge" => {
                let error = LoadError::new(Code::ResourceExhausted, "too large").finally();
                Event::LoadFailed(id(), error)
            }
            "refused" => Event::LoadFailed(id(), LoadError::new(Code::ResourceExhausted, "full")),
            "giveway" => Event::GiveWay(id(), LoadError::new(Code::ResourceExhausted, "gave way")),
            "room" => Event::Room,
            "freed" => Event::Freed(id()),
            "at" => {
                self.now = Duration::from_secs(words[0].parse().unwrap());
                Event::Tick
            }
            "stop" => Event::Stopped,
            other => panic!("no event: {other}"),
        }
    }

    /// Runs a script. Each line is `event | orders | states`; the states may be left out.
    #[track_caller]
    fn check(&mut self, script: &str) {
        for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let mut parts = line.split('|').map(str::trim);
            let event = parts.next().expect("a line has an event");
            let orders = self.run(event);
            assert_eq!(orders, parts.next().unwrap_or_default(), "orders after `{event}`");
            if let Some(states) = parts.next() {
                // Older scripts do not say which loads are tried again.
                let is_plain = !states.contains('?');
                let found = self.states();
                let found = if is_plain { found.replace('?', "") } else { found };
                assert_eq!(found, states, "states after `{event}`");
            }
        }
    }

    /// `number:state`, with `!` behind those that failed and `?` behind those tried again.
    fn states(&self) -> String {
        let snapshot = self.machine.snapshot("m").expect("the model is there");
        let show = |status: &crate::state::VersionStatus| {
            let mark = match (&status.error, &status.retried) {
                (Some(_), _) => "!",
                (None, Some(_)) => "?",
                (None, None) => "",
            };
            format!("{}:{}{mark}", status.version, status.state.name().to_lowercase())
        };
        let states: Vec<String> = snapshot.versions.iter().rev().map(show).collect();
        states.join(" ")
    }
}

/// `version` or `version@fingerprint`.
fn aspired(word: &str) -> Aspired {
    let (version, fingerprint) = word.split_once('@').unwrap_or((word, "0"));
    Aspired {
        version: version.parse().unwrap(),
        path: format!("/models/m/{version}"),
        fingerprint: fingerprint.parse().unwrap(),
    }
}

fn show(order: &Order) -> Option<String> {
    match order {
        Order::Publish(_) => None,
        Order::Load { id, path } => {
            assert_eq!(*path, format!("/models/m/{}", id.version));
            Some(format!("load {}", id.version))
        }
        Order::Cancel(id) => Some(format!("cancel {}", id.version)),
        Order::Unload(id) => Some(format!("unload {}", id.version)),
    }
}

#[track_caller]
fn check_with(policy: Policy, script: &str) {
    Bench::new(policy).check(script);
}

#[track_caller]
fn check(script: &str) {
    check_with(Policy::AvailabilityPreserving, script);
}

/// No retries.
const NEVER: Retries =
    Retries { max: 0, rule: RetryRule::All, first: Duration::ZERO, interval: Duration::ZERO };

#[test]
fn the_wait_before_a_retry_doubles_up_to_the_interval() {
    let second = Duration::from_secs(1);
    let retries = Retries { max: 9, rule: RetryRule::All, first: second, interval: second * 5 };
    let waits: Vec<u64> = (1..6).map(|n| retries.wait(n).as_secs()).collect();
    assert_eq!(waits, [1, 2, 4, 5, 5]);
    assert_eq!(retries.wait(u32::MAX), second * 5);
    assert_eq!(NEVER.wait(3), Duration::ZERO);
}

#[test]
fn a_new_version_replaces_the_old_one_without_a_gap() {
    check(
        "aspire 1 | load 1   | 1:loading
         loaded 1 |          | 1:available
         aspire 2 | load 2   | 1:available 2:loading
         loaded 2 | unload 1 | 1:unloading 2:available
         freed 1  |          | 1:end 2:available",
    );
}

#[test]
fn resources_are_freed_before_the_new_version_is_loaded() {
    check_with(
        Policy::ResourcePreserving,
        "aspire 1 | load 1
         loaded 1 |
         aspire 2 | unload 1 | 1:unloading 2:start
         freed 1  | load 2   | 1:end 2:loading",
    );
}

#[test]
fn versions_are_loaded_in_parallel_the_highest_first() {
    check(
        "aspire 1 2 3 | load 3, load 2, load 1 | 1:loading 2:loading 3:loading
         loaded 2     |                        | 1:loading 2:available 3:loading",
    );
}

#[test]
fn a_failed_load_is_tried_again_so_often_and_no_more() {
    check(
        "aspire 1 | load 1
         failed 1 |        | 1:loading
         at 9     |
         at 10    | load 1
         failed 1 |        | 1:loading
         at 20    | load 1
         failed 1 |        | 1:end!
         at 99    |
         aspire 1 |        | 1:end!",
    );
}

#[test]
fn what_was_refused_for_want_of_memory_is_tried_again_when_there_may_be_some() {
    check(
        "aspire 1  | load 1
         loaded 1  |
         aspire 2 3| load 3, load 2
         refused 3 |
         failed 2  |          | 1:available 2:loading 3:loading
         room      | load 3   | 1:available 2:loading 3:loading
         refused 3 |
         config    | load 3
         refused 3 |
         at 10     | load 2, load 3
         failed 2  |
         refused 3 |
         at 20     | load 2, load 3
         failed 2  |
         refused 3 |          | 1:available 2:end! 3:end!
         room      | load 3   | 1:available 2:end! 3:loading
         loaded 3  | unload 1 | 1:unloading 2:end! 3:available
         room      |
         freed 1   |          | 1:end 2:end! 3:available",
    );
    check(
        "aspire 1 2 | load 2, load 1
         loaded 1   |
         refused 2  |
         aspire 2   | | 1:available 2:loading
         at 10      | load 2
         refused 2  |
         leave      | unload 1
         room       |        | 1:unloading 2:end!",
    );
}

#[test]
fn what_is_refused_while_memory_becomes_free_is_tried_again_once() {
    check(
        "aspire 1  | load 1
         room      |          | 1:loading
         refused 1 | load 1   | 1:loading
         room      |
         refused 1 |          | 1:loading
         at 10     | load 1
         room      |
         failed 1  |          | 1:loading
         at 20     | load 1
         room      |
         refused 1 | load 1
         loaded 1  |          | 1:available
         room      |",
    );
}

#[test]
fn what_gives_way_is_tried_again_as_what_was_refused() {
    check(
        "aspire 1  | load 1
         giveway 1 |          | 1:loading
         loaded 1  |
         giveway 2 |
         giveway 1 | unload 1 | 1:unloading
         giveway 1 |
         room      |          | 1:unloading
         freed 1   | load 1   | 1:loading
         refused 1 |
         room      | load 1
         loaded 1  |          | 1:available
         giveway 1 | unload 1
         leave     |
         freed 1   |          | 1:end",
    );
}

#[test]
fn a_version_that_is_gone_makes_room_for_another_models() {
    let mut bench = Bench::new(Policy::AvailabilityPreserving);
    let other = ModelOptions::for_test("n");
    let both = [&bench.options, &other].map(|options| Arc::new(options.clone()));
    bench.machine.apply(Event::Configured(both.to_vec()), bench.now);
    bench.run("aspire 1");
    bench.run("loaded 1");
    let id = Id { model: "n".into(), version: 1 };
    let versions = vec![Aspired { version: 1, path: "/n/1".to_owned(), fingerprint: 0 }];
    let load = Order::Load { id: id.clone(), path: "/n/1".to_owned() };
    let orders = bench.machine.apply(Event::Aspired { model: "n".into(), versions }, bench.now);
    assert!(orders.contains(&load));
    let full = LoadError::new(Code::ResourceExhausted, "full");
    bench.machine.apply(Event::LoadFailed(id, full), bench.now);
    assert_eq!(bench.run("aspire"), "unload 1");
    let freed = Event::Freed(Id { model: "m".into(), version: 1 });
    let orders = bench.machine.apply(freed, bench.now);
    bench.machine.check();
    assert!(orders.contains(&load), "{orders:?}");
}

#[test]
fn a_failed_new_version_leaves_the_old_one_available() {
    check(
        "aspire 1 | load 1
         loaded 1 |
         aspire 2 | load 2
         failed 2 |
         at 10    | load 2
         failed 2 |
         at 20    | load 2
         failed 2 |        | 1:available 2:end!
         aspire 1 |        | 1:available 2:end!",
    );
}

/// Like [`check`], for a machine that tries again only what may get better.
#[track_caller]
fn check_curable(script: &str) {
    let mut bench = Bench::new(Policy::AvailabilityPreserving);
    bench.machine.retries.rule = RetryRule::Curable;
    bench.check(script);
}

#[test]
fn a_load_that_can_never_succeed_fails_at_once() {
    check_curable(
        "aspire 1   | load 1
         broken 1   |        | 1:loading?
         at 10      | load 1 | 1:loading?
         failed 1   |        | 1:end!
         at 20      |        | 1:end!
         aspire 1@2 | load 1 | 1:loading",
    );
    // There may be more memory one day, by another configuration say.
    check_curable(
        "aspire 1   | load 1
         toolarge 1 |        | 1:end!
         at 10      |        | 1:end!
         room       | load 1 | 1:loading
         refused 1  |        | 1:loading?",
    );
    check(
        "aspire 1 | load 1
         failed 1 |        | 1:loading?",
    );
}

#[test]
fn a_load_that_is_tried_again_says_why_and_when() {
    let mut bench = Bench::new(Policy::AvailabilityPreserving);
    let retried = |bench: &Bench| bench.machine.snapshot("m").unwrap().versions[0].retried.clone();
    bench.run("aspire 1");
    assert_eq!(retried(&bench), None);
    bench.run("broken 1");
    let error = LoadError::new(Code::Unavailable, "disk");
    let at = Some(Duration::from_secs(10));
    assert_eq!(retried(&bench), Some(Retried { error: error.clone(), at }));
    bench.run("at 10");
    assert_eq!(retried(&bench), Some(Retried { error, at: None }));
    bench.run("loaded 1");
    assert_eq!(retried(&bench), None);
}

#[test]
fn a_version_no_longer_aspired_is_not_tried_again() {
    check(
        "aspire 1 | load 1
         failed 1 |
         aspire   |        | 1:end!
         at 10    |        | 1:end!",
    );
}

#[test]
fn a_failed_version_is_loaded_again_when_its_files_changed() {
    check(
        "aspire 1@7 | load 1
         failed 1   |
         aspire 1@7 |
         aspire 1@8 | load 1 | 1:loading
         failed 1   |
         at 10      | load 1
         failed 1   |
         at 20      | load 1
         failed 1   |        | 1:end!
         aspire 1@8 |        | 1:end!
         aspire 1@9 | load 1 | 1:loading",
    );
}

#[test]
fn a_load_that_nobody_wants_is_cancelled() {
    check(
        "aspire 1 | load 1
         aspire 2 | cancel 1, load 2 | 1:loading 2:loading
         failed 1 |                  | 1:end! 2:loading",
    );
}

#[test]
fn a_load_that_ends_though_nobody_wants_it_bridges_until_another_is_available() {
    check(
        "aspire 1 | load 1
         aspire 2 | cancel 1, load 2
         loaded 1 |          | 1:available 2:loading
         loaded 2 | unload 1 | 1:unloading 2:available",
    );
}

#[test]
fn a_cancelled_load_starts_anew_when_it_is_wanted_again() {
    check(
        "aspire 1 | load 1
         aspire   | cancel 1
         aspire 1 |        | 1:loading
         failed 1 | load 1 | 1:loading
         failed 1 |        | 1:loading
         at 10    | load 1",
    );
}

#[test]
fn a_version_that_reappears_is_loaded_once_its_old_self_is_gone() {
    check(
        "aspire 1 | load 1
         loaded 1 |
         aspire   | unload 1
         aspire 1 |        | 1:unloading
         freed 1  | load 1 | 1:loading
         loaded 1 |
         aspire   | unload 1
         freed 1  |        | 1:end
         aspire 1 | load 1 | 1:loading",
    );
}

#[test]
fn a_version_that_never_began_leaves_no_trace() {
    check_with(
        Policy::ResourcePreserving,
        "aspire 1 | load 1
         loaded 1 |
         aspire 2 | unload 1 | 1:unloading 2:start
         aspire 1 |          | 1:unloading
         freed 1  | load 1   | 1:loading",
    );
}

#[test]
fn a_failed_look_changes_no_version() {
    check(
        "aspire 1   | load 1
         loaded 1   |
         lookfailed |        | 1:available",
    );
}

#[test]
fn a_model_that_leaves_the_configuration_is_unloaded_and_stays_listed() {
    check(
        "aspire 2 1 | load 2, load 1
         loaded 1   |
         leave      | cancel 2, unload 1 | 1:unloading 2:loading
         failed 2   |
         freed 1    |                    | 1:end 2:end!
         aspire 3   |                    | 1:end 2:end!
         config     |
         aspire 1   | load 1             | 1:loading 2:end!",
    );
}

#[test]
fn stopping_unloads_everything() {
    let mut bench = Bench::new(Policy::AvailabilityPreserving);
    bench.run("aspire 1 2");
    bench.run("loaded 2");
    assert_eq!(bench.run("stop"), "cancel 1, unload 2");
    assert!(!bench.machine.is_idle());
    bench.run("loaded 1");
    assert_eq!(bench.states(), "1:unloading 2:unloading");
    bench.run("freed 1");
    bench.run("freed 2");
    assert!(bench.machine.is_idle());
    let refused = bench.machine.check_config(&[], LabelRule::Available);
    assert_eq!(refused, Err(Error::Stopping));
}

#[test]
fn ended_versions_stay_listed_up_to_a_limit() {
    let mut bench = Bench::new(Policy::AvailabilityPreserving);
    for version in 0..150 {
        bench.run(&format!("aspire {version}"));
        bench.run(&format!("loaded {version}"));
        if version > 0 {
            bench.run(&format!("freed {}", version - 1));
        }
    }
    let snapshot = bench.machine.snapshot("m").unwrap();
    let ended = snapshot.versions.iter().filter(|status| status.state == State::End);
    assert_eq!(ended.count(), model::ENDED_MAX);
    assert_eq!(snapshot.versions[0].version, 149);
}

#[test]
fn gone_models_stay_listed_up_to_a_limit() {
    let mut machine = Machine::new(NEVER, Missing::Fails);
    for model in 0..150 {
        let options = Arc::new(ModelOptions::for_test(&model.to_string()));
        machine.apply(Event::Configured(vec![options]), Duration::ZERO);
        machine.check();
    }
    assert_eq!(machine.models.len(), GONE_MODELS_MAX + 1);
    assert!(machine.snapshot("0").is_none() && machine.snapshot("148").is_some());
}

#[test]
fn only_what_changed_is_published() {
    let mut bench = Bench::new(Policy::AvailabilityPreserving);
    let aspire = bench.parse("aspire 1");
    let first = bench.machine.apply(aspire.clone(), Duration::ZERO);
    assert_eq!(first[0], Order::Publish("m".into()));
    assert_eq!(bench.machine.apply(aspire, Duration::ZERO), []);
}

#[track_caller]
fn check_outcome(script: &str, expected: &str) {
    let mut bench = Bench::new(Policy::AvailabilityPreserving);
    script.split(", ").filter(|event| !event.is_empty()).for_each(|event| {
        bench.run(event);
    });
    let found = match bench.machine.outcome("m") {
        None => "open".to_owned(),
        Some(Ok(version)) => format!("available {version}"),
        Some(Err((Some(version), _))) => format!("failed {version}"),
        Some(Err((None, _))) => "no version".to_owned(),
    };
    assert_eq!(found, expected, "{script}");
}

#[test]
fn the_highest_version_that_is_available_or_failed_decides_how_a_model_fares() {
    check_outcome("", "open");
    check_outcome("aspire 1", "open");
    check_outcome("aspire 1, loaded 1", "available 1");
    check_outcome("aspire 1 2, loaded 1", "available 1");
    let failed = "failed 2, at 10, failed 2, at 20, failed 2";
    check_outcome(&format!("aspire 1 2, {failed}"), "failed 2");
    check_outcome(&format!("aspire 1 2, loaded 1, {failed}"), "failed 2");
    check_outcome("lookfailed", "no version");
    check_outcome("aspire 1, lookfailed", "open");
}

#[track_caller]
fn check_ready(models: &[&str], (all, any): (bool, bool)) {
    let mut machine = Machine::new(NEVER, Missing::Fails);
    let options = |index: usize| Arc::new(ModelOptions::for_test(&index.to_string()));
    let list = (0..models.len()).map(options).collect();
    machine.apply(Event::Configured(list), Duration::ZERO);
    for (index, state) in models.iter().enumerate() {
        let id = Id { model: index.to_string().into(), version: 1 };
        let versions = vec![aspired("1")];
        machine.apply(Event::Aspired { model: id.model.clone(), versions }, Duration::ZERO);
        let error = LoadError::new(Code::Internal, "bad");
        match *state {
            "available" => drop(machine.apply(Event::Loaded(id), Duration::ZERO)),
            "failed" => drop(machine.apply(Event::LoadFailed(id, error), Duration::ZERO)),
            _ => {}
        }
    }
    assert_eq!(machine.is_ready(StartWhen::All), all, "{models:?}");
    assert_eq!(machine.is_ready(StartWhen::Any), any, "{models:?}");
}

#[test]
fn the_server_is_ready_when_all_or_any_models_are() {
    check_ready(&[], (true, true));
    check_ready(&["loading"], (false, false));
    check_ready(&["available", "loading"], (false, true));
    check_ready(&["available", "failed"], (true, true));
    check_ready(&["failed", "failed"], (false, false));
}

#[test]
fn the_platform_of_a_model_is_fixed() {
    let bench = Bench::new(Policy::AvailabilityPreserving);
    let new = ModelOptions { platform: "other".to_owned(), ..bench.options.clone() };
    let refused = bench.machine.check_config(&[new], LabelRule::Available).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "Illegal to change a model's platform. For model m platform was tensorflow and new \
         platform requested is other"
    );
}

#[test]
fn a_label_needs_an_available_version() {
    let mut bench = Bench::new(Policy::AvailabilityPreserving);
    bench.options.labels = [("stable".to_owned(), 1)].into();
    let check = |bench: &Bench| {
        bench.machine.check_config(std::slice::from_ref(&bench.options), LabelRule::Available)
    };
    let error = check(&bench).unwrap_err();
    assert_eq!(
        error.to_string(),
        "Request to assign label to version 1 of model m, which is not currently available for \
         inference"
    );
    assert_eq!(error.code(), Code::FailedPrecondition);
    bench.run("aspire 1");
    bench.run("loaded 1");
    assert_eq!(check(&bench), Ok(()));
    bench.run("config");
    let labels = &bench.machine.snapshot("m").unwrap().labels;
    assert_eq!(labels.get("stable"), Some(&1));
}
