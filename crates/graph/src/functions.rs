//! `Library`: the functions that ops call while they run, as programs.

use std::sync::Arc;

use device::Workspace;
use ops::{Env, Functions, Ready};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use tensor::{Spec, Tensor};

use crate::captures::Captures;
use crate::error::{Error, Result};
use crate::graph::{Graph, Node};
use crate::program::{Build, Program};
use crate::ready::ReadyFunction;
use crate::source::Source;

/// The bodies of loops and branches, each a program of its own.
#[derive(Debug, Default)]
pub struct Library {
    programs: FxHashMap<String, Arc<Program>>,
    /// The handles that calls give to them.
    captures: Captures,
    /// Workspaces that calls left behind, for the next ones: a call within a call takes another.
    workspaces: Mutex<Vec<Workspace>>,
}

/// The depth to which functions within functions are given the constants of their calls.
const LEVELS: usize = 3;

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
            let options = build.options.of_functions();
            let program = Program::build(body, &Build { env: &env, options, ..*build })?;
            self.programs.insert(name, Arc::new(program));
        }
        Ok(())
    }

    /// Calls `each` with the nodes of all functions.
    pub fn visit(&self, each: &mut dyn FnMut(&Node)) {
        self.programs.values().for_each(|program| program.visit(each));
    }

    fn program(&self, function: &str) -> ops::Result<&Arc<Program>> {
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

impl Library {
    /// Adds a program.
    pub(crate) fn insert(&mut self, name: String, program: Program) {
        self.programs.insert(name, Arc::new(program));
    }

    /// The programs, to be packed: their plans are dropped.
    pub(crate) fn programs_mut(&mut self) -> impl Iterator<Item = &mut Program> {
        self.forget_plans();
        let alone = |program| Arc::get_mut(program).expect("only plans hold on to functions");
        self.programs.values_mut().map(alone)
    }

    /// Drops the plans of all functions.
    pub(crate) fn forget_plans(&self) {
        self.programs.values().for_each(|program| program.forget_plans());
    }

    /// Returns whether there is a function of this name.
    pub(crate) fn has(&self, function: &str) -> bool {
        self.programs.contains_key(function)
    }

    /// Returns whether there is no function at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.programs.is_empty()
    }

    /// The bytes of constants and packed weights that its programs hold.
    pub(crate) fn held_bytes(&self) -> usize {
        self.programs.values().map(|program| program.held_bytes()).sum()
    }

    /// Infers the results of a function whose callees are among `functions`.
    pub(crate) fn infer_within(
        &self,
        function: &str,
        inputs: &[Spec],
        functions: &dyn Functions,
    ) -> ops::Result<Vec<Spec>> {
        // Inference needs no more than the functions themselves.
        let nothing = (ops::Resources::default(), ops::Cancel::default(), pool::Pool::new(1));
        let env = Env {
            pool: &nothing.2,
            functions,
            files: &ops::NoFiles,
            resources: &nothing.0,
            cancel: &nothing.1,
        };
        let specs = self.program(function)?.infer(inputs, &env);
        specs.map_err(|error| error.into_op_error(known(function)))
    }
}

impl Functions for Library {
    fn infer(&self, function: &str, inputs: &[Spec]) -> ops::Result<Vec<Spec>> {
        self.infer_within(function, inputs, self)
    }

    fn body(&self, function: &str) -> Option<&dyn std::any::Any> {
        self.programs.get(function).map(|program| program.plain_graph() as &dyn std::any::Any)
    }

    fn levels(&self) -> usize {
        LEVELS
    }

    fn ready(&self, function: &str, inputs: &[Spec], env: &Env<'_>) -> Option<Arc<dyn Ready>> {
        let program = self.programs.get(function)?;
        let ready = ReadyFunction::new(program, inputs, known(function), env)?;
        Some(Arc::new(ready))
    }

    fn call(&self, function: &str, inputs: &[Tensor], env: &Env<'_>) -> ops::Result<Vec<Tensor>> {
        let program = self.program(function)?;
        let failed = |error: Error| error.into_op_error(known(function));
        let mut workspace = self.take_workspace().map_err(failed)?;
        let outputs = program.run(inputs, env, &mut workspace);
        self.give_back(workspace);
        outputs.map_err(failed)
    }
}

/// The name of a function as the graph has it; nothing for what tracing made of a loop.
fn known(function: &str) -> &str {
    let is_traced = function.contains(' ');
    function.split('#').next().filter(|_| !is_traced).unwrap_or_default()
}
