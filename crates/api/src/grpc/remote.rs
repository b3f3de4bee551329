//! `Remote`: a body whose parts are made on the codec threads, one at a time when it is asked for.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body as HttpBody, Frame};
use tokio_util::task::AbortOnDropHandle;
use tonic::body::Body;

use super::to_tonic::to_tonic;
use crate::codec::{self, Codec};

/// The body of a long answer, or of a stream of answers. tonic encodes a message when its body is
/// polled, so the inner body is polled on a codec thread.
pub(crate) struct Remote {
    place: Place,
    codec: Codec,
}

type Part = Option<Result<Frame<Bytes>, tonic::Status>>;

enum Place {
    Here(Body),
    /// A codec thread waits for the next part.
    Polled(AbortOnDropHandle<(Body, Part)>),
    /// The body is lost: encoding it panicked.
    Lost,
}

impl Remote {
    pub(crate) fn new(body: Body, codec: Codec) -> Self {
        Self { place: Place::Here(body), codec }
    }
}

impl HttpBody for Remote {
    type Data = Bytes;
    type Error = tonic::Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Part> {
        loop {
            match std::mem::replace(&mut self.place, Place::Lost) {
                Place::Here(mut body) => {
                    let part = async move {
                        let part = body.frame().await;
                        (body, part)
                    };
                    self.place = Place::Polled(self.codec.spawn(part));
                }
                Place::Polled(mut handle) => {
                    let Poll::Ready(polled) = Pin::new(&mut handle).poll(context) else {
                        self.place = Place::Polled(handle);
                        return Poll::Pending;
                    };
                    let Ok((body, part)) = polled else {
                        return Poll::Ready(Some(Err(to_tonic(&codec::panicked()))));
                    };
                    self.place = Place::Here(body);
                    return Poll::Ready(part);
                }
                Place::Lost => return Poll::Ready(None),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.place {
            Place::Here(body) => body.is_end_stream(),
            Place::Polled(_) => false,
            Place::Lost => true,
        }
    }
}
