//! Replays the inputs of a fuzz target that are kept in `testdata/fuzz/<target>/`. The tests of the
//! crates whose parsers are fuzzed share it.

use std::fs;
use std::path::Path;

/// Runs a target on each of its inputs. The test's output names the input that was tried last.
#[track_caller]
pub(super) fn replay(target: &str, run: impl Fn(&[u8])) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = root.join("testdata/fuzz").join(target);
    let mut n_inputs = 0;
    for entry in fs::read_dir(&folder).expect("the target has a folder of inputs") {
        let path = entry.expect("a readable folder").path();
        eprintln!("{}", path.display());
        run(&fs::read(path).expect("a readable file"));
        n_inputs += 1;
    }
    assert!(n_inputs > 0, "{}: no inputs", folder.display());
}
