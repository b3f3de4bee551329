//! A model repository of Triton Inference Server: folders of models, each with versions and a
//! `config.pbtxt`, of which the version policy, the batching and the instances have a meaning here.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use proto::serving::ModelConfig;

use super::{Migrated, line_of, model_config_file, read};

/// The folder of a version as Triton has it, and below it the SavedModel.
const SAVED_MODEL: &str = "model.savedmodel";

/// The platforms of SavedModels.
const PLATFORMS: [&str; 2] = ["tensorflow_savedmodel", "tensorflow"];

/// Settings that have no meaning here, and why.
const LEFT_OUT: &[(&str, &str)] = &[
    ("input", "inputs are those of the SavedModel's signatures"),
    ("output", "outputs are those of the SavedModel's signatures"),
    ("reshape", "tensors have the shapes of the signatures"),
    ("optimization", "plans are optimised by tensord itself"),
    ("sequence_batching", "there are no sequences"),
    ("ensemble_scheduling", "there are no ensembles"),
    ("model_warmup", "put warm-up requests into assets.extra/tf_serving_warmup_requests"),
    ("response_cache", "there is no cache of answers"),
    ("parameters", "there are no parameters of a backend"),
    ("model_transaction_policy", "each request has one answer"),
    ("cc_model_filenames", "a version has one SavedModel"),
];

/// Our config for a repository, or for one model by its `config.pbtxt`.
pub(super) fn migrate(path: &Path) -> Result<Migrated> {
    let mut migrated = Migrated::default();
    let mut models = Vec::new();
    for folder in folders(path)? {
        models.extend(model(&folder, &mut migrated)?);
    }
    ensure!(!models.is_empty(), "{}: there is no model of TensorFlow in it", path.display());
    migrated.config = model_config_file(models);
    migrated.command =
        ["tensord", "serve", "--model_config_file=models.config"].map(str::to_owned).into();
    if !migrated.batching.is_empty() {
        migrated.command.push("--enable_batching".to_owned());
        migrated.command.push("--batching_parameters_file=batching.config".to_owned());
    }
    Ok(migrated)
}

/// The folders of models, sorted.
fn folders(path: &Path) -> Result<Vec<PathBuf>> {
    if path.is_file() {
        let folder = path.parent().context("a config.pbtxt is in the folder of its model")?;
        return Ok(vec![folder.to_owned()]);
    }
    if path.join("config.pbtxt").is_file() {
        return Ok(vec![path.to_owned()]);
    }
    let entries =
        std::fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut folders: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    folders.sort();
    Ok(folders)
}

/// The model in a folder; none if it is another server's business.
fn model(folder: &Path, migrated: &mut Migrated) -> Result<Option<ModelConfig>> {
    let file = folder.join("config.pbtxt");
    let place = file.display().to_string();
    let text = if file.is_file() { read(&file)? } else { String::new() };
    let fields = fields(&text).with_context(|| place.clone())?;
    let value = |name: &str| fields.iter().find(|field| field.name == name);
    let word = |name: &str| value(name).map(|field| field.value.trim_matches('"').to_owned());
    let folder_name = folder.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = word("name").or(folder_name).unwrap_or_default();
    let platform = word("platform").or_else(|| word("backend")).unwrap_or_default();
    if !platform.is_empty() && !PLATFORMS.contains(&&*platform) {
        let line = line_of(&text, "platform").max(line_of(&text, "backend"));
        let note =
            format!("model {name} is left out: {platform} is no SavedModel; export it as one");
        migrated.note(&place, line, note);
        return Ok(None);
    }
    let base_path = std::path::absolute(folder)?.display().to_string();
    let mut model = config::model_config::model(name.clone(), base_path);
    for field in &fields {
        let line = field.line;
        match field.name.as_str() {
            "name" | "platform" | "backend" | "default_model_filename" => {}
            "version_policy" => {
                let wrong = || format!("{place}:{line}: version_policy");
                let policy = proto::text::parse(&field.value).with_context(wrong)?;
                model.model_version_policy = Some(policy);
            }
            "max_batch_size" => max_batch_size(field, &place, &name, migrated),
            "dynamic_batching" => dynamic_batching(field, &place, &name, migrated),
            "instance_group" => {
                let note = format!(
                    "instance_group of model {name} is left out: `memory {{ devices: \"gpu:0\" \
                     replicas: 2 }}` of a model and `lanes` of a device say so here"
                );
                migrated.note(&place, line, note);
            }
            other => {
                let why = LEFT_OUT.iter().find(|row| row.0 == other);
                let why = why.map_or("there is no such setting", |row| row.1);
                migrated.note(&place, line, format!("{other} of model {name} is left out: {why}"));
            }
        }
    }
    note_versions(folder, &name, migrated);
    Ok(Some(model))
}

/// Says how to move the SavedModels, which Triton has one level deeper.
fn note_versions(folder: &Path, name: &str, migrated: &mut Migrated) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut deep: Vec<PathBuf> =
        entries.map(|entry| entry.path()).filter(|path| path.join(SAVED_MODEL).is_dir()).collect();
    deep.sort();
    for version in deep {
        let shown = version.display().to_string();
        let note = format!(
            "model {name} is one level too deep: `mv {shown}/{SAVED_MODEL}/* {shown}/ && rmdir \
             {shown}/{SAVED_MODEL}`"
        );
        migrated.note(&shown, 0, note);
    }
}

fn max_batch_size(field: &Field, place: &str, model: &str, migrated: &mut Migrated) {
    match field.value.parse::<u64>() {
        Ok(0) => {}
        Ok(size) => add_batching(migrated, &format!("max_batch_size {{ value: {size} }}")),
        Err(_) => {
            let note = format!("max_batch_size of model {model} is no number");
            migrated.note(place, field.line, note);
        }
    }
}

fn dynamic_batching(field: &Field, place: &str, model: &str, migrated: &mut Migrated) {
    for inner in fields(&field.value).unwrap_or_default() {
        match inner.name.as_str() {
            "max_queue_delay_microseconds" => {
                add_batching(
                    migrated,
                    &format!("batch_timeout_micros {{ value: {} }}", inner.value),
                );
            }
            other => {
                let note = format!("dynamic_batching.{other} of model {model} is left out");
                migrated.note(place, field.line + inner.line - 1, note);
            }
        }
    }
}

/// Adds a line to the batching parameters, which are of all models: the first model's count.
fn add_batching(migrated: &mut Migrated, line: &str) {
    let name = line.split(' ').next().unwrap_or_default();
    if !migrated.batching.contains(name) {
        migrated.batching += &format!("{line}\n");
    }
}

/// A field of a text proto, whose type we do not know.
#[derive(Debug)]
struct Field {
    name: String,
    /// The scalar, or the text between the braces of a message or list.
    value: String,
    line: usize,
}

/// The fields of a text proto at its outermost level.
fn fields(text: &str) -> Result<Vec<Field>> {
    let mut fields = Vec::new();
    let mut rest = text.char_indices().peekable();
    loop {
        while let Some((_, c)) = rest.peek() {
            match c {
                '#' => while rest.next().is_some_and(|(_, c)| c != '\n') {},
                c if c.is_whitespace() || ",;".contains(*c) => drop(rest.next()),
                _ => break,
            }
        }
        let Some(&(start, _)) = rest.peek() else { return Ok(fields) };
        let line = text[..start].matches('\n').count() + 1;
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let name: String =
            std::iter::from_fn(|| rest.next_if(|(_, c)| is_name(*c))).map(|(_, c)| c).collect();
        ensure!(!name.is_empty(), "line {line}: expected the name of a field");
        while rest.next_if(|(_, c)| c.is_whitespace() || *c == ':').is_some() {}
        let value = value(&mut rest).with_context(|| format!("line {line}: {name}"))?;
        fields.push(Field { name, value, line });
    }
}

/// A scalar, or what is between braces or brackets.
fn value(rest: &mut std::iter::Peekable<std::str::CharIndices<'_>>) -> Result<String> {
    let Some(&(_, first)) = rest.peek() else { bail!("the value is missing") };
    let (mut value, mut depth, mut quote) = (String::new(), 0_usize, None);
    if !"{[<\"'".contains(first) {
        let is_end = |c: char| c.is_whitespace() || ",;}]".contains(c);
        return Ok(std::iter::from_fn(|| rest.next_if(|(_, c)| !is_end(*c)))
            .map(|(_, c)| c)
            .collect());
    }
    for (_, c) in rest.by_ref() {
        value.push(c);
        match (quote, c) {
            (Some(open), c) if open == c => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, '{' | '[' | '<') => depth += 1,
            (None, '}' | ']' | '>') => depth = depth.saturating_sub(1),
            (Some(_) | None, _) => {}
        }
        if depth == 0 && quote.is_none() {
            let is_list = "{[<".contains(first);
            return Ok(if is_list { value[1..value.len() - 1].to_owned() } else { value });
        }
    }
    bail!("it has no end")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repository() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/migrate/triton")
    }

    #[test]
    fn a_repository_becomes_a_model_config_and_batching_parameters() {
        let migrated = migrate(&repository()).unwrap();
        let models = config::model_config::read(&migrated.config, Path::new("x")).unwrap();
        let names: Vec<&str> = models.iter().map(|model| &*model.name).collect();
        assert_eq!(names, ["bert", "resnet"]);
        let policy = config::model_config::options(
            &models[1],
            config::model_config::Rules {
                persona: config::Persona::Tensord,
                policy: lifecycle::Policy::AvailabilityPreserving,
            },
        );
        assert_eq!(policy.unwrap().versions, lifecycle::VersionPolicy::Latest(2));
        assert_eq!(
            migrated.batching,
            "max_batch_size { value: 32 }\nbatch_timeout_micros { value: 500 }\n"
        );
        assert!(migrated.command.contains(&"--enable_batching".to_owned()));
    }

    #[test]
    fn what_has_no_meaning_is_noted_with_its_line() {
        let migrated = migrate(&repository()).unwrap();
        let lines: Vec<String> = migrated.notes.iter().map(super::super::Note::line).collect();
        let has =
            |text: &str| assert!(lines.iter().any(|l| l.contains(text)), "{text}: {lines:#?}");
        has("resnet/config.pbtxt:5: input of model resnet is left out: inputs are those");
        has("resnet/config.pbtxt:9: dynamic_batching.preferred_batch_size of model resnet");
        has("instance_group of model resnet is left out");
        has("onnx/config.pbtxt:2: model onnx is left out: onnxruntime_onnx is no SavedModel");
    }

    #[test]
    fn a_field_without_an_end_is_told_with_its_line() {
        let error = format!("{:#}", fields("name: \"m\"\ninput [ {").unwrap_err());
        assert!(error.contains("line 2: input: it has no end"), "{error}");
    }
}
