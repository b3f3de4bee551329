//! The versions that are served: how each is batched, looked at again and again; and their queues.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use anyhow::Result;
use config::Settling;
use config::batching::{Settings, priorities};
use parking_lot::Mutex;
use session::{Batching, Engine, Priorities, QueueState, Servable};
use storage::Storage;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::active::Active;

/// The time between two looks at the files.
const EVERY: Duration = Duration::from_secs(1);

/// The versions that are served, and how each is batched.
pub(crate) struct Versions {
    settings: Settings,
    /// The settings of models in the model config.
    active: Arc<Active>,
    known: Mutex<BTreeMap<(String, i64), Known>>,
}

struct Known {
    dir: Storage,
    engine: Weak<dyn Engine>,
    /// The settings that were put in force last, or why it could not be.
    batching: Result<Batching, String>,
    priorities: Result<Priorities, String>,
    /// Parameters whose file has changed, and may just be being written.
    settling: Settling<Result<Batching, String>>,
}

/// A queue of a version.
pub(crate) struct Row {
    pub(crate) model: String,
    pub(crate) version: i64,
    pub(crate) queue: QueueState,
}

impl Versions {
    pub(crate) fn new(settings: Settings, active: Arc<Active>) -> Self {
        Self { settings, active, known: Mutex::default() }
    }

    /// Takes in a version that was loaded from a folder, and batches it as its parameters say.
    /// Fails if they are wrong.
    pub(crate) fn add(&self, id: (&str, i64), dir: Storage, servable: &Servable) -> Result<()> {
        let batching = self.settings.of_version(&dir)?;
        let priorities = priorities::read(&self.active.get(id.0))?;
        servable.engine.set_priorities(&priorities)?;
        servable.engine.set_batching(&batching)?;
        let engine = Arc::downgrade(&servable.engine);
        let (batching, priorities) = (Ok(batching), Ok(priorities));
        let known = Known { dir, engine, batching, priorities, settling: Settling::default() };
        let mut all = self.known.lock();
        all.retain(|_, known| known.engine.strong_count() > 0);
        all.insert((id.0.to_owned(), id.1), known);
        Ok(())
    }

    /// The rows of the largest batch that was asked for of a version in a folder.
    pub(crate) fn batch_rows(&self, dir: &Storage) -> usize {
        self.settings.batch_rows(dir)
    }

    /// The queues of all versions.
    pub(crate) fn queues(&self) -> Vec<Row> {
        let known = self.known.lock();
        let engines = known.iter().filter_map(|(id, known)| Some((id, known.engine.upgrade()?)));
        let engines: Vec<_> = engines.map(|(id, engine)| (id.clone(), engine)).collect();
        drop(known);
        let rows = engines.into_iter().flat_map(|((model, version), engine)| {
            let row = move |queue| Row { model: model.clone(), version, queue };
            engine.queues().into_iter().map(row)
        });
        rows.collect()
    }

    /// Reads the files and the model config again, and puts what changed in force: files when two
    /// looks saw the same. What is wrong changes nothing.
    fn look(&self) {
        self.known.lock().retain(|_, known| known.engine.strong_count() > 0);
        let ids: Vec<(String, i64)> = self.known.lock().keys().cloned().collect();
        for id in ids {
            // Files are read without the lock: a disk may hang.
            let Some(dir) = self.known.lock().get(&id).map(|known| known.dir.clone()) else {
                continue;
            };
            let batching = self.settings.of_serving(&dir).map_err(|error| format!("{error:#}"));
            let priorities = priorities::read(&self.active.get(&id.0));
            let priorities = priorities.map_err(|error| format!("{error:#}"));
            let mut all = self.known.lock();
            let Some(known) = all.get_mut(&id) else { continue };
            let batching = known.settling.look(batching, &known.batching);
            let has_priorities = known.priorities != priorities;
            if let Some(batching) = &batching {
                known.batching.clone_from(batching);
            }
            known.priorities.clone_from(&priorities);
            let Some(engine) = known.engine.upgrade() else { continue };
            drop(all);
            if let Some(batching) = batching {
                let applied = batching.and_then(|new| said(engine.set_batching(&new)));
                engine.prepare();
                tell(&id, "batching parameters", applied);
            }
            if has_priorities {
                let applied = priorities.and_then(|new| said(engine.set_priorities(&new)));
                tell(&id, "priorities", applied);
            }
        }
    }
}

fn said(applied: status::Result<()>) -> Result<(), String> {
    applied.map_err(|error| error.to_string())
}

fn tell((model, version): &(String, i64), what: &str, applied: Result<(), String>) {
    match applied {
        Ok(()) => info!(model, version, "the {what} have changed"),
        Err(error) => warn!(model, version, "the {what} stay as they were: {error}"),
    }
}

/// Puts changes of the parameters files and of models' priorities in force, until the token is
/// cancelled.
pub(crate) async fn watch(versions: Arc<Versions>, token: CancellationToken) {
    while token.run_until_cancelled(tokio::time::sleep(EVERY)).await.is_some() {
        let versions = Arc::clone(&versions);
        if tokio::task::spawn_blocking(move || versions.look()).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use session::fake::FakeEngine;

    fn rows_max(batching: &Batching) -> Option<usize> {
        batching.options().map(|options| options.batch_rows_max)
    }

    #[test]
    fn parameters_change_while_serving_and_bad_or_unfinished_ones_change_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("batching_params.pbtxt");
        let active = Arc::new(Active::default());
        let versions = Versions::new(Settings::per_model(), Arc::clone(&active));
        let told = Arc::new(FakeEngine::default());
        let servable = Servable {
            signatures: BTreeMap::new(),
            signature_defs: BTreeMap::new(),
            refused: BTreeMap::new(),
            weights: session::Weights::default(),
            engine: Arc::clone(&told) as Arc<dyn Engine>,
        };
        let storage = storage::open(&dir.path().to_string_lossy()).unwrap();
        versions.add(("m", 1), storage, &servable).unwrap();
        let write = |text: &str, n_looks: usize| {
            std::fs::write(&file, text).unwrap();
            (0..n_looks).for_each(|_| versions.look());
        };
        write("max_batch_size { value: 8 }", 3);
        let text = "name: 'm' scheduling { weight: 4 }";
        let _ = active.replace(&[proto::text::parse(text).unwrap()]);
        write("max_batch_size { value: 0 }", 3);
        // Emptied, then written bit by bit: each bit is right in itself.
        write("", 3);
        write("max_batch_size { value: 16 }", 1);
        write("max_batch_size { value: 16 } max_enqueued_batches { value: 5 }", 1);
        write("max_batch_size { value: 32 }", 1);
        assert_eq!(told.batchings.lock().len(), 2, "nothing has settled");
        versions.look();
        assert_eq!(*told.weights.lock(), [1, 4], "weights change with the model config");
        let told: Vec<_> = told.batchings.lock().iter().map(rows_max).collect();
        assert_eq!(told, [None, Some(8), Some(32)]);
    }
}
