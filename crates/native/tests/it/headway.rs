//! A load says how far it is.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use metrics::{Headway, HeadwaySnapshot};
use native::{Executor, Opened, Options};
use pool::Pool;
use schedule::Lanes;

/// The bytes of the model's variables.
const VARIABLES_BYTES: u64 = 24_360;

/// Loads a model from a folder, and gives how far that came.
fn load(folder: &Path) -> (bool, HeadwaySnapshot) {
    let options = schedule::Options { n_lanes: 1, inline_max: Duration::ZERO, run_max: None };
    let lanes = Arc::new(Lanes::start(options).unwrap());
    let executor =
        Executor { lanes, pool: Arc::new(Pool::new(1)), device: "cpu:0".into(), pace: None };
    let options = Options { tags: vec!["serve".to_owned()], plans_max: 2 };
    let folder = storage::open(&folder.to_string_lossy()).unwrap();
    let headway = Arc::new(Headway::default());
    let opened = Opened::open(&folder, &options).unwrap().tell(Arc::clone(&headway));
    assert_eq!(headway.snapshot(), HeadwaySnapshot::default(), "nothing is read yet");
    let is_loaded = opened.load(&options, &executor, None).is_ok();
    (is_loaded, headway.snapshot())
}

#[test]
fn the_bytes_of_weights_are_told_as_they_are_read() {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/digits/1");
    let (is_loaded, headway) = load(&model);
    assert!(is_loaded);
    assert_eq!(headway.phase, "packing weights");
    // One whose last tensor is damaged stops there.
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("variables")).unwrap();
    for file in ["saved_model.pb", "variables/variables.index"] {
        std::fs::copy(model.join(file), folder.path().join(file)).unwrap();
    }
    let data = "variables/variables.data-00000-of-00001";
    let mut bytes = std::fs::read(model.join(data)).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(folder.path().join(data), bytes).unwrap();
    let (is_loaded, headway) = load(folder.path());
    assert!(!is_loaded);
    assert_eq!((headway.phase, headway.total_bytes), ("reading weights", VARIABLES_BYTES));
    assert!((1..=VARIABLES_BYTES).contains(&headway.done_bytes), "{headway:?}");
}
