//! `grpc.health.v1.Health`, which follows readiness. TensorFlow Serving sets it once
//! and never again.

use tonic_health::ServingStatus;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::server::HealthReporter;

use crate::Models;

/// The names that clients ask for: all of it, and TensorFlow Serving's short names.
const NAMES: [&str; 3] = ["", "ModelService", "PredictionService"];

/// The service, and what keeps it up to date: to be run as long as the service is.
pub(crate) async fn health(
    models: &Models,
) -> (HealthServer<impl Health>, impl Future<Output = ()> + use<>) {
    let (reporter, service) = tonic_health::server::health_reporter();
    let mut readiness = models.readiness();
    report(&reporter, *readiness.borrow_and_update()).await;
    let follow = async move {
        // When the sender is gone, so is the server.
        while readiness.changed().await.is_ok() {
            let is_ready = *readiness.borrow_and_update();
            report(&reporter, is_ready).await;
        }
        report(&reporter, false).await;
    };
    (service, follow)
}

async fn report(reporter: &HealthReporter, is_ready: bool) {
    let status = if is_ready { ServingStatus::Serving } else { ServingStatus::NotServing };
    let full = [
        proto::serving::prediction_service_server::SERVICE_NAME,
        proto::serving::model_service_server::SERVICE_NAME,
    ];
    for name in NAMES.into_iter().chain(full) {
        reporter.set_service_status(name, status).await;
    }
}
