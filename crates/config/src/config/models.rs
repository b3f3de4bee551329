//! The models that the command line and the environment name.

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use proto::serving::ModelConfig;
use proto::serving::file_system_storage_path_source_config::ServableVersionPolicy;
use proto::serving::file_system_storage_path_source_config::servable_version_policy::{
    PolicyChoice, Specific,
};

use crate::discover::discover;
use crate::flags::Flags;
use crate::model_config::model;
use crate::persona::Persona;

/// The name of the model that the container image serves unless its environment says otherwise.
const IMAGE_NAME: &str = "model";
const IMAGE_FOLDER: &str = "/models";

/// The models that the flags name, by pairs or by folders; else the environment's.
pub(super) fn models(persona: Persona, flags: &Flags) -> Result<Vec<ModelConfig>> {
    let mut models = pairs(flags, &image_pair(&environment()))?;
    let mut dirs = flags.dirs.clone();
    if models.is_empty() && dirs.is_empty() {
        let environment = environment();
        if environment.0.is_some() || environment.1.is_some() {
            let (name, path) = image_pair(&environment);
            return Ok(vec![model(name, absolute(&path)?)]);
        }
        ensure!(
            persona == Persona::Tensord,
            "Both server_options.model_base_path and server_options.model_config_file are empty!"
        );
        let demo = PathBuf::from("models");
        ensure!(
            demo.is_dir(),
            "nothing to serve: give a folder (a SavedModel, a model with versions, or a folder of \
             models), --model_base_path or --model_config_file"
        );
        dirs.push(demo);
    }
    for found in discover(&dirs)? {
        let base_path = found.base_path.to_string_lossy().into_owned();
        models.push(ModelConfig {
            model_version_policy: found.version.map(only),
            ..model(found.name, base_path)
        });
    }
    Ok(models)
}

/// The policy that serves one version and no other.
fn only(version: i64) -> ServableVersionPolicy {
    let specific = Specific { versions: vec![version] };
    ServableVersionPolicy { policy_choice: Some(PolicyChoice::Specific(specific)) }
}

/// `MODEL_NAME` and `MODEL_BASE_PATH`.
type Environment = (Option<String>, Option<String>);

fn environment() -> Environment {
    let read = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    (read("MODEL_NAME"), read("MODEL_BASE_PATH"))
}

/// The name and base path that the container image's entry point gives.
fn image_pair((name, folder): &Environment) -> (String, String) {
    let name = name.clone().unwrap_or_else(|| IMAGE_NAME.to_owned());
    let folder = folder.as_deref().unwrap_or(IMAGE_FOLDER);
    let path = format!("{folder}/{name}");
    (name, path)
}

/// Names and base paths, each name with the path beside it. The pair that the container image's
/// entry point puts before what it was given yields to any other, as the last flag counts there.
fn pairs(flags: &Flags, image: &(String, String)) -> Result<Vec<ModelConfig>> {
    let (names, paths) = (&flags.model_name, &flags.model_base_path);
    if names.is_empty() && paths.len() == 1 {
        return Ok(vec![model("default".to_owned(), absolute(&paths[0])?)]);
    }
    if names.len() == 1 && paths.is_empty() && !flags.dirs.is_empty() {
        bail!("--model_name needs --model_base_path: a folder is served under its own name");
    }
    if names.len() != paths.len() {
        bail!(
            "{} --model_name but {} --model_base_path: give one base path for each name",
            names.len(),
            paths.len()
        );
    }
    let mut pairs: Vec<(&String, &String)> = names.iter().zip(paths).collect();
    if pairs.len() > 1 && (pairs[0].0, pairs[0].1) == (&image.0, &image.1) {
        pairs.remove(0);
    }
    pairs.into_iter().map(|(name, path)| Ok(model(name.clone(), absolute(path)?))).collect()
}

/// A path that does not depend on where the server was started; a URL stays.
fn absolute(path: &str) -> Result<String> {
    if path.contains("://") {
        return Ok(path.to_owned());
    }
    let path = std::path::absolute(path).with_context(|| format!("base path {path}"))?;
    Ok(path.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(args: &[&str]) -> Flags {
        crate::flags::parse(args)
    }

    #[track_caller]
    fn check(args: &[&str], expected: &[(&str, &str)]) {
        let image = image_pair(&(None, None));
        let found = pairs(&flags(args), &image).unwrap();
        let found: Vec<(&str, &str)> =
            found.iter().map(|m| (m.name.as_str(), m.base_path.as_str())).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn names_go_with_the_base_paths_beside_them() {
        check(&["--model_base_path=/m"], &[("default", "/m")]);
        let two =
            ["--model_name=a", "--model_base_path=/a", "--model_base_path=/b", "--model_name=b"];
        check(&two, &[("a", "/a"), ("b", "/b")]);
        let uneven = flags(&["--model_name=a", "--model_base_path=/a", "--model_name=b"]);
        assert!(pairs(&uneven, &image_pair(&(None, None))).is_err());
    }

    #[test]
    fn the_image_pair_yields_to_any_other() {
        let image = ["--model_name=model", "--model_base_path=/models/model"];
        check(&image, &[("model", "/models/model")]);
        let more = [&image[..], &["--model_name=a", "--model_base_path=/a"]].concat();
        check(&more, &[("a", "/a")]);
        let other = (Some("x".to_owned()), Some("/y".to_owned()));
        assert_eq!(image_pair(&other), ("x".to_owned(), "/y/x".to_owned()));
    }
}
