//! A checkpoint that has other shapes than the graph says: signatures that can use the values are
//! served, as in TensorFlow, and the others are refused with the reason.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use device::Workspace;
use native::{Executor, Loaded, Options};
use pool::Pool;
use schedule::Lanes;
use session::Run;
use status::{Code, Status};
use tensor::{Shape, Tensor};

fn load(model: &str) -> Loaded {
    let options = schedule::Options { n_lanes: 1, inline_max: Duration::ZERO, run_max: None };
    let lanes = Arc::new(Lanes::start(options).unwrap());
    let executor =
        Executor { lanes, pool: Arc::new(Pool::new(1)), device: "cpu:0".into(), pace: None };
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/models").join(model);
    let folder = storage::open(&dir.join("1").to_string_lossy()).unwrap();
    let options = Options { tags: vec!["serve".to_owned()], plans_max: 2 };
    native::load(&folder, &options, &executor).unwrap()
}

/// Runs a signature on a row of 1, 2 and 3.
fn run(loaded: &Loaded, signature: &str) -> Result<Vec<f32>, Status> {
    loaded.servable.signature(signature).unwrap()?;
    let run = Run {
        signature: signature.to_owned(),
        inputs: vec![Tensor::from_slice(Shape::of(&[1, 3]), &[1f32, 2., 3.]).unwrap()],
        outputs: vec![0],
        deadline: None,
        level: None,
        is_cancelled: Arc::default(),
    };
    let outputs = loaded.engine.run(&run, &mut Workspace::allocate(0).unwrap())?;
    Ok(outputs[0].as_slice::<f32>().to_vec())
}

#[test]
fn a_checkpoint_that_does_not_fit_one_signature_serves_the_others() {
    let loaded = load("tf2_other_shapes");
    assert_eq!(run(&loaded, "fits").unwrap(), [3., 8., 15.]);
    assert_eq!(run(&loaded, "broadcast").unwrap(), [3., 6., 9.]);
    for signature in ["unfit", "unfit_rank"] {
        let error = run(&loaded, signature).unwrap_err();
        assert_eq!(error.code, Code::InvalidArgument, "{signature}: {error:?}");
    }
}
