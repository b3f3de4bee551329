//! Reads the model config file again: when it changed, and when the process is told to. A file that
//! is just being written is left until it has settled, and one that says nothing changes nothing.
//! Models that were refused are tried again when devices have changed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use config::{ModelConfigFile, Settling, model_config};
use status::{Code, Status};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::Control;
use crate::signals::Hangup;

/// The time that a file that changed must stay the same before it is applied.
const SETTLE: Duration = Duration::from_millis(200);

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
    let first = file.as_ref().map(|file| file.text.clone()).unwrap_or_default();
    let mut memory = Memory::new(first);
    loop {
        let settled = memory.settling.is_open().then(|| Instant::now() + SETTLE);
        let why = tokio::select! {
            () = token.cancelled() => return,
            () = hangup.recv() => Why::Asked,
            () = tick(&mut ticks) => Why::Due,
            () = sleep_until(settled) => Why::Due,
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

async fn sleep_until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// The cause of a read of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    Due,
    Asked,
}

/// The outcome of the last text that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Outcome {
    Applied,
    /// It is wrong in itself: there is no use in trying it again.
    Wrong,
    /// It was right, but not now: a label to a version that is not available yet, say.
    Refused(String),
}

/// The memory of the file.
#[derive(Debug)]
struct Memory {
    /// The last text that was applied, or was to be.
    text: String,
    outcome: Outcome,
    settling: Settling<String>,
}

impl Memory {
    fn new(text: String) -> Self {
        Self { text, outcome: Outcome::Applied, settling: Settling::default() }
    }

    /// Takes in a text that was read, and gives it if it is to be applied.
    fn wants(&mut self, text: String, why: Why) -> Option<String> {
        if self.text != text {
            return self.settling.look(text, &self.text);
        }
        self.settling = Settling::default();
        let is_open = matches!(self.outcome, Outcome::Refused(_));
        (why == Why::Asked || is_open).then_some(text)
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
    let Some(text) = memory.wants(text, why) else { return };
    let is_new = memory.text != text;
    let outcome = apply(control, file, &text).await;
    match &outcome {
        Outcome::Applied => {
            let (who, result) = ("the model config file", "OK");
            info!(target: "tensord::audit", who, result, "read {} again", file.display());
        }
        Outcome::Refused(problem) if is_new || memory.outcome != outcome => {
            error!("the last good model config stays: {problem}");
        }
        Outcome::Wrong | Outcome::Refused(_) => {}
    }
    (memory.text, memory.outcome) = (text, outcome);
}

async fn apply(control: &Control, file: &Path, text: &str) -> Outcome {
    let name = file.display().to_string();
    let parsed = model_config::parse(text, &name).map_err(anyhow::Error::from);
    let models = match parsed.and_then(model_config::listed) {
        Ok(Some(models)) => models,
        Ok(None) => {
            warn!(
                "the last good model config stays: {name} lists nothing; to serve no models, say \
                 model_config_list {{}}"
            );
            return Outcome::Wrong;
        }
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

    /// The result of a memory whose last text was `a` makes of texts that are read one after
    /// another.
    #[track_caller]
    fn check(outcome: Outcome, why: Why, texts: &[(&str, Option<&str>)]) {
        let mut memory = Memory { outcome, ..Memory::new("a".to_owned()) };
        for (text, expected) in texts {
            assert_eq!(memory.wants((*text).to_owned(), why).as_deref(), *expected, "{text}");
        }
    }

    #[test]
    fn only_what_changed_or_did_not_apply_is_applied_again() {
        let changed = [("b", None), ("b", Some("b"))];
        check(Outcome::Applied, Why::Due, &[("a", None), ("a", None)]);
        check(Outcome::Applied, Why::Due, &changed);
        check(Outcome::Applied, Why::Asked, &[("a", Some("a"))]);
        check(Outcome::Wrong, Why::Due, &[("a", None), ("a", None)]);
        check(Outcome::Wrong, Why::Due, &changed);
        check(Outcome::Refused(String::new()), Why::Due, &[("a", Some("a"))]);
    }

    #[test]
    fn a_text_that_is_being_written_is_left_until_it_has_settled() {
        let written = [("", None), ("b", None), ("bc", None), ("bc", Some("bc"))];
        for why in [Why::Due, Why::Asked] {
            check(Outcome::Applied, why, &written);
        }
        check(Outcome::Applied, Why::Due, &[("", None), ("a", None), ("", None), ("a", None)]);
    }
}
