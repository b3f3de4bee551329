//! The serving APIs: one function a method, and two thin faces, gRPC and REST, that call it. It
//! knows nothing of devices, ops or files.
#![forbid(unsafe_code)]

mod call;
mod classify;
mod examples;
mod grpc;
mod metadata;
mod model_status;
mod multi_inference;
mod predict;
mod regress;
mod rest;
mod status;

pub use call::{Call, MethodNames};
pub use grpc::{Grpc, GrpcOptions};
pub use predict::{Answer, Inputs, predict};
pub use rest::{
    ConnectionOptions, Metrics, ModelsPage, Page, Reply, Rest, RestOptions, json,
    serve as serve_rest,
};
pub use status::Status;

/// The models that are served.
pub type Models = lifecycle::Models<session::Servable>;
