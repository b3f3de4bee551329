//! The program inside a worker process: it follows the server's orders from a ring, with
//! TensorFlow's library and tensors in shared memory, until the server is gone.

mod arguments;
mod runs;

use std::collections::HashMap;
use std::io::ErrorKind::Interrupted;
use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::area::{Area, Block};
use crate::bell::Bell;
use crate::capi::{Api, Loading, Session};
use crate::error::{Error, Result};
use crate::options::Sandbox;
use crate::ring::{Direction, RINGS_BYTES, Reader, Writer};
use crate::sandbox;
use crate::wire::{Failure, FromWorker, Load, Loaded, Order, Ready, ToWorker, Word};
use crate::worker::places_max;
use arguments::Arguments;
use runs::Model;

pub(crate) use arguments::{Files, Given};

/// Runs a worker process with the arguments that the server gave it. Returns only if it cannot
/// begin.
///
/// # Errors
/// If the arguments make no sense. All else is told to the server, and ends the process.
pub fn main(arguments: &[String]) -> Result<()> {
    let arguments = Arguments::parse(arguments)?;
    // A thread that panics would leave its request without an answer.
    std::panic::set_hook(Box::new(|panic| {
        eprintln!("{panic}");
        std::process::abort();
    }));
    yield_memory_first();
    let (inside, socket) = Inside::new(arguments)?;
    let inside = Arc::new(inside);
    std::thread::Builder::new()
        .name("server".to_owned())
        .spawn(move || outlive_nobody(socket))
        .map_err(|error| Error::system("cannot start a thread", &error))?;
    let threads: Vec<_> = (0..inside.n_threads)
        .map(|number| {
            let inside = Arc::clone(&inside);
            let thread = std::thread::Builder::new().name(format!("run-{number}"));
            thread.spawn(move || inside.serve())
        })
        .collect::<std::io::Result<_>>()
        .map_err(|error| Error::system("cannot start a thread", &error))?;
    for thread in threads {
        // A thread ends only with the process.
        drop(thread.join());
    }
    Ok(())
}

/// Asks the system to end a worker rather than the server when it runs out of memory.
fn yield_memory_first() {
    // Some containers refuse, and then all is as it was.
    drop(std::fs::write("/proc/self/oom_score_adj", "500"));
}

/// Ends the process when the server is gone, which is when the socket between them ends.
fn outlive_nobody(mut socket: UnixStream) {
    let mut nothing = [0; 1];
    while matches!(socket.read(&mut nothing), Err(error) if error.kind() == Interrupted) {}
    exit();
}

/// A worker process, seen from inside.
pub(crate) struct Inside {
    api: &'static Api,
    n_threads: usize,
    /// The orders that arrive; the thread that holds the lock reads the next order.
    orders: Mutex<Reader>,
    answers: Mutex<Answers>,
    /// The area whose spans the server gives out.
    inputs: Arc<Area>,
    /// The area whose spans we give out.
    outputs: Arc<Area>,
    /// The blocks of outputs that the server still reads, by where they begin.
    blocks: Mutex<HashMap<u64, Block>>,
    models: Mutex<HashMap<u64, Arc<Model>>>,
}

/// The answers to the server, and the bell that is rung after one if the server sleeps.
struct Answers {
    writer: Writer,
    bell: Bell,
}

impl Answers {
    /// Tells the server something.
    fn tell(&mut self, word: Word) {
        let pushed = self.writer.push(&FromWorker { word: Some(word) });
        let mut is_whole = pushed.and_then(|()| self.writer.flush());
        loop {
            if self.writer.has_sleeper() {
                self.bell.ring();
            }
            match is_whole {
                Ok(true) => return,
                Ok(false) => self.writer.wait_for_room(),
                Err(error) => {
                    eprintln!("{error}");
                    exit();
                }
            }
            is_whole = self.writer.flush();
        }
    }
}

impl Inside {
    fn new(arguments: Arguments) -> Result<(Self, UnixStream)> {
        let Arguments { given, socket, bell, rings, inputs, outputs } = arguments;
        let rings = Arc::new(Area::map(rings, RINGS_BYTES)?);
        let writer = Writer::new(&rings, Direction::Answers);
        let mut answers = Answers { writer, bell: Bell::open(bell) };
        let (inputs, outputs) =
            (Area::map(inputs, given.area_bytes)?, Area::map(outputs, given.area_bytes)?);
        let missing = sandbox::enter(&given.sandbox);
        if !missing.is_empty() && given.sandbox.level == Sandbox::Required {
            answers.tell(Word::Failed(Error::Unconfined(missing.join(", ")).into()));
            exit();
        }
        let api = match Api::load(&given.library) {
            Ok(api) => &*Box::leak(Box::new(api)),
            Err(error) => {
                answers.tell(Word::Failed(error.into()));
                exit();
            }
        };
        let version = api.version();
        answers.tell(Word::Ready(Ready { version, missing }));
        let inside = Self {
            api,
            // One more than runs at once, so that there is always one that reads.
            n_threads: places_max(given.n_threads) + 1,
            orders: Mutex::new(Reader::new(&rings, Direction::Orders)),
            answers: Mutex::new(answers),
            inputs: Arc::new(inputs),
            outputs: Arc::new(outputs),
            blocks: Mutex::default(),
            models: Mutex::default(),
        };
        Ok((inside, socket))
    }

    /// Does what the server says, order by order, until it is gone.
    fn serve(self: Arc<Self>) {
        loop {
            match self.next_order() {
                Order::Run(order) => self.run(order),
                Order::Load(load) => {
                    // It may take long, and requests to other models must not wait for it.
                    let inside = Arc::clone(&self);
                    std::thread::spawn(move || inside.load(&load));
                }
                Order::Unload(model) => {
                    let inside = Arc::clone(&self);
                    std::thread::spawn(move || inside.unload(model));
                }
                Order::Free(offset) => drop(self.blocks.lock().remove(&offset)),
                Order::Rest(_) => self.rest(),
            }
        }
    }

    fn next_order(&self) -> Order {
        let mut orders = self.orders.lock();
        // One that was woken may have been woken early.
        let mut was_woken = false;
        loop {
            match orders.next::<ToWorker>() {
                // Nothing to wait for: whoever was woken early goes on looking out.
                Ok(Some(ToWorker { order: Some(Order::Free(offset)) })) => {
                    drop(self.blocks.lock().remove(&offset));
                }
                Ok(Some(ToWorker { order: Some(order) })) => return order,
                Ok(Some(ToWorker { order: None })) => {}
                Ok(None) if was_woken => {
                    was_woken = false;
                    orders.look_out();
                }
                Ok(None) => {
                    orders.sleep();
                    was_woken = true;
                }
                Err(error) => {
                    eprintln!("{error}");
                    exit();
                }
            }
        }
    }

    fn load(&self, load: &Load) {
        let outcome = self.session(load);
        let (failure, devices) = match outcome {
            Ok(devices) => (None, devices),
            Err(error) => (Some(Failure::from(error)), Vec::new()),
        };
        self.tell(Word::Loaded(Loaded { model: load.model, failure, devices }));
    }

    fn session(&self, load: &Load) -> Result<Vec<String>> {
        let loading = Loading { dir: &load.dir, tags: &load.tags, config: &load.config };
        let session = Session::load(self.api, &loading)?;
        let devices = session.devices();
        let model = Model::new(session, &load.signatures)?;
        self.models.lock().insert(load.model, Arc::new(model));
        Ok(devices)
    }

    fn unload(&self, model: u64) {
        let model = self.models.lock().remove(&model);
        drop(model);
        self.rest();
    }

    /// Gives back what is not needed now.
    fn rest(&self) {
        self.outputs.trim();
        #[cfg(target_env = "gnu")]
        // SAFETY: it may be called at any time, from any thread.
        unsafe {
            libc::malloc_trim(0);
        }
    }

    fn tell(&self, word: Word) {
        self.answers.lock().tell(word);
    }
}

/// Ends the process at once, without the library's exit code, which may wait for its threads.
fn exit() -> ! {
    // SAFETY: nothing of ours needs to be run before the end.
    unsafe { libc::_exit(0) }
}
