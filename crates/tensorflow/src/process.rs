//! `Process`: a worker process, started anew from our own program.

use std::io::{BufRead as _, BufReader, PipeReader, Read as _};
use std::os::fd::{AsFd as _, AsRawFd as _, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::area::Area;
use crate::error::{Error, Result};
use crate::inside::{Files, Given};
use crate::options::Options;
use crate::sandbox::Rules;
use crate::wire::{self, Order, ToWorker};

/// The longest line of a worker's output that is passed on in one piece.
const LINE_BYTES_MAX: u64 = 16 << 10;

/// What connects the server with one worker process.
pub(crate) struct Link {
    socket: Mutex<UnixStream>,
    /// Whose spans we give out.
    pub(crate) inputs: Arc<Area>,
    /// Whose spans the worker gives out.
    pub(crate) outputs: Arc<Area>,
}

impl Link {
    /// Says something to the worker. If it is gone, its supervisor finds out by itself.
    pub(crate) fn say(&self, order: Order) -> std::io::Result<()> {
        wire::send(&mut *self.socket.lock(), &ToWorker { order: Some(order) })
    }
}

/// A running worker process. Dropping it ends it.
pub(crate) struct Process {
    child: Child,
    /// What the worker says.
    pub(crate) socket: UnixStream,
    pub(crate) link: Arc<Link>,
}

impl Process {
    /// Starts a process. The thread that calls this must outlive it: the kernel ends the process
    /// with that thread.
    pub(crate) fn start(options: &Options, name: &str, rules: &Rules) -> Result<Self> {
        let (ours, theirs) =
            UnixStream::pair().map_err(|error| Error::system("cannot make a socket", &error))?;
        let inputs = Arc::new(Area::create(c"tensord-inputs", options.area_bytes)?);
        let outputs = Arc::new(Area::create(c"tensord-outputs", options.area_bytes)?);
        let files = Files {
            socket: theirs.as_fd().as_raw_fd(),
            inputs: inputs.file().as_raw_fd(),
            outputs: outputs.file().as_raw_fd(),
        };
        let (output, writer) =
            std::io::pipe().map_err(|error| Error::system("cannot make a pipe", &error))?;
        let copy =
            writer.try_clone().map_err(|error| Error::system("cannot duplicate a pipe", &error))?;
        let mut command = command(options, rules, files);
        command.stdin(Stdio::null()).stdout(copy).stderr(writer);
        let child =
            command.spawn().map_err(|error| Error::system("cannot start a worker", &error))?;
        // Drops our ends of what is the worker's.
        drop((command, theirs));
        forward(name, output);
        let socket =
            ours.try_clone().map_err(|error| Error::system("cannot use a socket", &error))?;
        let link = Arc::new(Link { socket: Mutex::new(ours), inputs, outputs });
        Ok(Self { child, socket, link })
    }

    /// The process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, in words, once it has; ends it if it has not.
    pub(crate) fn end(&mut self) -> String {
        // It holds nothing that it would have to write, so it need not be asked.
        drop(self.child.kill());
        match self.child.wait() {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        }
    }

    /// How it ended, in words, when its socket closed by itself.
    pub(crate) fn ended(&mut self) -> String {
        match self.child.wait() {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

fn command(options: &Options, rules: &Rules, files: Files) -> Command {
    let given = Given {
        library: options.library.clone(),
        area_bytes: options.area_bytes,
        n_threads: options.n_threads,
        sandbox: rules.clone(),
    };
    let mut command = Command::new(&options.program.file);
    command.args(&options.program.words).args(given.to_words(files));
    command.env_clear().envs(options.environment.iter().cloned());
    // A signal from the terminal is for the server, which ends its workers itself.
    command.process_group(0);
    let server = std::process::id();
    let passed = [files.socket, files.inputs, files.outputs];
    // SAFETY: `prepare` makes system calls only, as must be between fork and exec.
    unsafe { command.pre_exec(move || prepare(server, passed)) };
    command
}

/// Runs in the new process before it becomes a worker.
fn prepare(server: u32, passed: [RawFd; 3]) -> std::io::Result<()> {
    let check = |result: i32| {
        if result < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
    };
    // SAFETY: takes numbers only.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) })?;
    // SAFETY: takes nothing.
    let parent = unsafe { libc::getppid() };
    if u32::try_from(parent) != Ok(server) {
        // The server ended before the line above could tell the kernel.
        return Err(std::io::Error::from_raw_os_error(libc::ESRCH));
    }
    // SAFETY: takes numbers only.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })?;
    // A worker may be large, and its memory is of no use to anybody.
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit is there to be read.
    check(unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const none) })?;
    for file in passed {
        // SAFETY: takes numbers only; the file is open in the server, so it is here.
        check(unsafe { libc::fcntl(file, libc::F_SETFD, 0) })?;
    }
    Ok(())
}

/// Passes a worker's output on to our log, line by line, until it ends.
fn forward(worker: &str, output: PipeReader) {
    let worker = worker.to_owned();
    let lines = move || {
        let mut output = BufReader::new(output);
        let mut line = Vec::new();
        loop {
            line.clear();
            match output.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => return,
                Ok(_) => {
                    let text = String::from_utf8_lossy(&line);
                    let text = text.trim_end();
                    if !text.is_empty() {
                        tracing::info!(worker, "{text}");
                    }
                }
            }
        }
    };
    // Without the thread the worker's words are lost, but not the worker.
    drop(std::thread::Builder::new().name("worker-output".to_owned()).spawn(lines));
}
