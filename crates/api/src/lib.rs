//! The serving APIs: one function a method, and two thin faces, gRPC and REST, that call it. It
//! knows nothing of devices, ops or files.
#![forbid(unsafe_code)]

mod budget;
mod call;
mod classify;
mod context;
mod control;
mod examples;
mod grpc;
mod level;
mod listen;
mod metadata;
mod model_status;
mod multi_inference;
mod predict;
mod record;
mod regress;
mod replay;
mod rest;
mod run;
mod signature_text;
mod stats;
mod status;
mod tls;
mod trace;

pub use budget::Budget;
pub use call::MethodNames;
pub use context::Context;
pub use control::{Changing, Control};
pub use grpc::{Direct, DirectLayer, Grpc, GrpcOptions, Metered, Profiler, TransportOptions};
pub use listen::{Connection, ListenOptions, Listener, Local, connections};
pub use record::{Exchange, Record, Recorder};
pub use replay::{Replayed, replay};
pub use rest::{
    Memory, Metrics, ModelsPage, Page, Reply, Rest, RestOptions, json, serve as serve_rest,
};
pub use stats::{Kind, Metric, Point, Stats, Value, latency_limits};
pub use status::Status;
pub use tls::{Pem, Protocol, Tls};

/// The models that are served.
pub type Models = lifecycle::Models<session::Servable>;
