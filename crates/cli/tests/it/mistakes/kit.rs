//! A folder of wrong things.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::support::{copy, root};

/// Files and folders with a mistake each, and a port that is in use.
pub(super) struct Kit {
    folder: tempfile::TempDir,
    taken: TcpListener,
}

/// Files of text, by their names. `{kit}` is the folder.
const TEXTS: &[(&str, &str)] = &[
    ("field.config", "model_config_list { config { base_paht: '{kit}/models/good' } }"),
    ("field.json", r#"{"model_config_list": [{"name": "m", "base_paht": "{kit}/models/good"}]}"#),
    ("comma.json", "{\"model_config_list\": [\n  {\"name\": \"m\"},\n]}"),
    ("type.json", "{\"model_config_list\": [\n  {\"name\": 7}\n]}"),
    ("device.json", r#"{"device": [{"name": "gpu:0", "colour": "red"}]}"#),
    (
        "label.config",
        "model_config_list { config { name: 'm' base_path: '{kit}/models/good' \
         version_labels { key: 'stable' value: 9 } } }",
    ),
    (
        "gpu.config",
        "model_config_list { config { name: 'm' base_path: '{kit}/models/good' \
         memory { devices: 'gpu:7' } } }",
    ),
    ("limit.config", "device { name: 'cpu:0' memory_limit: 1024 }"),
    (
        "model_limit.config",
        "model_config_list { config { name: 'm' base_path: '{kit}/models/good' \
         memory { limit: 512 } } }",
    ),
    ("ssl.config", "server_key: '/etc/key.pem' server_cert: '/etc/cert.pem'"),
    ("keys", "# none yet\n"),
];

impl Kit {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let taken = TcpListener::bind("0.0.0.0:0").unwrap();
        let kit = Self { folder, taken };
        let good = root().join("models/half_plus_two/00000123");
        for place in ["models/good/1", "deep/in/good/1", "named/m/v1"] {
            copy(&good, &kit.path().join(place));
        }
        copy(&good, &kit.path().join("zero/m/1"));
        copy(&good, &kit.path().join("cut/m/1"));
        fs::create_dir(kit.path().join("empty")).unwrap();
        symlink("loop", kit.path().join("loop")).unwrap();
        fs::write(kit.saved_model("zero"), "").unwrap();
        let whole = fs::read(kit.saved_model("cut")).unwrap();
        fs::write(kit.saved_model("cut"), &whole[..whole.len() / 2]).unwrap();
        for (name, text) in TEXTS {
            fs::write(kit.path().join(name), kit.fill(text)).unwrap();
        }
        kit
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// A text with the names of things in it.
    pub(super) fn fill(&self, text: &str) -> String {
        let port = self.taken.local_addr().unwrap().port().to_string();
        text.replace("{kit}", &self.path().to_string_lossy()).replace("{port}", &port)
    }

    fn saved_model(&self, place: &str) -> PathBuf {
        self.path().join(place).join("m/1/saved_model.pb")
    }
}
