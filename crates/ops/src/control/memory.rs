//! `Memory`: where the tensors of calls are in the scratch memory of the op that calls.
//!
//! A tensor whose size is not known, such as one that grows with every iteration of a loop, has no
//! place there: like one that is not plain it is handed over.

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

/// A tensor that functions are given or give: its dtype, and its shape if it is plain and its size
/// known, so that it stands in a span.
#[derive(Debug, Clone)]
pub(super) struct Slot {
    pub(super) dtype: DType,
    pub(super) shape: Option<Shape>,
}

/// The memory of a function's frame after its run, and the tensor it handed over for a slot.
pub(super) struct SlotLeft<'a> {
    pub(super) memory: &'a [u8],
    pub(super) handed: &'a mut Option<tensor::Tensor>,
}

impl Slot {
    /// The slot of a tensor.
    pub(super) fn of(spec: &Spec) -> Self {
        let is_plain = spec.dtype.is_plain();
        Self { dtype: spec.dtype, shape: spec.shape().filter(|_| is_plain) }
    }

    /// Returns whether a function that gives a tensor of this spec can put it there, or hand it
    /// over.
    pub(super) fn takes(&self, spec: &Spec) -> bool {
        let is_alike = |shape: &Shape| spec.shape().as_ref() == Some(shape);
        self.dtype == spec.dtype && self.shape.as_ref().is_none_or(is_alike)
    }

    /// Its span; an empty one if nobody reads it, and none if it is handed over.
    pub(super) fn span(&self, memory: &mut Memory, is_read: bool) -> Option<Span> {
        match &self.shape {
            Some(shape) if is_read => Some(memory.span(self.dtype, shape)),
            Some(_) => Some(Span::default()),
            None => None,
        }
    }

    /// Copies input number `index` of a kernel to its span, or hands it over.
    pub(super) fn enter(
        &self,
        (ctx, index): (&Ctx<'_>, usize),
        span: Option<Span>,
        memory: &mut [u8],
    ) -> Result<Option<tensor::Tensor>> {
        let input = ctx.input(index);
        match (&self.shape, span) {
            (Some(shape), Some(span)) if input.shape() == shape => {
                // Nobody reads what is in no span.
                if span.len > 0 {
                    memory[span.offset..][..span.len].copy_from_slice(input.bytes());
                }
                Ok(None)
            }
            (Some(shape), _) => {
                let got = input.shape();
                Err(Error::Internal(format!("input {index} was planned as {shape} but is {got}")))
            }
            (None, _) => Ok(Some(input.to_tensor()?)),
        }
    }

    /// Makes what is in its span, or what was handed over, output number `index` of a kernel.
    pub(super) fn leave(
        &self,
        (ctx, index): (&mut Ctx<'_>, usize),
        span: Option<Span>,
        left: SlotLeft<'_>,
    ) -> Result<()> {
        let SlotLeft { memory, handed } = left;
        match (&self.shape, span) {
            (Some(shape), Some(span)) => {
                let mut output = ctx.output(index, self.dtype, shape)?;
                output.bytes().copy_from_slice(&memory[span.offset..][..span.len]);
                Ok(())
            }
            _ => {
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
        inputs: &'b [Option<Span>],
        outputs: &'b [Option<Span>],
        handed: &'b mut [Option<tensor::Tensor>],
    ) -> Frame<'b> {
        let Self { memory, work, open } = self;
        Frame { memory, work: *work, inputs, outputs, handed, open }
    }
}
