//! `Lanes`: the threads of a device that run batches, and the queue before them.
//!
//! A lane owns the activation memory of what it runs: the workspace is as large as the largest plan
//! that ran on it, and every model on the lane shares it.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use device::{Owner, Workspace};
use parking_lot::{Condvar, Mutex, MutexGuard};

/// The settings of a device's lanes.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// How many threads run jobs.
    pub n_lanes: usize,
    /// How many jobs may wait.
    pub queue_max: usize,
}

/// A piece of work. It must answer whoever waits for it, also when it is dropped unrun.
pub type Job = Box<dyn FnOnce(&mut Workspace) + Send>;

/// The queue holds as many jobs as it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{waiting} requests are waiting already, and no more than that may")]
pub struct QueueFull {
    /// How many wait.
    pub waiting: usize,
}

/// The lanes of one device. Dropping them ends the threads; jobs that wait are dropped unrun.
#[derive(Debug)]
pub struct Lanes {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    /// Signalled when a job arrives or the lanes end.
    changed: Condvar,
    queue_max: usize,
    /// Who pays for the workspaces.
    owner: Option<Arc<Owner>>,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    is_ended: bool,
    /// How often lanes were told to give their memory back.
    n_trims: u64,
}

/// A lane that had nothing to do for so long gives its memory back.
const IDLE: Duration = Duration::from_secs(3);

impl Lanes {
    /// Starts the threads, whose memory nobody counts. Fails if the system refuses one.
    pub fn start(options: Options) -> std::io::Result<Self> {
        Self::start_for(options, None)
    }

    /// Starts the threads. Their workspaces are in the space of `owner`, who pays for them.
    pub fn start_for(options: Options, owner: Option<Arc<Owner>>) -> std::io::Result<Self> {
        assert!(options.n_lanes > 0 && options.queue_max > 0);
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            changed: Condvar::new(),
            queue_max: options.queue_max,
            owner,
        });
        let mut threads = Vec::with_capacity(options.n_lanes);
        for number in 0..options.n_lanes {
            let shared = Arc::clone(&shared);
            let thread = std::thread::Builder::new().name(format!("lane-{number}"));
            threads.push(thread.spawn(move || shared.work())?);
        }
        Ok(Self { shared, threads })
    }

    /// Hands a job to the next free lane. Fails, and drops the job, if too many wait.
    pub fn push(&self, job: Job) -> Result<(), QueueFull> {
        let mut queue = self.shared.queue.lock();
        if queue.jobs.len() >= self.shared.queue_max {
            return Err(QueueFull { waiting: queue.jobs.len() });
        }
        queue.jobs.push_back(job);
        drop(queue);
        self.shared.changed.notify_one();
        Ok(())
    }

    /// Tells the lanes to give back the memory of their workspaces as soon as they are idle.
    pub fn trim(&self) {
        self.shared.queue.lock().n_trims += 1;
        self.shared.changed.notify_all();
    }

    /// How many lanes there are.
    pub fn n_lanes(&self) -> usize {
        self.threads.len()
    }

    /// How many jobs wait.
    pub fn n_waiting(&self) -> usize {
        self.shared.queue.lock().jobs.len()
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        let waiting = {
            let mut queue = self.shared.queue.lock();
            queue.is_ended = true;
            std::mem::take(&mut queue.jobs)
        };
        drop(waiting);
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            // A lane catches the panics of its jobs, so it ends as it should.
            drop(thread.join());
        }
    }
}

impl Shared {
    /// What a lane does: takes jobs until the end.
    fn work(&self) {
        let workspace = match &self.owner {
            Some(owner) => Workspace::of(Arc::clone(owner)),
            None => Workspace::allocate(0),
        };
        let Ok(mut workspace) = workspace else { return };
        while let Some(job) = self.take(&mut workspace) {
            // A job that panics fails alone: dropping its reply tells whoever waits.
            drop(catch_unwind(AssertUnwindSafe(|| job(&mut workspace))));
        }
    }

    fn take(&self, workspace: &mut Workspace) -> Option<Job> {
        let mut queue = self.queue.lock();
        let n_trims = queue.n_trims;
        loop {
            if queue.is_ended {
                return None;
            }
            if let Some(job) = queue.jobs.pop_front() {
                return Some(job);
            }
            if workspace.is_empty() {
                self.changed.wait(&mut queue);
                continue;
            }
            let is_idle = self.changed.wait_for(&mut queue, IDLE).timed_out();
            if queue.jobs.is_empty() && (is_idle || queue.n_trims != n_trims) {
                MutexGuard::unlocked(&mut queue, || self.give_back(workspace));
            }
        }
    }

    /// Gives the memory of a workspace back. A driver that refuses is asked again next time.
    fn give_back(&self, workspace: &mut Workspace) {
        drop(workspace.trim());
        if let Some(owner) = &self.owner {
            drop(owner.space().trim("idle"));
        }
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Queue({} jobs)", self.jobs.len())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn lanes(n_lanes: usize, queue_max: usize) -> Lanes {
        Lanes::start(Options { n_lanes, queue_max }).unwrap()
    }

    #[test]
    fn every_job_runs_once() {
        let lanes = lanes(2, 100);
        let (send, receive) = mpsc::channel();
        for number in 0..100 {
            let send = send.clone();
            lanes.push(Box::new(move |_| send.send(number).unwrap())).unwrap();
        }
        let mut numbers: Vec<i32> = receive.iter().take(100).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn a_job_that_panics_fails_alone() {
        let lanes = lanes(1, 10);
        let (send, receive) = mpsc::channel::<i32>();
        let lost = send.clone();
        let fail = move |_: &mut Workspace| {
            let _lost = lost;
            panic!("a kernel is wrong");
        };
        lanes.push(Box::new(fail)).unwrap();
        lanes.push(Box::new(move |_| send.send(7).unwrap())).unwrap();
        assert_eq!(receive.iter().collect::<Vec<_>>(), [7]);
    }

    #[test]
    fn a_lane_that_is_told_to_gives_its_memory_back() {
        let lanes = lanes(1, 10);
        let (send, receive) = mpsc::channel::<usize>();
        let grow = send.clone();
        let ensure = move |workspace: &mut Workspace| {
            workspace.ensure(1 << 20).unwrap();
            grow.send(workspace.len()).unwrap();
        };
        lanes.push(Box::new(ensure)).unwrap();
        assert_eq!(receive.recv().unwrap(), 1 << 20);
        // Whether it is idle yet or not when it is told, it trims before it takes another job.
        loop {
            lanes.trim();
            let look = send.clone();
            let job = move |workspace: &mut Workspace| look.send(workspace.len()).unwrap();
            lanes.push(Box::new(job)).unwrap();
            if receive.recv().unwrap() == 0 {
                break;
            }
        }
    }

    #[test]
    fn a_full_queue_refuses_and_the_end_drops_what_waits() {
        let lanes = lanes(1, 1);
        let (go, wait) = mpsc::channel::<()>();
        let (started, is_started) = mpsc::channel();
        let block = Box::new(move |_: &mut Workspace| {
            started.send(()).unwrap();
            let _ = wait.recv();
        });
        lanes.push(block).unwrap();
        is_started.recv().unwrap();
        let (reply, answer) = mpsc::channel::<()>();
        lanes.push(Box::new(move |_| reply.send(()).unwrap())).unwrap();
        assert_eq!(lanes.push(Box::new(|_| ())), Err(QueueFull { waiting: 1 }));
        // The job that waits is dropped before the lane is joined, so its channel closes.
        let ender = std::thread::spawn(move || drop(lanes));
        assert!(answer.recv().is_err());
        drop(go);
        ender.join().unwrap();
    }
}
