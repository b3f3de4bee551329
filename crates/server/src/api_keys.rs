//! The file of `--api_keys_file`: the keys that calls need. It is read at the start, and again when
//! it changes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use api::Access;
use config::api_keys::keys;
use config::{Settling, model_config};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

/// The time between two looks at the file.
const INTERVAL: Duration = Duration::from_secs(1);

/// Keys from a file.
pub(crate) struct ApiKeysFile {
    path: PathBuf,
    /// The text that was taken or refused last.
    text: String,
    settling: Settling<String>,
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
        Ok(Self { path: path.to_owned(), text, settling: Settling::default(), access })
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
        let Some(text) = self.settling.look(text, &self.text) else { return };
        match keys(&text, &self.path) {
            Ok(keys) => {
                info!("{} API keys from {}", keys.len(), self.path.display());
                self.access.replace(keys);
            }
            Err(error) => error!("the API keys in use are kept: {error:#}"),
        }
        self.text = text;
    }
}

#[cfg(test)]
mod tests {
    use api::Digest;

    use super::*;

    #[test]
    fn a_text_is_taken_when_it_rests_and_a_wrong_one_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        let key = |name: &str| {
            let sha = Digest::of(name.as_bytes());
            format!("keys {{ name: '{name}' sha256: '{sha}' rights: 'read' models: '*' }}\n")
        };
        let both = format!("{}{}", key("a"), key("b"));
        std::fs::write(&path, &both).unwrap();
        let mut file = ApiKeysFile::open(&path).unwrap();
        let look = |file: &mut ApiKeysFile, text: &str| {
            file.look(text.to_owned());
            format!("{:?}", file.access).matches("name: ").count()
        };
        // Half of the file, between two keys, makes sense, and is not taken at once.
        assert_eq!(look(&mut file, &key("a")), 2);
        assert_eq!(look(&mut file, &both), 2);
        assert_eq!(look(&mut file, &key("a")), 2);
        assert_eq!(look(&mut file, &key("a")), 1);
        for wrong in ["", "keys {", &key("a").replace("read", "rread")] {
            for _ in 0..3 {
                assert_eq!(look(&mut file, wrong), 1, "{wrong}");
            }
        }
        assert_eq!(look(&mut file, &both), 1);
        assert_eq!(look(&mut file, &both), 2);
    }
}
