//! `Metered`: a gRPC service whose requests and answers are held to the limits of sizes.
//!
//! tonic sets memory aside on the word of a length prefix. So messages are held back here until all
//! of their bytes have come, and what they will take decoded is charged to the budget first.
//! Answers are charged before they are written, and until they are sent. A call is charged from its
//! head on, and given up if no message follows.
//!
//! A call whose message is long moves to the codec threads as soon as its length is known, and is
//! decoded, run and encoded there.

mod arriving;
mod call;
mod inflate;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http::{HeaderMap, Request, Response};
use hyper::body::{Body as HttpBody, Frame};
use smallvec::SmallVec;
use status::{Code, Status};
use tokio_util::task::AbortOnDropHandle;
use tonic::body::Body;
use tonic::server::NamedService;
use tower::Service;

use super::expansion::{Shape, expansion, shapes};
use super::outgoing::Unsent;
use super::remote::Remote;
use super::to_tonic::to_tonic;
use crate::arrival::ArrivalLimits;
use crate::budget::Budget;
use crate::codec::{self, Codec, LONG_BYTES};
use crate::held::HeldBytes;
use crate::listen::{ConnectInfo, OpenCall};
use arriving::Arriving;
pub(crate) use call::CallCharge;
use inflate::Encoding;

/// The bytes before each message: a flag and its length.
const PREFIX: usize = 5;

/// The bytes that a call takes however small it is: its headers, its state and a short answer.
pub(crate) const CALL_BYTES: usize = 4 << 10;

/// The method whose messages come one after another. It is answered on the codec threads.
const STREAMED: &str = "/tensorflow.serving.PredictionService/PredictStreamed";

/// The services whose calls keep their connection while they are answered. Streams of others, such
/// as `Watch`, only listen.
const SERVING: &str = "/tensorflow.serving.";

/// The bytes that a header takes besides its name and value.
const HEADER_BYTES: usize = 32;

/// A service with limits.
#[derive(Debug, Clone)]
pub struct Metered<S> {
    inner: S,
    limits: Limits,
    unsent: Unsent,
}

/// The limits of requests.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    pub(crate) budget: Budget,
    pub(crate) codec: Codec,
    /// The most bytes of a message.
    pub(crate) message_bytes_max: usize,
    /// The number of messages of one call that may be in flight.
    pub(crate) messages_max: usize,
    /// The longest time in which a client may take no part of an answer.
    pub(crate) patience: Duration,
    /// The limits on how slowly a message may arrive.
    pub(crate) arrival: ArrivalLimits,
}

impl<S> Metered<S> {
    pub(crate) fn new(inner: S, limits: Limits) -> Self {
        shapes(); // Made before the first request.
        let unsent = Unsent::new(limits.budget.clone(), limits.patience);
        Self { inner, limits, unsent }
    }
}

impl<S: NamedService> NamedService for Metered<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<Request<Body>> for Metered<S>
where
    S: Service<Request<MeteredBody>, Response = Response<Body>, Error = Infallible>,
    S::Future: Unpin + Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Charged<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let open = request.extensions().get().map(|info: &ConnectInfo| info.client.open());
        let path = request.uri().path();
        let is_streamed = path == STREAMED;
        let listens = !path.starts_with(SERVING);
        // The headers of a stream are gone before its messages come.
        let head_bytes = if is_streamed { 0 } else { head_bytes(request.headers()) };
        let (charge, refused) = match CallCharge::open(&self.limits, head_bytes) {
            Ok(charge) => (charge, None),
            Err(status) => (CallCharge::default(), Some(to_tonic(&status).into_http())),
        };
        let shape = shapes().request(path);
        let encoding = Encoding::of(request.headers());
        let answer = match refused {
            Some(refusal) => Answering::Refused(Some(refusal)),
            None => {
                if is_streamed {
                    charge.stay_apart();
                }
                request.extensions_mut().insert(charge.clone());
                request.extensions_mut().insert(open.clone());
                let limits = self.limits.clone();
                let arriving = Arriving::new(limits.arrival);
                let messages = Messages {
                    open: open.clone(),
                    is_awaited: !is_streamed,
                    ..Messages::new(limits, shape, encoding, charge.clone())
                };
                let request = request.map(|body| MeteredBody {
                    body,
                    unread: None,
                    messages,
                    held: HeldBytes::default(),
                    ready: VecDeque::new(),
                    arriving,
                });
                Answering::Here(self.inner.call(request))
            }
        };
        let (unsent, codec) = (self.unsent.clone(), self.limits.codec.clone());
        Charged { answer, charge, open, listens, unsent, codec }
    }
}

/// The bytes that the headers of a call take. HTTP/2 unpacks a value into a buffer of nearly twice
/// its size, which stays with it, and holds what it was unpacked from meanwhile.
fn head_bytes(headers: &HeaderMap) -> usize {
    let of = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        3 * (name.as_str().len() + value.len()) + HEADER_BYTES
    };
    headers.iter().map(of).sum()
}

/// An answer to come; what its call is charged goes on with it.
pub struct Charged<F: Future> {
    answer: Answering<F>,
    charge: CallCharge,
    open: Option<Arc<OpenCall>>,
    /// Set for calls of services whose streams only listen.
    listens: bool,
    unsent: Unsent,
    codec: Codec,
}

/// The threads on which a call is answered.
enum Answering<F: Future> {
    Here(F),
    /// On the codec threads.
    Apart(AbortOnDropHandle<F::Output>),
    /// For the moment in which a call moves.
    Moving,
    /// There is no room for the call.
    Refused(Option<Response<Body>>),
}

impl<F> Charged<F>
where
    F: Future<Output = Result<Response<Body>, Infallible>> + Unpin + Send + 'static,
{
    fn poll_answer(&mut self, context: &mut Context<'_>) -> Poll<Response<Body>> {
        if let Answering::Refused(refusal) = &mut self.answer {
            return Poll::Ready(refusal.take().expect("a future is not polled when it is over"));
        }
        if let Answering::Here(answer) = &mut self.answer {
            if let Poll::Ready(Ok(answer)) = Pin::new(answer).poll(context) {
                return Poll::Ready(answer);
            }
            if !self.charge.arrive_apart() {
                return Poll::Pending;
            }
            let Answering::Here(answer) = std::mem::replace(&mut self.answer, Answering::Moving)
            else {
                unreachable!("a call moves once");
            };
            self.answer = Answering::Apart(self.codec.spawn(answer));
        }
        let Answering::Apart(answer) = &mut self.answer else {
            unreachable!("a call that moves has arrived");
        };
        let answer = ready!(Pin::new(answer).poll(context));
        Poll::Ready(match answer {
            Ok(Ok(answer)) => answer,
            Err(_) => to_tonic(&codec::panicked()).into_http(),
        })
    }
}

impl<F> Future for Charged<F>
where
    F: Future<Output = Result<Response<Body>, Infallible>> + Unpin + Send + 'static,
{
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let answer = ready!(self.poll_answer(context));
        // A failure is in the headers, and has no body.
        if answer.body().is_end_stream() {
            return Poll::Ready(Ok(answer));
        }
        let (charge, open) = (self.charge.clone(), self.open.take());
        if let Some(open) = open.as_ref().filter(|_| self.listens) {
            open.falls_quiet();
        }
        let is_long = charge.is_apart() || charge.bytes() > LONG_BYTES;
        let encoded = |body: Body| {
            if is_long { Body::new(Remote::new(body, self.codec.clone())) } else { body }
        };
        let answer = answer.map(|body| Body::new(self.unsent.answer(encoded(body), charge, open)));
        Poll::Ready(Ok(answer))
    }
}

/// The body of a request, held to the limits.
#[derive(Debug)]
pub struct MeteredBody {
    body: Body,
    /// Came on a thread that serves connections, and is to be looked at on a codec thread.
    unread: Option<Bytes>,
    messages: Messages,
    /// The bytes that came of a message that is not complete.
    held: HeldBytes,
    ready: VecDeque<Frame<Bytes>>,
    arriving: Arriving,
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
            let Some(frame) = ready!(self.poll_data(context)) else {
                if self.held.is_empty() {
                    return Poll::Ready(None);
                }
                self.release(0); // It ends too early, as tonic will say.
                continue;
            };
            match frame?.into_data() {
                // The end of a stream may come with no bytes.
                Ok(data) if data.is_empty() => {}
                Ok(data) if self.messages.moves_with(&data) => self.unread = Some(data),
                Ok(data) => {
                    let this = &mut *self;
                    if let Err(status) = this.messages.came(&this.held, &data) {
                        return Poll::Ready(Some(Err(to_tonic(&status))));
                    }
                    let n_held = this.messages.n_held();
                    if n_held == 0 && this.held.is_empty() {
                        return Poll::Ready(Some(Ok(Frame::data(data))));
                    }
                    this.held.push(data);
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
    /// The next part that came. There is none while the call moves to the codec threads: it is
    /// polled again when it is there.
    fn poll_data(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, tonic::Status>>> {
        if self.messages.charge.is_leaving() {
            return Poll::Pending;
        }
        if let Some(data) = self.unread.take() {
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        match Pin::new(&mut self.body).poll_frame(context) {
            Poll::Pending if self.messages.is_under_way() || self.messages.is_awaited => {
                let too_slow = ready!(self.arriving.poll(context));
                let status = Status::new(Code::DeadlineExceeded, too_slow.to_string());
                Poll::Ready(Some(Err(to_tonic(&status))))
            }
            Poll::Ready(Some(Ok(frame))) => {
                let n_bytes = frame.data_ref().map_or(0, Bytes::len);
                self.arriving.came(n_bytes, self.messages.is_under_way());
                Poll::Ready(Some(Ok(frame)))
            }
            polled @ (Poll::Ready(_) | Poll::Pending) => polled,
        }
    }

    /// Passes on all that came but for the last `n_held` bytes.
    fn release(&mut self, n_held: usize) {
        let mut n_passed = self.held.len().saturating_sub(n_held);
        while n_passed > 0
            && let Some(passed) = self.held.pop(n_passed)
        {
            n_passed -= passed.len();
            self.ready.push_back(Frame::data(passed));
        }
    }
}

/// Follows the messages in a stream of bytes.
#[derive(Debug)]
struct Messages {
    limits: Limits,
    /// The type of the messages, if it is known.
    shape: Option<&'static Shape>,
    /// The compression of messages that are marked as compressed.
    encoding: Option<Encoding>,
    charge: CallCharge,
    open: Option<Arc<OpenCall>>,
    /// Set until the first message begins, of a call that waits for it.
    is_awaited: bool,
    /// The bytes that have come of a length prefix.
    prefix: SmallVec<[u8; PREFIX]>,
    /// The message that is coming, whether it is packed, and what is missing of it.
    length: usize,
    is_packed: bool,
    n_missing: usize,
}

impl Messages {
    fn new(
        limits: Limits,
        shape: Option<&'static Shape>,
        encoding: Option<Encoding>,
        charge: CallCharge,
    ) -> Self {
        Self {
            limits,
            shape,
            encoding,
            charge,
            open: None,
            is_awaited: false,
            prefix: SmallVec::new(),
            length: 0,
            is_packed: false,
            n_missing: 0,
        }
    }

    /// Returns whether a part of a message has come.
    fn is_under_way(&self) -> bool {
        self.n_missing > 0 || !self.prefix.is_empty()
    }

    /// Returns how many of the last bytes that came are of a message that is not complete.
    fn n_held(&self) -> usize {
        if self.n_missing > 0 { PREFIX + self.length - self.n_missing } else { 0 }
    }

    /// Returns whether the call leaves for the codec threads before a piece that came is looked at:
    /// the piece begins a message that is long or compressed.
    fn moves_with(&self, data: &Bytes) -> bool {
        if self.n_missing > 0 {
            return false;
        }
        let mut prefix = self.prefix.iter().chain(&data[..]);
        let Some(flag) = prefix.next() else { return false };
        let length =
            prefix.take(PREFIX - 1).fold(0, |length, byte| length << 8 | usize::from(*byte));
        (*flag != 0 || length > LONG_BYTES) && self.charge.leave()
    }

    /// Takes note of a piece that came behind those that are held.
    fn came(&mut self, held: &HeldBytes, last: &Bytes) -> Result<(), Status> {
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
            self.n_missing -= n_taken;
            if self.n_missing > 0 {
                self.charge.grow(n_taken)?;
            } else if n_taken == self.length {
                // All of it came at once, as most do.
                self.complete(&mut &data[..n_taken], n_taken)?;
            } else {
                let n_after = data.len() - n_taken;
                self.complete(&mut held.message(last, n_after, self.length), n_taken)?;
            }
            data = &data[n_taken..];
        }
        Ok(())
    }

    /// Begins a message, if all of its prefix is there.
    fn begin(&mut self) -> Result<(), Status> {
        let &[flag, ref length @ ..] = &self.prefix[..] else { return Ok(()) };
        if length.len() < PREFIX - 1 {
            return Ok(());
        }
        let length = length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
        self.is_packed = flag == 1;
        self.prefix.clear();
        let max = self.limits.message_bytes_max;
        if length > max {
            let text = format!("Received message larger than max ({length} vs. {max})");
            return Err(Status::new(Code::ResourceExhausted, text)); // As gRPC's own text.
        }
        self.charge.begin(&self.limits)?;
        self.is_awaited = false;
        (self.length, self.n_missing) = (length, length);
        Ok(())
    }

    /// Charges the last bytes of a message that is complete, and what all of it takes decoded.
    fn complete(&self, message: &mut impl Buf, n_last: usize) -> Result<(), Status> {
        let bytes = match self.encoding.filter(|_| self.is_packed) {
            None => self.expansion(message)?,
            Some(encoding) => {
                let max = self.limits.message_bytes_max;
                let mut room = self.limits.budget.charge();
                let unpacked = encoding.inflate(message, max, |bytes| room.grow(bytes))?;
                // tonic unpacks it once more, into a buffer that has to grow.
                self.expansion(&mut &unpacked[..])?.saturating_add(3 * unpacked.len())
            }
        };
        self.charge.grow(bytes.saturating_add(n_last))?;
        if let Some(open) = &self.open {
            open.has_come();
        }
        Ok(())
    }

    fn expansion(&self, message: &mut impl Buf) -> Result<usize, Status> {
        let Some(shape) = self.shape else { return Ok(0) };
        let failed = |_| {
            let text = "failed to decode Protobuf message: the message is malformed";
            Status::new(Code::Internal, text)
        };
        expansion(message, shape).map_err(failed)
    }
}
