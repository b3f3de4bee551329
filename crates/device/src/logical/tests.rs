use super::*;
use crate::amount::Amount;

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

/// A CPU, and GPUs of so many GiB with a compute capability of 8.0.
fn machine(gpus: &[u64]) -> Vec<Physical> {
    let device = |name: String, kind, total_bytes| Physical {
        name,
        kind,
        total_bytes,
        free_bytes: total_bytes,
        compute_capability: (kind == Kind::Gpu).then_some((8, 0)),
        priorities: (0, -5),
    };
    let cpu = device("cpu:0".to_owned(), Kind::Cpu, 16 * GIB);
    let gpus = gpus.iter().enumerate();
    let gpus = gpus.map(|(n, gib)| device(format!("gpu:{n}"), Kind::Gpu, gib * GIB));
    std::iter::once(cpu).chain(gpus).collect()
}

fn shares(limits: &[f32]) -> VirtualDevices {
    let memory_limit_mb = limits.to_vec();
    VirtualDevices { memory_limit_mb, priority: Vec::new(), device_ordinal: Vec::new() }
}

/// The GPUs as `name=physical MiB growth`, then the warnings, or the error as `code: message`.
fn show(configured: &Result<Configured, Error>, physical: &[Physical]) -> Vec<String> {
    let configured = match configured {
        Err(Error::Config { code, message }) => return vec![format!("{code:?}: {message}")],
        Err(other) => panic!("{other}"),
        Ok(configured) => configured,
    };
    let line = |device: &LogicalDevice| {
        let growth = match device.growth {
            GrowthRule::OnDemand => "grows",
            GrowthRule::Reserved => "reserved",
        };
        let of = &physical[device.physical].name;
        format!("{}={of} {}MiB {growth}", device.name, device.limit_bytes / MIB)
    };
    let devices = configured.devices.iter().filter(|device| device.name != "cpu:0").map(line);
    devices.chain(configured.warnings.iter().map(ToString::to_string)).collect()
}

#[track_caller]
fn check(gpus: &[u64], change: impl FnOnce(&mut GpuOptions, &mut Environment), expected: &[&str]) {
    let (mut options, mut environment) = (GpuOptions::unset(), Environment::unset());
    change(&mut options, &mut environment);
    let physical = machine(gpus);
    assert_eq!(show(&configure(&options, &environment, &physical), &physical), expected);
}

#[test]
fn without_options_every_gpu_is_one_device_less_a_reserve() {
    check(&[], |_, _| {}, &[]);
    check(&[], |o, _| o.visible_device_list = "0,1".to_owned(), &[]);
    check(&[8], |_, _| {}, &["gpu:0=gpu:0 6656MiB grows"]);
    check(
        &[1, 4],
        |o, _| o.allow_growth = Some(true),
        &["gpu:0=gpu:0 799MiB grows", "gpu:1=gpu:1 2560MiB grows"],
    );
}

#[test]
fn the_reserve_follows_the_compute_capability() {
    for (major, mib) in [(3, 7692), (6, 7692), (7, 7142), (8, 6656), (9, 6392), (12, 6392)] {
        let mut physical = machine(&[8]);
        physical[1].compute_capability = Some((major, 0));
        let made = configure(&GpuOptions::unset(), &Environment::unset(), &physical);
        let expected = format!("gpu:0=gpu:0 {mib}MiB grows");
        assert_eq!(show(&made, &physical), [expected]);
    }
}

#[test]
fn a_fraction_is_of_all_memory_and_leaves_no_reserve() {
    check(&[8], |o, _| o.per_process_gpu_memory_fraction = 0.25, &["gpu:0=gpu:0 2048MiB reserved"]);
}

#[test]
fn more_than_all_memory_is_all_of_it() {
    let text = "unified memory is not used: gpu:0 is limited to its own 8589934592 bytes";
    check(
        &[8],
        |o, _| o.per_process_gpu_memory_fraction = 1.5,
        &["gpu:0=gpu:0 8192MiB reserved", text],
    );
    let mut physical = machine(&[8]);
    physical[1].compute_capability = Some((5, 2));
    let options = GpuOptions { use_unified_memory: true, ..GpuOptions::unset() };
    let made = configure(&options, &Environment::unset(), &physical);
    let text = "Internal: Unified memory on GPUs with compute capability lower than 6.0 \
                (pre-Pascal class GPUs) does not support oversubscription.";
    assert_eq!(show(&made, &physical), [text]);
}

#[test]
fn the_system_reserve_can_be_set() {
    let set = |o: &mut GpuOptions| o.gpu_system_memory_size_in_mb = 1024;
    check(&[8], |o, _| set(o), &["gpu:0=gpu:0 7168MiB grows"]);
    check(
        &[8],
        |o, e| {
            set(o);
            e.device_min_sys_memory_in_mb = Some("2048".to_owned());
        },
        &["gpu:0=gpu:0 6144MiB grows"],
    );
    let text = "The requested reserved device memory lots is invalid. The request will be ignored.";
    check(
        &[8],
        |o, e| {
            set(o);
            e.device_min_sys_memory_in_mb = Some("lots".to_owned());
        },
        &["gpu:0=gpu:0 7168MiB grows", text],
    );
    let text = "The requested reserved device memory 9000 MiB is larger than the available memory \
                of 8589934592 bytes. The request is ignored.";
    check(
        &[8],
        |_, e| e.device_min_sys_memory_in_mb = Some("9000".to_owned()),
        &["gpu:0=gpu:0 6656MiB grows", text],
    );
}

#[test]
fn the_environment_overrides_growth() {
    let overriding = |was| {
        format!(
            "Overriding orig_value setting because the TF_FORCE_GPU_ALLOW_GROWTH environment \
             variable is set. Original config value was {was}."
        )
    };
    let unparsed = "The TF_FORCE_GPU_ALLOW_GROWTH environment variable is set but could not be \
                    parsed: \"1\".  Valid values are \"true\" or \"false\".  Using original \
                    config value of 0.";
    let cases = [
        ("true", None, vec!["gpu:0=gpu:0 6656MiB grows".to_owned(), overriding(0)]),
        ("true", Some(true), vec!["gpu:0=gpu:0 6656MiB grows".to_owned()]),
        ("false", Some(true), vec!["gpu:0=gpu:0 6656MiB reserved".to_owned(), overriding(1)]),
        ("1", None, vec!["gpu:0=gpu:0 6656MiB grows".to_owned(), unparsed.to_owned()]),
    ];
    for (value, allow, expected) in cases {
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        check(
            &[8],
            |o, e| {
                o.allow_growth = allow;
                e.force_gpu_allow_growth = Some(value.to_owned());
            },
            &expected,
        );
    }
}

/// The growth of a GPU and the setting that decided on it, with a value of the environment
/// variable, of our flag, of `allow_growth` and of the fraction.
#[track_caller]
fn check_growth(
    forced: &str,
    flag: Option<GrowthRule>,
    (allow, fraction): (Option<bool>, f64),
    expected: &str,
) {
    let options = GpuOptions {
        allow_growth: allow,
        gpu_memory: flag,
        per_process_gpu_memory_fraction: fraction,
        ..GpuOptions::unset()
    };
    let force_gpu_allow_growth = (!forced.is_empty()).then(|| forced.to_owned());
    let environment = Environment { force_gpu_allow_growth, ..Environment::unset() };
    let made = configure(&options, &environment, &machine(&[8])).unwrap();
    let [host, gpu] = &made.devices[..] else { panic!("{made:?}") };
    assert_eq!(host.growth_by, GrowthSetting::Default);
    assert_eq!(gpu.growth, gpu.growth_by.rule());
    assert_eq!(format!("{:?}: {}", gpu.growth, gpu.growth_by), expected);
}

#[test]
fn memory_grows_unless_somebody_asked_for_a_reservation() {
    let (grow, reserve) = (Some(GrowthRule::OnDemand), Some(GrowthRule::Reserved));
    check_growth("", None, (None, 0.0), "OnDemand: default");
    check_growth("", None, (Some(true), 0.7), "OnDemand: gpu_options.allow_growth: true");
    check_growth("", None, (Some(false), 0.0), "Reserved: gpu_options.allow_growth: false");
    let fraction = "Reserved: per_process_gpu_memory_fraction without allow_growth";
    check_growth("", None, (None, 0.5), fraction);
    check_growth("nonsense", None, (None, 0.5), fraction);
    // The flag has more to say than the file, and the environment than the flag.
    check_growth("", grow, (Some(false), 0.5), "OnDemand: --gpu_memory=grow");
    check_growth("", reserve, (Some(true), 0.0), "Reserved: --gpu_memory=reserve");
    check_growth("true", reserve, (None, 0.5), "OnDemand: TF_FORCE_GPU_ALLOW_GROWTH=true");
    check_growth("false", grow, (Some(true), 0.0), "Reserved: TF_FORCE_GPU_ALLOW_GROWTH=false");
}

#[test]
fn a_device_config_says_how_each_gpu_grows_and_the_flag_how_the_others_do() {
    let fixed = DeviceRule { growth: Some(GrowthRule::Reserved), ..rule("gpu:0") };
    let growing = DeviceRule { growth: Some(GrowthRule::OnDemand), ..rule("gpu:1") };
    let of = |flag| {
        let made = configure_rules(&[fixed.clone(), growing.clone()], &machine(&[1, 1, 1]), flag);
        let devices = made.unwrap().devices;
        devices.iter().map(|one| one.growth_by.to_string()).collect::<Vec<_>>().join(", ")
    };
    let both = "default, allow_growth: false of the device config, \
                allow_growth: true of the device config";
    assert_eq!(of(None), format!("{both}, default"));
    assert_eq!(of(Some(GrowthRule::Reserved)), format!("{both}, --gpu_memory=reserve"));
}

#[test]
fn every_limit_has_a_setting_that_says_it() {
    let check = |change: fn(&mut GpuOptions, &mut Environment), expected: [&str; 2]| {
        let (mut options, mut environment) = (GpuOptions::unset(), Environment::unset());
        change(&mut options, &mut environment);
        let made = configure(&options, &environment, &machine(&[8])).unwrap();
        let by: Vec<&str> = made.devices.iter().map(|device| device.limit_by).collect();
        assert_eq!(by[..2], expected);
    };
    check(|_, _| {}, [WHOLE_HOST, "default"]);
    let fraction = "per_process_gpu_memory_fraction";
    check(|o, _| o.per_process_gpu_memory_fraction = 0.5, [WHOLE_HOST, fraction]);
    let virtual_devices = "memory_limit_mb of virtual_devices";
    check(|o, _| o.virtual_devices = vec![shares(&[9.0])], [WHOLE_HOST, virtual_devices]);
    let n = "num_virtual_devices_per_gpu";
    check(|o, _| o.num_virtual_devices_per_gpu = 2, [WHOLE_HOST, n]);
    let system = "gpu_system_memory_size_in_mb";
    check(|o, _| o.gpu_system_memory_size_in_mb = 1, [WHOLE_HOST, system]);
    let variable = "TF_DEVICE_MIN_SYS_MEMORY_IN_MB";
    let set = |_: &mut GpuOptions, e: &mut Environment| {
        e.device_min_sys_memory_in_mb = Some("1".to_owned());
    };
    check(set, [WHOLE_HOST, variable]);
    let set = |_: &mut GpuOptions, e: &mut Environment| {
        e.per_device_memory_limit_mb = Some("1".to_owned());
        e.cpu_allocator_use_bfc = Some("1".to_owned());
        e.cpu_bfc_mem_limit_in_mb = Some("1".to_owned());
    };
    check(set, ["TF_CPU_BFC_MEM_LIMIT_IN_MB", "TF_PER_DEVICE_MEMORY_LIMIT_MB"]);
    let rules = [DeviceRule { limit: Some(Amount::Fraction(0.5)), ..rule("gpu:0") }];
    let made = configure_rules(&rules, &machine(&[1]), None).unwrap();
    assert_eq!(made.devices[1].limit_by, "memory_limit of the device config");
}

#[test]
fn the_visible_device_list_chooses_and_orders() {
    let list = |list: &'static str| {
        move |o: &mut GpuOptions, _: &mut Environment| {
            o.visible_device_list = list.to_owned();
            o.per_process_gpu_memory_fraction = 1.0;
        }
    };
    let two = ["gpu:0=gpu:2 3072MiB reserved", "gpu:1=gpu:0 1024MiB reserved"];
    check(&[1, 2, 3], list("2,0"), &two);
    check(&[1, 2, 3], list(" 2 , 0"), &two);
    check(
        &[1, 2],
        list("0,x"),
        &["InvalidArgument: Could not parse entry in 'visible_device_list': 'x'. \
           visible_device_list = 0,x"],
    );
    check(
        &[1, 2],
        list("0,2"),
        &["InvalidArgument: 'visible_device_list' listed an invalid Device id '2' but visible \
           device count is 2"],
    );
    check(
        &[1, 2],
        list("-1"),
        &["InvalidArgument: 'visible_device_list' listed an invalid Device id '-1' but visible \
           device count is 2"],
    );
    check(
        &[1, 2],
        list("1,1"),
        &["InvalidArgument: visible_device_list contained a duplicate entry: 1,1"],
    );
}

#[test]
fn the_device_count_bounds_the_gpus() {
    let count = |n| {
        move |o: &mut GpuOptions, _: &mut Environment| {
            o.device_count = Some(n);
            o.per_process_gpu_memory_fraction = 1.0;
        }
    };
    check(&[1, 2], count(0), &[]);
    check(&[1, 2], count(1), &["gpu:0=gpu:0 1024MiB reserved"]);
}

#[test]
fn virtual_devices_share_a_gpu() {
    let both = ["gpu:0=gpu:0 1024MiB grows", "gpu:1=gpu:0 2048MiB grows"];
    check(&[4], |o, _| o.virtual_devices = vec![shares(&[1024.0, 2048.0])], &both);
    check(&[4], |o, _| o.virtual_devices = vec![shares(&[])], &["gpu:0=gpu:0 2560MiB grows"]);
    check(
        &[8],
        |o, _| o.num_virtual_devices_per_gpu = 2,
        &["gpu:0=gpu:0 3328MiB grows", "gpu:1=gpu:0 3328MiB grows"],
    );
    let text = "InvalidArgument: the logical devices of gpu:0 need 5368709120 bytes together, but \
                it has 4294967296";
    check(&[4], |o, _| o.virtual_devices = vec![shares(&[1024.0, 4096.0])], &[text]);
}

#[test]
fn fewer_gpus_than_configured_are_configured_with_a_warning() {
    let entries = || [1024.0, 4096.0, 2048.0].map(|mb| shares(&[mb])).to_vec();
    let devices =
        ["gpu:0=gpu:0 1024MiB grows", "gpu:1=gpu:1 4096MiB grows", "gpu:2=gpu:2 2048MiB grows"];
    for n in 0..=3 {
        let warning = format!(
            "Not enough GPUs to create virtual devices. num_gpus_to_use: {n} #virtual_devices: 3"
        );
        let mut expected = devices[..n].to_vec();
        if n < 3 {
            expected.push(&warning);
        }
        check(&[8; 3][..n], |o, _| o.virtual_devices = entries(), &expected);
    }
}

#[test]
fn virtual_devices_that_contradict_the_rest_are_refused() {
    check(
        &[8],
        |o, _| {
            o.virtual_devices = vec![shares(&[1024.0])];
            o.per_process_gpu_memory_fraction = 0.5;
        },
        &["InvalidArgument: It's invalid to set per_process_gpu_memory_fraction when \
           virtual_devices is set."],
    );
    check(
        &[8, 8],
        |o, _| {
            o.virtual_devices = vec![shares(&[1024.0])];
            o.visible_device_list = "1,0".to_owned();
        },
        &["InvalidArgument: The number of GPUs in visible_device_list doesn't match the number \
           of elements in the virtual_devices list. #GPUs in visible_device_list: 2 \
           virtual_devices.size(): 1"],
    );
    check(
        &[8, 8],
        |o, _| o.virtual_devices = vec![shares(&[1024.0])],
        &["Unknown: The number of valid GPUs doesn't match the number of elements in the \
           virtual_devices list. #valid GPUs: 2 virtual_devices.size(): 1"],
    );
    check(
        &[8],
        |o, _| {
            o.virtual_devices = vec![shares(&[1024.0])];
            o.use_unified_memory = true;
        },
        &[
            "gpu:0=gpu:0 1024MiB grows",
            "unified memory is not used: gpu:0 is limited to its own 8589934592 bytes",
        ],
    );
    check(
        &[8],
        |o, _| o.allocator_type = "cub".to_owned(),
        &["InvalidArgument: Invalid allocator type: cub"],
    );
}

#[test]
fn sizes_that_are_none_and_devices_without_end_are_refused() {
    for (mb, shown) in [(f32::NAN, "NaN"), (-5.0, "-5"), (0.0, "0"), (f32::INFINITY, "inf")] {
        let text = format!(
            "InvalidArgument: memory_limit_mb of a virtual device of gpu:0 is {shown}, which is \
             no size"
        );
        check(&[8], |o, _| o.virtual_devices = vec![shares(&[1.0, mb])], &[&text]);
    }
    for fraction in [f64::NAN, -0.5, f64::INFINITY] {
        let text = format!(
            "InvalidArgument: per_process_gpu_memory_fraction is {fraction}, which is no fraction"
        );
        check(&[8], |o, _| o.per_process_gpu_memory_fraction = fraction, &[&text]);
    }
    let many = |n: i64| {
        format!("InvalidArgument: {n} logical devices are configured, but there may be 256 at most")
    };
    let n = i64::from(i32::MAX);
    check(&[8], |o, _| o.num_virtual_devices_per_gpu = i32::MAX, &[&many(n)]);
    let all = vec![0.001; 100_000];
    check(&[8], |o, _| o.virtual_devices = vec![shares(&all)], &[&many(100_000)]);
    let logical = vec![share_of("1"); 100_000];
    check_rules(&[8], &[DeviceRule { logical, ..rule("gpu:0") }], &[&many(100_000)]);
    let gpus = vec![1; 256];
    check_rules(&gpus, &[], &[&many(257)]);
}

#[test]
fn ordinals_number_the_devices_over_all_gpus() {
    let entry = |limits: &[f32], ordinals: &[i32]| VirtualDevices {
        device_ordinal: ordinals.to_vec(),
        ..shares(limits)
    };
    check(
        &[8, 8],
        |o, _| {
            o.virtual_devices = vec![entry(&[1.0, 2.0], &[10, 20]), entry(&[3.0, 4.0], &[10, 20])];
        },
        &[
            "gpu:0=gpu:0 1MiB grows",
            "gpu:1=gpu:1 3MiB grows",
            "gpu:2=gpu:0 2MiB grows",
            "gpu:3=gpu:1 4MiB grows",
        ],
    );
    check(
        &[8, 8],
        |o, _| o.virtual_devices = vec![shares(&[1.0]), entry(&[3.0], &[1])],
        &["InvalidArgument: Device ordinals must be set for all virtual devices or none. But the \
           device_ordinal is specified for 1 while previous devices didn't have any set."],
    );
    check(
        &[8],
        |o, _| o.virtual_devices = vec![entry(&[1.0, 2.0], &[1])],
        &["InvalidArgument: Number of virtual device ordinals specified doesn't match with \
           number of memory_limit_mb specified for GPU# 0 memory_limit_mb size: 2 and \
           device_ordinal size: 1"],
    );
}

#[test]
fn priorities_are_checked() {
    let entry = |limits: &[f32], priorities: &[i32]| VirtualDevices {
        priority: priorities.to_vec(),
        ..shares(limits)
    };
    let options =
        GpuOptions { virtual_devices: vec![entry(&[1.0, 2.0], &[-1, 0])], ..GpuOptions::unset() };
    let made = configure(&options, &Environment::unset(), &machine(&[8])).unwrap();
    let priorities: Vec<i32> = made.devices.iter().map(|device| device.priority).collect();
    assert_eq!(priorities, [0, -1, 0], "the CPU's, and those given");
    check(
        &[8, 8],
        |o, _| o.virtual_devices = vec![shares(&[1.0]), entry(&[3.0], &[0])],
        &["InvalidArgument: Priority must be set for all virtual devices or none. But the \
           priority is specified for 1 while previous devices didn't have any set."],
    );
    check(
        &[8],
        |o, _| o.virtual_devices = vec![entry(&[1.0, 2.0], &[0])],
        &["InvalidArgument: Number of virtual device priorities specified doesn't match with \
           number of memory_limit_mb specified for GPU# 0 memory_limit_mb size: 2 and priority \
           size: 1"],
    );
    check(
        &[8],
        |o, _| o.virtual_devices = vec![entry(&[1.0], &[-9])],
        &["InvalidArgument: Priority -9 is outside the range of supported priorities [-5,0] for \
           virtual device 0 on GPU# 0"],
    );
}

#[test]
fn a_device_wide_limit_holds_for_everything_on_it() {
    check(
        &[8],
        |_, e| e.per_device_memory_limit_mb = Some("512".to_owned()),
        &["gpu:0=gpu:0 512MiB grows"],
    );
    let environment =
        Environment { per_device_memory_limit_mb: Some("512".to_owned()), ..Environment::unset() };
    let made = configure(&GpuOptions::unset(), &environment, &machine(&[8])).unwrap();
    assert_eq!(made.physical_limit_bytes, [16 * GIB, 512 * MIB], "not the host's");
}

/// The limit of the host in MiB and the warnings, with these variables set.
#[track_caller]
fn check_variables(variables: &[(&str, &str)], host_mib: u64, expected: &[&str]) {
    let value = |name: &str| variables.iter().find(|(other, _)| *other == name);
    let environment = Environment::read(|name| value(name).map(|(_, value)| (*value).to_owned()));
    let made = configure(&GpuOptions::unset(), &environment, &machine(&[8])).unwrap();
    assert_eq!(made.devices[0].limit_bytes, host_mib * MIB);
    assert_eq!(made.physical_limit_bytes[0], host_mib * MIB);
    let warnings: Vec<String> = made.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(warnings, expected);
}

#[test]
fn the_host_is_limited_where_tensorflow_would_limit_it() {
    let all = 16 << 10;
    check_variables(&[], all, &[]);
    check_variables(&[("TF_CPU_BFC_MEM_LIMIT_IN_MB", "2048")], all, &[]);
    let on = ("TF_CPU_ALLOCATOR_USE_BFC", "1");
    check_variables(&[on, ("TF_CPU_BFC_MEM_LIMIT_IN_MB", "2048")], 2048, &[]);
    check_variables(&[("TF_CPU_ALLOCATOR_USE_BFC", "True")], all, &[]);
    let off = ("TF_CPU_ALLOCATOR_USE_BFC", "false");
    check_variables(&[off, ("TF_CPU_BFC_MEM_LIMIT_IN_MB", "2048")], all, &[]);
    let text = "Failed to parse the env-var ${TF_CPU_ALLOCATOR_USE_BFC} into bool: yes. Use the \
                default value: 0";
    check_variables(&[("TF_CPU_ALLOCATOR_USE_BFC", "yes")], all, &[text]);
    let text = "Failed to parse the env-var ${TF_CPU_BFC_MEM_LIMIT_IN_MB} into int64: 2g. Use the \
                default value: 65536";
    check_variables(&[on, ("TF_CPU_BFC_MEM_LIMIT_IN_MB", "2g")], all, &[text]);
}

#[test]
fn variables_that_mean_nothing_here_say_so() {
    check_variables(
        &[
            ("TF_GPU_ALLOCATOR", "cuda_malloc_async"),
            ("TF_ENABLE_GPU_GARBAGE_COLLECTION", "false"),
            ("TF_GPU_HOST_MEM_LIMIT_IN_MB", "64"),
            ("TF_BFC_MEMORY_DUMP", "/tmp/dump"),
            ("TF_DETERMINISTIC_ALLOCATOR", "1"),
        ],
        16 << 10,
        &[
            "TF_GPU_ALLOCATOR=cuda_malloc_async has no effect: a device's memory always comes \
             from its own arena",
            "TF_ENABLE_GPU_GARBAGE_COLLECTION=false has no effect: memory that nobody uses always \
             goes back",
            "TF_GPU_HOST_MEM_LIMIT_IN_MB=64 has no effect: there is no pool of pinned memory",
            "TF_BFC_MEMORY_DUMP=/tmp/dump has no effect: GET /v1/memory says who holds what",
            "TF_DETERMINISTIC_ALLOCATOR=1 has no effect: the arena gives the same chunks to the \
             same requests",
        ],
    );
    let text = "unified memory is not used: gpu:0 is limited to its own 8589934592 bytes";
    check_variables(&[("TF_FORCE_UNIFIED_MEMORY", "true")], 16 << 10, &[text]);
    check_variables(&[("TF_FORCE_UNIFIED_MEMORY", "false")], 16 << 10, &[]);
}

fn rule(device: &str) -> DeviceRule {
    DeviceRule {
        device: device.to_owned(),
        is_visible: true,
        limit: None,
        growth: None,
        n_lanes: None,
        logical: Vec::new(),
    }
}

fn share_of(limit: &str) -> LogicalRule {
    let limit = Amount::parse(limit);
    LogicalRule { limit, growth: None, priority: None, ordinal: None, n_lanes: None }
}

#[track_caller]
fn check_rules(gpus: &[u64], rules: &[DeviceRule], expected: &[&str]) {
    let physical = machine(gpus);
    assert_eq!(show(&configure_rules(rules, &physical, None), &physical), expected);
}

#[test]
fn rules_allow_growth_with_a_limit_and_growth_that_differs() {
    let growing = DeviceRule {
        growth: Some(GrowthRule::OnDemand),
        logical: vec![share_of("1GiB"), share_of("0.5")],
        ..rule("gpu:0")
    };
    let reserved = DeviceRule {
        growth: Some(GrowthRule::Reserved),
        limit: Some(Amount::Fraction(0.25)),
        ..rule("gpu:1")
    };
    check_rules(
        &[4, 8],
        &[growing, reserved],
        &[
            "gpu:0=gpu:0 1024MiB grows",
            "gpu:1=gpu:0 2048MiB grows",
            "gpu:2=gpu:1 2048MiB reserved",
            "TensorFlow refuses this: Memory growth cannot differ between GPU devices",
            "TensorFlow refuses this: Cannot set memory growth on device when virtual devices \
             configured",
        ],
    );
}

#[test]
fn every_share_has_its_own_limit_growth_and_lanes() {
    let rules = [DeviceRule {
        growth: Some(GrowthRule::OnDemand),
        n_lanes: Some(4),
        logical: vec![
            share_of("512MiB"),
            LogicalRule { n_lanes: Some(2), ..share_of("1073741824") },
            LogicalRule { growth: Some(GrowthRule::Reserved), ..share_of("0.25") },
        ],
        ..rule("gpu:0")
    }];
    let made = configure_rules(&rules, &machine(&[4, 8]), None).unwrap();
    let of = |device: &LogicalDevice| {
        (device.name.clone(), device.limit_bytes / MIB, device.growth, device.n_lanes)
    };
    let expected = [
        ("cpu:0", 16 << 10, GrowthRule::OnDemand, None),
        ("gpu:0", 512, GrowthRule::OnDemand, Some(4)),
        ("gpu:1", 1024, GrowthRule::OnDemand, Some(2)),
        ("gpu:2", 1024, GrowthRule::Reserved, Some(4)),
        ("gpu:3", 8 << 10, GrowthRule::OnDemand, None),
    ];
    let expected = expected.map(|(name, mib, growth, lanes)| (name.to_owned(), mib, growth, lanes));
    assert_eq!(made.devices.iter().map(of).collect::<Vec<_>>(), expected);
}

#[test]
fn rules_for_devices_that_are_not_there_are_warnings() {
    check_rules(
        &[2],
        &[rule("gpu:0"), DeviceRule { growth: None, ..rule("gpu:3") }],
        &["gpu:0=gpu:0 2048MiB grows", "gpu:3 was not found, its rule has no effect"],
    );
}

#[test]
fn rules_that_make_no_sense_are_refused() {
    let with = |device: &str, logical: Vec<LogicalRule>| DeviceRule { logical, ..rule(device) };
    let priority = LogicalRule { priority: Some(-1), ..share_of("1MiB") };
    let ordinal = LogicalRule { ordinal: Some(1), ..share_of("1MiB") };
    let cases = [
        (rule("tpu:0"), "Unrecognized device: tpu:0"),
        (rule("gpu"), "Unrecognized device: gpu"),
        (
            DeviceRule { growth: Some(GrowthRule::OnDemand), ..rule("cpu:0") },
            "Cannot set memory growth on non-GPU and non-Pluggable devices",
        ),
        (
            with("cpu:0", vec![LogicalRule { growth: Some(GrowthRule::OnDemand), ..share_of("") }]),
            "Cannot set memory growth on non-GPU and non-Pluggable devices",
        ),
        (
            DeviceRule { is_visible: false, ..rule("cpu:0") },
            "cpu:0 cannot be hidden: what no GPU has is there",
        ),
        (
            with("cpu:0", vec![share_of("1GiB")]),
            "Setting memory limit on CPU virtual devices is currently not supported",
        ),
        (
            with("gpu:0", vec![share_of("1GiB"), share_of("")]),
            "Setting memory limit is required for GPU virtual devices",
        ),
        (
            with("gpu:0", vec![share_of("1MiB"), priority]),
            "priority must be specified for all virtual devices",
        ),
        (
            with("gpu:0", vec![share_of("1MiB"), ordinal]),
            "device_ordinals must be specified for all virtual devices",
        ),
        (
            with("gpu:0", vec![share_of("0.75"), share_of("1GiB")]),
            "the logical devices of gpu:0 need 2684354560 bytes together, but it has 2147483648",
        ),
        (
            with("gpu:0", vec![LogicalRule { priority: Some(-9), ..share_of("1MiB") }]),
            "Priority -9 is outside the range of supported priorities [-5,0] for virtual device \
             0 on GPU# 0",
        ),
        (
            DeviceRule { n_lanes: Some(1 << 30), ..rule("gpu:0") },
            "gpu:0 would have 1073741824 lanes, but 256 is the most",
        ),
        (
            with("gpu:0", vec![LogicalRule { n_lanes: Some(257), ..share_of("1MiB") }]),
            "gpu:0 would have 257 lanes, but 256 is the most",
        ),
        (
            DeviceRule { limit: Some(Amount::Bytes(0)), ..rule("gpu:0") },
            "a memory limit of gpu:0 is 0 bytes",
        ),
        (
            with("gpu:0", vec![share_of("1MiB"), share_of("1e-300")]),
            "a memory limit of gpu:0 is 0 bytes",
        ),
        (
            DeviceRule { limit: Some(Amount::Bytes(4 * GIB)), ..rule("gpu:0") },
            "the logical devices of gpu:0 need 4294967296 bytes together, but it has 2147483648",
        ),
    ];
    for (rule, message) in cases {
        check_rules(&[2], &[rule], &[&format!("InvalidArgument: {message}")]);
    }
    let twice = [rule("gpu:0"), rule("gpu:1"), rule("gpu:0")];
    check_rules(&[2], &twice, &["InvalidArgument: there are two rules for gpu:0"]);
}

#[test]
fn devices_in_use_may_change_their_limits_but_not_vanish() {
    let devices =
        |rules: &[DeviceRule]| configure_rules(rules, &machine(&[4, 4]), None).unwrap().devices;
    let before = devices(&[]);
    let smaller = devices(&[DeviceRule { limit: Amount::parse("1GiB"), ..rule("gpu:1") }]);
    let split = devices(&[DeviceRule {
        logical: vec![share_of("1GiB"), share_of("2GiB")],
        ..rule("gpu:0")
    }]);
    let check = |after: &[LogicalDevice], in_use: &str, expected: Option<&str>| {
        let answer = check_change(&before, after, |name| name == in_use);
        assert_eq!(answer.err().map(|error| error.to_string()).as_deref(), expected);
    };
    check(&smaller, "gpu:1", None);
    check(&split, "gpu:0", None);
    let text = "Virtual devices cannot be modified after being initialized";
    check(&split, "gpu:1", Some(text));
    let text = "Visible devices cannot be modified after being initialized";
    check(&before[..2], "gpu:1", Some(text));
    check(&before[..2], "gpu:0", None);
    let hidden = devices(&[DeviceRule { is_visible: false, ..rule("gpu:0") }]);
    // The other GPU would have its name then.
    check(&hidden, "gpu:0", Some(text));
    check(&hidden, "gpu:1", Some(text));
    check(&hidden, "cpu:0", None);
}

#[test]
fn a_hidden_gpu_becomes_no_device_and_the_others_are_numbered_without_it() {
    let hidden = |device: &str| DeviceRule { is_visible: false, ..rule(device) };
    check_rules(&[2, 4], &[hidden("gpu:0")], &["gpu:0=gpu:1 4096MiB grows"]);
    check_rules(&[2, 4], &[hidden("gpu:1")], &["gpu:0=gpu:0 2048MiB grows"]);
    check_rules(&[2, 4], &[hidden("gpu:0"), hidden("gpu:1")], &[]);
    let more = DeviceRule {
        growth: Some(GrowthRule::Reserved),
        logical: vec![share_of("1GiB")],
        ..hidden("gpu:1")
    };
    check_rules(
        &[2, 4],
        &[rule("gpu:0"), more],
        &["gpu:0=gpu:0 2048MiB grows", "gpu:1 is hidden, the rest of its rule has no effect"],
    );
}
