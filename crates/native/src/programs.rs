//! `Programs`: the program of a signature for inputs of any shape, and one for those that are as
//! the signature says.

use std::sync::Arc;

use graph::{Program, fits};
use tensor::{DType, Shape, Spec, Tensor};

/// The programs of a signature. TensorFlow does not hold requests to what a signature says of its
/// inputs, so neither do we; but those that are so can be run in fewer steps.
#[derive(Debug)]
pub(crate) struct Programs {
    /// The title under which their plans and workspaces are booked.
    title: Arc<str>,
    any: Program,
    /// For inputs that fit the specs.
    fitted: Option<(Vec<Spec>, Program)>,
}

/// The inputs of a run, or what is known of them.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Inputs<'a> {
    Tensors(&'a [Tensor]),
    Shapes(&'a [(DType, Shape)]),
}

/// The signature and the inputs that a program is picked by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProgramPick<'a> {
    pub(crate) signature: &'a str,
    pub(crate) inputs: Inputs<'a>,
}

impl Programs {
    /// Programs that were built with these specs.
    pub(crate) fn new(
        title: Arc<str>,
        (any, fitted): (Program, Option<Program>),
        specs: &[Spec],
    ) -> Self {
        Self { title, any, fitted: fitted.map(|program| (specs.to_vec(), program)) }
    }

    /// The title under which their plans and workspaces are booked.
    pub(crate) fn title(&self) -> &Arc<str> {
        &self.title
    }

    /// The program for inputs of any shape.
    pub(crate) fn any(&self) -> &Program {
        &self.any
    }

    /// The program for these inputs.
    pub(crate) fn pick(&self, inputs: Inputs<'_>) -> &Program {
        match &self.fitted {
            Some((specs, program)) if inputs.fit(specs) => program,
            _ => &self.any,
        }
    }

    /// All of them.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Program> {
        std::iter::once(&self.any).chain(self.fitted.iter().map(|fitted| &fitted.1))
    }

    /// All of them, to be packed.
    pub(crate) fn all_mut(&mut self) -> impl Iterator<Item = &mut Program> {
        std::iter::once(&mut self.any).chain(self.fitted.iter_mut().map(|fitted| &mut fitted.1))
    }
}

impl Inputs<'_> {
    fn fit(self, specs: &[Spec]) -> bool {
        match self {
            Self::Tensors(inputs) => {
                let mut pairs = specs.iter().zip(inputs);
                inputs.len() == specs.len()
                    && pairs.all(|(spec, input)| fits(spec, input.dtype(), input.shape()))
            }
            Self::Shapes(inputs) => {
                let mut pairs = specs.iter().zip(inputs);
                inputs.len() == specs.len()
                    && pairs.all(|(spec, (dtype, shape))| fits(spec, *dtype, shape))
            }
        }
    }
}
