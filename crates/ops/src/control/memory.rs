//! `Memory`: where the tensors of calls are in the scratch memory of the op that calls.

use device::{ALIGNMENT, Home, Span};
use tensor::{DType, Shape, Spec, View};

use crate::ctx::Ctx;
use crate::env::Frame;
use crate::error::{Error, Result};

/// Gives out spans one behind another.
#[derive(Debug, Clone, Default)]
pub(super) struct Memory {
    pub(super) bytes: usize,
}

impl Memory {
    /// A span for a tensor of known size.
    pub(super) fn span(&mut self, dtype: DType, shape: &Shape) -> Span {
        let len = shape.n_elements() * dtype.size();
        let span = Span { home: Home::Device, offset: self.bytes, len };
        self.bytes = (self.bytes + len).next_multiple_of(ALIGNMENT);
        span
    }
}

/// A tensor that is handed to functions or that they give: its dtype, and its shape if it is plain
/// and so stands in a span.
#[derive(Debug, Clone)]
pub(super) struct Slot {
    pub(super) dtype: DType,
    pub(super) shape: Option<Shape>,
}

impl Slot {
    /// The slot of a tensor; `None` if it is plain but its size is not known.
    pub(super) fn of(spec: &Spec) -> Option<Self> {
        let shape = if spec.dtype.is_plain() { Some(spec.shape()?) } else { None };
        Some(Self { dtype: spec.dtype, shape })
    }

    /// Copies input number `index` of a kernel to its span, or hands it over.
    pub(super) fn enter(
        &self,
        (ctx, index): (&Ctx<'_>, usize),
        span: Span,
        memory: &mut [u8],
    ) -> Result<Option<tensor::Tensor>> {
        let input = ctx.input(index);
        match &self.shape {
            None => Ok(Some(input.to_tensor()?)),
            Some(shape) if input.shape() == shape => {
                // Nobody reads what has no span.
                if span.len > 0 {
                    memory[span.offset..][..span.len].copy_from_slice(input.bytes());
                }
                Ok(None)
            }
            Some(shape) => {
                let got = input.shape();
                Err(Error::Internal(format!("input {index} was planned as {shape} but is {got}")))
            }
        }
    }

    /// Makes what is in its span, or what was handed over, output number `index` of a kernel.
    pub(super) fn leave(
        &self,
        (ctx, index): (&mut Ctx<'_>, usize),
        span: Span,
        frame: (&[u8], &mut Option<tensor::Tensor>),
    ) -> Result<()> {
        let (memory, handed) = frame;
        match &self.shape {
            Some(shape) => {
                let mut output = ctx.output(index, self.dtype, shape)?;
                output.bytes().copy_from_slice(&memory[span.offset..][..span.len]);
                Ok(())
            }
            None => {
                let lost = || Error::Internal(format!("output {index} was not made"));
                ctx.set_output(index, handed.take().ok_or_else(lost)?)
            }
        }
    }
}

/// The tensor in a span.
pub(super) fn seen<'a>(memory: &'a [u8], span: Span, of: &'a (DType, Shape)) -> View<'a> {
    View::plain(of.0, &of.1, &memory[span.offset..][..span.len])
}

/// A frame that is made anew for each call, of parts that stay.
pub(super) struct Parts<'a> {
    pub(super) memory: &'a mut [u8],
    pub(super) work: usize,
    pub(super) open: Vec<Option<tensor::Tensor>>,
}

impl Parts<'_> {
    pub(super) fn frame<'b>(
        &'b mut self,
        inputs: &'b [Span],
        outputs: &'b [Span],
        handed: &'b mut [Option<tensor::Tensor>],
    ) -> Frame<'b> {
        let Self { memory, work, open } = self;
        Frame { memory, work: *work, inputs, outputs, handed, open }
    }
}
