//! `Rehearsal`: a load without the weights, to learn what it takes.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::{Category, Driver, Holder, Host, Limited, Owner, Simulated, Space, SpaceOptions};
use graph::{Plan, Room};
use ops::Cancel;
use pool::Pool;
use session::{DEFAULT_SIGNATURE, Signature};
use status::{Result, Status};
use tensor::{DType, Shape};

use crate::engine::Model;
use crate::fitting::enough;
use crate::programs::{Inputs, ProgramPick};

/// A version that was loaded as ever, in a space where bytes are counted but not written: what is
/// read of the checkpoint is its index, and small values that decisions hang on. All figures are
/// those of a load of the same version alone, to the byte.
#[derive(Debug)]
pub struct Rehearsal {
    model: Model,
    signatures: BTreeMap<String, Arc<Signature>>,
    pool: Arc<Pool>,
    owner: Arc<Owner>,
    load_peak_bytes: u64,
    host_peak_bytes: u64,
}

/// The bytes that a version takes while it is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    /// Weights as they are in the checkpoint, and other constants.
    pub weights_bytes: u64,
    /// Weights in the form their kernels want.
    pub packed_bytes: u64,
    /// Everything else that stays.
    pub other_bytes: u64,
    /// The most that is held at once while it is loaded.
    pub load_peak_bytes: u64,
    /// The bytes that stay on the host, where that is another device: strings and tables.
    pub host_bytes: u64,
    /// The most that is held there at once while it is loaded.
    pub host_peak_bytes: u64,
}

impl Need {
    /// The bytes that stay while the version is loaded.
    pub fn resident_bytes(&self) -> u64 {
        self.weights_bytes + self.packed_bytes + self.other_bytes
    }
}

/// The bytes that a run takes besides those that stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlanNeed {
    /// The workspace of the lane it runs on, which all models on that lane share.
    pub work_bytes: u64,
    /// The bytes that are kept of the plan itself.
    pub plan_bytes: u64,
    /// Results, and other tensors outside the workspace, as far as their sizes are known.
    pub dynamic_bytes: u64,
    /// The bytes that the run takes of the host, where that is another device: its workspace there,
    /// results, and the kept part of the plan.
    pub host_bytes: u64,
    /// `true` if all sizes are known before the run.
    pub is_static: bool,
    /// `true` if the run takes as little only because of a search.
    pub is_searched: bool,
}

impl Rehearsal {
    pub(crate) fn new(
        model: Model,
        signatures: BTreeMap<String, Arc<Signature>>,
        pool: &Arc<Pool>,
        owner: Arc<Owner>,
    ) -> Self {
        let load_peak_bytes = owner.space().books().peak_in_use_bytes();
        let is_split = owner.is_split();
        let host_peak_bytes =
            if is_split { owner.host().space().books().peak_in_use_bytes() } else { 0 };
        let pool = Arc::clone(pool);
        Self { model, signatures, pool, owner, load_peak_bytes, host_peak_bytes }
    }

    /// The bytes that the version takes while it is loaded.
    pub fn need(&self) -> Need {
        let of = |wanted: Category| {
            let all = self.owner.categories();
            all.iter().filter(|(category, _)| *category == wanted).map(|(_, bytes)| *bytes).sum()
        };
        let weights_bytes = of(Category::Weights);
        let packed_bytes: u64 = of(Category::PackedWeights);
        Need {
            weights_bytes,
            packed_bytes,
            other_bytes: self.owner.bytes() - weights_bytes - packed_bytes - of(Category::Plans),
            load_peak_bytes: self.load_peak_bytes,
            host_bytes: self.host_bytes(),
            host_peak_bytes: self.host_peak_bytes,
        }
    }

    /// The bytes held of the host, where that is another device; plans are counted at the call that
    /// asks for them.
    fn host_bytes(&self) -> u64 {
        if !self.owner.is_split() {
            return 0;
        }
        let all = self.owner.host().categories();
        let stays = all.iter().filter(|(category, _)| *category != Category::Plans);
        stays.map(|(_, bytes)| *bytes).sum()
    }

    /// The signatures.
    pub fn signatures(&self) -> &BTreeMap<String, Arc<Signature>> {
        &self.signatures
    }

    /// The bytes that a run of a signature takes with inputs of these dtypes and shapes.
    pub fn plan(&self, signature: &str, inputs: &[(DType, Shape)]) -> Result<PlanNeed> {
        let host = |owner: &Arc<Owner>| if owner.is_split() { owner.host().bytes() } else { 0 };
        let before = (self.owner.bytes(), host(&self.owner));
        let pick = ProgramPick { signature, inputs: Inputs::Shapes(inputs) };
        let plan = self
            .model
            .with(pick, &Cancel::default(), &self.pool, |program, env| program.plan(inputs, env))?;
        let mut need = PlanNeed::of(&plan, self.owner.bytes() - before.0);
        need.host_bytes += host(&self.owner) - before.1;
        Ok(need)
    }

    /// The same where the version as a whole, loaded and running, may take no more than `room`: if
    /// offsets that are found at once take more, others are searched for.
    pub fn plan_within(&self, batch: &Batch, room: Room) -> Result<PlanNeed> {
        let Batch { signature, inputs } = batch;
        let need = self.plan(signature, inputs)?;
        let stays = self.need();
        let room = Room {
            device_bytes: room.device_bytes.saturating_sub(stays.resident_bytes()),
            host_bytes: room.host_bytes.saturating_sub(stays.host_bytes),
        };
        if need.total_bytes() <= room.device_bytes && need.host_bytes <= room.host_bytes {
            return Ok(need);
        }
        let pick = ProgramPick { signature, inputs: Inputs::Shapes(inputs) };
        let cancel = Cancel::default();
        let lower = self.model.with(pick, &cancel, &self.pool, |program, env| {
            let plan = program.plan(inputs, env)?;
            let kept = need.host_bytes - PlanNeed::of(&plan, 0).host_bytes;
            let left = Room {
                device_bytes: room.device_bytes.saturating_sub(need.plan_bytes),
                host_bytes: room.host_bytes.saturating_sub(kept),
            };
            let lower = program.lowered(plan, env, &left, &mut enough(&cancel))?;
            let mut lower = PlanNeed::of(&lower, need.plan_bytes);
            lower.host_bytes += kept;
            Ok(lower)
        })?;
        Ok(PlanNeed { is_searched: lower != need, ..lower })
    }

    /// The inputs that a batch of a signature has, with these sizes where it leaves them open; the
    /// default signature, or the first, without a name. `None` if an input's number of dimensions
    /// is not known.
    pub fn batch(&self, signature: Option<&str>, sizes: Sizes) -> Result<Option<Batch>> {
        let name = match signature {
            Some(name) => name.to_owned(),
            None if self.signatures.contains_key(DEFAULT_SIGNATURE) => DEFAULT_SIGNATURE.to_owned(),
            None => self.signatures.keys().next().cloned().unwrap_or_default(),
        };
        let unknown = || Status::not_found(format!("no signature is called {name}"));
        let signature = self.signatures.get(&name).ok_or_else(unknown)?;
        let mut inputs = Vec::with_capacity(signature.inputs.len());
        for endpoint in signature.inputs.values() {
            let Some(dims) = endpoint.spec.dims() else { return Ok(None) };
            let size = |(i, dim): (usize, &tensor::Dim)| {
                dim.size().unwrap_or(if i == 0 { sizes.rows } else { sizes.length })
            };
            let dims: Vec<usize> = dims.iter().enumerate().map(size).collect();
            inputs.push((endpoint.spec.dtype, Shape::of(&dims)));
        }
        Ok(Some(Batch { signature: name, inputs }))
    }
}

/// The sizes that a signature leaves open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// The rows of a batch.
    pub rows: usize,
    /// All others, such as the length of sequences.
    pub length: usize,
}

impl Sizes {
    /// So many rows, with 1 for all others.
    pub fn of_rows(rows: usize) -> Self {
        Self { rows, length: 1 }
    }
}

/// The inputs of a run.
#[derive(Debug, Clone)]
pub struct Batch {
    /// The signature.
    pub signature: String,
    /// The dtype and shape of each of its inputs.
    pub inputs: Vec<(DType, Shape)>,
}

impl PlanNeed {
    /// The bytes that a run that follows a plan takes, if `plan_bytes` are kept of the plan.
    pub fn of(plan: &Plan, plan_bytes: u64) -> Self {
        Self {
            work_bytes: plan.work_bytes() as u64,
            plan_bytes,
            dynamic_bytes: plan.dynamic_bytes() as u64,
            host_bytes: (plan.host_work_bytes() + plan.host_dynamic_bytes()) as u64,
            is_static: plan.is_static(),
            is_searched: false,
        }
    }

    /// All of it on the device.
    pub fn total_bytes(&self) -> u64 {
        self.work_bytes + self.plan_bytes + self.dynamic_bytes
    }
}

/// The memory of a device of a kind, without any limit.
pub(crate) fn unlimited(kind: device::Kind) -> SpaceOptions {
    const NO_LIMIT: u64 = u64::MAX >> 1;
    let (name, driver): (&str, Arc<dyn Driver>) = match kind {
        device::Kind::Cpu => ("cpu:0", Arc::new(Host::new("cpu:0", NO_LIMIT))),
        device::Kind::Gpu => ("gpu:0", Arc::new(Simulated::gpu("gpu:0", NO_LIMIT))),
    };
    let driver = Arc::new(Limited::new(driver, name, NO_LIMIT));
    let physical = Arc::clone(driver.account());
    let growth = device::logical::GrowthRule::OnDemand;
    SpaceOptions { driver, physical, growth, step_bytes: 1, context_bytes: 0 }
}

/// The owner that a rehearsal for devices of a kind is booked to.
pub(crate) fn rehearsal_owner(kind: device::Kind) -> device::Result<Arc<Owner>> {
    owner_in(kind, Space::rehearsal)
}

/// An owner of memory of a kind; on a GPU, with a host beside it.
pub(crate) fn owner_in(
    kind: device::Kind,
    space: impl Fn(SpaceOptions) -> device::Result<Arc<Space>>,
) -> device::Result<Arc<Owner>> {
    let holder = Holder::Version { model: Arc::from("model"), version: 1 };
    let host = Owner::new(&space(unlimited(device::Kind::Cpu))?, holder.clone(), None);
    Ok(match kind {
        device::Kind::Cpu => host,
        device::Kind::Gpu => Owner::beside(host, &space(unlimited(kind))?, holder, None),
    })
}
