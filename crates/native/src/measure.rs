//! Loads and runs a model in a space of its own, to compare what it takes with what was predicted.

use std::sync::Arc;
use std::time::Duration;

use device::{Driver, Holder, Host, Limited, Owner, Space, SpaceOptions, Workspace};
use pool::Pool;
use schedule::Lanes;
use session::{Error, Result, Run};
use storage::Storage;
use tensor::{DType, Shape, Strings, Tensor};

use crate::{Executor, Opened, Options};

/// A figure as it was predicted, and as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Measured {
    /// What was measured: `weights`, `packed_weights`, `resident`, `load`, or `batch N`.
    pub what: String,
    /// What the rehearsal said.
    pub predicted_bytes: u64,
    /// What it was.
    pub measured_bytes: u64,
    /// Whether every size was known beforehand.
    pub is_static: bool,
}

/// Rehearses the SavedModel in `dir`, loads it on a host of its own, and runs its default signature
/// (or its first) on made-up batches of these sizes. Batches whose inputs cannot be made up are
/// left out.
pub fn measure(dir: &Storage, batches: &[usize], pool: &Arc<Pool>) -> Result<Vec<Measured>> {
    let options = Options { tags: vec!["serve".to_owned()], plans_max: batches.len().max(1) };
    let memory = |error: device::Error| Error::ResourceExhausted(error.to_string());
    let rehearsal = Opened::open(dir, &options)?.rehearse(&options, pool, device::Kind::Cpu)?;
    let need = rehearsal.need();

    let space = host().map_err(memory)?;
    let holder = Holder::Version { model: Arc::from("model"), version: 1 };
    let owner = Owner::new(&space, holder, None);
    let lanes = Lanes::start(schedule::Options { n_lanes: 1, inline_max: Duration::ZERO });
    let lanes = Arc::new(lanes.map_err(|error| Error::Internal(error.to_string()))?);
    let (pool, device) = (Arc::clone(pool), Arc::from("cpu:0"));
    let executor = Executor { lanes, pool, device, pace: None };
    let opened = Opened::open(dir, &options)?;
    let loaded = opened.load(&options, &executor, Some(Arc::clone(&owner)))?;

    let of = |wanted: device::Category| {
        let all = owner.categories();
        all.iter().filter(|(category, _)| *category == wanted).map(|(_, bytes)| *bytes).sum::<u64>()
    };
    let row = |what: &str, predicted_bytes, measured_bytes| Measured {
        what: what.to_owned(),
        predicted_bytes,
        measured_bytes,
        is_static: true,
    };
    let mut rows = vec![
        row("weights", need.weights_bytes, of(device::Category::Weights)),
        row("packed_weights", need.packed_bytes, of(device::Category::PackedWeights)),
        row("resident", need.resident_bytes(), space.in_use_bytes()),
        row("load", need.load_peak_bytes, space.peak_in_use_bytes()),
    ];
    let server = Owner::new(&space, Holder::Server, None);
    let mut workspace = Workspace::of(server).map_err(memory)?;
    let (mut plans, mut work) = (0, 0);
    for n_rows in batches {
        let Some(batch) = rehearsal.batch(None, *n_rows)? else { break };
        let Some(inputs) = batch.inputs.iter().map(made_up).collect() else { break };
        let predicted = rehearsal.plan(&batch.signature, &batch.inputs)?;
        plans += predicted.plan_bytes;
        work = predicted.work_bytes.max(work);
        let n_outputs = rehearsal.signatures()[&batch.signature].outputs.len();
        let run = Run {
            signature: batch.signature,
            inputs,
            outputs: (0..n_outputs).collect(),
            deadline: None,
            is_cancelled: Arc::default(),
            level: None,
        };
        // The first run makes the plan; what made-up inputs cannot be run on is left out.
        if loaded.engine.run(&run, &mut workspace).is_err() {
            break;
        }
        space.reset_peak();
        loaded.engine.run(&run, &mut workspace)?;
        rows.push(Measured {
            what: format!("batch {n_rows}"),
            predicted_bytes: need.resident_bytes() + plans + work + predicted.dynamic_bytes,
            measured_bytes: space.peak_in_use_bytes(),
            is_static: predicted.is_static,
        });
    }
    Ok(rows)
}

fn host() -> device::Result<Arc<Space>> {
    const NO_LIMIT: u64 = u64::MAX >> 1;
    let host = Arc::new(Host::new("cpu:0", NO_LIMIT)) as Arc<dyn Driver>;
    let driver = Arc::new(Limited::new(host, "cpu:0", NO_LIMIT));
    let physical = Arc::clone(driver.account());
    let growth = device::logical::GrowthRule::OnDemand;
    Space::new(SpaceOptions { driver, physical, growth, step_bytes: 1 << 20 })
}

/// A tensor of this dtype and shape; `None` if none can be made up.
fn made_up((dtype, shape): &(DType, Shape)) -> Option<Tensor> {
    let (n, shape) = (shape.n_elements(), shape.clone());
    match dtype {
        DType::String => Tensor::from_strings(shape, Strings::repeated(b"", n)).ok(),
        DType::I32 => Tensor::from_slice(shape, &vec![1i32; n]).ok(),
        DType::I64 => Tensor::from_slice(shape, &vec![1i64; n]).ok(),
        dtype if dtype.is_plain() => Tensor::zeros(*dtype, shape).ok(),
        _ => None,
    }
}
