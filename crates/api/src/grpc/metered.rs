//! `Metered`: a gRPC service whose requests are held to the limits of sizes before they are
//! decoded.
//!
//! tonic sets memory aside on the word of a length prefix. So large messages are held back here
//! until all of their bytes have come, and what they will take decoded is charged to the budget
//! first.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::{Request, Response};
use hyper::body::{Body as HttpBody, Frame};
use lifecycle::Code;
use parking_lot::Mutex;
use smallvec::SmallVec;
use tonic::body::Body;
use tonic::server::NamedService;
use tower::Service;

use super::expansion::{self, Shape, expansion};
use crate::budget::{Budget, Charge};
use crate::status::Status;

/// Messages up to this size are passed on as they come.
const SMALL: usize = 64 << 10;

/// The bytes before each message: a flag and its length.
const PREFIX: usize = 5;

/// A service with limits.
#[derive(Debug, Clone)]
pub struct Metered<S> {
    inner: S,
    limits: Limits,
}

/// The limits of requests.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    pub(crate) budget: Budget,
    /// The most bytes of a message.
    pub(crate) message_bytes_max: usize,
    /// How many messages of one call may be in flight.
    pub(crate) messages_max: usize,
}

impl<S> Metered<S> {
    pub(crate) fn new(inner: S, limits: Limits) -> Self {
        Self { inner, limits }
    }
}

impl<S: NamedService> NamedService for Metered<S> {
    const NAME: &'static str = S::NAME;
}

/// What the messages of a call are charged. Held by its body and by whoever waits for the answer.
/// Most calls have one message.
type Charges = Arc<Mutex<SmallVec<[Charge; 1]>>>;

impl<S> Service<Request<Body>> for Metered<S>
where
    S: Service<Request<MeteredBody>, Response = Response<Body>, Error = Infallible>,
    S::Future: Unpin,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Charged<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let charges = Charges::default();
        let shape = shape(request.uri().path());
        let limits = self.limits.clone();
        let request = request.map(|body| MeteredBody {
            body,
            messages: Messages::new(limits, shape, Arc::clone(&charges)),
            held: VecDeque::new(),
            ready: VecDeque::new(),
        });
        Charged { answer: self.inner.call(request), _charges: charges }
    }
}

/// An answer to come; what its request is charged is given back with it.
#[derive(Debug)]
pub struct Charged<F> {
    answer: F,
    _charges: Charges,
}

impl<F: Future + Unpin> Future for Charged<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        Pin::new(&mut self.answer).poll(context)
    }
}

/// The type of a method's requests.
fn shape(path: &str) -> &'static Shape {
    match path.rsplit('/').next() {
        Some("Predict" | "PredictStreamed") => &expansion::PREDICT,
        Some("Classify" | "Regress") => &expansion::EXAMPLES,
        Some("MultiInference") => &expansion::TASKS,
        _ => &expansion::PLAIN,
    }
}

/// The body of a request, held to the limits.
#[derive(Debug)]
pub struct MeteredBody {
    body: Body,
    messages: Messages,
    /// What came of a large message that is not complete.
    held: VecDeque<Bytes>,
    ready: VecDeque<Frame<Bytes>>,
}

impl HttpBody for MeteredBody {
    type Data = Bytes;
    type Error = tonic::Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, tonic::Status>>> {
        loop {
            if let Some(frame) = self.ready.pop_front() {
                return Poll::Ready(Some(Ok(frame)));
            }
            let Some(frame) = ready!(Pin::new(&mut self.body).poll_frame(context)) else {
                if self.held.is_empty() {
                    return Poll::Ready(None);
                }
                self.release(0); // It ends too early, as tonic will say.
                continue;
            };
            match frame?.into_data() {
                // The end of a stream may come with no bytes.
                Ok(data) if data.is_empty() => {}
                Ok(data) => {
                    let this = &mut *self;
                    if let Err(status) = this.messages.came(&this.held, &data) {
                        return Poll::Ready(Some(Err(status.to_grpc())));
                    }
                    let n_held = this.messages.n_held();
                    if n_held == 0 && this.held.is_empty() {
                        return Poll::Ready(Some(Ok(Frame::data(data))));
                    }
                    this.held.push_back(data);
                    this.release(n_held);
                }
                Err(trailers) => {
                    self.release(0);
                    self.ready.push_back(trailers);
                }
            }
        }
    }
}

impl MeteredBody {
    /// Passes on all that came but for the last `n_held` bytes.
    fn release(&mut self, n_held: usize) {
        let total: usize = self.held.iter().map(Bytes::len).sum();
        let mut n_passed = total.saturating_sub(n_held);
        while n_passed > 0
            && let Some(mut piece) = self.held.pop_front()
        {
            let passed = piece.split_to(piece.len().min(n_passed));
            n_passed -= passed.len();
            self.ready.push_back(Frame::data(passed));
            if !piece.is_empty() {
                self.held.push_front(piece);
            }
        }
    }
}

/// Follows the messages in a stream of bytes.
#[derive(Debug)]
struct Messages {
    limits: Limits,
    shape: &'static Shape,
    charges: Charges,
    /// What has come of a length prefix.
    prefix: SmallVec<[u8; PREFIX]>,
    /// The message that is coming, and what is missing of it.
    length: usize,
    n_missing: usize,
}

impl Messages {
    fn new(limits: Limits, shape: &'static Shape, charges: Charges) -> Self {
        Self { limits, shape, charges, prefix: SmallVec::new(), length: 0, n_missing: 0 }
    }

    /// How many of the last bytes that came are of a large message that is not complete.
    fn n_held(&self) -> usize {
        let is_coming = self.n_missing > 0 && self.length > SMALL;
        if is_coming { PREFIX + self.length - self.n_missing } else { 0 }
    }

    /// Takes note of a piece that came behind those that are held.
    fn came(&mut self, held: &VecDeque<Bytes>, last: &Bytes) -> Result<(), Status> {
        let mut data = &last[..];
        while !data.is_empty() {
            if self.n_missing == 0 {
                let n_taken = data.len().min(PREFIX - self.prefix.len());
                self.prefix.extend_from_slice(&data[..n_taken]);
                data = &data[n_taken..];
                self.begin()?;
                continue;
            }
            let n_taken = data.len().min(self.n_missing);
            self.charge(n_taken)?;
            self.n_missing -= n_taken;
            data = &data[n_taken..];
            if self.n_missing == 0 && self.length > SMALL {
                let mut message = Pieces::of((held, last), data.len(), self.length);
                self.charge(expansion(&mut message, self.shape))?;
            }
        }
        Ok(())
    }

    /// Begins a message, if all of its prefix is there.
    fn begin(&mut self) -> Result<(), Status> {
        let Some(length) = self.prefix.get(1..PREFIX) else { return Ok(()) };
        let length = length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
        self.prefix.clear();
        let max = self.limits.message_bytes_max;
        if length > max {
            let text = format!("Received message larger than max ({length} vs. {max})");
            return Err(Status::new(Code::ResourceExhausted, text)); // As gRPC's own text.
        }
        let mut charges = self.charges.lock();
        if charges.len() == self.limits.messages_max {
            charges.remove(0);
        }
        charges.push(self.limits.budget.charge());
        (self.length, self.n_missing) = (length, length);
        Ok(())
    }

    fn charge(&self, bytes: usize) -> Result<(), Status> {
        let mut charges = self.charges.lock();
        charges.last_mut().map_or(Ok(()), |charge| charge.grow(bytes))
    }
}

/// Pieces read one after another.
struct Pieces {
    pieces: VecDeque<Bytes>,
    remaining: usize,
}

impl Pieces {
    /// The last `length` bytes of some pieces and one more, but for `n_after` behind them.
    fn of((held, last): (&VecDeque<Bytes>, &Bytes), n_after: usize, length: usize) -> Self {
        let pieces: VecDeque<Bytes> = held.iter().chain([last]).cloned().collect();
        let total: usize = pieces.iter().map(Bytes::len).sum();
        let mut all = Self { pieces, remaining: total - n_after };
        all.advance(all.remaining - length);
        all
    }
}

impl Buf for Pieces {
    fn remaining(&self) -> usize {
        self.remaining
    }

    fn chunk(&self) -> &[u8] {
        let first = self.pieces.front().map_or(&[][..], |piece| piece);
        &first[..first.len().min(self.remaining)]
    }

    fn advance(&mut self, mut n_bytes: usize) {
        assert!(n_bytes <= self.remaining, "there are as many bytes");
        self.remaining -= n_bytes;
        while let Some(first) = self.pieces.front_mut() {
            let n_here = first.len().min(n_bytes);
            first.advance(n_here);
            n_bytes -= n_here;
            if !first.is_empty() {
                break;
            }
            self.pieces.pop_front();
        }
    }
}
