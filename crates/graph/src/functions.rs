//! `Library`: the functions that ops call while they run, as programs.

use device::Workspace;
use ops::{Env, Functions};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use tensor::{Spec, Tensor};

use crate::captures::Captures;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::program::{Build, Program};
use crate::source::Source;

/// The bodies of loops and branches, each a program of its own.
#[derive(Debug, Default)]
pub struct Library {
    programs: FxHashMap<String, Program>,
    /// The handles that calls give to them.
    captures: Captures,
    /// Workspaces that calls left behind, for the next ones: a call within a call takes another.
    workspaces: Mutex<Vec<Workspace>>,
}

/// The most workspaces kept for later calls.
const WORKSPACES_MAX: usize = 16;

impl Library {
    /// Adds the functions that a graph calls, and those that these call.
    pub fn add(&mut self, source: &Source, graph: &Graph, build: &Build<'_>) -> Result<()> {
        let mut functions = source.called_functions(graph)?;
        let stale = self.captures.apply(graph, &mut functions);
        for (name, body) in functions {
            if self.programs.contains_key(&name) && !stale.contains(&name) {
                continue;
            }
            // What it calls is there already: the bodies come innermost first.
            let env = Env { functions: &*self, ..*build.env };
            let program = Program::build(body, &Build { env: &env, ..*build })?;
            self.programs.insert(name, program);
        }
        Ok(())
    }

    fn program(&self, function: &str) -> ops::Result<&Program> {
        let lost = || ops::Error::NotFound(format!("function {function} is not defined"));
        self.programs.get(function).ok_or_else(lost)
    }

    fn take_workspace(&self) -> Result<Workspace> {
        let kept = self.workspaces.lock().pop();
        kept.map_or_else(|| Workspace::allocate(0).map_err(Error::from), Ok)
    }

    fn give_back(&self, workspace: Workspace) {
        let mut workspaces = self.workspaces.lock();
        if workspaces.len() < WORKSPACES_MAX {
            workspaces.push(workspace);
        }
    }
}

impl Functions for Library {
    fn infer(&self, function: &str, inputs: &[Spec]) -> ops::Result<Vec<Spec>> {
        // Inference needs no more than the functions themselves.
        let nothing = (ops::Resources::default(), ops::Cancel::default(), pool::Pool::new(1));
        let env = Env {
            pool: &nothing.2,
            functions: self,
            files: &ops::NoFiles,
            resources: &nothing.0,
            cancel: &nothing.1,
        };
        self.program(function)?.infer(inputs, &env).map_err(Error::into_op_error)
    }

    fn call(&self, function: &str, inputs: &[Tensor], env: &Env<'_>) -> ops::Result<Vec<Tensor>> {
        let program = self.program(function)?;
        let mut workspace = self.take_workspace().map_err(Error::into_op_error)?;
        let outputs = program.run(inputs, env, &mut workspace);
        self.give_back(workspace);
        outputs.map_err(Error::into_op_error)
    }
}
