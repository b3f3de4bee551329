//! `tensorflow_model_server`: starts tensord under the name of the program that it replaces, and so
//! with its command line and its defaults.
//!
//! A second copy of tensord would take as long to build as the first, so this program only finds
//! `tensord`, in its own folder or else on the path of programs, and becomes it.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// The name by which tensord knows whose command line it takes.
const NAME: &str = "tensorflow_model_server";

/// The exit status of TensorFlow Serving when it cannot start.
const REFUSED: u8 = 255;

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let mut tried = Vec::new();
    for file in candidates() {
        // This returns only if the file is no program that can be started.
        let error = Command::new(&file).arg0(NAME).args(&words).exec();
        tried.push(format!("{}: {error}", file.display()));
    }
    eprintln!(
        "error: {NAME} starts tensord, which is neither in its own folder nor on the PATH; copy \
         tensord there ({})",
        tried.join("; ")
    );
    ExitCode::from(REFUSED)
}

/// Returns the paths where tensord may be: beside this program, links followed, and on the path of
/// programs.
fn candidates() -> Vec<PathBuf> {
    let own = std::env::current_exe().ok();
    let beside = own.iter().filter_map(|file| Some(file.parent()?.join("tensord")));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|folder| folder.join("tensord"));
    beside.chain(on_path.filter(|file| file.is_file())).collect()
}
