//! The messages of `tensorflow.ProfilerService`, as far as they mean something here. The numbers
//! are TensorFlow 2.21's.

use bytes::Bytes;

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ProfileRequest {
    #[prost(uint64, tag = "1")]
    pub(crate) duration_ms: u64,
    #[prost(string, tag = "6")]
    pub(crate) session_id: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ProfileResponse {
    #[prost(message, repeated, tag = "6")]
    pub(crate) tool_data: Vec<ToolFile>,
    #[prost(bool, tag = "7")]
    pub(crate) empty_trace: bool,
}

/// A file that the client is to keep.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ToolFile {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) content: Bytes,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct TerminateRequest {
    #[prost(string, tag = "1")]
    pub(crate) session_id: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct TerminateResponse {}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct MonitorRequest {
    #[prost(uint64, tag = "1")]
    pub(crate) duration_ms: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct MonitorResponse {
    #[prost(string, tag = "1")]
    pub(crate) text: String,
}
