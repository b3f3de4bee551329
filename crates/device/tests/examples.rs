//! Output and exit codes of the examples: other programs read them.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::path::PathBuf;
use std::process::Command;

/// A trace of three buffers: 600 bytes are live at once, and 600 are enough.
const TRACE: &str = "id,lower,upper,size\na,0,4,200\nb,1,3,400\nc,3,6,400\n";

/// The path of an example that cargo builds with the tests.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().unwrap().parent().unwrap().join("examples");
    let path = folder.join(name);
    assert!(path.is_file(), "{} is built with all tests of the crate", path.display());
    path
}

/// Runs an example on the trace; asserts which keys its line has, and whether it exits with 0.
#[track_caller]
fn check(name: &str, arguments: &str, keys: &[&str], is_ok: bool) {
    let folder = std::env::temp_dir().join(format!("tensord-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let trace = folder.join("trace.csv");
    std::fs::write(&trace, TRACE).unwrap();
    let arguments = arguments.replace("TRACE", &trace.to_string_lossy());
    let output = Command::new(example(name)).args(arguments.split_whitespace()).output().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let line = said.strip_suffix('\n').unwrap();
    assert!(!line.contains('\n'), "one line: {said}");
    let fields = line.strip_prefix('{').and_then(|line| line.strip_suffix('}')).unwrap();
    let of = |field: &str| field.split(':').next().unwrap().trim_matches('"').to_owned();
    let found: Vec<String> = fields.split(',').map(of).collect();
    if keys != ["error"] {
        assert_eq!(found, keys, "{said}");
    }
    assert_eq!(found[0] == "error", keys == ["error"], "{said}");
    assert_eq!(output.status.success(), is_ok, "{said}");
    assert!(output.status.code().is_some_and(|code| code <= 1), "{said}");
}

#[test]
fn pack_exits_with_0_if_the_height_is_within_the_capacity() {
    let keys = ["height", "lower_bound", "seconds"];
    check("pack", "TRACE 600", &keys, true);
    check("pack", "TRACE 599", &keys, false);
    check("pack", "TRACE", &["error"], false);
    check("pack", "nowhere.csv 600", &["error"], false);
}

#[test]
fn replay_exits_with_0_if_nothing_failed() {
    let keys = ["peak_live", "peak_held", "ns_per_op"];
    check("replay", "TRACE", &keys, true);
    check("replay", "TRACE --limit 1000000", &keys, true);
    check("replay", "TRACE --limit 100", &["error"], false);
    check("replay", "TRACE --threads 2", &keys, true);
    // What is held is far from the goal where no less than so much can be.
    check("replay", "TRACE --granule 16777216", &keys, true);
    check("replay", "TRACE --granule 16777216 --goal", &keys, false);
}

#[test]
fn grow_exits_with_0_unless_its_goal_is_asked_for_and_missed() {
    let keys =
        ["worst_micros", "worst_once_micros", "noise_micros", "median_micros", "bookkeeping"];
    // Of pieces as small the books are more than their share.
    let small = "--bytes 1048576 --step 4096 --rounds 1";
    check("grow", small, &keys, true);
    check("grow", &format!("{small} --goal"), &keys, false);
    check("grow", "--size 3", &["error"], false);
}
