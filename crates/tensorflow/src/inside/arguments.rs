//! `Arguments`: the command line of a worker process.

use std::ffi::OsString;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use crate::error::{Error, Result};
use crate::options::Sandbox;
use crate::sandbox::{GpuRules, Rules};

/// The settings that the server gives a worker at its start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Given {
    pub(crate) library: PathBuf,
    pub(crate) area_bytes: usize,
    /// The number of runs that there may be at once.
    pub(crate) n_threads: usize,
    pub(crate) sandbox: Rules,
}

/// The open files that are passed on beside the settings, by their numbers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Files {
    pub(crate) socket: RawFd,
    pub(crate) bell: RawFd,
    pub(crate) rings: RawFd,
    pub(crate) inputs: RawFd,
    pub(crate) outputs: RawFd,
}

impl Files {
    /// All of them.
    pub(crate) fn all(self) -> [RawFd; 5] {
        [self.socket, self.bell, self.rings, self.inputs, self.outputs]
    }
}

/// The arguments of a worker.
pub(super) struct Arguments {
    pub(super) given: Given,
    pub(super) socket: UnixStream,
    pub(super) bell: OwnedFd,
    pub(super) rings: OwnedFd,
    pub(super) inputs: OwnedFd,
    pub(super) outputs: OwnedFd,
}

impl Given {
    /// The words of the command line, without the program and the command.
    pub(crate) fn to_words(&self, files: Files) -> Vec<OsString> {
        let mut words = vec![
            format!("--socket={}", files.socket).into(),
            format!("--bell={}", files.bell).into(),
            format!("--rings={}", files.rings).into(),
            format!("--inputs={}", files.inputs).into(),
            format!("--outputs={}", files.outputs).into(),
            format!("--area_bytes={}", self.area_bytes).into(),
            format!("--threads={}", self.n_threads).into(),
            path("--library=", &self.library),
        ];
        let Rules { level, readable, gpu } = &self.sandbox;
        words.push(format!("--sandbox={}", level.name()).into());
        words.extend(readable.iter().map(|folder| path("--read=", folder)));
        if let Some(GpuRules { devices, scratch, mps }) = gpu {
            words.push(path("--scratch=", scratch));
            words.extend(devices.iter().map(|device| path("--device=", device)));
            words.extend(mps.iter().map(|folder| path("--mps=", folder)));
        }
        words
    }
}

fn path(flag: &str, path: &std::path::Path) -> OsString {
    let mut word = OsString::from(flag);
    word.push(path);
    word
}

impl Arguments {
    pub(super) fn parse(words: &[String]) -> Result<Self> {
        let (given, files) = parse(words)?;
        let open = |number: RawFd| {
            // SAFETY: `is_open` asks the system only for the flags of a number.
            if unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
                return Err(Error::last("a worker is started by the server, not by hand"));
            }
            // SAFETY: it is open (checked above), and was passed on for us alone.
            Ok(unsafe { OwnedFd::from_raw_fd(number) })
        };
        Ok(Self {
            given,
            socket: UnixStream::from(open(files.socket)?),
            bell: open(files.bell)?,
            rings: open(files.rings)?,
            inputs: open(files.inputs)?,
            outputs: open(files.outputs)?,
        })
    }
}

fn parse(words: &[String]) -> Result<(Given, Files)> {
    let mut given = Given {
        library: PathBuf::new(),
        area_bytes: 0,
        n_threads: 1,
        sandbox: Rules { level: Sandbox::Required, readable: Vec::new(), gpu: None },
    };
    let mut files = Files { socket: -1, bell: -1, rings: -1, inputs: -1, outputs: -1 };
    for word in words {
        let (flag, value) = word.split_once('=').unwrap_or((word, ""));
        let unknown = || Error::Malformed(format!("worker argument {word}"));
        let bad = |_| unknown();
        match flag {
            "--socket" => files.socket = value.parse().map_err(bad)?,
            "--bell" => files.bell = value.parse().map_err(bad)?,
            "--rings" => files.rings = value.parse().map_err(bad)?,
            "--inputs" => files.inputs = value.parse().map_err(bad)?,
            "--outputs" => files.outputs = value.parse().map_err(bad)?,
            "--area_bytes" => given.area_bytes = value.parse().map_err(bad)?,
            "--threads" => given.n_threads = value.parse().map_err(bad)?,
            "--library" => given.library = value.into(),
            "--sandbox" => given.sandbox.level = Sandbox::parse(value).ok_or_else(unknown)?,
            "--read" => given.sandbox.readable.push(value.into()),
            "--scratch" => gpu(&mut given).scratch = value.into(),
            "--device" => gpu(&mut given).devices.push(value.into()),
            "--mps" => gpu(&mut given).mps = Some(value.into()),
            _ => return Err(unknown()),
        }
    }
    Ok((given, files))
}

fn gpu(given: &mut Given) -> &mut GpuRules {
    given.sandbox.gpu.get_or_insert_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_understands_what_the_server_writes() {
        let gpu = GpuRules {
            devices: vec!["/dev/nvidia0".into(), "/dev/nvidiactl".into()],
            scratch: "/tmp/scratch".into(),
            mps: Some("/tmp/mps".into()),
        };
        check(Sandbox::Auto, Some(gpu));
        check(Sandbox::Required, None);
        check(Sandbox::Off, None);
    }

    #[track_caller]
    fn check(level: Sandbox, gpu: Option<GpuRules>) {
        let given = Given {
            library: "a b/lib=1.so".into(),
            area_bytes: 1 << 32,
            n_threads: 3,
            sandbox: Rules { level, readable: vec!["/m".into(), "/n".into()], gpu },
        };
        let files = Files { socket: 5, bell: 8, rings: 9, inputs: 6, outputs: 7 };
        let words = given.to_words(files).into_iter().map(|word| word.into_string().unwrap());
        let (parsed, numbers) = parse(&words.collect::<Vec<_>>()).unwrap();
        assert_eq!(parsed, given);
        assert_eq!(numbers.all(), files.all());
    }

    #[test]
    fn what_was_typed_by_hand_is_refused() {
        for words in [&["--socket=999"][..], &["--port=1"], &["--socket=x"], &[]] {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            assert!(Arguments::parse(&words).is_err(), "{words:?}");
        }
    }
}
