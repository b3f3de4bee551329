//! Errors of reading a SavedModel.

use status::Code;

/// The result of reading a SavedModel.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason that a SavedModel cannot be read. Files are named relative to the directory of the
/// version.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file could not be read.
    #[error(transparent)]
    Storage(#[from] storage::Error),
    /// There is neither `saved_model.pb` nor `saved_model.pbtxt`. The text is that of
    /// `saved_model_bundle_factory.cc`.
    #[error(
        "Specified file path does not appear to contain a SavedModel bundle (should have a file \
         called `saved_model.pb`)\nSpecified file path: {path}"
    )]
    NoSavedModel {
        /// The directory.
        path: String,
    },
    /// The directory holds a model of the time before SavedModels. The text is TensorFlow
    /// Serving's.
    #[error("Session Bundle is deprecated and removed.")]
    SessionBundle,
    /// The model is in the form for models over 2 GB, `saved_model.cpb`.
    #[error("saved_model.cpb: chunked SavedModels are not supported")]
    Chunked,
    /// No meta graph has exactly the tags that are asked for. The text is that of
    /// `tensorflow/cc/saved_model/reader.cc`.
    #[error(
        "Could not find meta graph def matching supplied tags: {{ {tags} }}. To inspect available \
         tag-sets in the SavedModel, please use the SavedModel CLI: `saved_model_cli`"
    )]
    Tags {
        /// The tags asked for, with blanks between.
        tags: String,
    },
    /// A file is damaged.
    #[error("{file}: {reason}")]
    Malformed {
        /// The file.
        file: String,
        /// The fault of the file.
        reason: String,
    },
    /// A file is in a form that we cannot read.
    #[error("{file}: {reason}")]
    Unsupported {
        /// The file.
        file: String,
        /// The feature that we do not support.
        reason: String,
    },
    /// A text file has a mistake.
    #[error("{file}:{source}")]
    Text {
        /// The file.
        file: String,
        /// The mistake and its place.
        source: proto::text::TextError,
    },
    /// A signature cannot be understood.
    #[error("signature {signature:?}, {alias:?}: {reason}")]
    Signature {
        /// The name of the signature.
        signature: String,
        /// The name of the input or output.
        alias: String,
        /// The fault of the input or output.
        reason: String,
    },
    /// An asset is missing, or outside of the model.
    #[error("asset of tensor {tensor:?}: {source}")]
    Asset {
        /// The tensor that takes its path.
        tensor: String,
        /// The error of the file.
        source: storage::Error,
    },
    /// An asset is not bound to a tensor.
    #[error("asset {file:?}: {reason}")]
    AssetDef {
        /// The name of the file.
        file: String,
        /// The fault.
        reason: String,
    },
    /// The op that initialises the model cannot be told.
    #[error("{reason}")]
    InitOp {
        /// The reason.
        reason: String,
    },
    /// The checkpoint has no index, though a signature reads what is restored from it.
    #[error(
        "{file} is missing, but signature {signature:?} reads {variable:?}, which is restored from \
         it: the version is not complete"
    )]
    NoIndex {
        /// The index file.
        file: String,
        /// A signature that cannot be run.
        signature: String,
        /// The variable or table that it reads.
        variable: String,
    },
    /// A tensor of the checkpoint cannot be read.
    #[error("{file}: tensor {tensor:?}: {fault}")]
    Tensor {
        /// The index file.
        file: String,
        /// The key of the tensor.
        tensor: String,
        /// The fault of the tensor.
        fault: Fault,
    },
    /// A data file of the checkpoint cannot be read.
    #[error("tensor {tensor:?}: {source}")]
    Shard {
        /// The key of the tensor whose bytes are in the file.
        tensor: String,
        /// The error of the file.
        source: storage::Error,
    },
    /// It cannot be told which variable takes which tensor.
    #[error("node {node:?} restores variables: {reason}")]
    Restore {
        /// The node.
        node: String,
        /// The fault.
        reason: String,
        /// The code: the graph is wrong, or we do not support it.
        code: Code,
    },
    /// A warm-up record cannot be used.
    #[error("{0}")]
    Warmup(String),
    /// The warm-up file is damaged.
    #[error(
        "{path}: {reason} at offset {offset}. Please verify your warmup data is in TFRecord format."
    )]
    WarmupFile {
        /// The file.
        path: String,
        /// The place where the damaged record starts.
        offset: u64,
        /// The fault of the record.
        reason: String,
    },
}

/// A fault of a tensor of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It is not there.
    #[error("not in the checkpoint")]
    Missing,
    /// Its entry is no `BundleEntryProto`.
    #[error("its entry cannot be parsed: {0}")]
    Entry(String),
    /// Its shape cannot be.
    #[error("{0}")]
    Shape(String),
    /// Its dtype is unknown, or cannot be read so.
    #[error("{0}")]
    Dtype(String),
    /// Its dtype and shape do not fit its length.
    #[error("dtype and shape take {expected} bytes, got {got}")]
    Size {
        /// The bytes that dtype and shape take.
        expected: u64,
        /// The bytes stored.
        got: u64,
    },
    /// It is in a data file that cannot be.
    #[error("it is said to be in shard {shard} of {n_shards}")]
    ShardNumber {
        /// The number of the file.
        shard: i32,
        /// The number of files.
        n_shards: i32,
    },
    /// Its offset is below zero.
    #[error("its offset is {0}")]
    Offset(i64),
    /// Its bytes are not those that were written.
    #[error("checksum mismatch: expected {expected:#010x}, got {got:#010x}")]
    Checksum {
        /// The checksum in the index.
        expected: u32,
        /// The checksum of the bytes.
        got: u32,
    },
    /// It is stored in slices that make no whole.
    #[error("{0}")]
    Slices(String),
    /// The lengths of its strings make no sense.
    #[error("{0}")]
    Strings(String),
    /// There is no memory for its strings.
    #[error("{0}")]
    Memory(String),
    /// It is not what the graph expects.
    #[error("expected {expected}, got {got}")]
    Mismatch {
        /// The dtype or shape in the graph.
        expected: String,
        /// The dtype or shape in the checkpoint.
        got: String,
    },
    /// The buffer to read into has the wrong length.
    #[error("{expected} bytes do not fit into a buffer of {got}")]
    Buffer {
        /// The bytes to be read.
        expected: u64,
        /// The bytes of the buffer.
        got: u64,
    },
}

impl Error {
    /// The canonical code that a client sees for it.
    pub fn code(&self) -> Code {
        match self {
            Self::Storage(source) | Self::Asset { source, .. } | Self::Shard { source, .. } => {
                storage_code(source)
            }
            Self::NoSavedModel { .. } | Self::Tags { .. } | Self::NoIndex { .. } => Code::NotFound,
            Self::SessionBundle | Self::Chunked | Self::Unsupported { .. } => Code::Unimplemented,
            Self::Malformed { .. } | Self::WarmupFile { .. } => Code::DataLoss,
            Self::Text { .. }
            | Self::Signature { .. }
            | Self::AssetDef { .. }
            | Self::Warmup(_) => Code::InvalidArgument,
            Self::InitOp { .. } => Code::FailedPrecondition,
            Self::Tensor { fault, .. } => fault.code(),
            Self::Restore { code, .. } => *code,
        }
    }
}

impl Fault {
    fn code(&self) -> Code {
        match self {
            Self::Missing => Code::NotFound,
            Self::Shape(_) | Self::Mismatch { .. } | Self::Buffer { .. } => Code::InvalidArgument,
            Self::Dtype(_) => Code::Unimplemented,
            Self::Entry(_)
            | Self::Size { .. }
            | Self::ShardNumber { .. }
            | Self::Offset(_)
            | Self::Checksum { .. }
            | Self::Slices(_)
            | Self::Strings(_) => Code::DataLoss,
            Self::Memory(_) => Code::ResourceExhausted,
        }
    }
}

fn storage_code(error: &storage::Error) -> Code {
    match error {
        storage::Error::Scheme { .. } => Code::Unimplemented,
        storage::Error::NotFound { .. } => Code::NotFound,
        storage::Error::Denied { .. } => Code::PermissionDenied,
        storage::Error::Escapes { .. } => Code::InvalidArgument,
        storage::Error::Kind { .. } | storage::Error::TooLarge { .. } => Code::FailedPrecondition,
        storage::Error::Truncated { .. } => Code::DataLoss,
        storage::Error::Io { .. } => Code::Unavailable,
    }
}
