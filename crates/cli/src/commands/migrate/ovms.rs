//! `config.json` of OpenVINO Model Server: `model_config_list`, each entry a `config` with a name
//! and a base path.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use proto::serving::ModelConfig;
use serde_json::{Map, Value};

use super::{Migrated, line_of, model_config_file, read};

/// Settings of a model that are about OpenVINO, and why they are left out.
const LEFT_OUT: &[(&str, &str)] = &[
    ("target_device", "`memory { devices: \"gpu:0\" }` says where a model may be"),
    ("shape", "models take the shapes that their signatures say"),
    ("layout", "models take the layout that they were made with"),
    ("nireq", "requests run as devices have lanes: `lanes` of --device_config_file"),
    ("plugin_config", "there are no plugins"),
    ("stateful", "state is in the variables of a model"),
    ("idle_sequence_cleanup", "there are no sequences"),
    ("max_sequence_number", "there are no sequences"),
    ("low_latency_transformation", "there are no sequences"),
    ("batch_size", "requests are merged where their rows are proved to be independent"),
    ("custom_loader_options", "there are no custom loaders"),
];

/// Our config for the models of one of OpenVINO Model Server.
pub(super) fn migrate(path: &Path) -> Result<Migrated> {
    let text = read(path)?;
    let place = path.display().to_string();
    let root: Value = serde_json::from_str(&text).with_context(|| place.clone())?;
    let list = root.get("model_config_list").and_then(Value::as_array);
    let list = list.with_context(|| format!("{place}: there is no model_config_list"))?;
    let mut migrated = Migrated::default();
    let mut models = Vec::new();
    for entry in list {
        let config = entry.get("config").and_then(Value::as_object);
        let config = config.with_context(|| format!("{place}: an entry without config"))?;
        models.push(model(config, &place, &text, &mut migrated)?);
    }
    ensure!(!models.is_empty(), "{place}: there are no models in it");
    for key in ["pipeline_config_list", "mediapipe_config_list", "custom_node_library_config_list"]
    {
        if root.get(key).is_some() {
            let text_of = format!("{key} is left out: there are no pipelines");
            migrated.note(&place, line_of(&text, key), text_of);
        }
    }
    migrated.note(&place, 0, "OpenVINO models (.xml, .onnx) must be exported as SavedModels");
    migrated.config = model_config_file(models);
    migrated.command =
        ["tensord", "serve", "--model_config_file=models.config"].map(str::to_owned).into();
    Ok(migrated)
}

/// A model, with notes on what it leaves out.
fn model(
    config: &Map<String, Value>,
    place: &str,
    text: &str,
    migrated: &mut Migrated,
) -> Result<ModelConfig> {
    let word = |key: &str| config.get(key).and_then(Value::as_str).map(str::to_owned);
    let name = word("name").with_context(|| format!("{place}: a model without a name"))?;
    let base_path = word("base_path");
    let base_path = base_path.with_context(|| format!("{place}: model {name} has no base_path"))?;
    let mut model = config::model_config::model(name.clone(), base_path);
    for (key, value) in config {
        match key.as_str() {
            "name" | "base_path" => {}
            "model_version_policy" => {
                let policy = proto::json::parse(&value.to_string());
                let wrong = || format!("{place}: model_version_policy of model {name}");
                model.model_version_policy = Some(policy.with_context(wrong)?);
            }
            other => {
                let why = LEFT_OUT.iter().find(|row| row.0 == other);
                let why = why.map_or("there is no such setting", |row| row.1);
                let note = format!("{other} of model {name} is left out: {why}");
                migrated.note(place, line_of(text, other), note);
            }
        }
    }
    Ok(model)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_keep_their_folders_and_policies_and_the_rest_is_noted() {
        let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/migrate/ovms.json");
        let migrated = migrate(Path::new(fixture)).unwrap();
        let models = config::model_config::read(&migrated.config, Path::new("x")).unwrap();
        let names: Vec<(&str, &str)> =
            models.iter().map(|model| (&*model.name, &*model.base_path)).collect();
        assert_eq!(names, [("resnet", "/models/resnet"), ("text", "/models/text")]);
        assert!(models[1].model_version_policy.is_some(), "{}", migrated.config);
        let lines: Vec<String> = migrated.notes.iter().map(super::super::Note::line).collect();
        let has = |text: &str| lines.iter().any(|line| line.contains(text));
        assert!(has("ovms.json:7: target_device of model resnet is left out"), "{lines:?}");
        assert!(has("pipeline_config_list is left out"), "{lines:?}");
    }

    #[test]
    fn a_mistake_is_told_with_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        let check = |text: &str, expected: &str| {
            std::fs::write(&path, text).unwrap();
            let error = format!("{:#}", migrate(&path).unwrap_err());
            assert!(error.contains(expected), "{error}");
        };
        check("{", "line 1 column 1");
        check("{}", "there is no model_config_list");
        check(r#"{"model_config_list": []}"#, "there are no models");
        check(r#"{"model_config_list": [{"config": {"name": "m"}}]}"#, "has no base_path");
    }
}
