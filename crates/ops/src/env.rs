//! `Env`: what a run offers to its kernels.

use pool::Pool;
use tensor::{Spec, Tensor};

use crate::cancel::Cancel;
use crate::error::{Error, Result};
use crate::resources::Resources;

/// What a run offers to its kernels besides their inputs.
#[derive(Clone, Copy)]
pub struct Env<'a> {
    /// The compute threads.
    pub pool: &'a Pool,
    /// The functions of the graph, for ops that call them.
    pub functions: &'a dyn Functions,
    /// The files of the model, for ops that read them (tables).
    pub files: &'a dyn Files,
    /// The variables and tables of the servable.
    pub resources: &'a Resources,
    /// Whether the run should stop.
    pub cancel: &'a Cancel,
}

/// The functions of a graph, for `While`, `If`, `Case` and `PartitionedCall`.
pub trait Functions: Sync {
    /// What `function` gives for inputs of these specs.
    fn infer(&self, function: &str, inputs: &[Spec]) -> Result<Vec<Spec>>;

    /// Runs `function`.
    fn call(&self, function: &str, inputs: &[Tensor], env: &Env<'_>) -> Result<Vec<Tensor>>;

    /// The body of `function`, for those who know what it is.
    fn body(&self, function: &str) -> Option<&dyn std::any::Any> {
        let _ = function;
        None
    }

    /// How deep functions within functions may still be made for the constants of a call.
    fn levels(&self) -> usize {
        0
    }
}

/// The asset files of a model.
pub trait Files: Sync {
    /// The contents of the file that a graph names so. Fails if it is not an asset of the model.
    fn read(&self, name: &[u8]) -> Result<Vec<u8>>;
}

/// No functions at all.
#[derive(Debug, Clone, Copy)]
pub struct NoFunctions;

impl Functions for NoFunctions {
    fn infer(&self, function: &str, _: &[Spec]) -> Result<Vec<Spec>> {
        Err(Error::NotFound(format!("function {function} is not defined")))
    }

    fn call(&self, function: &str, _: &[Tensor], _: &Env<'_>) -> Result<Vec<Tensor>> {
        Err(Error::NotFound(format!("function {function} is not defined")))
    }
}

/// No files at all.
#[derive(Debug, Clone, Copy)]
pub struct NoFiles;

impl Files for NoFiles {
    fn read(&self, name: &[u8]) -> Result<Vec<u8>> {
        let name = String::from_utf8_lossy(name);
        Err(Error::NotFound(format!("file {name} is not an asset of the model")))
    }
}
