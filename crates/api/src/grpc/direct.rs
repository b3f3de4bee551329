//! `Direct`: leads the calls of `PredictionService` past the router.
//!
//! A router of many services looks a call's path up, and puts its body and its answer into boxes of
//! its own. For a small `Predict` that is a good part of all it costs; so they go straight to their
//! service, and whatever else is called goes to the router. Calls that no key admits go nowhere.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};

use futures_util::future::Either;
use http::{Request, Response};
use proto::serving::prediction_service_server::PredictionServiceServer;
use tonic::body::Body;
use tonic::server::NamedService;
use tower::{Layer, Service};

use super::{Grpc, Metered, guard};
use crate::context::Context as Served;

/// The service that is not looked up.
type Prediction = Metered<PredictionServiceServer<Grpc>>;

/// Puts `PredictionService` before a router.
#[derive(Clone)]
pub struct DirectLayer {
    prediction: Prediction,
    context: Served,
}

impl DirectLayer {
    pub(super) fn new(face: &Grpc) -> Self {
        Self { prediction: face.prediction_service(), context: face.context.clone() }
    }
}

impl<R> Layer<R> for DirectLayer {
    type Service = Direct<R>;

    fn layer(&self, router: R) -> Direct<R> {
        Direct { prediction: self.prediction.clone(), context: self.context.clone(), router }
    }
}

/// `PredictionService`, and a router for the rest.
#[derive(Clone)]
pub struct Direct<R> {
    prediction: Prediction,
    context: Served,
    router: R,
}

impl<R> Service<Request<Body>> for Direct<R>
where
    R: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Either<
        <Prediction as Service<Request<Body>>>::Future,
        Either<R::Future, Ready<Result<Response<Body>, Infallible>>>,
    >;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // `PredictionService` always is.
        self.router.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        if let Some(refusal) = guard::refusal(&self.context, &mut request) {
            return Either::Right(Either::Right(ready(Ok(refusal))));
        }
        if is_of(request.uri().path(), Prediction::NAME) {
            Either::Left(self.prediction.call(request))
        } else {
            Either::Right(Either::Left(self.router.call(request)))
        }
    }
}

/// Returns whether a path names a method of a service: `/service/method`.
fn is_of(path: &str, service: &str) -> bool {
    let rest = path.strip_prefix('/').and_then(|path| path.strip_prefix(service));
    rest.is_some_and(|rest| rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_methods_of_the_service_are_led_past_the_router() {
        let is_direct = |path| is_of(path, Prediction::NAME);
        assert!(is_direct("/tensorflow.serving.PredictionService/Predict"));
        assert!(is_direct("/tensorflow.serving.PredictionService/"));
        for path in [
            "",
            "/",
            "/tensorflow.serving.PredictionService",
            "/tensorflow.serving.PredictionServiceTwo/Predict",
            "/tensorflow.serving.ModelService/GetModelStatus",
            "tensorflow.serving.PredictionService/Predict",
        ] {
            assert!(!is_direct(path), "{path}");
        }
    }
}
