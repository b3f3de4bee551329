//! The first screen of a server: addresses, models, lines to paste, and progress while models load.
#![forbid(unsafe_code)]
#![allow(
    clippy::print_stdout,
    clippy::wildcard_enum_match_arm,
    reason = "this crate talks to the terminal; there are many dtypes"
)]

/// Prints a line to standard output. A reader that has had enough is no error.
macro_rules! say {
    ($($arg:tt)*) => {{
        use std::io::Write as _;
        drop(writeln!(std::io::stdout(), $($arg)*));
    }};
}

mod progress;
mod sample;
mod table;
mod try_line;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use api::Models;
use lifecycle::{Handle, ModelSnapshot, State};
use pages::MemoryPage;
use session::Servable;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use self::progress::{Screen, watch as watch_loads};
pub use self::sample::Samples;
use self::try_line::{Encryption, Entrance, Keys, encoded, near};

/// The time that the table waits for the models to be loaded.
const TABLE_AFTER: Duration = Duration::from_secs(1);

/// The number of models with a line to paste.
const TRY_LINES_MAX: usize = 5;

/// The addresses that the server listens on.
#[derive(Debug, Clone)]
pub struct Addresses {
    /// The address of gRPC.
    pub grpc: Option<SocketAddr>,
    /// The address of REST.
    pub rest: Option<SocketAddr>,
    /// The address of calls that change the server.
    pub management: Option<String>,
}

/// The proofs that callers have to show at the addresses.
#[derive(Debug, Clone, Copy)]
pub struct Guards {
    /// Set if the addresses speak TLS.
    pub has_tls: bool,
    /// Set if clients need a certificate.
    pub checks_clients: bool,
    /// Set if calls need a key.
    pub has_keys: bool,
}

/// The first screen.
pub struct Banner {
    /// The addresses that the server listens on.
    pub addresses: Addresses,
    /// The proofs that callers have to show there.
    pub guards: Guards,
    /// The models that are served.
    pub models: Models,
    /// Asked for the memory of all devices.
    pub memory: Box<dyn Fn() -> MemoryPage + Send + Sync>,
    /// The files of long requests.
    pub samples: Arc<Samples>,
}

impl Banner {
    /// Prints the screen when all models are loaded or have failed, or after a second; then, once
    /// the last one is, the lines for those that came later.
    pub async fn show(self, token: CancellationToken) {
        let wait = tokio::time::timeout(TABLE_AFTER, settled(&self.models));
        let Some(in_time) = token.run_until_cancelled(wait).await else { return };
        let shown = self.print();
        // What it took is not needed again.
        heap::trim();
        if in_time.is_ok() || token.run_until_cancelled(settled(&self.models)).await.is_none() {
            return;
        }
        let late = newest(&self.models);
        self.print_lines("now served", late.iter().filter(|one| !shown.contains(one.id())));
    }

    /// Prints addresses, models and lines; gives the versions that can be asked.
    fn print(&self) -> Vec<lifecycle::Id> {
        Screen::clear();
        let Addresses { grpc, rest, management } = &self.addresses;
        say!();
        if let Some(entrance) = self.entrance() {
            let elsewhere = rest.map_or("", elsewhere);
            say!("  REST    {}/v1/models{elsewhere}", entrance.base());
        }
        if let Some(address) = *grpc {
            let tls = if self.guards.has_tls { "  (TLS)" } else { "" };
            say!("  gRPC    {}{}{tls}", near(address), elsewhere(address));
        }
        if let Some(address) = management {
            say!("  manage  {address}");
        }
        say!();
        let models = self.models.snapshot();
        let models: Vec<_> = models.iter().filter(|model| model.is_configured).collect();
        let available = self.models.available();
        let memory = (self.memory)();
        let headway = |model: &str, version| self.models.headway(model, version);
        let seen = table::Seen { available: &available, memory: &memory, headway: &headway };
        for line in table::lines(&models, &seen) {
            say!("  {line}");
        }
        let newest = newest(&self.models);
        self.print_lines("try", newest.iter());
        say!();
        newest.iter().map(|handle| handle.id().clone()).collect()
    }

    /// Prints a line to paste for some of the models.
    fn print_lines<'a>(&self, title: &str, handles: impl Iterator<Item = &'a Handle<Servable>>) {
        let Some(entrance) = self.entrance() else { return };
        let mut lines = handles.map(|handle| self.line(&entrance, handle));
        let shown: Vec<String> = lines.by_ref().take(TRY_LINES_MAX).collect();
        if shown.is_empty() {
            return;
        }
        Screen::clear();
        say!("\n  {title}");
        shown.iter().for_each(|line| say!("    {line}"));
        entrance.remarks().iter().for_each(|remark| say!("    # {remark}"));
        let n_more = lines.count();
        if n_more > 0 {
            say!("    # and so on: {n_more} more models, by their names");
        }
    }

    /// The line for a model, or a remark where its input cannot be made up.
    fn line(&self, entrance: &Entrance, handle: &Handle<Servable>) -> String {
        let model = &handle.id().model;
        let save = |body: &str| self.samples.save(&format!("{}.json", encoded(model)), body);
        let body = sample::body(handle);
        let line = body.and_then(|body| entrance.line(model, &body, save));
        line.unwrap_or_else(|| {
            let base = entrance.base();
            let page = format!("{base}/v1/models/{}/metadata", encoded(model));
            format!("# {model}: its input cannot be made up; {page} tells its signatures")
        })
    }

    fn entrance(&self) -> Option<Entrance> {
        let Guards { has_tls, checks_clients, has_keys } = self.guards;
        let tls = match (has_tls, checks_clients) {
            (false, _) => Encryption::None,
            (true, false) => Encryption::Server,
            (true, true) => Encryption::Mutual,
        };
        let keys = if has_keys { Keys::Needed } else { Keys::None };
        self.addresses.rest.map(|address| Entrance { address, tls, keys })
    }
}

fn elsewhere(address: SocketAddr) -> &'static str {
    if address.ip().is_unspecified() { "  (on all addresses)" } else { "" }
}

/// The newest version of each model that can be asked.
fn newest(models: &Models) -> Vec<Handle<Servable>> {
    let mut newest: Vec<Handle<Servable>> = Vec::new();
    for handle in models.available() {
        if newest.last().is_some_and(|last| last.id().model == handle.id().model) {
            newest.pop();
        }
        newest.push(handle);
    }
    newest
}

/// Waits until all models are loaded or have failed.
async fn settled(models: &Models) {
    let mut changes: watch::Receiver<u64> = models.changes();
    loop {
        changes.mark_unchanged();
        if models.snapshot().iter().all(|model| is_settled(model)) {
            return;
        }
        if changes.changed().await.is_err() {
            return;
        }
    }
}

/// Returns whether nothing is expected of a model for the time being.
fn is_settled(model: &ModelSnapshot) -> bool {
    let is_done = |status: &lifecycle::VersionStatus| match status.state {
        State::Start | State::Loading => status.retried.is_some(),
        State::Available | State::Unloading | State::End => true,
    };
    let has_any = !model.versions.is_empty() || model.problem.is_some();
    !model.is_configured || has_any && model.versions.iter().all(is_done)
}
