//! Reads the model config file again: when it changed, and when the process is told to. Models that
//! were refused are tried again when devices have changed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::Status;
use lifecycle::Code;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::Control;
use crate::config::ModelConfigFile;
use crate::model_config;
use crate::signals::Hangup;

/// Reads the file again every so often and at each SIGHUP, until the token is cancelled. Only a
/// file that changed is applied, unless it was asked for or did not apply the last time.
pub(crate) async fn watch(
    control: Arc<Control>,
    file: Option<ModelConfigFile>,
    mut hangup: Hangup,
    token: CancellationToken,
) {
    let mut ticks = file.as_ref().and_then(|file| file.poll).map(tokio::time::interval);
    if let Some(ticks) = &mut ticks {
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    }
    let first = file.as_ref().map(|file| file.text.clone());
    let mut memory = Memory { text: first, outcome: Outcome::Applied };
    loop {
        let why = tokio::select! {
            () = token.cancelled() => return,
            () = hangup.recv() => Why::Asked,
            () = tick(&mut ticks) => Why::Due,
            () = control.active.room() => {
                control.lifecycle.try_again().await;
                continue;
            }
        };
        match &file {
            Some(file) => look(&control, &file.path, &mut memory, why).await,
            None if why == Why::Asked => warn!("SIGHUP: there is no model config file to read"),
            None => {}
        }
    }
}

async fn tick(ticks: &mut Option<tokio::time::Interval>) {
    match ticks {
        Some(ticks) => {
            ticks.tick().await;
        }
        None => std::future::pending().await,
    }
}

/// Why the file is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    Due,
    Asked,
}

/// What came of the last text that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Outcome {
    Applied,
    /// It is wrong in itself: there is no use in trying it again.
    Wrong,
    /// It was right, but not now: a label to a version that is not available yet, say.
    Refused(String),
}

/// What is remembered of the file.
#[derive(Debug)]
struct Memory {
    text: Option<String>,
    outcome: Outcome,
}

impl Memory {
    /// Whether a text is to be applied.
    fn wants(&self, text: &str, why: Why) -> bool {
        let is_new = self.text.as_deref() != Some(text);
        let is_open = matches!(self.outcome, Outcome::Refused(_));
        why == Why::Asked || is_new || is_open
    }
}

async fn look(control: &Control, file: &Path, memory: &mut Memory, why: Why) {
    let text = match read(file.to_owned()).await {
        Ok(text) => text,
        Err(problem) => {
            let problem = format!("{problem:#}");
            if memory.outcome != Outcome::Refused(problem.clone()) {
                error!("the last good model config stays: {problem}");
            }
            memory.outcome = Outcome::Refused(problem);
            return;
        }
    };
    if !memory.wants(&text, why) {
        return;
    }
    let is_new = memory.text.as_ref() != Some(&text);
    let outcome = apply(control, file, &text).await;
    match &outcome {
        Outcome::Applied => info!("read the model config file {} again", file.display()),
        Outcome::Refused(problem) if is_new || memory.outcome != outcome => {
            error!("the last good model config stays: {problem}");
        }
        Outcome::Wrong | Outcome::Refused(_) => {}
    }
    *memory = Memory { text: Some(text), outcome };
}

async fn apply(control: &Control, file: &Path, text: &str) -> Outcome {
    let name = file.display().to_string();
    let parsed = model_config::parse(text, &name).map_err(anyhow::Error::from);
    let models = match parsed.and_then(model_config::models) {
        Ok(models) => models,
        Err(mistake) => {
            error!("the last good model config stays: {mistake:#}");
            return Outcome::Wrong;
        }
    };
    match control.reload(models).await {
        Ok(applied) => {
            // Its models load while the file is watched on.
            tokio::spawn(async move {
                if let Err(problem) = applied.available().await {
                    warn!("{problem}");
                }
            });
            Outcome::Applied
        }
        Err(Status { code: Code::InvalidArgument, message, .. }) => {
            error!("the last good model config stays: {name}: {message}");
            Outcome::Wrong
        }
        Err(status) => Outcome::Refused(format!("{name}: {}", status.message)),
    }
}

/// Reads the file on a thread of its own: a file system may hang.
async fn read(file: PathBuf) -> anyhow::Result<String> {
    tokio::task::spawn_blocking(move || model_config::read_text(&file)).await?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_changed_or_did_not_apply_is_applied_again() {
        let memory = |outcome| Memory { text: Some("a".to_owned()), outcome };
        assert!(!memory(Outcome::Applied).wants("a", Why::Due));
        assert!(memory(Outcome::Applied).wants("b", Why::Due));
        assert!(memory(Outcome::Applied).wants("a", Why::Asked));
        assert!(!memory(Outcome::Wrong).wants("a", Why::Due));
        assert!(memory(Outcome::Wrong).wants("b", Why::Due));
        assert!(memory(Outcome::Refused(String::new())).wants("a", Why::Due));
    }
}
