//! `Process`: a worker process, started anew from our own program.

use std::ffi::c_uint;
use std::io::{BufRead as _, BufReader, PipeReader, Read as _};
use std::os::fd::{AsFd as _, AsRawFd as _, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use parking_lot::Mutex;
use tempfile::TempDir;

use crate::area::Area;
use crate::bell::Bell;
use crate::error::{Error, Result};
use crate::inside::{Files, Given};
use crate::options::Options;
use crate::ring::{Direction, RINGS_BYTES, Reader, Writer};
use crate::wire::{Order, ToWorker};
use crate::worker::Role;

/// The longest line of a worker's output that is passed on in one piece.
const LINE_BYTES_MAX: u64 = 16 << 10;

/// The files that are closed one by one where the kernel cannot close all at once.
const FILES_MAX: RawFd = 1 << 16;

/// A worker that sleeps is woken for what was freed when it is this part of its outputs.
const QUIETLY_FREED: u64 = 8;

/// The connection of the server with one worker process.
pub(crate) struct Link {
    orders: Mutex<Orders>,
    /// The area whose spans we give out.
    pub(crate) inputs: Arc<Area>,
    /// The area whose spans the worker gives out.
    pub(crate) outputs: Arc<Area>,
}

/// The orders to a worker.
struct Orders {
    writer: Writer,
    /// The bytes of outputs that were freed since it was last woken.
    freed_bytes: u64,
}

impl Orders {
    fn push(&mut self, order: Order) -> Result<()> {
        self.writer.push(&ToWorker { order: Some(order) })
    }

    fn wake(&mut self) {
        self.freed_bytes = 0;
        if self.writer.has_sleeper() {
            self.writer.wake();
        }
    }
}

impl Link {
    /// Says something to the worker. If it is gone, its supervisor finds out by itself.
    pub(crate) fn say(&self, order: Order) -> Result<()> {
        let mut orders = self.orders.lock();
        orders.push(order)?;
        orders.wake();
        Ok(())
    }

    /// Wakes the worker for an order that is being prepared, so that it is awake when that comes.
    pub(crate) fn rouse(&self) {
        self.orders.lock().wake();
    }

    /// Says that a block of outputs is no longer needed. A worker that sleeps hears of it with the
    /// next order; it is woken only if much was freed since the last.
    pub(crate) fn free(&self, offset: u64, bytes: u64) -> Result<()> {
        let mut orders = self.orders.lock();
        orders.push(Order::Free(offset))?;
        orders.freed_bytes += bytes;
        if orders.freed_bytes >= self.outputs.len() / QUIETLY_FREED {
            orders.wake();
        }
        Ok(())
    }

    /// Says on what did not fit before. Gives whether there is still more.
    pub(crate) fn say_on(&self) -> Result<bool> {
        let mut orders = self.orders.lock();
        if !orders.writer.has_waiting() {
            return Ok(false);
        }
        let has_more = !orders.writer.flush()?;
        orders.wake();
        Ok(has_more)
    }
}

/// A running worker process. Dropping it ends it.
pub(crate) struct Process {
    child: Child,
    /// Set when the end of the process was waited for: then its number may be another's.
    has_ended: bool,
    /// The socket that is closed when the worker ends; nothing is sent there.
    pub(crate) socket: UnixStream,
    /// The worker's answers, and the bell that it rings after one.
    pub(crate) answers: Reader,
    pub(crate) bell: Bell,
    pub(crate) link: Arc<Link>,
    /// The folder that it may write to, if it uses a GPU; removed with the process.
    _scratch: Option<TempDir>,
}

impl Process {
    /// Starts a process. The thread that calls this must outlive it: the kernel ends the process
    /// with that thread.
    pub(crate) fn start(
        options: &Options,
        role: &Role,
        log: impl Fn(&str) + Send + 'static,
    ) -> Result<Self> {
        let (ours, theirs) =
            UnixStream::pair().map_err(|error| Error::system("cannot make a socket", &error))?;
        let inputs = Arc::new(Area::create(c"tensord-inputs", options.area_bytes)?);
        let outputs = Arc::new(Area::create(c"tensord-outputs", options.area_bytes)?);
        let rings = Arc::new(Area::create(c"tensord-rings", RINGS_BYTES)?);
        let bell = Bell::new()?;
        let files = Files {
            socket: theirs.as_fd().as_raw_fd(),
            bell: bell.file().as_raw_fd(),
            rings: rings.file().as_raw_fd(),
            inputs: inputs.file().as_raw_fd(),
            outputs: outputs.file().as_raw_fd(),
        };
        let (output, writer) =
            std::io::pipe().map_err(|error| Error::system("cannot make a pipe", &error))?;
        let copy =
            writer.try_clone().map_err(|error| Error::system("cannot duplicate a pipe", &error))?;
        let scratch = role.rules.gpu.as_ref().map(|_| scratch_folder()).transpose()?;
        let mut command = command(options, role, files, scratch.as_ref().map(TempDir::path));
        command.stdin(Stdio::null()).stdout(copy).stderr(writer);
        let child =
            command.spawn().map_err(|error| Error::system("cannot start a worker", &error))?;
        // Drops our ends of what is the worker's.
        drop((command, theirs));
        forward(output, log);
        let writer = Writer::new(&rings, Direction::Orders);
        let orders = Mutex::new(Orders { writer, freed_bytes: 0 });
        let link = Arc::new(Link { orders, inputs, outputs });
        let answers = Reader::new(&rings, Direction::Answers);
        Ok(Self { child, has_ended: false, socket: ours, answers, bell, link, _scratch: scratch })
    }

    /// The process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns in words how the process ended, once it has; ends it if it has not. One that has
    /// closed its socket but goes on is ended as well.
    pub(crate) fn end(&mut self) -> String {
        // It holds nothing that it would have to write, so it need not be asked.
        if !self.has_ended {
            let group = -self.child.id().cast_signed();
            // The programs that it started are of its group, which the sandbox has them stay in.
            // SAFETY: takes numbers only; the group is there as long as its end was not waited for.
            unsafe { libc::kill(group, libc::SIGKILL) };
        }
        self.has_ended = true;
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

/// A new folder that only this user can read.
fn scratch_folder() -> Result<TempDir> {
    tempfile::Builder::new()
        .prefix("tensord-worker-")
        .tempdir()
        .map_err(|error| Error::system("cannot make a folder for temporary files", &error))
}

fn command(options: &Options, role: &Role, files: Files, scratch: Option<&Path>) -> Command {
    let mut sandbox = role.rules.clone();
    if let (Some(gpu), Some(scratch)) = (&mut sandbox.gpu, scratch) {
        scratch.clone_into(&mut gpu.scratch);
    }
    let given = Given {
        library: options.library.clone(),
        area_bytes: options.area_bytes,
        n_threads: options.n_threads,
        sandbox,
    };
    let mut command = Command::new(&options.program.file);
    command.args(&options.program.words).args(given.to_words(files));
    command.env_clear().envs(options.environment.iter().cloned());
    command.envs(role.placement.environment());
    // Temporary files, and kernels that the driver compiles, which it keeps below the home folder.
    for name in ["TMPDIR", "HOME", "CUDA_CACHE_PATH"] {
        command.envs(scratch.map(|folder| (name, folder)));
    }
    // A signal from the terminal is for the server, which ends its workers itself.
    command.process_group(0);
    let server = std::process::id();
    let passed = files.all();
    // SAFETY: `prepare` makes system calls only, as must be between fork and exec.
    unsafe { command.pre_exec(move || prepare(server, passed)) };
    command
}

/// Runs in the new process before it becomes a worker.
fn prepare(server: u32, passed: [RawFd; 5]) -> std::io::Result<()> {
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
    close_all_on_exec();
    for file in passed {
        // SAFETY: takes numbers only; the file is open in the server, so it is here.
        check(unsafe { libc::fcntl(file, libc::F_SETFD, 0) })?;
    }
    Ok(())
}

/// Has all files but the standard ones closed when the process becomes a worker: the server may
/// have inherited some that it does not know of. They are not closed at once, for the failure of
/// the start is told through one of them.
fn close_all_on_exec() {
    let first: c_uint = 3;
    // SAFETY: takes numbers only.
    let failed = unsafe {
        libc::syscall(libc::SYS_close_range, first, c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC)
    };
    if failed == 0 {
        return;
    }
    // Kernels before 5.11 cannot do it at once. A number that is no file does no harm.
    for file in 3..FILES_MAX {
        // SAFETY: takes numbers only.
        unsafe { libc::fcntl(file, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
}

/// Passes a worker's output on, line by line, until it ends.
fn forward(output: PipeReader, log: impl Fn(&str) + Send + 'static) {
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
                        log(text);
                    }
                }
            }
        }
    };
    // Without the thread the worker's words are lost, but not the worker.
    drop(std::thread::Builder::new().name("worker-output".to_owned()).spawn(lines));
}
