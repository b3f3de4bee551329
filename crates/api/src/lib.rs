//! The serving APIs: one function a method, and two thin faces, gRPC and REST, that call it. It
//! knows nothing of devices, ops or files.
#![forbid(unsafe_code)]

mod access;
mod arrival;
mod audit;
mod both;
mod budget;
mod call;
mod classify;
mod codec;
mod context;
mod control;
mod examples;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod grpc;
mod held;
mod hints;
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
mod tls;
mod trace;

pub use access::{Access, Digest, Key, Right, new_key};
pub use arrival::ArrivalLimits;
pub use both::{BothFaces, serve_both};
pub use budget::{Books, Budget};
pub use call::MethodNames;
pub use codec::Codec;
pub use context::Context;
pub use control::{Changing, Control};
pub use grpc::{
    Direct, DirectLayer, Grpc, GrpcOptions, Metered, PageService, Profiler, TransportOptions,
};
pub use hints::Hints;
pub use listen::{
    Client, ConnectInfo, Connection, ListenOptions, Listener, Local, Peer, connections,
};
pub use record::{Exchange, Record, Recorder};
pub use replay::{Replayed, replay};
pub use rest::{
    Door, Memory, Metrics, ModelsPage, Page, Reply, Rest, RestOptions, Site, serve as serve_rest,
};
pub use stats::Stats;
pub use tls::{Pem, Protocol, Tls};

/// The models that are served.
pub type Models = lifecycle::Models<session::Servable>;
