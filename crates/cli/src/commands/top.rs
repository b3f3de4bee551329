//! `tensord top`: memory, queues and models of a running server, again and again: as a screen on a
//! terminal, else as text.

mod figures;
mod history;
mod queues;
mod screen;
mod view;

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Parser;
use pages::{MemoryPage, ModelListPage, SchedulerPage};
use serde_json::json;
use server::say;

use super::memory::table;
use super::remote::{PageClient, ServerArgs};
use crate::table::Perform;
use queues::Look;

/// Show memory and queues of a running server, again and again
#[derive(Debug, Parser)]
#[command(rename_all = "snake_case")]
pub(crate) struct Top {
    #[command(flatten)]
    server: ServerArgs,
    /// Seconds between two looks
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    every: f64,
    /// How often to look; 0 means until it is stopped
    #[arg(long, value_name = "N", default_value_t = 0)]
    times: u64,
    /// Print the pages of each look as a line of JSON
    #[arg(long)]
    json: bool,
}

/// The pages of one look.
#[derive(Debug, Clone)]
struct TopPages {
    memory: MemoryPage,
    scheduler: SchedulerPage,
    models: ModelListPage,
    at: Instant,
}

impl TopPages {
    fn ask(client: &mut PageClient) -> Result<Self> {
        Ok(Self {
            memory: client.page("/v1/memory")?,
            scheduler: client.page("/v1/scheduler")?,
            models: client.page("/v1/models:list")?,
            at: Instant::now(),
        })
    }
}

impl Perform for Top {
    fn perform(self) -> Result<ExitCode> {
        ensure!(
            self.every.is_finite() && self.every >= 0.1,
            "--every is at least a tenth of a second"
        );
        let client = PageClient::new(&self.server)?;
        if std::io::stdout().is_terminal() && !self.json {
            screen::run(&self, client)?;
        } else {
            self.print(client)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Top {
    fn pause(&self) -> Duration {
        Duration::from_secs_f64(self.every)
    }

    /// Returns whether a look is the last one.
    fn is_last(&self, look: u64) -> bool {
        look == self.times
    }

    /// Prints looks for a program, or for a person who keeps them.
    fn print(&self, mut client: PageClient) -> Result<()> {
        let (_never, pause) = std::sync::mpsc::channel::<()>();
        let mut before: Option<Look> = None;
        for look in 1.. {
            let pages = TopPages::ask(&mut client)?;
            if self.json {
                let TopPages { memory, scheduler, models, .. } = &pages;
                say!("{}", json!({ "memory": memory, "scheduler": scheduler, "models": models }));
            } else {
                let seen = Look::new(pages.scheduler, pages.at);
                let gap = if before.is_some() { "\n" } else { "" };
                say!("{gap}{}", table(&pages.memory).trim_end());
                say!("\n{}", seen.table(before.as_ref()).trim_end());
                before = Some(seen);
            }
            if self.is_last(look) {
                break;
            }
            let _ = pause.recv_timeout(self.pause());
        }
        Ok(())
    }
}
