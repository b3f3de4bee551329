//! The session options that TensorFlow gets are those that were meant: its own classes read them.

use std::io::Write as _;
use std::process::Stdio;

use prost::Message as _;
use proto::tensorflow::{ConfigProto, GpuOptions as Gpu};
use serde_json::{Value, json};
use tensorflow::{GpuOptions, Threads, session_config};

use crate::support::{python, root};

/// Returns the values that TensorFlow's classes read in each config.
fn read(configs: &[ConfigProto]) -> Vec<Value> {
    let folder = tempfile::tempdir().unwrap();
    let descriptors = folder.path().join("descriptors.bin");
    std::fs::write(&descriptors, proto::FILE_DESCRIPTOR_SET).unwrap();
    let mut script = python();
    script.arg(root().join("tools/clients/config_proto.py")).arg(&descriptors);
    script.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut script = script.spawn().unwrap();
    let mut lines = String::new();
    for config in configs {
        lines.extend(config.encode_to_vec().iter().map(|byte| format!("{byte:02x}")));
        lines.push('\n');
    }
    script.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let output = script.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let output = String::from_utf8(output.stdout).unwrap();
    output.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn tensorflow_reads_what_we_wrote_field_by_field() {
    let threads = Threads { intra: 3, inter: 5 };
    let base = ConfigProto::default();
    let from_file = ConfigProto {
        gpu_options: Some(Gpu { allow_growth: Some(true), ..Gpu::default() }),
        log_device_placement: true,
        ..ConfigProto::default()
    };
    let limit = GpuOptions {
        memory_limit_bytes: Some(1536 << 20),
        visible_devices: vec![1, 0],
        ..GpuOptions::default()
    };
    let share = GpuOptions {
        allow_growth: Some(true),
        memory_fraction: Some(0.7),
        visible_devices: vec![2],
        ..GpuOptions::default()
    };
    let configs = [
        session_config(&base, threads, &GpuOptions::default()),
        session_config(&base, Threads::default(), &limit),
        session_config(&base, threads, &share),
        session_config(&from_file, Threads::default(), &GpuOptions::default()),
    ];
    let expected = [
        json!({
            "intra_op_parallelism_threads": 3,
            "inter_op_parallelism_threads": 5,
            "allow_soft_placement": true,
        }),
        json!({
            "allow_soft_placement": true,
            "gpu_options.visible_device_list": "1,0",
            "gpu_options.experimental.virtual_devices[0].memory_limit_mb": [1536.0],
            "gpu_options.experimental.virtual_devices[1].memory_limit_mb": [1536.0],
        }),
        json!({
            "intra_op_parallelism_threads": 3,
            "inter_op_parallelism_threads": 5,
            "allow_soft_placement": true,
            "gpu_options.allow_growth": true,
            "gpu_options.per_process_gpu_memory_fraction": 0.7,
            "gpu_options.visible_device_list": "2",
        }),
        json!({
            "allow_soft_placement": true,
            "log_device_placement": true,
            "gpu_options.allow_growth": true,
        }),
    ];
    assert_eq!(read(&configs), expected);
}
