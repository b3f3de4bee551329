//! Checks without serving: of the config and the files that it names (`--check_config`), and of
//! the machine (`tensord doctor`).

mod config_files;
mod findings;
mod machine;

pub use config_files::config_findings;
pub use findings::{Finding, Verdict};
pub use machine::machine_findings;

use std::process::ExitCode;

use config::{Flags, Persona};

/// Says what is wrong with flags and the files that they name. The status is 1 if anything is.
pub(crate) fn main(persona: Persona, flags: &Flags) -> ExitCode {
    let findings = config_findings(persona, flags);
    let mut n_problems = 0;
    for finding in findings.iter().filter(|finding| finding.verdict != Verdict::Ok) {
        n_problems += usize::from(finding.verdict == Verdict::Problem);
        eprintln!("{}", finding.line());
    }
    if n_problems > 0 {
        eprintln!("the config is wrong: {n_problems} to mend");
        return ExitCode::FAILURE;
    }
    let checked = findings.iter().map(|finding| &*finding.about).collect::<Vec<_>>();
    crate::say!("the config is right: {}", checked.join(", "));
    ExitCode::SUCCESS
}
