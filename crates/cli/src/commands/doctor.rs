//! `tensord doctor`: checks this machine and what a server would be started with, and says what to
//! do about each problem.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use clap::{ArgAction, Parser};
use config::{Flags, Persona};
use serde::Serialize;
use server::{Finding, Verdict, say};

use crate::table::Perform;

/// Check this machine, and the flags, files and folders of a server
///
/// The flags are those of `serve`. The status is 1 if there is a problem.
#[derive(Debug, Parser)]
#[command(next_line_help = true)]
pub(crate) struct Doctor {
    /// Print JSON
    #[arg(long, action = ArgAction::SetTrue)]
    json: bool,
    #[command(flatten)]
    flags: Flags,
}

/// The page that `--json` prints.
#[derive(Debug, Serialize)]
struct DoctorPage<'a> {
    findings: Vec<FindingEntry<'a>>,
}

#[derive(Debug, Serialize)]
struct FindingEntry<'a> {
    about: &'a str,
    verdict: &'static str,
    text: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    remedy: &'a str,
}

impl Perform for Doctor {
    fn perform(self) -> Result<ExitCode> {
        let mut findings = server::machine_findings(Persona::Tensord, &self.flags);
        findings.extend(given(&self.flags));
        if self.json {
            say!("{}", serde_json::to_string_pretty(&page(&findings))?);
        } else {
            findings.iter().for_each(|finding| say!("{}", finding.line()));
        }
        let has_problem = findings.iter().any(|finding| finding.verdict == Verdict::Problem);
        Ok(if has_problem { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}

/// Findings about the flags and models that were given. Without models, the machine alone is
/// looked at.
fn given(flags: &Flags) -> Vec<Finding> {
    let has_models = !flags.dirs.is_empty()
        || !flags.model_base_path.is_empty()
        || !flags.model_config_file.is_empty();
    // `serve` serves this folder if it is given none.
    let has_folder = Path::new("models").is_dir();
    match has_models || has_folder {
        true => server::config_findings(Persona::Tensord, flags),
        false => Vec::new(),
    }
}

fn page(findings: &[Finding]) -> DoctorPage<'_> {
    DoctorPage { findings: findings.iter().map(entry).collect() }
}

fn entry(finding: &Finding) -> FindingEntry<'_> {
    let Finding { about, verdict, text, remedy } = finding;
    FindingEntry { about, verdict: verdict.name(), text, remedy }
}
