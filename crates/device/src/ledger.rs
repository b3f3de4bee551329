//! The vocabulary of a device's books: the holders of its bytes, and the purposes.
//!
//! Every byte that a [`Space`](crate::Space) holds is in one row of its ledger. What several
//! versions share is booked once, as shared; what nobody uses is the server's.

use std::fmt;
use std::sync::Arc;

/// A holder of bytes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Holder {
    /// The server itself, for all models.
    Server,
    /// A version of a model.
    Version {
        /// The model's name.
        model: Arc<str>,
        /// The version's number.
        version: i64,
    },
    /// Several versions together.
    Shared,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Holder::Server => f.write_str("server"),
            Holder::Version { model, version } => write!(f, "{model}:{version}"),
            Holder::Shared => f.write_str("shared"),
        }
    }
}

/// The purpose that bytes are held for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Category {
    /// Variables and constants as they were stored.
    Weights,
    /// Copies of weights in the layout of a kernel.
    PackedWeights,
    /// Compiled plans and their caches.
    Plans,
    /// Tensors that steps of a plan pass on to each other.
    Activations,
    /// Tensors of requests and replies, and of shapes unknown before running.
    Requests,
    /// Scratch memory of kernels.
    Workspace,
    /// Memory that the device's driver needs for itself.
    Context,
    /// Memory lost between and inside chunks and pages.
    Fragmentation,
    /// Memory that is kept to be given out.
    Reserve,
}

impl Category {
    /// Its name in replies and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Category::Weights => "weights",
            Category::PackedWeights => "packed_weights",
            Category::Plans => "plans",
            Category::Activations => "activations",
            Category::Requests => "requests",
            Category::Workspace => "workspace",
            Category::Context => "context",
            Category::Fragmentation => "fragmentation",
            Category::Reserve => "reserve",
        }
    }
}

/// A line of the books.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The holder of the bytes.
    pub holder: Holder,
    /// If they are shared, by whom; otherwise empty.
    pub sharers: Vec<Holder>,
    /// The purpose of the bytes.
    pub category: Category,
    /// The tensor or the plan; empty if the bytes belong to none or to many.
    pub tensor: Arc<str>,
    /// The number of bytes.
    pub bytes: u64,
}
