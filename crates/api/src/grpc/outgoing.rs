//! `Outgoing`: the body of an answer, booked until it is sent, and given up if nobody reads it.
//!
//! HTTP/2 keeps a part of a body until the client has room for it. A client that never makes room
//! would keep an answer for ever. So large answers are handed on in small parts, and what is left
//! of one of which no part was taken for a time is dropped; should the client come back for it, its
//! call ends with a status. So does that of an answer for which no memory is left. The part that
//! HTTP/2 has cannot be taken back: if nobody reads that either, the connection is ended.

use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::Instant;
use tonic::body::Body;

use super::metered::{CALL_BYTES, CallCharge};
use super::to_tonic::to_tonic;
use crate::budget::{Budget, Charge, held_with};
use crate::listen::OpenCall;

/// Larger answers are handed on in parts of this size.
const PART_BYTES: usize = 64 << 10;

/// The number of times that unsent answers are looked at within the time that they are given.
const LOOKS: u32 = 8;

/// After so many times the time that an answer is given, its connection is ended.
const LAST: u32 = 4;

/// The answers that are not sent yet. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Unsent {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    budget: Budget,
    patience: Duration,
    answers: Mutex<Answers>,
}

#[derive(Debug, Default)]
struct Answers {
    all: Vec<Weak<Mutex<Answer>>>,
    /// Set while a task watches the answers.
    is_watched: bool,
}

impl Unsent {
    /// None yet. A client may take no part of an answer for as long as `patience`.
    pub(crate) fn new(budget: Budget, patience: Duration) -> Self {
        let answers = Mutex::default();
        Self { shared: Arc::new(Shared { budget, patience, answers }) }
    }

    /// The body of an answer, and what its call is charged until the answer is written.
    pub(crate) fn answer(
        &self,
        body: Body,
        call: CallCharge,
        open: Option<Arc<OpenCall>>,
    ) -> Outgoing {
        let content = Content { body, rest: Bytes::new(), _rest_charge: None, call: Some(call) };
        let answer = Answer {
            content: Some(content),
            last_taken: Instant::now(),
            is_idle: false,
            has_failed: false,
            open,
        };
        let answer = Arc::new(Mutex::new(answer));
        let mut answers = self.shared.answers.lock();
        answers.all.push(Arc::downgrade(&answer));
        if !std::mem::replace(&mut answers.is_watched, true) {
            tokio::spawn(watch(Arc::downgrade(&self.shared)));
        }
        drop(answers);
        Outgoing { answer, budget: self.shared.budget.clone() }
    }
}

/// Drops answers that nobody reads, for as long as there may be any.
async fn watch(shared: Weak<Shared>) {
    loop {
        let Some(patience) = shared.upgrade().map(|shared| shared.patience) else { return };
        tokio::time::sleep(patience / LOOKS).await;
        let Some(shared) = shared.upgrade() else { return };
        let mut answers = shared.answers.lock();
        let mut all = std::mem::take(&mut answers.all);
        if all.is_empty() {
            answers.is_watched = false;
            return;
        }
        drop(answers); // New ones need not wait.
        let now = Instant::now();
        all.retain(|answer| {
            answer.upgrade().is_some_and(|answer| answer.lock().is_worth_keeping(now, patience))
        });
        shared.answers.lock().all.append(&mut all);
    }
}

/// The part of an answer that is not sent yet.
struct Answer {
    /// Gone when it was given up.
    content: Option<Content>,
    last_taken: Instant,
    /// Set when everything there is was taken, and the next part is not there yet.
    is_idle: bool,
    /// Set when the call has ended with a status in place of the rest.
    has_failed: bool,
    /// The call, which is open until the answer is sent.
    open: Option<Arc<OpenCall>>,
}

struct Content {
    body: Body,
    /// The rest of a part that is large.
    rest: Bytes,
    /// Kept for its drop.
    _rest_charge: Option<Charge>,
    /// The charge of the call, held until the answer is written.
    call: Option<CallCharge>,
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let n_bytes = self.content.as_ref().map(|content| content.rest.len());
        write!(f, "Answer({n_bytes:?} bytes left)")
    }
}

impl Answer {
    /// Gives up what nobody reads. Whether there is anything to look at again: an answer is there
    /// until all of its parts are sent.
    fn is_worth_keeping(&mut self, now: Instant, patience: Duration) -> bool {
        if self.is_idle {
            return true;
        }
        let waited = now.duration_since(self.last_taken);
        if waited >= patience {
            self.content = None;
        }
        if waited < LAST * patience {
            return true;
        }
        if let Some(open) = self.open.take() {
            open.client().cut().cut();
        }
        false
    }
}

/// The body of an answer.
#[derive(Debug)]
pub(crate) struct Outgoing {
    answer: Arc<Mutex<Answer>>,
    budget: Budget,
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        // Parts of it may be unsent, and keep the answer. HTTP/2 drops them under its lock, and the
        // content may hold the call's own stream, whose drop takes that lock too.
        let content = self.answer.lock().content.take();
        drop(content);
    }
}

impl HttpBody for Outgoing {
    type Data = Bytes;
    type Error = tonic::Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, tonic::Status>>> {
        let mut answer = self.answer.lock();
        if answer.has_failed {
            return Poll::Ready(None);
        }
        let Some(content) = &mut answer.content else {
            answer.has_failed = true;
            let text = "the answer was not read in time";
            return Poll::Ready(Some(Ok(trailers(&tonic::Status::cancelled(text)))));
        };
        let polled = content.poll(&self.budget, context);
        answer.is_idle = polled.is_pending();
        let frame = match ready!(polled) {
            None => return Poll::Ready(None),
            Some(Ok(frame)) => frame,
            Some(Err(status)) => {
                answer.has_failed = true;
                let content = answer.content.take();
                drop(answer);
                drop(content);
                return Poll::Ready(Some(Ok(trailers(&status))));
            }
        };
        answer.last_taken = Instant::now();
        drop(answer);
        // It is an unsent answer for as long as a part of it is not sent.
        let with_answer = |data: Bytes| held_with(data, Arc::clone(&self.answer));
        Poll::Ready(Some(Ok(frame.map_data(with_answer))))
    }

    fn is_end_stream(&self) -> bool {
        let answer = self.answer.lock();
        let is_end = |content: &Content| content.rest.is_empty() && content.body.is_end_stream();
        answer.content.as_ref().is_some_and(is_end)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

/// The end of an answer that failed when its headers were sent already: HTTP/2 would reset the
/// stream for an error, and the client would not see why.
fn trailers(status: &tonic::Status) -> Frame<Bytes> {
    let mut headers = http::HeaderMap::new();
    if status.add_header(&mut headers).is_err() {
        // A text that no header can carry; the code goes without it.
        headers.insert("grpc-status", http::HeaderValue::from(i32::from(status.code())));
    }
    Frame::trailers(headers)
}

impl Content {
    fn poll(
        &mut self,
        budget: &Budget,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, tonic::Status>>> {
        if self.rest.is_empty() {
            let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
            let data = match frame.transpose()?.map(Frame::into_data) {
                None => return Poll::Ready(None),
                Some(Err(trailers)) => return Poll::Ready(Some(Ok(trailers))),
                Some(Ok(data)) => data,
            };
            // It is written, and what the call was charged for that is gone. A short answer is in
            // what every call is charged.
            let call = self.call.take();
            if let Some(call) = call.filter(|_| data.len() <= CALL_BYTES) {
                call.decoded();
                self.call = Some(call);
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
            let charge = budget.charged(data.len()).map_err(|status| to_tonic(&status))?;
            if data.len() <= PART_BYTES {
                return Poll::Ready(Some(Ok(Frame::data(charge.onto(data)))));
            }
            (self.rest, self._rest_charge) = (data, Some(charge));
        }
        // A copy: a part that shares its memory would keep all of it until it is sent itself.
        let part = self.rest.split_to(self.rest.len().min(PART_BYTES));
        let charge = budget.charged(part.len()).map_err(|status| to_tonic(&status))?;
        let part = charge.onto(part.to_vec());
        if self.rest.is_empty() {
            (self.rest, self._rest_charge) = (Bytes::new(), None);
        }
        Poll::Ready(Some(Ok(Frame::data(part))))
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt as _, Full};

    use super::*;

    /// The frames of an answer of so many bytes, where the budget has room for `room_bytes`.
    async fn frames(n_bytes: usize, room_bytes: usize) -> Vec<Frame<Bytes>> {
        let unsent = Unsent::new(Budget::of_bytes(room_bytes), Duration::from_secs(60));
        let body = Full::new(Bytes::from(vec![7; n_bytes])).map_err(|never| match never {});
        let mut answer = unsent.answer(Body::new(body), CallCharge::default(), None);
        let mut frames = Vec::new();
        while let Some(frame) = answer.frame().await {
            frames.push(frame.expect("a failure is a status"));
        }
        frames
    }

    #[tokio::test]
    async fn an_answer_without_room_ends_with_a_status_that_the_client_sees() {
        let n_bytes = 10 * PART_BYTES;
        let whole = frames(n_bytes, 100 * n_bytes).await;
        let sum: usize = whole.iter().filter_map(Frame::data_ref).map(Bytes::len).sum();
        assert_eq!((whole.len(), sum), (10, n_bytes));
        for room_bytes in [PART_BYTES, n_bytes, n_bytes + PART_BYTES] {
            let mut cut = frames(n_bytes, room_bytes).await;
            let end = cut.pop().and_then(|frame| frame.into_trailers().ok());
            let end = end.expect("the call has an end");
            assert_eq!(end.get("grpc-status").expect("a status"), "8", "{room_bytes}");
            assert!(cut.iter().all(Frame::is_data) && cut.len() < 10, "{room_bytes}");
        }
    }
}
