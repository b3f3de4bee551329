//! `Codec`: the threads that decode and encode long messages.
//!
//! A message of some megabytes may take seconds to decode. On a thread that serves connections,
//! every other connection of that thread would wait for it, health checks included. So messages
//! longer than [`LONG_BYTES`] are decoded and encoded on a fixed number of threads of their own.
//! Short ones stay where they are: waking another thread costs more than they do.

use std::sync::Arc;
use std::thread;

use status::{Code, Status};
use tokio::runtime::{Builder, Runtime};
use tokio_util::task::AbortOnDropHandle;

/// Messages of more bytes are decoded and encoded on codec threads.
pub(crate) const LONG_BYTES: usize = 32 << 10;

/// The name of every codec thread.
const THREAD_NAME: &str = "codec";

/// The codec threads of a server. Clones share them; they end when the last clone is dropped.
#[derive(Debug, Clone)]
pub struct Codec {
    threads: Arc<Threads>,
}

#[derive(Debug)]
struct Threads {
    /// Taken when the threads end.
    runtime: Option<Runtime>,
}

impl Drop for Threads {
    fn drop(&mut self) {
        // The last clone may be dropped on a thread that must not wait.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Codec {
    /// Starts `n_threads` codec threads. `builder` says all else about their runtime.
    ///
    /// # Errors
    /// If the system gives no threads.
    pub fn start(mut builder: Builder, n_threads: usize) -> std::io::Result<Self> {
        assert!(n_threads > 0, "somebody has to decode");
        let builder = builder.worker_threads(n_threads).thread_name(THREAD_NAME);
        let runtime = builder.enable_all().build()?;
        Ok(Self { threads: Arc::new(Threads { runtime: Some(runtime) }) })
    }

    /// Does work that reads or writes `n_bytes`: at once if they are few, else on a codec thread.
    /// Work that has not begun is dropped with the future.
    ///
    /// # Errors
    /// INTERNAL if the work panics on a codec thread.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        n_bytes: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Status> {
        if n_bytes <= LONG_BYTES || thread::current().name() == Some(THREAD_NAME) {
            return Ok(work());
        }
        self.spawn(async move { work() }).await.map_err(|_| panicked())
    }

    /// Polls a future on the codec threads. Dropping the handle drops the future.
    pub(crate) fn spawn<F>(&self, work: F) -> AbortOnDropHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        let runtime = self.threads.runtime.as_ref().expect("only a drop takes it");
        AbortOnDropHandle::new(runtime.spawn(work))
    }
}

/// The status of a message whose decoding or encoding panicked.
pub(crate) fn panicked() -> Status {
    Status::new(Code::Internal, "reading or writing a message panicked")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn long_messages_are_decoded_on_codec_threads_and_short_ones_at_once() {
        let codec = Codec::start(Builder::new_multi_thread(), 1).unwrap();
        let name = || thread::current().name().map(str::to_owned);
        let here = name();
        assert_eq!(codec.run(LONG_BYTES, name).await.unwrap(), here);
        assert_eq!(codec.run(LONG_BYTES + 1, name).await.unwrap().unwrap(), THREAD_NAME);
        // Work on a codec thread stays there.
        let again = codec.clone();
        let nested = codec.spawn(async move { again.run(usize::MAX, name).await });
        assert_eq!(nested.await.unwrap().unwrap().unwrap(), THREAD_NAME);
    }

    #[tokio::test]
    async fn work_that_panics_fails_its_own_request() {
        let codec = Codec::start(Builder::new_multi_thread(), 1).unwrap();
        let failed = codec.run(usize::MAX, || panic!("as planned")).await;
        assert_eq!(failed.map(|(): ()| ()).unwrap_err().code, Code::Internal);
        assert_eq!(codec.run(usize::MAX, || 7).await.unwrap(), 7);
    }
}
