use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use status::Code;

use super::*;
use crate::versions::VersionPolicy;

/// Version folders by name, or the word `gone` for a missing base path. Listings that follow each
/// other stand between slashes, the last for all that come after.
struct Fake {
    listings: Mutex<Vec<String>>,
    n_checks: Arc<AtomicUsize>,
}

impl Fake {
    fn new(listings: &str) -> Box<Self> {
        Self::counting(listings, &Arc::default())
    }

    /// One that counts how often files are checked.
    fn counting(listings: &str, n_checks: &Arc<AtomicUsize>) -> Box<Self> {
        let listings = listings.split('/').rev().map(str::to_owned).collect();
        Box::new(Self { listings: Mutex::new(listings), n_checks: Arc::clone(n_checks) })
    }

    fn now(&self) -> String {
        self.listings.lock().unwrap().last().unwrap().clone()
    }
}

/// The time of all looks.
const NOW: Duration = Duration::from_secs(1000);

impl Source for Fake {
    fn list(&self, _: &str) -> Result<Vec<Child>, LoadError> {
        let now = self.now();
        let mut listings = self.listings.lock().unwrap();
        if listings.len() > 1 {
            listings.pop();
        }
        if now.trim() == "gone" {
            return Err(LoadError::new(Code::NotFound, "no such folder"));
        }
        let name = |word: &str| Child { name: split(word).0.to_owned(), is_folder: true };
        Ok(now.split_whitespace().map(name).collect())
    }

    fn tree(&self, path: &str) -> Result<Tree, LoadError> {
        let wanted = path.rsplit('/').next().unwrap();
        let now = self.now();
        let word = now.split_whitespace().find(|word| split(word).0 == wanted);
        let word = word.unwrap_or_else(|| panic!("{path} was not listed"));
        let marks = split(word).2;
        if marks.contains('x') {
            return Err(LoadError::new(Code::PermissionDenied, "may not"));
        }
        let age = if marks.contains('~') { 0 } else { 60 };
        let names = if marks.contains('?') { vec![] } else { vec!["model.pb".to_owned()] };
        let modified = SystemTime::UNIX_EPOCH + NOW - Duration::from_secs(age);
        Ok(Tree { fingerprint: split(word).1, modified, names })
    }

    fn check(&self, path: &str) -> Result<(), LoadError> {
        let wanted = path.rsplit('/').next().unwrap();
        let now = self.now();
        let word = now.split_whitespace().find(|word| split(word).0 == wanted);
        let marks = word.map_or("", |word| split(word).2);
        self.n_checks.fetch_add(1, Ordering::Relaxed);
        match marks {
            "!" => Err(LoadError::new(Code::NotFound, "no index")),
            "%" => Err(LoadError::new(Code::Unavailable, "the disk fails")),
            _ => Ok(()),
        }
    }
}

/// `version@fingerprint`, then `~` if it changed just now, `?` if it is not complete, `x` if it
/// cannot be read, `!` if a file is missing, `%` if the disk fails.
fn split(word: &str) -> (&str, u64, &str) {
    let (word, marks) = word.split_at(word.find(['~', '?', 'x', '!', '%']).unwrap_or(word.len()));
    let (name, fingerprint) = word.split_once('@').unwrap_or((word, "0"));
    (name, fingerprint.parse().unwrap(), marks)
}

fn options(poll: Poll) -> Options {
    Options {
        poll,
        settle: Duration::from_secs(1),
        complete_with: vec!["model.pb".to_owned()],
        n_looks_max: 1,
        look_timeout: Duration::from_secs(1),
        n_load_threads: 1,
        n_unload_threads: 1,
        load_retries_max: 0,
        load_retry_rule: crate::options::RetryRule::All,
        load_retry_first: Duration::ZERO,
        load_retry_interval: Duration::ZERO,
        missing: crate::options::Missing::Fails,
        label_rule: crate::options::LabelRule::Available,
        start_when: crate::options::StartWhen::All,
    }
}

/// Each look is `folders | taken | aspired`; a look that fails shows its code.
#[track_caller]
fn check(poll: Poll, versions: VersionPolicy, looks: &[&str]) {
    let model = ModelOptions { versions, ..ModelOptions::for_test("m") };
    check_model(poll, &model, looks);
}

/// The same for any model; gives the number of times that files were checked.
#[track_caller]
fn check_model(poll: Poll, model: &ModelOptions, looks: &[&str]) -> usize {
    let mut memory = Memory::default();
    let n_checks = Arc::default();
    for text in looks {
        let mut parts = text.split('|').map(str::trim);
        let mut part = || parts.next().unwrap();
        let looker = Looker::new(Fake::counting(part(), &n_checks), &options(poll));
        let taken: Vec<i64> = part().split_whitespace().map(|word| word.parse().unwrap()).collect();
        let now = SystemTime::UNIX_EPOCH + NOW;
        let found = match looker.look(model, &taken, &mut memory, now) {
            Err(error) => error.status.code.name().to_owned(),
            Ok(look) => {
                let aspired: Vec<String> =
                    look.aspired.iter().map(|aspired| aspired.version.to_string()).collect();
                aspired.join(" ")
            }
        };
        assert_eq!(found, part(), "{text}");
    }
    n_checks.load(Ordering::Relaxed)
}

const EVERY: Poll = Poll::Every(Duration::from_secs(1));

fn latest(n: u32) -> VersionPolicy {
    VersionPolicy::Latest(n)
}

#[test]
fn a_complete_version_at_rest_is_taken_at_the_first_look() {
    check(EVERY, latest(1), &["1@1 2@1 | | 2"]);
}

#[test]
fn what_changed_just_now_is_left_for_the_next_look() {
    check(EVERY, latest(1), &["1@1~ | | ", "1@1~ | | 1"]);
    check(EVERY, latest(1), &["1@1? | | ", "1@1? | | 1"]);
}

#[test]
fn an_older_version_stands_in_for_one_not_at_rest() {
    check(EVERY, latest(1), &["1@1 2@1~ | | 1", "1@1 2@2~ | 1 | 1", "1@1 2@2 | 1 | 2"]);
}

#[test]
fn a_version_that_appears_later_must_be_the_same_twice() {
    check(
        EVERY,
        latest(1),
        &["1 | | 1", "1 2@1 | 1 | 1", "1 2@2 | 1 | 1", "1 2@2 | 1 | 2", "2@2 | 2 | 2"],
    );
}

#[test]
fn what_serves_stays_while_its_successor_is_written_though_its_files_are_gone() {
    check(EVERY, latest(1), &["1 | | 1", "2@1 | 1 | 1", "2@1 | 1 | 2"]);
    check(EVERY, latest(1), &["1 | | 1", "| 1 | "]);
}

#[test]
fn a_folder_that_is_renamed_while_it_is_listed_is_not_gone() {
    check(EVERY, latest(1), &["1 | | 1", " / 2@1 | 1 | 1", "2@1 | 1 | 2"]);
    check(EVERY, latest(1), &["1 2 | | 2", "1 / 1 3@1 | 2 | 2", "1 3@1 | 2 | 3"]);
    check(EVERY, latest(1), &["1 | | 1", " / gone | 1 | NOT_FOUND", " / 1 | 1 | 1"]);
}

#[test]
fn versions_that_come_and_go_at_every_look_change_nothing() {
    let flapping = ["1 | | 1", "2@1 | 1 | 1", "1 | 1 | 1", "2@1 | 1 | 1", "1 | 1 | 1"];
    check(EVERY, latest(1), &flapping);
}

#[test]
fn a_failed_version_that_changes_is_left_until_it_rests() {
    check(EVERY, latest(1), &["1@1 | | 1", "1@1 | | 1", "1@2 | | ", "1@2 | | 1"]);
}

#[test]
fn a_version_that_failed_to_load_is_still_at_rest() {
    check(EVERY, latest(1), &["1@5 | | 1", "1@5 | 1 | 1", "1@5 | | 1", "1@6 | | ", "1@6 | | 1"]);
}

#[test]
fn several_versions_are_taken_each_by_itself() {
    check(EVERY, latest(2), &["1 2 3@1~ | | 2 1", "1 2 3@1~ | 1 2 | 3 2"]);
    check(EVERY, VersionPolicy::All, &["1 2@1~ 3 | | 3 1", "1 2@1 3 | 1 3 | 3 2 1"]);
    check(EVERY, VersionPolicy::Specific(vec![1, 9]), &["1 2 3 | | 1"]);
}

#[test]
fn a_single_look_takes_everything() {
    check(Poll::Once, latest(1), &["1@1 2@1~? | | 2"]);
}

#[test]
fn a_look_that_fails_is_not_a_look_that_finds_nothing() {
    check(EVERY, latest(1), &["gone | | NOT_FOUND", "1 | | 1", "gone | 1 | NOT_FOUND", "| 1 | "]);
}

#[test]
fn a_version_that_cannot_be_read_does_not_hide_the_others() {
    check(EVERY, latest(1), &["1 2x | | 1", "2x | | PERMISSION_DENIED", "2x | 1 | 1"]);
}

#[test]
fn what_serves_is_given_up_first_only_for_a_version_whose_files_are_there() {
    let policy = Policy::ResourcePreserving;
    let model = ModelOptions { policy, versions: latest(1), ..ModelOptions::for_test("m") };
    let half = ["1 | | 1", "1 2@1! | 1 | 1", "1 2@1! | 1 | 1", "1 2@1! | 1 | 1"];
    let mended = ["1 2@2 | 1 | 1", "1 2@2 | 1 | 2", "1 2@2 | 2 | 2"];
    // Once for each fingerprint that was at rest.
    assert_eq!(check_model(EVERY, &model, &[&half[..], &mended].concat()), 2);
    // A disk that fails is asked again.
    let disk = ["1 | | 1", "1 2@1% | 1 | 1", "1 2@1% | 1 | 1", "1 2@1 | 1 | 2"];
    assert_eq!(check_model(EVERY, &model, &disk), 2);
    // The old version is not even there any more: it serves on.
    check_model(EVERY, &model, &["1 | | 1", "2@1! | 1 | 1", "2@1! | 1 | 1"]);
    // With nothing to lose, the load itself finds out.
    assert_eq!(check_model(EVERY, &model, &["2@1! | | 2"]), 0);
    let both = ModelOptions { policy: Policy::AvailabilityPreserving, ..model };
    assert_eq!(check_model(EVERY, &both, &["1 | | 1", "1 2@1! | 1 | 1", "1 2@1! | 1 | 2"]), 0);
}

#[test]
fn a_warning_is_given_once() {
    let model = ModelOptions { versions: latest(1), ..ModelOptions::for_test("m") };
    let mut memory = Memory::default();
    let now = SystemTime::UNIX_EPOCH + NOW;
    let mut n_warnings = |folders: &str| {
        let looker = Looker::new(Fake::new(folders), &options(EVERY));
        looker.look(&model, &[], &mut memory, now).unwrap().warnings.len()
    };
    assert_eq!(n_warnings("1 1.5"), 1);
    assert_eq!(n_warnings("1 1.5"), 0);
    assert_eq!(n_warnings("1"), 0);
    assert_eq!(n_warnings("1 01"), 1);
}
