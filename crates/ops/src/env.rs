//! `Env`: what a run offers to its kernels.

use std::sync::Arc;

use device::Span;
use pool::Pool;
use tensor::{Spec, Tensor};

use crate::cancel::Cancel;
use crate::error::{Error, Result};
use crate::resources::Resources;

/// The services that a run offers to its kernels besides their inputs.
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
    /// The signal that the run should stop.
    pub cancel: &'a Cancel,
}

/// The functions of a graph, for `While`, `If`, `Case` and `PartitionedCall`.
pub trait Functions: Sync {
    /// Returns the specs of `function`'s outputs for inputs of these specs.
    fn infer(&self, function: &str, inputs: &[Spec]) -> Result<Vec<Spec>>;

    /// Runs `function`.
    fn call(&self, function: &str, inputs: &[Tensor], env: &Env<'_>) -> Result<Vec<Tensor>>;

    /// Makes `function` ready for inputs of these specs; `None` if it cannot be.
    fn ready(&self, function: &str, inputs: &[Spec], env: &Env<'_>) -> Option<Arc<dyn Ready>> {
        let _ = (function, inputs, env);
        None
    }

    /// The body of `function`, for those who know what it is.
    fn body(&self, function: &str) -> Option<&dyn std::any::Any> {
        let _ = function;
        None
    }

    /// Returns how many levels of functions within functions may still be made for the constants of
    /// a call.
    fn levels(&self) -> usize {
        0
    }

    /// Returns the observer of the run that calls the functions; mostly there is none.
    fn observer(&self) -> Option<&dyn Observer> {
        None
    }
}

/// An observer of a run: it is told of each plan that begins, of each of its steps that is done,
/// and of its end. The plans of functions that a step calls begin and end before that step is done.
pub trait Observer: Sync {
    /// A plan begins; for those who know what it is.
    fn enter(&self, plan: &dyn std::any::Any);

    /// Step number `number` of the plan that began last, and has not ended, is done. All are told
    /// in turn, those that were left out as well.
    fn step(&self, number: usize);

    /// That plan ends, if only because a step failed.
    fn leave(&self);
}

/// A function that was made ready for inputs of given specs: when it runs, nothing is looked up,
/// and no memory is allocated for tensors whose size is known.
pub trait Ready: Send + Sync {
    /// Returns the specs of the outputs.
    fn outputs(&self) -> &[Spec];

    /// Returns whether the function reads input number `input`, other than to hand it on.
    fn reads(&self, input: usize) -> bool;

    /// Returns whether output number `number` is input number `number`, unchanged.
    fn hands_on(&self, number: usize) -> bool;

    /// The bytes of working memory that it wants.
    fn work_bytes(&self) -> usize;

    /// The least that other offsets in its working memory could do with.
    fn least_work_bytes(&self) -> usize;

    /// The same function with offsets that do with so many bytes, if such are found before
    /// `should_stop`.
    fn lowered(
        &self,
        work_bytes: usize,
        env: &Env<'_>,
        should_stop: &mut dyn FnMut() -> bool,
    ) -> Option<Arc<dyn Ready>>;

    /// The most of these that a kernel uses as scratch memory, and not to pass on.
    fn kernel_bytes(&self) -> usize;

    /// The most bytes of tensors outside of that memory which it holds while it runs, besides what
    /// it is handed.
    fn open_bytes(&self) -> usize;

    /// Returns whether the size of every tensor is known before it runs.
    fn is_static(&self) -> bool;

    /// Runs it.
    fn run(&self, frame: Frame<'_>, env: &Env<'_>) -> Result<()>;
}

/// The memory of the tensors of a call.
#[derive(Debug)]
pub struct Frame<'a> {
    /// The memory that the spans are in.
    pub memory: &'a mut [u8],
    /// The first byte of the working memory, which reaches to the end.
    pub work: usize,
    /// For each plain input of known size its span; nothing for others, and for those that are not
    /// read.
    pub inputs: &'a [Option<Span>],
    /// For each plain output of known size its span; nothing for others. One that is handed on is
    /// not written if its span is that of the input.
    pub outputs: &'a [Option<Span>],
    /// Tensors without a span: those of the inputs before the call, of the outputs afterwards.
    pub handed: &'a mut [Option<Tensor>],
    /// The room for the call's own tensors: empty before and after, and kept for the next call.
    pub open: &'a mut Vec<Option<Tensor>>,
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
