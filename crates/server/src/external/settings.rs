//! The options that a model's worker is told, and the GPU that it sees.

use std::sync::Arc;

use config::Session;
use device::logical::GrowthRule;
use proto::serving::ModelConfig;
use proto::tensorflow::ConfigProto;
use tensorflow::{GpuOptions, ModelSettings, Placement, Threads, Workers, session_config};

use super::{External, ExternalDevice, HOST};

impl External {
    /// The options that TensorFlow is told for a model on a device, and where that is.
    pub fn settings(
        &self,
        config: &ModelConfig,
        device: Option<&Arc<ExternalDevice>>,
        session: &Session,
        workers: &Workers,
    ) -> ModelSettings {
        let model = self.devices.placement.models().get(&config.name);
        let own = model.has_own_worker().then(|| {
            let own = session.own(config).unwrap_or_else(|| session.shared());
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
            let memory = config.memory.as_ref();
            let has_limit =
                memory.is_some_and(|m| !m.limit.is_empty() || !m.reservation.is_empty());
            let of_model = model.rule.limit.filter(|_| has_limit);
            let of_model = of_model.map(|limit| limit.bytes_of(device.gpu.total_bytes));
            let is_its_own =
                config.config.as_ref().is_some_and(|config| config.gpu_options.is_some());
            let written = own.gpu_options.as_ref().and_then(|gpu| gpu.allow_growth);
            let reserves = if is_its_own { written == Some(false) } else { is_reserved };
            // TensorFlow cannot take some and then grow: what is reserved is only promised then.
            let grows = has_limit || !reserves || self.is_shared(device, Some(&config.name));
            let allow_growth = Some(grows && !model.rule.is_fixed());
            let memory_limit_bytes = [of_model, limit].into_iter().flatten().min();
            seeing_one(&own, &GpuOptions { memory_limit_bytes, allow_growth, ..gpu })
        });
        let gpus = Some(vec![device.gpu.uuid.clone()]);
        let placement = Placement { device: logical.name, gpus, session: Some(shared) };
        ModelSettings { session, placement, ..ModelSettings::default() }
    }
}

impl External {
    /// Returns whether other workers than this one may be on the GPU of a device: a model's own
    /// worker, or the one that models share. Of several that take all of it at once, all but one
    /// would fail.
    fn is_shared(&self, device: &ExternalDevice, own: Option<&str>) -> bool {
        let is_on = |one: &Arc<ExternalDevice>| one.gpu.uuid == device.gpu.uuid;
        let models = self.devices.placement.models();
        let may_be = |name: &String| {
            let model = models.get(name);
            let is_in_another = own.map_or_else(|| model.has_own_worker(), |own| own != name);
            is_in_another && self.placed.candidates(&model).iter().any(is_on)
        };
        let n_shares = self.all().iter().filter(|one| is_on(one)).count();
        n_shares > 1 || models.names().iter().any(may_be)
    }
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

#[cfg(test)]
mod tests {
    use device::logical::Environment;

    use super::super::tests::external_with;
    use super::*;
    use crate::active::Active;
    use config::Config;
    use config::Persona;

    /// The memory settings that the worker of each model is told: `name: own|shared growth
    /// fraction MiB`, for models with these configs on one GPU.
    fn told(flags: &[&str], models: &[&str]) -> Vec<String> {
        let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/half_plus_two");
        let flags = config::flags::parse(&[&[model], flags].concat());
        let config = Config::new(Persona::Tensord, &flags).unwrap();
        let environment = Environment::unset();
        let options = crate::devices::DeviceOptions { environment, ..config.devices.clone() };
        let parse = |text: &&str| proto::text::parse(text).unwrap();
        let models: Vec<ModelConfig> = models.iter().map(parse).collect();
        let active = Arc::new(Active::default());
        drop(active.replace(&models));
        let external = external_with(&[8], &options, active);
        let usual = config.session.clone();
        let workers = Workers::new(config::engines::options("tf".as_ref(), usual.shared()));
        let of = |config: &ModelConfig| {
            let device = external.candidates(&config.name).into_iter().next();
            let settings = external.settings(config, device.as_ref(), &usual, &workers);
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
