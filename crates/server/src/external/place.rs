//! Which GPU a model's worker sees, whether there is room for it there, and what TensorFlow is
//! told.

use std::sync::Arc;

use device::logical::GrowthRule;
use device::placement::Replicas;
use proto::serving::ModelConfig;
use proto::tensorflow::ConfigProto;
use schedule::Replica;
use session::{Batching, Engine, Error, Priorities, QueueState, Reply, Result, Run};
use tensorflow::{
    GpuOptions, ModelSettings, Needed, Placement, Threads, WorkerSnapshot, Workers, session_config,
};

use super::books::Booking;
use super::{Admission, External, ExternalDevice, GpuNeed, HOST};
use crate::config::Session;
use crate::devices::ModelRule;

/// A model that is to be placed.
pub(crate) struct Wish<'a> {
    pub(crate) model: &'a str,
    pub(crate) version: i64,
    pub(crate) config: &'a ModelConfig,
    pub(crate) rule: &'a ModelRule,
}

impl External {
    /// The GPUs that a model may be on: those it names, else all of them. None if it names only
    /// other devices, or its own settings list none of them.
    pub(crate) fn candidates(&self, wish: &Wish<'_>) -> Vec<Arc<ExternalDevice>> {
        let listed = |one: &Arc<ExternalDevice>| {
            let gpu = wish.config.config.as_ref().and_then(|config| config.gpu_options.as_ref());
            let list = gpu.map_or("", |gpu| gpu.visible_device_list.as_str());
            let number = one.device.lock().physical.to_string();
            list.is_empty() || list.split(',').any(|entry| entry.trim() == number)
        };
        let named = |one: &Arc<ExternalDevice>| {
            wish.rule.devices.is_empty() || wish.rule.devices.contains(&one.name())
        };
        self.all().into_iter().filter(|one| listed(one) && named(one)).collect()
    }

    /// The devices that a version is to be on, the best first: those with the fewest models, then
    /// with the most room. At least one, if it may be on any.
    pub(crate) fn choose(&self, wish: &Wish<'_>, weights_bytes: u64) -> Vec<Arc<ExternalDevice>> {
        let mut all = self.candidates(wish);
        let gpus = self.gpus();
        let room = |one: &Arc<ExternalDevice>| self.room(one, &gpus);
        let has_room =
            |one: &Arc<ExternalDevice>| room(one) >= weights_bytes.max(reserved(wish, one));
        all.sort_by_cached_key(|one| {
            (!has_room(one), one.admissions().len(), u64::MAX - room(one))
        });
        let n_fitting = all.iter().filter(|one| has_room(one)).count().max(1);
        let wanted = match wish.rule.replicas {
            Replicas::Number(n) => n,
            Replicas::All => usize::MAX,
        };
        all.truncate(wanted.min(n_fitting));
        all
    }

    /// How many bytes may still be promised there: within its limit, and beside what others hold.
    pub(super) fn room(&self, one: &ExternalDevice, gpus: &[tensorflow::Gpu]) -> u64 {
        let promised = one.account.held_bytes();
        let gpu = gpus.iter().find(|gpu| gpu.uuid == one.gpu.uuid);
        let snapshots = self.worker_snapshots();
        let on_it = snapshots.iter().filter(|worker| worker.device == one.name());
        let ours: u64 = on_it.filter_map(|worker| one.held_by(gpus, worker.pid)).sum();
        let limit = one.account.limit_bytes();
        let there = gpu.map_or(limit, |gpu| {
            let others = gpu.used_bytes.saturating_sub(ours);
            limit.min(gpu.total_bytes.saturating_sub(others))
        });
        // Growth that is off takes all at once, of which models use what they were promised.
        let held = match one.device.lock().growth {
            GrowthRule::OnDemand => promised.max(ours),
            GrowthRule::Reserved => promised,
        };
        there.saturating_sub(held)
    }

    /// What a version needs of a GPU by now.
    pub(super) fn needed_on(
        wish: &Wish<'_>,
        (device, workers): (&ExternalDevice, &[WorkerSnapshot]),
        weights_bytes: u64,
    ) -> GpuNeed {
        let has_worker = device.admissions().iter().any(|one| one.needed.context_bytes > 0)
            && workers.iter().any(|worker| worker.is_shared && worker.device == device.name());
        let measured = device.context_bytes.lock().unwrap_or(0);
        let context_bytes = if has_worker && !wants_own(wish) { 0 } else { measured };
        GpuNeed { weights_bytes, reserved_bytes: reserved(wish, device), context_bytes }
    }

    /// Promises a version memory of a GPU.
    fn admit(
        &self,
        wish: &Wish<'_>,
        device: &Arc<ExternalDevice>,
        weights_bytes: u64,
    ) -> Result<Arc<Admission>> {
        let need = Self::needed_on(wish, (device, &self.worker_snapshots()), weights_bytes);
        let (needed, room) = (need.bytes(), self.room(device, &self.gpus()));
        let charged = if needed <= room { device.account.charge(needed).is_ok() } else { false };
        if !charged {
            return Err(self.refusal(wish, device, weights_bytes));
        }
        let admission = Arc::new(Admission {
            device: Arc::clone(device),
            model: wish.model.to_owned(),
            version: wish.version,
            needed: need,
        });
        device.admissions.lock().push(Arc::downgrade(&admission));
        Ok(admission)
    }

    /// Says why a version finds no room on a GPU.
    pub(crate) fn refusal(
        &self,
        wish: &Wish<'_>,
        device: &ExternalDevice,
        weights_bytes: u64,
    ) -> Error {
        let Wish { model, version, .. } = wish;
        let need = Self::needed_on(wish, (device, &self.worker_snapshots()), weights_bytes);
        let (needed, GpuNeed { reserved_bytes, context_bytes, .. }) = (need.bytes(), need);
        let under_way = self.promises(device, (*model, *version));
        let promised: u64 = under_way.iter().map(|(_, bytes)| bytes).sum();
        let room = self.room(device, &self.gpus()).saturating_sub(promised);
        let admissions = device.admissions();
        let admitted = admissions.iter().map(|one| (&*one.model, one.version, one.needed.bytes()));
        let coming = under_way.iter().map(|(one, bytes)| (&*one.model, one.version, *bytes));
        let holders = admitted.chain(coming);
        let holders: Vec<String> =
            holders.map(|(name, version, bytes)| format!("{name}:{version} {bytes}")).collect();
        Error::ResourceExhausted(format!(
            "{model} version {version}: {} has no room: {needed} bytes are needed \
             ({weights_bytes} for variables, {reserved_bytes} reserved, {context_bytes} for a \
             worker), {room} are free; promised to {}; it may hold {} ({})",
            device.name(),
            if holders.is_empty() { "nobody".to_owned() } else { holders.join(", ") },
            device.limit_bytes(),
            device.device.lock().limit_by,
        ))
    }

    /// Books what a version needs, on the host or on a GPU. Fails if there is no room.
    pub(crate) fn book(
        &self,
        wish: &Wish<'_>,
        device: Option<&Arc<ExternalDevice>>,
        needed: Needed,
    ) -> Result<Booked> {
        let gpu =
            device.map(|device| self.admit(wish, device, needed.weights_bytes)).transpose()?;
        // What the worker holds by itself is in the books from now on.
        let missing = self.refresh();
        let on_host = if gpu.is_some() { 0 } else { needed.weights_bytes };
        let reserved = wish.rule.reservation.filter(|_| gpu.is_none());
        let who = (wish.model, wish.version);
        let (needs, workers) = ((on_host, reserved), self.beside_variables());
        let host = self.books.book(&self.devices, who, needs, &workers).map_err(|refusal| {
            Error::ResourceExhausted(format!(
                "{} version {}: {refusal} ({} bytes are its worker's)",
                wish.model, wish.version, needed.base_bytes
            ))
        })?;
        if missing > 0 {
            return Err(Error::ResourceExhausted(format!(
                "{} version {}: cpu:0 has no room for {missing} of the {} bytes of its worker",
                wish.model, wish.version, needed.base_bytes
            )));
        }
        Ok(Booked { _host: host, _gpu: gpu })
    }

    /// What TensorFlow is told for a model on a device, and where that is.
    pub(crate) fn settings(
        &self,
        wish: &Wish<'_>,
        device: Option<&Arc<ExternalDevice>>,
        (session, workers): (&Session, &Workers),
    ) -> ModelSettings {
        let own = wants_own(wish).then(|| {
            let own = session.own(wish.config).unwrap_or_else(|| session.shared());
            workers.with_usual_threads(&own)
        });
        let Some(device) = device else {
            // A model that is not placed on one of the GPUs sees none.
            let gpus = (!self.all().is_empty()).then(Vec::new);
            let device = HOST.to_owned();
            let placement = Placement { device, gpus, session: None };
            return ModelSettings { session: own, placement, ..ModelSettings::default() };
        };
        let logical = device.device.lock().clone();
        let mut shared = workers.with_usual_threads(&session.shared());
        let limit = device.is_limited.then_some(logical.limit_bytes);
        let priority = Some(logical.priority).filter(|priority| *priority != 0);
        let gpu = GpuOptions { memory_limit_bytes: limit, priority, ..GpuOptions::default() };
        let is_reserved = logical.growth == GrowthRule::Reserved;
        let allow_growth = Some(!is_reserved || self.is_shared(device, None));
        shared = seeing_one(&shared, &GpuOptions { allow_growth, ..gpu.clone() });
        let session = own.map(|own| {
            let memory = wish.config.memory.as_ref();
            let has_limit =
                memory.is_some_and(|m| !m.limit.is_empty() || !m.reservation.is_empty());
            let of_model = wish.rule.limit.filter(|_| has_limit);
            let of_model = of_model.map(|limit| limit.of(device.gpu.total_bytes));
            let is_its_own =
                wish.config.config.as_ref().is_some_and(|config| config.gpu_options.is_some());
            let written = own.gpu_options.as_ref().and_then(|gpu| gpu.allow_growth);
            let reserves = if is_its_own { written == Some(false) } else { is_reserved };
            // TensorFlow cannot take some and then grow: what is reserved is only promised then.
            let grows = has_limit || !reserves || self.is_shared(device, Some(wish.model));
            let allow_growth = Some(grows && !wish.rule.is_fixed());
            let memory_limit_bytes = [of_model, limit].into_iter().flatten().min();
            seeing_one(&own, &GpuOptions { memory_limit_bytes, allow_growth, ..gpu })
        });
        let gpus = Some(vec![device.gpu.uuid.clone()]);
        let placement = Placement { device: logical.name, gpus, session: Some(shared) };
        ModelSettings { session, placement, ..ModelSettings::default() }
    }
}

impl External {
    /// Whether other workers than this one may be on the GPU of a device: a model's own worker, or
    /// the one that models share. Of several that take all of it at once, all but one would fail.
    fn is_shared(&self, device: &ExternalDevice, own: Option<&str>) -> bool {
        let is_on = |one: &Arc<ExternalDevice>| one.gpu.uuid == device.gpu.uuid;
        let may_be = |config: &Arc<ModelConfig>| {
            let (model, rule) = (&*config.name, self.devices.rule(&config.name));
            let wish = Wish { model, version: 0, config, rule: &rule };
            let is_in_another = own.map_or_else(|| wants_own(&wish), |own| own != model);
            is_in_another && self.candidates(&wish).iter().any(is_on)
        };
        let n_shares = self.all().iter().filter(|one| is_on(one)).count();
        n_shares > 1 || self.devices.configs().iter().any(may_be)
    }
}

/// What is reserved for a model on a GPU.
fn reserved(wish: &Wish<'_>, device: &ExternalDevice) -> u64 {
    wish.rule.reservation.map_or(0, |amount| amount.of(device.gpu.total_bytes))
}

/// Whether a model has settings of its own, so that it has a worker of its own: in one that it
/// shares, nobody could tell what it took of what is reserved for it.
fn wants_own(wish: &Wish<'_>) -> bool {
    wish.config.config.is_some() || wish.rule.limit.is_some()
}

/// A session's options where the worker sees one GPU, which is its first then.
fn seeing_one(config: &ConfigProto, gpu: &GpuOptions) -> ConfigProto {
    let mut config = config.clone();
    if let Some(options) = &mut config.gpu_options {
        options.visible_device_list.clear();
        if let Some(more) = &mut options.experimental {
            more.virtual_devices.clear();
            more.num_virtual_devices_per_gpu = 0;
        }
    }
    session_config(&config, Threads::default(), gpu)
}

/// What was booked for a version; taken back when it is dropped.
pub(crate) struct Booked {
    _host: Option<Booking>,
    _gpu: Option<Arc<Admission>>,
}

/// An engine whose memory is in the books for as long as it is there.
pub(crate) struct Placed {
    // Before what was booked for it: its memory is gone when the books say so.
    engine: Arc<dyn Engine>,
    _booked: Option<Booked>,
}

impl Placed {
    pub(crate) fn new(engine: Arc<dyn Engine>, booked: Option<Booked>) -> Self {
        Self { engine, _booked: booked }
    }
}

impl Engine for Placed {
    fn start(&self, run: Run, reply: Reply) {
        self.engine.start(run, reply);
    }

    fn name(&self) -> &'static str {
        self.engine.name()
    }

    fn set_batching(&self, batching: &Batching) -> Result<()> {
        self.engine.set_batching(batching)
    }

    fn set_priorities(&self, priorities: &Priorities) -> Result<()> {
        self.engine.set_priorities(priorities)
    }

    fn expect(&self) {
        self.engine.expect();
    }

    fn prepare(&self) {
        self.engine.prepare();
    }

    fn forecast(&self, run: &Run) -> Option<Replica> {
        self.engine.forecast(run)
    }

    fn queues(&self) -> Vec<QueueState> {
        self.engine.queues()
    }
}

#[cfg(test)]
mod tests {
    use device::logical::Environment;

    use super::super::board::tests::external_with;
    use super::*;
    use crate::active::Active;
    use crate::cli::Persona;
    use crate::config::Config;

    /// The memory settings that the worker of each model is told: `name: own|shared growth
    /// fraction MiB`, for models with these configs on one GPU.
    fn told(flags: &[&str], models: &[&str]) -> Vec<String> {
        let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/half_plus_two");
        let flags = crate::cli::parse(&[&[model], flags].concat());
        let config = Config::new(Persona::Tensord, &flags).unwrap();
        let environment = Environment::unset();
        let options = crate::devices::DeviceOptions { environment, ..config.devices.clone() };
        let parse = |text: &&str| proto::text::parse(text).unwrap();
        let models: Vec<ModelConfig> = models.iter().map(parse).collect();
        let active = Arc::new(Active::default());
        drop(active.replace(&models));
        let external = external_with(&[8], &options, active);
        let usual = config.session.clone();
        let workers = Workers::new(crate::engines::options("tf".as_ref(), usual.shared()));
        let of = |config: &ModelConfig| {
            let rule = external.devices.rule(&config.name);
            let wish = Wish { model: &config.name, version: 1, config, rule: &rule };
            let device = external.candidates(&wish).into_iter().next();
            let settings = external.settings(&wish, device.as_ref(), (&usual, &workers));
            let ModelSettings { session: own, placement, .. } = settings;
            let kind = if own.is_some() { "own" } else { "shared" };
            let told =
                own.or(placement.session).and_then(|one| one.gpu_options).unwrap_or_default();
            let limits = told.experimental.iter().flat_map(|more| &more.virtual_devices);
            let limits =
                limits.flat_map(|one| &one.memory_limit_mb).map(|mib| format!(" {mib}MiB"));
            let growth = match told.allow_growth {
                Some(true) => "grows",
                Some(false) => "reserves",
                None => "says nothing",
            };
            let fraction = told.per_process_gpu_memory_fraction;
            let limits: String = limits.collect();
            format!("{}: {kind} {growth} {fraction}{limits}", config.name)
        };
        models.iter().map(of).collect()
    }

    #[test]
    fn workers_grow_unless_a_reservation_was_asked_for() {
        let plain = "name: 'a'";
        assert_eq!(told(&[], &[plain]), ["a: shared grows 0"]);
        assert_eq!(told(&["--gpu_memory=reserve"], &[plain]), ["a: shared reserves 0"]);
        let fraction = "--per_process_gpu_memory_fraction=0.5";
        assert_eq!(told(&[fraction], &[plain]), ["a: shared reserves 0.5"]);
        assert_eq!(told(&[fraction, "--gpu_memory=grow"], &[plain]), ["a: shared grows 0.5"]);
        let own = |options: &str| format!("name: 'a' config {{ gpu_options {{ {options} }} }}");
        let share = "per_process_gpu_memory_fraction: 0.7";
        let growing = own(&format!("allow_growth: true {share}"));
        assert_eq!(told(&[], &[&growing]), ["a: own grows 0.7"]);
        assert_eq!(told(&["--gpu_memory=reserve"], &[&growing]), ["a: own grows 0.7"]);
        assert_eq!(told(&[], &[&own(share)]), ["a: own grows 0.7"]);
        let fixed = own(&format!("allow_growth: false {share}"));
        assert_eq!(told(&[], &[&fixed]), ["a: own reserves 0.7"]);
        assert_eq!(told(&[], &[&own("allow_growth: false")]), ["a: own reserves 0"]);
        let limit = "name: 'a' memory { limit: '1GiB' }";
        assert_eq!(told(&["--gpu_memory=reserve"], &[limit]), ["a: own grows 0 1024MiB"]);
        let reservation = "name: 'a' memory { reservation: '1GiB' }";
        assert_eq!(told(&[], &[reservation]), ["a: own reserves 0 1024MiB"]);
    }

    #[test]
    fn workers_that_share_a_gpu_grow_and_take_no_more_than_was_reserved_for_them() {
        let (a, b) = ("name: 'a'", "name: 'b' memory { limit: '1GiB' }");
        let greedy = "name: 'c' config { gpu_options { allow_growth: false } }";
        let reserve = ["--gpu_memory=reserve"];
        let both = ["a: shared grows 0", "b: own grows 0 1024MiB"];
        assert_eq!(told(&reserve, &[a, b]), both);
        assert_eq!(told(&[], &[a, greedy]), ["a: shared grows 0", "c: own grows 0"]);
        // Models that share one worker are one.
        let two = ["a: shared reserves 0", "b: shared reserves 0"];
        assert_eq!(told(&reserve, &[a, "name: 'b'"]), two);
        // What is reserved for one is its own, whoever else is there.
        let fixed = "name: 'd' memory { reservation: '2GiB' }";
        let expected = ["a: shared grows 0", "d: own reserves 0 2048MiB"];
        assert_eq!(told(&reserve, &[a, fixed]), expected);
        // Others are elsewhere.
        let elsewhere = "name: 'e' memory { limit: '1GiB' devices: 'gpu:1' }";
        assert_eq!(told(&reserve, &[a, elsewhere])[0], "a: shared reserves 0");
    }

    #[test]
    fn a_worker_that_sees_one_gpu_is_told_nothing_of_others() {
        let text = "gpu_options { allow_growth: true visible_device_list: '1,0' \
                    experimental { virtual_devices { memory_limit_mb: 100 } } }";
        let config: ConfigProto = proto::text::parse(text).unwrap();
        let plain = seeing_one(&config, &GpuOptions::default()).gpu_options.unwrap();
        assert_eq!(plain.visible_device_list, "");
        assert_eq!(plain.allow_growth, Some(true));
        assert!(plain.experimental.unwrap().virtual_devices.is_empty());
        let limit = GpuOptions { memory_limit_bytes: Some(1 << 30), ..GpuOptions::default() };
        let limited = seeing_one(&config, &limit).gpu_options.unwrap();
        let devices = limited.experimental.unwrap().virtual_devices;
        assert_eq!(devices[0].memory_limit_mb, [1024.0]);
        assert_eq!((limited.visible_device_list.as_str(), devices.len()), ("0", 1));
    }
}
