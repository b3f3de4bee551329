//! The protobuf and gRPC types of TensorFlow and TensorFlow Serving, and a service of our own.
//!
//! The types are generated from the files under `protos/`, which are ours: every message that a
//! SavedModel, a checkpoint, a request or a config file can hold, with the field numbers of
//! TensorFlow 2.21. `bytes` fields are [`prost::bytes::Bytes`], so that decoding from one buffer
//! shares it; maps are ordered. [`text`] and [`json`] read and write the two other forms of
//! protobuf.
#![forbid(unsafe_code)]

pub mod json;
mod meant;
mod numbers;
mod pool;
pub mod text;

pub use pool::FILE_DESCRIPTOR_SET;
pub use tensorflow::{error, serving};

/// Package `tensord`: the services of ours.
#[allow(missing_docs, unreachable_pub, clippy::all, rustdoc::all, reason = "generated")]
#[allow(clippy::allow_attributes_without_reason, clippy::too_many_lines, reason = "generated")]
pub mod tensord {
    tonic::include_proto!("tensord");
}

/// Package `tensorflow`: tensors, graphs, SavedModels, checkpoints, session options.
#[allow(missing_docs, unreachable_pub, clippy::all, rustdoc::all, reason = "generated")]
#[allow(clippy::allow_attributes_without_reason, clippy::too_many_lines, reason = "generated")]
pub mod tensorflow {
    tonic::include_proto!("tensorflow");

    /// Package `tensorflow.error`: the canonical status codes.
    pub mod error {
        tonic::include_proto!("tensorflow.error");
    }

    /// Package `tensorflow.serving`: requests, answers, services and config files.
    pub mod serving {
        tonic::include_proto!("tensorflow.serving");
    }
}
