//! Memory does not grow with the first request: what a load announced is what is held after it.

use std::collections::BTreeMap;

use cli::npz;
use pages::{MemoryCategory, MemoryPage, VersionMemory};

use crate::page::{Shown as _, bytes_for};
use crate::support::{Server, tensord};
use crate::tensorflow::{predict, spec};
use crate::zoo::small_zoo;

/// Models of several kinds; `embeddings` has two tables of 12 MiB.
const MODELS: &[&str] =
    &["embeddings", "gru", "minilm", "mobilenet_v2", "tf1_variables", "wide_and_deep"];

const MIB: u64 = 1 << 20;

/// The bytes of each model's weights, as they are and packed, as `/v1/memory` shows them.
fn held(server: &Server) -> BTreeMap<String, [u64; 2]> {
    let categories = [MemoryCategory::Weights, MemoryCategory::PackedWeights];
    let weights = |model: &VersionMemory| categories.map(|one| bytes_for(&model.categories, one));
    let devices = MemoryPage::get(server).devices;
    let models = devices.iter().flat_map(|device| &device.models);
    models.map(|model| (model.name.clone(), weights(model))).collect()
}

/// The bytes of the process that are in memory.
fn resident(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

#[test]
fn what_a_load_announced_is_held_after_the_first_requests_and_no_more() {
    let (zoo, folder) = (small_zoo(), tempfile::tempdir().unwrap());
    let config = |name: &&str| {
        format!("config {{ name: '{name}' base_path: '{}' }}", zoo.join(name).display())
    };
    let config: Vec<String> = MODELS.iter().map(config).collect();
    let file = folder.path().join("models.config");
    std::fs::write(&file, format!("model_config_list {{ {} }}", config.join(" "))).unwrap();
    let file = format!("--model_config_file={}", file.display());
    let server = Server::start(tensord(), &[&file, "--start_when=all"]);
    let (announced, before) = (held(&server), resident(&server));
    assert_eq!(announced.keys().map(String::as_str).collect::<Vec<_>>(), MODELS);
    let embeddings = announced["embeddings"][0];
    assert!(embeddings >= 24 * MIB, "the tables are held when the load ends: {embeddings}");
    for batch in [1, 3, 8] {
        for model in MODELS {
            let golden = zoo.join(model).join("golden/serving_default");
            let inputs = npz::read(&golden.join(format!("batch{batch}.in.npz"))).unwrap();
            let inputs: Vec<_> = inputs.iter().map(|(k, v)| (k.as_str(), v.clone())).collect();
            predict(&server, spec(model, "serving_default"), &inputs).unwrap();
        }
        assert_eq!(held(&server), announced, "after batches of {batch}");
    }
    // Plans, workspaces and connections may take some; a second copy of a table would be 12 MiB.
    let grown = resident(&server).saturating_sub(before);
    assert!(grown < 10 * MIB, "the process grew by {grown} bytes");
}
