//! Tenants: models of different ones never share a worker process, and no worker reads the folder
//! of another tenant's model.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Result, bail};
use proto::serving::ModelConfig;

use super::folder;

/// Refuses models whose tenants could not be kept apart.
///
/// # Errors
/// If the folder of a model lies below that of another tenant's model, whose worker reads all that
/// is there, or if a model that is `served` changes its tenant: it may be in a worker with others.
pub fn check(models: &[ModelConfig], served: &BTreeMap<String, Arc<ModelConfig>>) -> Result<()> {
    for ModelConfig { name, tenant, .. } in models {
        if let Some(before) = served.get(name).filter(|before| before.tenant != *tenant) {
            bail!(
                "model {name}: tenant {tenant:?}, but it is served for tenant {:?}; remove the \
                 model first, then add it for the other tenant",
                before.tenant
            );
        }
    }
    let has_one = models.windows(2).all(|pair| pair[0].tenant == pair[1].tenant);
    if has_one { Ok(()) } else { check_folders(models) }
}

fn check_folders(models: &[ModelConfig]) -> Result<()> {
    // A folder that is not there yet is taken as it is written.
    let real = |model| folder(model).canonicalize().unwrap_or_else(|_| folder(model).to_owned());
    let folders: Vec<(&ModelConfig, PathBuf)> =
        models.iter().map(|model| (model, real(model))).collect();
    for (model, inner) in &folders {
        let holds = |(other, outer): &&(&ModelConfig, PathBuf)| {
            other.tenant != model.tenant && outer != inner && inner.starts_with(outer)
        };
        let Some((other, _)) = folders.iter().find(holds) else { continue };
        bail!(
            "model {} of tenant {:?}: base_path {} lies below that of model {} of tenant {:?}, \
             which could read it; give each tenant a folder of its own",
            model.name,
            model.tenant,
            model.base_path,
            other.name,
            other.tenant
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Models as `name:tenant:path`.
    fn models(text: &str) -> Vec<ModelConfig> {
        let model = |word: &str| {
            let mut parts = word.splitn(3, ':').map(str::to_owned);
            let mut next = || parts.next().unwrap();
            let (name, tenant, base_path) = (next(), next(), next());
            ModelConfig { name, tenant, base_path, ..ModelConfig::default() }
        };
        text.split_whitespace().map(model).collect()
    }

    #[track_caller]
    fn refused(served: &str, new: &str, expected: &str) {
        let served = models(served).into_iter().map(|one| (one.name.clone(), Arc::new(one)));
        let outcome = check(&models(new), &served.collect());
        let text = outcome.err().map_or(String::new(), |error| error.to_string());
        assert!(text.contains(expected) && text.is_empty() == expected.is_empty(), "{text}");
    }

    #[test]
    fn tenants_have_folders_that_do_not_lie_in_each_other() {
        refused("", "a:x:/m/a b:y:/m/b c::/m/c", "");
        refused("", "a:x:/m/a b:x:/m/a/b", "");
        refused("", "a:x:/m/a b:y:/m/a", "");
        refused("", "a:x:/m/a b:y:/m/ab", "");
        refused("", "a:x:/m/a b:y:/m/a/b", "model b of tenant \"y\": base_path /m/a/b lies below");
        refused("", "a::file:///m b:y:/m/b", "lies below that of model a of tenant \"\"");
    }

    #[test]
    fn a_model_that_is_served_keeps_its_tenant() {
        refused("a:x:/m/a", "a:x:/m/b b:y:/n", "");
        refused("a:x:/m/a", "a:y:/m/a", "served for tenant \"x\"; remove the model first");
        refused("a:x:/m/a", "a::/m/a", "served for tenant \"x\"");
    }
}
