//! The file of `--api_keys_file`: the keys that calls need. It is read at the start, and again when
//! it changes.

use std::path::{Path, PathBuf};
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use api::{Access, Digest, Key, Right};
use prost_types::Timestamp;
use proto::serving::{ApiKey, ApiKeyList};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use crate::model_config;

/// How often the file is looked at.
const INTERVAL: Duration = Duration::from_secs(1);

/// Keys from a file.
pub(crate) struct ApiKeysFile {
    path: PathBuf,
    /// The text that was taken or refused last.
    text: String,
    /// The text of the look before, if it is another.
    pending: Option<String>,
    pub(crate) access: Arc<Access>,
}

impl ApiKeysFile {
    /// Reads the file.
    ///
    /// # Errors
    /// If it cannot be read, makes no sense, or has no key: nobody could ask anything.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let text = model_config::read_text(path)?;
        let access = Arc::new(Access::new(keys(&text, path)?));
        Ok(Self { path: path.to_owned(), text, pending: None, access })
    }

    /// Looks at the file again and again until the token is cancelled.
    pub(crate) async fn follow(mut self, token: CancellationToken) {
        let mut interval = tokio::time::interval(INTERVAL);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while token.run_until_cancelled(interval.tick()).await.is_some() {
            let path = self.path.clone();
            // On a thread of its own: a file system may hang.
            let read = tokio::task::spawn_blocking(move || model_config::read_text(&path));
            // It may just be being replaced.
            if let Ok(Ok(text)) = read.await {
                self.look(text);
            }
        }
    }

    /// Takes the keys of a text that differs and was the same at two looks: half a file may make
    /// sense. Keeps those in use if something is wrong with it.
    fn look(&mut self, text: String) {
        if text == self.text {
            self.pending = None;
            return;
        }
        if self.pending.as_ref() != Some(&text) {
            self.pending = Some(text);
            return;
        }
        match keys(&text, &self.path) {
            Ok(keys) => {
                info!("{} API keys from {}", keys.len(), self.path.display());
                self.access.replace(keys);
            }
            Err(error) => error!("the API keys in use are kept: {error:#}"),
        }
        self.text = text;
        self.pending = None;
    }
}

/// The keys that a text from a file lists.
fn keys(text: &str, path: &Path) -> Result<Vec<Key>> {
    let list: ApiKeyList = if text.trim_start().starts_with('{') {
        proto::json::parse(text).map_err(|error| anyhow!("{}: {error}", path.display()))?
    } else {
        proto::text::parse(text).map_err(|error| anyhow!("{}:{error}", path.display()))?
    };
    ensure!(!list.keys.is_empty(), "{}: there is no key in it", path.display());
    let mut keys: Vec<Key> = Vec::new();
    for key in list.keys {
        let name = key.name.clone();
        let key = read(key).with_context(|| format!("{}: key {name:?}", path.display()))?;
        let is_twice = keys.iter().any(|other| other.name == name || other.digest == key.digest);
        ensure!(!is_twice, "{}: key {name:?} is there twice", path.display());
        keys.push(key);
    }
    Ok(keys)
}

fn read(key: ApiKey) -> Result<Key> {
    ensure!(!key.name.is_empty(), "it has no name");
    let digest = Digest::parse(&key.sha256);
    let digest =
        digest.context("sha256: expected 64 hexadecimals, as `tensord keys new` prints")?;
    ensure!(!key.rights.is_empty(), "it has no rights: expected infer, read or manage");
    ensure!(!key.models.is_empty(), "it is for no models: write models: \"*\" for all of them");
    let rights: Result<Vec<Right>> = key.rights.iter().map(|word| right(word)).collect();
    let expires = if key.expires.is_empty() { None } else { Some(time(&key.expires)?) };
    Ok(Key { name: key.name, digest, rights: rights?, models: key.models, expires })
}

/// The right that a word names.
pub(crate) fn right(word: &str) -> Result<Right> {
    match Right::parse(word) {
        Some(right) => Ok(right),
        None => bail!("{word:?} is no right: expected infer, read or manage"),
    }
}

/// A time as RFC 3339 writes it.
pub(crate) fn time(text: &str) -> Result<SystemTime> {
    let wrong = || format!("expires: {text:?}: expected a time as 2026-12-31T23:59:59Z");
    let stamp = Timestamp::from_str(text).ok().with_context(wrong)?;
    SystemTime::try_from(stamp).ok().with_context(wrong)
}

#[cfg(test)]
mod tests;
