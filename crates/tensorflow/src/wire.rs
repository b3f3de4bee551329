//! Messages between the server and a worker, through their rings.
//!
//! A message is small: tensors stay in shared memory, and messages say where.

use prost::Message;
use prost::bytes::Bytes;

use crate::error::Error;

/// A message of the server.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ToWorker {
    #[prost(oneof = "Order", tags = "1, 2, 3, 4, 5")]
    pub(crate) order: Option<Order>,
}

/// An order to a worker.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum Order {
    #[prost(message, tag = "1")]
    Load(Load),
    #[prost(message, tag = "2")]
    Run(RunOrder),
    /// Unload this model.
    #[prost(uint64, tag = "3")]
    Unload(u64),
    /// The block of outputs that begins here is no longer needed.
    #[prost(uint64, tag = "4")]
    Free(u64),
    /// Give memory back, nothing is going on.
    #[prost(bool, tag = "5")]
    Rest(bool),
}

/// Load a SavedModel.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Load {
    #[prost(uint64, tag = "1")]
    pub(crate) model: u64,
    #[prost(string, tag = "2")]
    pub(crate) dir: String,
    #[prost(string, repeated, tag = "3")]
    pub(crate) tags: Vec<String>,
    /// A serialised `ConfigProto`.
    #[prost(bytes = "bytes", tag = "4")]
    pub(crate) config: Bytes,
    #[prost(message, repeated, tag = "5")]
    pub(crate) signatures: Vec<Names>,
}

/// The tensors of a signature.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Names {
    #[prost(string, repeated, tag = "1")]
    pub(crate) inputs: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    pub(crate) outputs: Vec<String>,
}

/// Run a signature.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RunOrder {
    #[prost(uint64, tag = "1")]
    pub(crate) id: u64,
    #[prost(uint64, tag = "2")]
    pub(crate) model: u64,
    /// The place of the signature among those of `Load`.
    #[prost(uint32, tag = "3")]
    pub(crate) signature: u32,
    #[prost(message, optional, tag = "4")]
    pub(crate) inputs: Option<Tensors>,
    /// The places of the outputs wanted.
    #[prost(uint32, repeated, tag = "5")]
    pub(crate) outputs: Vec<u32>,
    /// The longest time that the run may take, in milliseconds; 0 means for ever.
    #[prost(int64, tag = "6")]
    pub(crate) timeout_millis: i64,
}

/// Tensors in a block of shared memory or, if they are few bytes, in the message itself.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Tensors {
    /// The offset of the block.
    #[prost(uint64, tag = "1")]
    pub(crate) offset: u64,
    /// Its bytes; 0 if there is none.
    #[prost(uint64, tag = "2")]
    pub(crate) len: u64,
    #[prost(message, repeated, tag = "3")]
    pub(crate) parts: Vec<Part>,
    /// The bytes that stand for the block if there is none.
    #[prost(bytes = "bytes", tag = "4")]
    pub(crate) inline: Bytes,
}

/// One tensor of a block.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Part {
    #[prost(int32, tag = "1")]
    pub(crate) dtype: i32,
    #[prost(int64, repeated, tag = "2")]
    pub(crate) dims: Vec<i64>,
    /// The offset of the tensor's bytes in the block.
    #[prost(uint64, tag = "3")]
    pub(crate) offset: u64,
    #[prost(uint64, tag = "4")]
    pub(crate) len: u64,
}

/// A message of a worker.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct FromWorker {
    #[prost(oneof = "Word", tags = "1, 2, 3, 4, 5")]
    pub(crate) word: Option<Word>,
}

/// An event in a worker.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum Word {
    /// The library is loaded.
    #[prost(message, tag = "1")]
    Ready(Ready),
    /// The library cannot be used, and the worker ends.
    #[prost(message, tag = "2")]
    Failed(Failure),
    #[prost(message, tag = "3")]
    Loaded(Loaded),
    #[prost(message, tag = "4")]
    Done(Done),
    /// The inputs of this run are no longer needed.
    #[prost(uint64, tag = "5")]
    Released(u64),
}

/// The library is loaded.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Ready {
    /// The version of TensorFlow.
    #[prost(string, tag = "1")]
    pub(crate) version: String,
    /// The parts of the sandbox that could not be had.
    #[prost(string, repeated, tag = "2")]
    pub(crate) missing: Vec<String>,
}

/// A failure: its code and its message.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Failure {
    /// The canonical status code.
    #[prost(int32, tag = "1")]
    pub(crate) code: i32,
    #[prost(string, tag = "2")]
    pub(crate) text: String,
}

/// The end of a load.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Loaded {
    #[prost(uint64, tag = "1")]
    pub(crate) model: u64,
    #[prost(message, optional, tag = "2")]
    pub(crate) failure: Option<Failure>,
    /// The devices that TensorFlow sees.
    #[prost(string, repeated, tag = "3")]
    pub(crate) devices: Vec<String>,
}

/// The end of a run.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Done {
    #[prost(uint64, tag = "1")]
    pub(crate) id: u64,
    #[prost(message, optional, tag = "2")]
    pub(crate) failure: Option<Failure>,
    #[prost(message, optional, tag = "3")]
    pub(crate) outputs: Option<Tensors>,
    /// `true` if the inputs of the run are still needed; `Released` will say when they are not.
    #[prost(bool, tag = "4")]
    pub(crate) holds_inputs: bool,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { code: error.code().number(), text: error.to_string() }
    }
}
