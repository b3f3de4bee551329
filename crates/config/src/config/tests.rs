use super::*;

fn config(persona: Persona, args: &[&str]) -> Result<Config> {
    let args = [args, &["--model_base_path=/m"]].concat();
    Config::new(persona, &crate::flags::parse(&args))
}

fn tensord(args: &[&str]) -> Config {
    config(Persona::Tensord, args).unwrap()
}

#[track_caller]
fn check_refused(args: &[&str], expected: &str) {
    let error = config(Persona::TensorFlowModelServer, args).unwrap_err();
    assert!(format!("{error:#}").contains(expected), "{error:#}");
}

/// A file with a text, and the flag that names it.
fn file(flag: &str, text: &str) -> (tempfile::NamedTempFile, String) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    let flag = format!("--{flag}={}", file.path().display());
    (file, flag)
}

#[test]
fn the_defaults_are_those_of_the_name() {
    let ours = tensord(&[]);
    assert_eq!((ours.grpc_port, ours.rest_port), (Some(8500), Some(8501)));
    assert_eq!(ours.lifecycle.start_when, StartWhen::Any);
    assert_eq!(ours.lifecycle.label_rule, LabelRule::Anywhere);
    let theirs = config(Persona::TensorFlowModelServer, &[]).unwrap();
    assert_eq!((theirs.grpc_port, theirs.rest_port), (Some(8500), None));
    assert_eq!(theirs.lifecycle.start_when, StartWhen::All);
    assert_eq!(theirs.lifecycle.label_rule, LabelRule::Available);
    assert_eq!(theirs.lifecycle.poll, Poll::Every(Duration::from_secs(1)));
    assert_eq!(theirs.lifecycle.load_retries_max, 5);
    assert_eq!(theirs.lifecycle.load_retry_interval, Duration::from_secs(60));
    let warmup = Warmup { n_iterations: 1, n_threads: 1, timeout: Some(Duration::from_secs(600)) };
    assert_eq!(theirs.warmup, Some(warmup));
}

#[test]
fn what_tensorflow_serving_refuses_is_refused_in_its_words() {
    check_refused(&["--port=0"], "At least one of server_options.grpc_port");
    check_refused(&["--use_alts_credentials=true"], "ALTS");
    let three = [
        "--tensorflow_session_parallelism=1",
        "--tensorflow_inter_op_parallelism=1",
        "--tensorflow_intra_op_parallelism=1",
    ];
    check_refused(&three, "give it or them, not both");
    check_refused(&["--per_process_gpu_memory_fraction=-1"], "a share");
}

#[test]
fn threads_are_set_together_or_apart() {
    let threads = |args: &[&str]| {
        let config = tensord(args);
        (config.n_lanes, config.n_threads)
    };
    assert_eq!(threads(&["--tensorflow_session_parallelism=3"]), (3, 3));
    assert_eq!(threads(&["--intra_op_parallelism_threads=8"]), (n_cpus(), 8));
    assert_eq!(threads(&["--tensorflow_inter_op_parallelism=2"]), (2, n_cpus()));
}

#[test]
fn a_session_config_s_fraction_stays_unless_the_flag_is_given() {
    let text = "gpu_options { allow_growth: true per_process_gpu_memory_fraction: 0.9 }
                inter_op_parallelism_threads: 3";
    let (_file, flag) = file("tensorflow_session_config_file", text);
    let model = ModelConfig::default();
    // What TensorFlow is told, and what is told for a model without settings of its own.
    let check = |args: &[&str], expected: f64| {
        let session = tensord(&[&[flag.as_str()], args].concat()).session;
        for options in [session.gpu_options(&model), session.shared().gpu_options.unwrap()] {
            assert!(options.allow_growth());
            let fraction = options.per_process_gpu_memory_fraction;
            assert!((fraction - expected).abs() < 1e-9, "{args:?}: {fraction}");
        }
    };
    check(&[], 0.9);
    check(&["--per_process_gpu_memory_fraction=0"], 0.9);
    check(&["--per_process_gpu_memory_fraction=0.25"], 0.25);
    let (_file, flag) =
        file("tensorflow_session_config_file", "gpu_options {\n allow_grow: true }");
    check_refused(&[&flag], ":2:2: field 'allow_grow' not found");
}

#[test]
fn a_platform_config_stands_in_for_the_flags() {
    let text = "platform_configs { key: 'tensorflow' value { source_adapter_config {
        [type.googleapis.com/tensorflow.serving.SavedModelBundleSourceAdapterConfig] {
          legacy_config { saved_model_tags: 'gpu' enable_model_warmup: true
            model_warmup_options { num_request_iterations { value: 4 }
              num_model_warmup_threads { value: 2 } }
            session_config { gpu_options { per_process_gpu_memory_fraction: 0.5 } } } } } } }";
    let (_file, flag) = file("platform_config_file", text);
    let given = tensord(&[&flag, "--saved_model_tags=x", "--enable_model_warmup=false"]);
    assert_eq!(given.tags, ["gpu"]);
    let timeout = Some(Duration::from_secs(600));
    assert_eq!(given.warmup, Some(Warmup { n_iterations: 4, n_threads: 2, timeout }));
    let options = given.session.gpu_options(&ModelConfig::default());
    assert!((options.per_process_gpu_memory_fraction - 0.5).abs() < 1e-9);
    let (_file, flag) = file("platform_config_file", "platform_configs { key: 'other' }");
    check_refused(&[&flag], "no platform called tensorflow");
}

#[test]
fn a_platform_config_s_session_says_what_devices_and_threads_there_are() {
    let platform = |session: &str| {
        let text = format!(
            "platform_configs {{ key: 'tensorflow' value {{ source_adapter_config {{
               [type.googleapis.com/tensorflow.serving.SavedModelBundleSourceAdapterConfig] {{
                 legacy_config {{ session_config {{ {session} }} }} }} }} }} }}"
        );
        file("platform_config_file", &text)
    };
    let (_other, other) =
        file("tensorflow_session_config_file", "gpu_options { visible_device_list: '1' }");
    let (_file, flag) = platform(
        "intra_op_parallelism_threads: 3 inter_op_parallelism_threads: 5
         gpu_options { allow_growth: true visible_device_list: '2,0' }",
    );
    // The flags and the file that flags name do not count.
    let args = [
        &flag,
        &other,
        "--per_process_gpu_memory_fraction=0.5",
        "--tensorflow_session_parallelism=1",
    ];
    let given = tensord(&args);
    assert_eq!((given.n_lanes, given.n_threads), (5, 3));
    let gpu = &given.devices.gpu;
    assert_eq!((gpu.allow_growth, gpu.visible_device_list.as_str()), (Some(true), "2,0"));
    assert!(gpu.per_process_gpu_memory_fraction.abs() < 1e-9);
    let (_file, flag) = platform("intra_op_parallelism_threads: -1");
    let given = tensord(&[&flag, "--tensorflow_session_parallelism=1"]);
    assert_eq!((given.n_lanes, given.n_threads), (n_cpus(), n_cpus()));
    let (_file, flag) = platform("inter_op_parallelism_threads: 2147483647");
    check_refused(&[&flag], "asks for 2147483647 threads, but 4096 is the most");
    let (_file, flag) = platform("gpu_options { allow_grow: true }");
    check_refused(&[&flag], "field 'allow_grow' not found");
}

#[test]
fn negative_waits_mean_never_or_none() {
    let given = tensord(&["--file_system_poll_wait_seconds=-1", "--load_retry_interval_micros=-1"]);
    assert_eq!(given.lifecycle.poll, Poll::Never);
    assert_eq!(given.lifecycle.load_retry_interval, Duration::ZERO);
    assert_eq!(tensord(&["--file_system_poll_wait_seconds=0"]).lifecycle.poll, Poll::Once);
}

#[test]
fn the_model_config_file_is_read_once_or_watched() {
    let (_file, flag) = file("model_config_file", "model_config_list { config { name: 'a' } }");
    let poll = |persona, args: &[&str]| {
        let config = config(persona, &[&[flag.as_str()], args].concat()).unwrap();
        assert_eq!(config.models[0].name, "a");
        config.model_config_file.unwrap().poll
    };
    let second = Some(Duration::from_secs(1));
    assert_eq!(poll(Persona::Tensord, &[]), second);
    assert_eq!(poll(Persona::Tensord, &["--model_config_file_poll_wait_seconds=0"]), None);
    assert_eq!(poll(Persona::TensorFlowModelServer, &[]), None);
    let every = "--model_config_file_poll_wait_seconds=1";
    assert_eq!(poll(Persona::TensorFlowModelServer, &[every]), second);
}
