//! The confinement of a worker: a SavedModel is a program, and need not be trusted.
//!
//! Three layers, each of which holds without the others: a worker has no capability and cannot
//! gain one ([`privileges`]); Landlock lets it open its models, its libraries and few files of the
//! system ([`files`]); seccomp lets it make the system calls that computing takes ([`calls`]).
//! `docs/engines.md` has the table of what a worker sees.

mod calls;
mod files;
mod privileges;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use crate::options::Sandbox;

/// The rules for one worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rules {
    /// The parts of the sandbox that must be had.
    pub(crate) level: Sandbox,
    /// The folders of models and libraries that the worker reads.
    pub(crate) readable: Vec<PathBuf>,
    /// The additional rules that CUDA needs; `None` for a worker that uses no GPU.
    pub(crate) gpu: Option<GpuRules>,
}

/// The rules that CUDA needs beyond those of all workers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct GpuRules {
    /// The device files of the driver.
    pub(crate) devices: Vec<PathBuf>,
    /// A folder of this worker alone, for temporary files and compiled kernels.
    pub(crate) scratch: PathBuf,
    /// The folder of the sockets and pipes of CUDA's multi-process service, if it is used.
    pub(crate) mps: Option<PathBuf>,
}

/// Enters the sandbox, before any thread is started and anything foreign is loaded. Gives the
/// parts of it that could not be had, in words.
pub(crate) fn enter(rules: &Rules) -> Vec<String> {
    let mut missing = Vec::new();
    let mut note = |part: &str, outcome: Result<(), String>| {
        if let Err(why) = outcome {
            missing.push(format!("{part} ({why})"));
        }
    };
    note("no_new_privs", privileges::gain_none());
    if rules.level == Sandbox::Off {
        return missing;
    }
    note("an empty set of capabilities", privileges::drop_all());
    note("Landlock", files::enter(rules));
    note("seccomp", calls::enter(rules));
    missing
}

/// The parts of the sandbox that this kernel lacks, in words. Confines nobody.
pub fn lacking() -> Vec<String> {
    let parts = [("Landlock", files::probe()), ("seccomp", calls::probe())];
    let lacking = parts.into_iter().filter_map(|(part, probed)| Some((part, probed.err()?)));
    lacking.map(|(part, why)| format!("{part} ({why})")).collect()
}
