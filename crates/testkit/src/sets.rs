//! Tests that hold with every instruction set: a process uses one, so each other set gets a process
//! of its own, which runs some tests of the same binary again.

use std::process::Command;

/// Names the instruction set that a process should use.
const ASKED: &str = "TENSORD_TEST_INSTRUCTION_SET";

/// Lets `choose` take the instruction set that this process was started for, if it was.
///
/// # Panics
/// If `choose` says that the set is not in use then.
pub fn use_asked(choose: impl Fn(&str) -> bool) {
    if let Some(set) = std::env::var_os(ASKED) {
        assert!(choose(&set.to_string_lossy()), "{set:?} is not to be had");
    }
}

/// Runs the tests of this binary that `tests` name again, with each of these instruction sets.
///
/// # Panics
/// If one of them fails, or is not there.
pub fn run_again(sets: impl IntoIterator<Item = &'static str>, tests: &[&str]) {
    for set in sets {
        let mut again = Command::new(std::env::current_exe().expect("a test has a binary"));
        again.arg("--exact").args(tests).env(ASKED, set);
        let done = again.output().expect("it starts");
        let text = String::from_utf8_lossy(&done.stdout);
        let passed = format!("{} passed", tests.len());
        assert!(done.status.success() && text.contains(&passed), "{set}: {text}");
    }
}
