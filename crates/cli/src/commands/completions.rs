//! `tensord completions`: scripts that let a shell complete the command line, and man pages. Both
//! are made from the definitions that the program itself reads.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Command, Parser, ValueEnum};
use clap_complete::Shell;
use server::say;

use crate::table::{COMMANDS, Entry, Perform};

/// Print completions for a shell, or write man pages
#[derive(Debug, Parser)]
#[command(rename_all = "snake_case", after_help = AFTER)]
pub(crate) struct Completions {
    /// What they are for
    #[arg(value_name = "WHAT")]
    what: What,
    /// Folder that man pages are written to
    #[arg(long, value_name = "DIR", default_value = ".")]
    out: PathBuf,
}

const AFTER: &str = "\
Install them:
  tensord completions bash > /etc/bash_completion.d/tensord
  tensord completions zsh > /usr/local/share/zsh/site-functions/_tensord
  tensord completions fish > ~/.config/fish/completions/tensord.fish
  tensord completions man --out /usr/local/share/man/man1";

#[derive(Debug, Clone, Copy, ValueEnum)]
enum What {
    Bash,
    Zsh,
    Fish,
    Man,
}

impl Perform for Completions {
    fn perform(self) -> Result<ExitCode> {
        match self.what {
            What::Bash => say!("{}", script(Shell::Bash)?.trim_end()),
            What::Zsh => say!("{}", script(Shell::Zsh)?.trim_end()),
            What::Fish => say!("{}", script(Shell::Fish)?.trim_end()),
            What::Man => write_pages(&self.out)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The whole program, with all commands.
fn program() -> Command {
    let about = "Serve TensorFlow SavedModels, and know every byte of their memory";
    let program = Command::new("tensord").about(about).version(env!("CARGO_PKG_VERSION"));
    program.subcommands(COMMANDS.iter().map(Entry::define))
}

fn script(shell: Shell) -> Result<String> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut program(), "tensord", &mut text);
    Ok(String::from_utf8(text)?)
}

/// Writes a page for the program and one for each command.
fn write_pages(folder: &Path) -> Result<()> {
    let cannot = || format!("cannot write man pages to {}", folder.display());
    clap_mangen::generate_to(program(), folder).with_context(cannot)
}

#[cfg(test)]
mod tests {
    use std::process::Command as Process;

    use super::*;

    /// The flags of all commands, as `--name`.
    fn flags() -> Vec<String> {
        let commands = COMMANDS.iter().map(Entry::define);
        let of = |command: Command| -> Vec<String> {
            let longs = command.get_arguments().filter_map(clap::Arg::get_long);
            longs.map(str::to_owned).collect()
        };
        commands.flat_map(of).collect()
    }

    #[test]
    fn every_command_and_flag_is_in_every_script() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = script(shell).unwrap();
            for entry in COMMANDS {
                assert!(script.contains(entry.name), "{} in {shell}", entry.name);
            }
            for flag in flags() {
                assert!(script.contains(&flag), "--{flag} in {shell}");
            }
        }
    }

    /// Bash completes a command and a flag as a person would have it.
    #[test]
    fn bash_completes_with_its_script() {
        let script = script(Shell::Bash).unwrap();
        let ask = "COMP_WORDS=(tensord predict --sig); COMP_CWORD=2; COMPREPLY=()\n\
                   _tensord tensord --sig predict; echo \"${COMPREPLY[@]}\"\n\
                   COMP_WORDS=(tensord ins); COMP_CWORD=1; COMPREPLY=()\n\
                   _tensord tensord ins tensord; echo \"${COMPREPLY[@]}\"";
        let output = Process::new("bash").args(["-c", &format!("{script}\n{ask}")]).output();
        let output = output.unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "--signature\ninspect\n");
    }

    #[test]
    fn every_command_has_a_man_page_with_its_flags() {
        let folder = tempfile::tempdir().unwrap();
        write_pages(folder.path()).unwrap();
        for entry in COMMANDS {
            let path = folder.path().join(format!("tensord-{}.1", entry.name));
            let page = std::fs::read_to_string(path).unwrap();
            let definition = entry.define();
            let shown = definition.get_arguments().filter(|flag| !flag.is_hide_set());
            for flag in shown.filter_map(clap::Arg::get_long) {
                let flag = flag.replace('-', "\\-");
                assert!(page.contains(&flag), "{flag} in the page of {}", entry.name);
            }
        }
        assert!(write_pages(&folder.path().join("none")).is_err());
    }
}
