//! Errors of taking in or running a graph.

use std::collections::BTreeMap;
use std::fmt;

use status::{Code, Status};

/// A refusal of this crate.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// Ops that we do not have.
    #[error("{0}")]
    MissingOps(MissingOps),
    /// A name that leads nowhere.
    #[error("{wanted} is not in the graph{}", from(.by))]
    NotFound {
        /// The name asked for.
        wanted: String,
        /// The node that asks, or nothing for the caller.
        by: String,
    },
    /// A graph that no exporter writes.
    #[error("{0}")]
    Malformed(String),
    /// A node whose op refuses its attributes, inputs or values.
    #[error("{}", located(&.error.to_string(), "", node))]
    Node {
        /// The node.
        node: String,
        /// The error of its op.
        error: ops::Error,
    },
    /// The inputs of a run do not fit.
    #[error("{0}")]
    BadInput(String),
    /// There is no memory for a run.
    #[error(transparent)]
    Memory(#[from] device::Error),
    /// The run should stop.
    #[error(transparent)]
    Stopped(ops::Error),
}

/// An error's text with the place where it came up, as TensorFlow writes it. The innermost place
/// counts.
fn located(text: &str, function: &str, node: &str) -> String {
    if text.contains("\n\t [[{{") {
        return text.to_owned();
    }
    let function = match function {
        "" => String::new(),
        name => format!("{{{{function_node {name}}}}}"),
    };
    format!("{text}\n\t [[{function}{{{{node {node}}}}}]]")
}

fn from(by: &str) -> String {
    if by.is_empty() { String::new() } else { format!(" (node {by} asks for it)") }
}

/// The result of this crate's calls.
pub type Result<T> = std::result::Result<T, Error>;

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        Self::new(error.code(), error.to_string())
    }
}

impl Error {
    /// The canonical code.
    pub fn code(&self) -> Code {
        match self {
            Self::MissingOps(_) => Code::Unimplemented,
            Self::NotFound { .. } | Self::Malformed(_) | Self::BadInput(_) => Code::InvalidArgument,
            Self::Memory(_) => Code::ResourceExhausted,
            Self::Node { error, .. } | Self::Stopped(error) => error.code(),
        }
    }

    pub(crate) fn node(node: &str, error: ops::Error) -> Self {
        match error {
            ops::Error::Cancelled | ops::Error::DeadlineExceeded => Self::Stopped(error),
            other => Self::Node { node: node.to_owned(), error: other },
        }
    }

    /// The same as an op's error, for an op that called a function. What tracing made of a loop is
    /// no function that anybody knows: then the name is empty.
    pub(crate) fn into_op_error(self, function: &str) -> ops::Error {
        match self {
            Self::Node { node, error } => error.map_text(|text| located(&text, function, &node)),
            Self::Stopped(error) => error,
            Self::Memory(error) => ops::Error::ResourceExhausted(error.to_string()),
            Self::MissingOps(_) => ops::Error::Unimplemented(self.to_string()),
            Self::NotFound { .. } | Self::Malformed(_) | Self::BadInput(_) => {
                ops::Error::InvalidArgument(self.to_string())
            }
        }
    }
}

/// Names of ops that we do not have, and how many nodes need each. Its text also says how often
/// public graphs use them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MissingOps(pub BTreeMap<String, usize>);

impl fmt::Display for MissingOps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ops that we do not have: ")?;
        for (i, (op, count)) in self.0.iter().enumerate() {
            let comma = if i > 0 { ", " } else { "" };
            write!(f, "{comma}{op} (×{count}, {})", ops::usage(op))?;
        }
        Ok(())
    }
}
