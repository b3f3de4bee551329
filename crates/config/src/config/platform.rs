//! The platform config file, which stands in for flags.

use anyhow::{Context, Result, anyhow};
use proto::serving::{PlatformConfigMap, SavedModelBundleSourceAdapterConfig, SessionBundleConfig};

use super::read_proto;
use crate::flags::Flags;

/// The settings that `--platform_config_file` gives; `None` without one.
pub(super) fn read(flags: &Flags) -> Result<Option<SessionBundleConfig>> {
    let path = &flags.platform_config_file;
    if path.is_empty() {
        return Ok(None);
    }
    bundle(&read_proto(path)?).with_context(|| format!("platform config file {path}")).map(Some)
}

fn bundle(map: &PlatformConfigMap) -> Result<SessionBundleConfig> {
    let platform = map
        .platform_configs
        .get("tensorflow")
        .ok_or_else(|| anyhow!("it has no platform called tensorflow, the only one there is"))?;
    let Some(any) = &platform.source_adapter_config else {
        return Ok(SessionBundleConfig::default());
    };
    let adapter: SavedModelBundleSourceAdapterConfig =
        any.to_msg().map_err(|error| anyhow!("{}: {error}", any.type_url))?;
    Ok(adapter.legacy_config.unwrap_or_default())
}
