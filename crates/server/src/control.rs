//! `Control`: which models are served. Those of the command line or the config file, or those that
//! a client put in their place; besides them those that clients added, and without those that
//! clients took away. Changes are applied one after another.

mod watch;

use std::sync::Arc;

use api::Changing;
use config::control::{Changes, Fence, Listed, NamedBy, Options, Store, roots};
use config::model_config::{self, tenants};
use lifecycle::{Applied, Lifecycle, ModelOptions};
use proto::serving::{ModelConfig, ModelConfigList};
use session::Servable;
use tokio::sync::Mutex;
use tracing::info;

use crate::active::Active;
use status::{Code, Status};
pub(crate) use watch::watch;

/// Changes which models are served.
pub(crate) struct Control {
    lifecycle: Arc<Lifecycle<Servable>>,
    active: Arc<Active>,
    fence: Arc<Fence>,
    options: Options,
    listed: Mutex<Listed>,
}

impl Control {
    /// Without any model yet.
    pub(crate) fn new(
        lifecycle: Arc<Lifecycle<Servable>>,
        active: Arc<Active>,
        fence: Arc<Fence>,
        options: Options,
    ) -> Self {
        Self { lifecycle, active, fence, options, listed: Mutex::default() }
    }

    /// Serves the first models, and those that clients added before a restart.
    pub(crate) async fn start(&self, models: Vec<ModelConfig>) -> Result<Applied, Status> {
        let changes = match self.store() {
            Some(store) => store.read().map_err(invalid)?,
            None => Changes::default(),
        };
        let mut listed = self.listed.lock().await;
        let named_by = NamedBy::Operator;
        self.apply(&mut listed, Listed { own: models, named_by, changes }).await
    }

    /// Serves these models in place of those of the command line or the file. What clients added or
    /// took away one by one stays so.
    pub(crate) async fn reload(&self, models: Vec<ModelConfig>) -> Result<Applied, Status> {
        let mut listed = self.listed.lock().await;
        let new = listed.with_own(models);
        self.apply(&mut listed, new).await
    }

    /// Serves these models and no others.
    pub(crate) async fn replace(&self, models: Vec<ModelConfig>) -> Result<Applied, Status> {
        models.iter().try_for_each(roots::check_logging)?;
        if !self.options.roots.is_empty() {
            models.iter().try_for_each(|model| roots::check(&self.options.roots, model))?;
        }
        let mut listed = self.listed.lock().await;
        let (named_by, changes) = (NamedBy::Client, Changes::default());
        self.apply(&mut listed, Listed { own: models, named_by, changes }).await
    }

    /// Serves one more model, or one with another config.
    pub(crate) async fn add(&self, model: ModelConfig) -> Result<Applied, Status> {
        roots::check(&self.options.roots, &model)?;
        info!(model = model.name, base_path = model.base_path, "added by a client");
        let mut listed = self.listed.lock().await;
        let new = listed.with(model);
        self.apply(&mut listed, new).await
    }

    /// Serves a model no longer.
    pub(crate) async fn remove(&self, name: &str) -> Result<Applied, Status> {
        roots::check_any(&self.options.roots)?;
        let mut listed = self.listed.lock().await;
        let missing = || Status::new(Code::NotFound, format!("there is no model called {name}"));
        let new = listed.without(name).ok_or_else(missing)?;
        info!(model = name, "removed by a client");
        self.apply(&mut listed, new).await
    }

    /// Puts a list into effect, if all of it is right.
    async fn apply(&self, listed: &mut Listed, new: Listed) -> Result<Applied, Status> {
        let models = new.models();
        let options: Result<Vec<ModelOptions>, Status> = models
            .iter()
            .map(|model| model_config::options(model, self.options.rules).map_err(invalid))
            .collect();
        let options = options?;
        tenants::check(&models, &self.active.all()).map_err(invalid)?;
        // Loads may begin before the lifecycle has answered.
        let before = self.active.replace(&models);
        let (old, named) = (listed.named_by_clients(), new.named_by_clients());
        self.fence.hold(old.union(&named).cloned().collect());
        let applied = match self.lifecycle.apply_config(options).await {
            Ok(applied) => applied,
            Err(error) => {
                self.active.restore(before);
                self.fence.hold(old);
                return Err(error.into());
            }
        };
        self.fence.hold(named);
        let is_changed = listed.changes != new.changes;
        *listed = new;
        if let Some(store) = self.store().filter(|_| is_changed) {
            store.write(&listed.changes).map_err(|error| {
                let text = format!("applied, but it will not survive a restart: {error:#}");
                Status::new(Code::Internal, text)
            })?;
        }
        Ok(applied)
    }

    fn store(&self) -> Option<Store> {
        self.options.state_dir.clone().map(Store::new)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is what `map_err` gives")]
fn invalid(error: anyhow::Error) -> Status {
    Status::invalid(format!("{error:#}"))
}

/// The reason that a model that was added is not available, with the code of its own failure.
fn not_added(error: lifecycle::Error) -> Status {
    match error {
        lifecycle::Error::Unavailable(models) => Status::new(models.cause(), models.to_string()),
        other => other.into(),
    }
}

impl api::Control for Control {
    fn reload(&self, models: ModelConfigList) -> Changing<'_> {
        Box::pin(async move { Ok(self.replace(models.config).await?.available().await?) })
    }

    fn add(&self, model: ModelConfig) -> Changing<'_> {
        Box::pin(async move { self.add(model).await?.available().await.map_err(not_added) })
    }

    fn remove(&self, name: String) -> Changing<'_> {
        Box::pin(async move { Ok(self.remove(&name).await?.available().await?) })
    }
}
