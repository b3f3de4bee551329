//! Loads and runs a model in a space of its own, to compare what it takes with what was predicted.

use std::sync::Arc;
use std::time::Duration;

use device::{Holder, Owner, Space, Workspace};
use pool::Pool;
use schedule::Lanes;
use session::Run;
use status::{Result, Status};
use storage::Storage;
use tensor::{DType, Shape, Tensor};

use crate::rehearsal::owner_in;
use crate::{Batch, Executor, Need, Opened, Options, Rehearsal, Sizes};

/// A figure as it was predicted, and as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Measured {
    /// The quantity measured: `weights`, `packed_weights`, `resident`, `load`, or `batch N`, with
    /// the length of open sizes after an `x` if it is not 1.
    pub what: String,
    /// The bytes predicted by the rehearsal.
    pub predicted_bytes: u64,
    /// The bytes measured.
    pub measured_bytes: u64,
    /// `true` if every size was known beforehand.
    pub is_static: bool,
}

/// Rehearses the SavedModel in `dir`, loads it on a device of its own, and runs its default
/// signature (or its first) on made-up batches of these sizes. Batches whose inputs cannot be made
/// up are left out. What is held of the host beside a GPU has rows of its own, `host …`.
pub fn measure(
    dir: &Storage,
    batches: &[Sizes],
    pool: &Arc<Pool>,
    kind: device::Kind,
) -> Result<Vec<Measured>> {
    let options = Options { tags: vec!["serve".to_owned()], plans_max: batches.len().max(1) };
    let memory = |error: device::Error| Status::exhausted(error.to_string());
    let rehearsal = Opened::open(dir, &options)?.rehearse(&options, pool, kind)?;
    let owner = owner_alone(kind).map_err(memory)?;
    let lanes =
        Lanes::start(schedule::Options { n_lanes: 1, inline_max: Duration::ZERO, run_max: None });
    let lanes = Arc::new(lanes.map_err(|error| Status::internal(error.to_string()))?);
    let (pool, device) = (Arc::clone(pool), Arc::from("cpu:0"));
    let executor = Executor { lanes, pool, device, pace: None };
    let opened = Opened::open(dir, &options)?;
    let loaded = opened.load(&options, &executor, Some(Arc::clone(&owner)))?;

    let mut rows = of_load(&rehearsal.need(), &owner);
    let mut workspace = Workspace::for_owner(server_beside(&owner)).map_err(memory)?;
    let mut runs = Runs { rehearsal: &rehearsal, owner: &owner, plans: 0, work: 0 };
    for sizes in batches {
        let Some(batch) = rehearsal.batch(None, *sizes)? else { break };
        let n_outputs = rehearsal.signatures()[&batch.signature].outputs.len();
        let Some(run) = made_up_run(&batch, n_outputs) else { break };
        // The first run makes the plan; what made-up inputs cannot be run on is left out.
        if loaded.engine.run(&run, &mut workspace).is_err() {
            break;
        }
        owner.space().books().reset_peak();
        loaded.engine.run(&run, &mut workspace)?;
        rows.push(runs.row(&batch, *sizes)?);
    }
    Ok(rows)
}

/// The predictions for a load, and the bytes that it then took.
fn of_load(need: &Need, owner: &Arc<Owner>) -> Vec<Measured> {
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
    let space = owner.space();
    let mut rows = vec![
        row("weights", need.weights_bytes, of(device::Category::Weights)),
        row("packed_weights", need.packed_bytes, of(device::Category::PackedWeights)),
        row("resident", need.resident_bytes(), space.books().in_use_bytes()),
        row("load", need.load_peak_bytes, space.books().peak_in_use_bytes()),
    ];
    if owner.is_split() {
        let host = owner.host().space();
        rows.push(row("host resident", need.host_bytes, host.books().in_use_bytes()));
        rows.push(row("host load", need.host_peak_bytes, host.books().peak_in_use_bytes()));
    }
    rows
}

/// The runs so far: what is kept of their plans, and the largest workspace.
struct Runs<'a> {
    rehearsal: &'a Rehearsal,
    owner: &'a Owner,
    plans: u64,
    work: u64,
}

impl Runs<'_> {
    fn row(&mut self, batch: &Batch, sizes: Sizes) -> Result<Measured> {
        let predicted = self.rehearsal.plan(&batch.signature, &batch.inputs)?;
        self.plans += predicted.plan_bytes;
        self.work = predicted.work_bytes.max(self.work);
        let length = match sizes.length {
            1 => String::new(),
            length => format!(" x {length}"),
        };
        let resident = self.rehearsal.need().resident_bytes();
        Ok(Measured {
            what: format!("batch {}{length}", sizes.rows),
            predicted_bytes: resident + self.plans + self.work + predicted.dynamic_bytes,
            measured_bytes: self.owner.space().books().peak_in_use_bytes(),
            is_static: predicted.is_static,
        })
    }
}

/// An owner on a device of its own, which has no limit; on a GPU, with a host beside it.
pub fn owner_alone(kind: device::Kind) -> device::Result<Arc<Owner>> {
    owner_in(kind, Space::new)
}

/// The server, on the devices of an owner.
pub fn server_beside(owner: &Arc<Owner>) -> Arc<Owner> {
    let host = Owner::new(owner.host().space(), Holder::Server, None);
    match owner.is_split() {
        true => Owner::beside(host, owner.space(), Holder::Server, None),
        false => host,
    }
}

/// A run of a batch with made-up inputs, of which all outputs are wanted; `None` if none can be
/// made up.
pub fn made_up_run(batch: &Batch, n_outputs: usize) -> Option<Run> {
    Some(Run {
        signature: batch.signature.clone(),
        inputs: batch.inputs.iter().map(made_up).collect::<Option<_>>()?,
        outputs: (0..n_outputs).collect(),
        deadline: None,
        level: None,
        is_cancelled: Arc::default(),
    })
}

/// A tensor of this dtype and shape; `None` if none can be made up.
pub fn made_up((dtype, shape): &(DType, Shape)) -> Option<Tensor> {
    let (n, shape) = (shape.n_elements(), shape.clone());
    match dtype {
        DType::String => Tensor::zeros(DType::String, shape).ok(),
        DType::I32 => Tensor::from_slice(shape, &vec![1i32; n]).ok(),
        DType::I64 => Tensor::from_slice(shape, &vec![1i64; n]).ok(),
        dtype if dtype.is_plain() => Tensor::zeros(*dtype, shape).ok(),
        _ => None,
    }
}
