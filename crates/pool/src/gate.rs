//! `Gate`: how a job is opened, joined, closed and left.
//!
//! `round` is odd while a job is open. A worker that joins first counts itself in `inside` and then
//! looks at `round` again; a caller that closes first changes `round` and then looks at `inside`.
//! Both are sequentially consistent, so either the worker sees that the job is closed and leaves
//! without touching it, or the caller sees the worker and waits. Hence the job, which borrows from
//! the caller's stack, is never touched after `close` returned.

use std::any::Any;
use std::cell::UnsafeCell;
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crate::bench::{Bench, lock};

/// The payload of a panic.
pub(crate) type Payload = Box<dyn Any + Send>;

/// A task to be called with each number below a limit.
#[derive(Clone, Copy)]
pub(crate) struct Job {
    task: *const (dyn Fn(usize) + Sync + 'static),
    n_tasks: usize,
}

/// The place where the caller of a job and the workers meet.
#[derive(Default)]
pub(crate) struct Gate {
    /// Set while a caller has the gate.
    claimed: Padded<AtomicBool>,
    /// Odd while a job is open; each job has its own number.
    round: Padded<AtomicU64>,
    /// The workers that are counted in, working or about to look.
    inside: Padded<AtomicUsize>,
    /// The next task to be drawn.
    next: Padded<AtomicUsize>,
    /// The number of workers that may be inside.
    helpers: AtomicUsize,
    job: UnsafeCell<Option<Job>>,
    panicked: Mutex<Option<Payload>>,
    /// Set when idle workers should park at once: the lanes fill the cores.
    quiet: AtomicBool,
    shut_down: AtomicBool,
    /// The bench on which workers wait for a job.
    idle: Bench,
    /// The bench on which a caller waits for the workers to leave.
    leaving: Bench,
}

/// Alone on its cache lines, so that threads that write neighbours do not slow it down.
#[derive(Default)]
#[repr(align(128))]
struct Padded<T>(T);

// SAFETY: `job` is written only by the thread that holds the claim while no worker is inside, and
// read only by workers that are inside an open round; the module doc says why these exclude each
// other. All else is atomic or locked.
unsafe impl Sync for Gate {}

// SAFETY: the pointer in `job` is to a task that is `Sync`.
unsafe impl Send for Gate {}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("round", &self.round.0).finish_non_exhaustive()
    }
}

impl Job {
    /// A job that must be closed before `task` goes away.
    pub(crate) fn new(task: &(dyn Fn(usize) + Sync), n_tasks: usize) -> Self {
        let task: *const (dyn Fn(usize) + Sync + '_) = task;
        // SAFETY: only the lifetime changes; `Pool::run` closes the job before `task` ends.
        let task = unsafe {
            std::mem::transmute::<
                *const (dyn Fn(usize) + Sync + '_),
                *const (dyn Fn(usize) + Sync + 'static),
            >(task)
        };
        Self { task, n_tasks }
    }
}

/// The caller's side.
impl Gate {
    /// Takes the gate, if no other caller has it.
    pub(crate) fn claim(&self) -> bool {
        !self.claimed.0.load(Ordering::Relaxed) && !self.claimed.0.swap(true, Ordering::Acquire)
    }

    /// Lets up to `helpers` workers in. Only with the claim, and followed by `close`.
    pub(crate) fn open(&self, job: Job, helpers: usize) {
        debug_assert!(self.claimed.0.load(Ordering::Relaxed));
        self.next.0.store(0, Ordering::Relaxed);
        self.helpers.store(helpers, Ordering::Relaxed);
        // SAFETY: we hold the claim and the round is even, so no worker reads the job.
        unsafe { *self.job.get() = Some(job) };
        self.round.0.fetch_add(1, Ordering::SeqCst);
        self.idle.wake(helpers);
    }

    /// Calls `task` with numbers that nobody else has drawn, until there are none left.
    pub(crate) fn draw(&self, task: &(dyn Fn(usize) + Sync), n_tasks: usize) {
        loop {
            let number = self.next.0.fetch_add(1, Ordering::Relaxed);
            if number >= n_tasks {
                return;
            }
            task(number);
        }
    }

    /// Leaves no numbers to draw.
    pub(crate) fn exhaust(&self, n_tasks: usize) {
        self.next.0.store(n_tasks, Ordering::Relaxed);
    }

    /// Waits until no worker touches the job, gives the gate back, and returns what a worker's
    /// task panicked with.
    pub(crate) fn close(&self) -> Option<Payload> {
        self.round.0.fetch_add(1, Ordering::SeqCst);
        self.leaving.wait(|| self.inside.0.load(Ordering::SeqCst) == 0, || false);
        let payload = lock(&self.panicked).take();
        self.claimed.0.store(false, Ordering::Release);
        payload
    }

    /// Sets whether idle workers should leave the cores alone.
    pub(crate) fn set_quiet(&self, quiet: bool) {
        self.quiet.store(quiet, Ordering::Relaxed);
    }

    /// Ends the workers.
    pub(crate) fn shut_down(&self) {
        self.shut_down.store(true, Ordering::SeqCst);
        self.idle.wake(usize::MAX);
    }
}

/// The workers' side.
impl Gate {
    /// Waits for a round after `last` in which a job is open, and returns its number; `None` when
    /// the pool ends.
    pub(crate) fn wait_for_job(&self, last: u64) -> Option<u64> {
        let open = || {
            let round = self.round.0.load(Ordering::SeqCst);
            round % 2 == 1 && round != last
        };
        let ready = || self.shut_down.load(Ordering::SeqCst) || open();
        self.idle.wait(ready, || self.quiet.load(Ordering::Relaxed));
        if self.shut_down.load(Ordering::SeqCst) {
            return None;
        }
        Some(self.round.0.load(Ordering::SeqCst))
    }

    /// Draws tasks of the job of `round`, if it is still open and help is still wanted.
    pub(crate) fn help(&self, round: u64) {
        let before = self.inside.0.fetch_add(1, Ordering::SeqCst);
        let open = round % 2 == 1 && self.round.0.load(Ordering::SeqCst) == round;
        if open && before < self.helpers.load(Ordering::Relaxed) {
            self.work();
        }
        if self.inside.0.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.leaving.wake(1);
        }
    }

    /// Draws tasks of the open job. Only when counted in.
    fn work(&self) {
        // SAFETY: we are counted in and saw the round open afterwards, so the caller does not write
        // the job until we are counted out.
        let Some(job) = (unsafe { *self.job.get() }) else { return };
        // SAFETY: for the same reason the caller is still in `run`, which borrows the task.
        let task = unsafe { &*job.task };
        let drawn = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            self.draw(task, job.n_tasks);
        }));
        if let Err(payload) = drawn {
            self.exhaust(job.n_tasks);
            lock(&self.panicked).get_or_insert(payload);
        }
    }
}
