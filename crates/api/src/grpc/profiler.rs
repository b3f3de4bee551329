//! `tensorflow.ProfilerService`: answers TensorFlow's profiler client with our own counters, before
//! and after the time that it asks for. Where time goes within a model is what `tensord profile`
//! shows.

mod messages;

use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic::body::Body;
use tonic::server::{Grpc, NamedService};
use tonic_prost::ProstCodec;
use tower::{Service, service_fn};

use crate::rest::Page;
use messages::{
    MonitorRequest, MonitorResponse, ProfileRequest, ProfileResponse, TerminateRequest,
    TerminateResponse, ToolFile,
};

/// The longest time that may be asked for.
const DURATION_MAX: Duration = Duration::from_secs(600);

/// The number of clients that may wait at once.
const SESSIONS_MAX: usize = 16;

/// The service, to be added to a server.
#[derive(Clone)]
pub struct Profiler {
    page: Page,
    sessions: Arc<Mutex<HashMap<u64, Session>>>,
}

struct Session {
    name: String,
    end: CancellationToken,
}

/// Ends with the call that it belongs to, however that ends.
struct Place {
    number: u64,
    sessions: Arc<Mutex<HashMap<u64, Session>>>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.sessions.lock().remove(&self.number);
    }
}

impl Profiler {
    /// A service that shows what `page` shows.
    pub fn new(page: Page) -> Self {
        Self { page, sessions: Arc::default() }
    }

    async fn profile(self, request: ProfileRequest) -> Result<ProfileResponse, Status> {
        let text = self.watch(request.session_id, request.duration_ms).await?;
        let file = ToolFile { name: "tensord_metrics.txt".to_owned(), content: text.into() };
        Ok(ProfileResponse { tool_data: vec![file], empty_trace: false })
    }

    fn terminate(&self, request: &TerminateRequest) -> TerminateResponse {
        let sessions = self.sessions.lock();
        let is_meant = |session: &&Session| session.name == request.session_id;
        sessions.values().filter(is_meant).for_each(|session| session.end.cancel());
        TerminateResponse {}
    }

    async fn monitor(self, request: MonitorRequest) -> Result<MonitorResponse, Status> {
        Ok(MonitorResponse { text: self.watch(String::new(), request.duration_ms).await? })
    }

    /// The counters before and after some time, or as much of it as nobody ends.
    async fn watch(&self, name: String, duration_ms: u64) -> Result<String, Status> {
        let (_place, end) = self.enter(name)?;
        let before = (self.page)();
        let time = Duration::from_millis(duration_ms).min(DURATION_MAX);
        // Whether somebody ended it makes no difference.
        let _ = end.run_until_cancelled(tokio::time::sleep(time)).await;
        Ok(format!("# before\n{before}# after {} ms\n{}", time.as_millis(), (self.page)()))
    }

    fn enter(&self, name: String) -> Result<(Place, CancellationToken), Status> {
        let mut sessions = self.sessions.lock();
        if sessions.len() >= SESSIONS_MAX {
            let text = format!("{SESSIONS_MAX} clients are profiling already");
            return Err(Status::resource_exhausted(text));
        }
        let number = sessions.keys().max().map_or(0, |last| last + 1);
        let end = CancellationToken::new();
        sessions.insert(number, Session { name, end: end.clone() });
        Ok((Place { number, sessions: Arc::clone(&self.sessions) }, end))
    }

    async fn call(self, request: Request<Body>) -> Response<Body> {
        let method = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
        match method.as_str() {
            "Profile" => {
                let answer = service_fn(move |request: tonic::Request<_>| {
                    let profiler = self.clone();
                    let request = request.into_inner();
                    async move { profiler.profile(request).await.map(tonic::Response::new) }
                });
                Grpc::new(ProstCodec::default()).unary(answer, request).await
            }
            "Monitor" => {
                let answer = service_fn(move |request: tonic::Request<_>| {
                    let profiler = self.clone();
                    let request = request.into_inner();
                    async move { profiler.monitor(request).await.map(tonic::Response::new) }
                });
                Grpc::new(ProstCodec::default()).unary(answer, request).await
            }
            "Terminate" => {
                let answer = service_fn(move |request: tonic::Request<_>| {
                    let ended = self.terminate(&request.into_inner());
                    std::future::ready(Ok::<_, Status>(tonic::Response::new(ended)))
                });
                Grpc::new(ProstCodec::default()).unary(answer, request).await
            }
            _ => Status::unimplemented("").into_http(),
        }
    }
}

impl NamedService for Profiler {
    const NAME: &'static str = "tensorflow.ProfilerService";
}

impl Service<Request<Body>> for Profiler {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let profiler = self.clone();
        Box::pin(async move { Ok(profiler.call(request).await) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profiler() -> Profiler {
        Profiler::new(Arc::new(|| "# a page\n".to_owned()))
    }

    fn request(duration_ms: u64) -> ProfileRequest {
        ProfileRequest { duration_ms, session_id: "mine".to_owned() }
    }

    #[tokio::test(start_paused = true)]
    async fn the_counters_are_shown_before_and_after() {
        let answer = profiler().profile(request(1000)).await.unwrap();
        assert!(!answer.empty_trace);
        let expected = b"# before\n# a page\n# after 1000 ms\n# a page\n";
        assert_eq!(&*answer.tool_data[0].content, expected);
        let answer = profiler().monitor(MonitorRequest { duration_ms: 1 }).await.unwrap();
        assert!(answer.text.contains("# a page"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_may_end_what_it_began() {
        let profiler = profiler();
        let waiting = tokio::spawn(profiler.clone().profile(request(u64::MAX)));
        tokio::task::yield_now().await;
        profiler.terminate(&TerminateRequest { session_id: "other".to_owned() });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        let start = tokio::time::Instant::now();
        profiler.terminate(&TerminateRequest { session_id: "mine".to_owned() });
        waiting.await.unwrap().unwrap();
        assert_eq!(start.elapsed(), Duration::ZERO);
        assert!(profiler.sessions.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn not_everybody_may_wait_at_once() {
        let profiler = profiler();
        let waiting: Vec<_> = (0..SESSIONS_MAX)
            .map(|_| tokio::spawn(profiler.clone().profile(request(1000))))
            .collect();
        tokio::task::yield_now().await;
        let status = profiler.clone().profile(request(1)).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::ResourceExhausted);
        waiting.iter().for_each(tokio::task::JoinHandle::abort);
        for one in waiting {
            drop(one.await);
        }
        profiler.profile(request(1)).await.unwrap();
    }
}
