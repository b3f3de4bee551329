//! `DrainedBody`: the body of a request that may be refused before all of it has come.
//!
//! A connection that is closed with unread bytes is reset, and the client may never see the answer
//! that refused it. So what comes of a body after its answer is read and dropped, for a while.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, SizeHint};

/// The time for which bytes that nobody wants are read.
const DRAIN_MAX: Duration = Duration::from_secs(2);

/// A body that reads on when it is dropped before its end.
pub(super) struct DrainedBody<B>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
{
    body: Option<B>,
}

impl<B> DrainedBody<B>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
{
    pub(super) fn new(body: B) -> Self {
        Self { body: Some(body) }
    }
}

impl<B> Body for DrainedBody<B>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let polled = Pin::new(body).poll_frame(context);
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            self.body = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl<B> Drop for DrainedBody<B>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
{
    fn drop(&mut self) {
        let Some(mut body) = self.body.take().filter(|body| !body.is_end_stream()) else { return };
        let drain = async move { while let Some(Ok(_)) = body.frame().await {} };
        tokio::spawn(tokio::time::timeout(DRAIN_MAX, drain));
    }
}
