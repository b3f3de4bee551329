//! What a worker may do: a SavedModel is a program, and need not be trusted.
//!
//! It gains no privileges, ever. Where the kernel has Landlock it reads only the library, the
//! system's folders and its models, writes nothing but devices, and signals nobody; where it has
//! seccomp it opens no socket, starts no program and looks into no other process.

mod landlock;
mod seccomp;

use std::path::PathBuf;

/// What is allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rules {
    /// Whether there is more than `no_new_privs`.
    pub(crate) is_on: bool,
    /// Whether drivers of GPUs are used, which need temporary files and programs of their own.
    pub(crate) has_gpu: bool,
    /// The folders that may be read.
    pub(crate) readable: Vec<PathBuf>,
}

/// Enters the sandbox, before any thread is started and anything foreign is loaded. Gives what of
/// it could not be had, in words.
pub(crate) fn enter(rules: &Rules) -> Vec<String> {
    let mut missing = Vec::new();
    if let Err(error) = no_new_privileges() {
        missing.push(format!("no_new_privs ({error})"));
    }
    if !rules.is_on {
        return missing;
    }
    if let Err(why) = landlock::enter(rules) {
        missing.push(format!("Landlock ({why})"));
    }
    if let Err(why) = seccomp::enter(rules) {
        missing.push(format!("seccomp ({why})"));
    }
    missing
}

fn no_new_privileges() -> std::io::Result<()> {
    // SAFETY: takes numbers only.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } == 0 {
        return Ok(());
    }
    Err(std::io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::net::{TcpListener, UdpSocket};
    use std::process::Command;

    use super::*;

    /// Runs `work` on a thread in the sandbox, which holds for that thread alone.
    fn inside<T: Send>(
        has_gpu: bool,
        readable: Vec<PathBuf>,
        work: impl FnOnce() -> T + Send,
    ) -> T {
        let rules = Rules { is_on: true, has_gpu, readable };
        let confined = move || {
            let missing = enter(&rules);
            assert!(missing.is_empty(), "this kernel lacks {missing:?}");
            work()
        };
        std::thread::scope(|scope| scope.spawn(confined).join().unwrap())
    }

    #[test]
    fn a_worker_opens_no_socket_and_starts_no_program() {
        inside(false, Vec::new(), || {
            assert!(TcpListener::bind("127.0.0.1:0").is_err());
            assert!(UdpSocket::bind("127.0.0.1:0").is_err());
            assert!(std::os::unix::net::UnixDatagram::unbound().is_err());
            assert!(Command::new("/bin/true").status().is_err());
        });
        inside(true, Vec::new(), || {
            assert!(TcpListener::bind("127.0.0.1:0").is_err());
            assert!(std::os::unix::net::UnixDatagram::unbound().is_ok());
        });
    }

    #[test]
    fn a_worker_reads_its_models_and_writes_nothing() {
        let (model, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for folder in [&model, &other] {
            fs::write(folder.path().join("file"), "text").unwrap();
        }
        inside(false, vec![model.path().to_owned()], || {
            assert_eq!(fs::read(model.path().join("file")).unwrap(), b"text");
            assert!(fs::read(other.path().join("file")).is_err());
            assert!(File::create(model.path().join("new")).is_err());
            assert!(File::create(other.path().join("new")).is_err());
            assert!(fs::remove_file(model.path().join("file")).is_err());
            assert!(fs::write("/dev/null", "fine").is_ok());
        });
    }

    #[test]
    fn a_worker_signals_nobody_but_itself() {
        inside(false, Vec::new(), || {
            let parent = std::os::unix::process::parent_id();
            // SAFETY: signal 0 only asks whether one could be sent.
            let to_parent = unsafe { libc::kill(i32::try_from(parent).unwrap(), 0) };
            let own = std::process::id();
            // SAFETY: as above.
            let to_self = unsafe { libc::kill(i32::try_from(own).unwrap(), 0) };
            assert_eq!((to_parent, to_self), (-1, 0));
        });
    }
}
