//! `Ctx`: what a kernel gets to read and to write.

use smallvec::SmallVec;
use tensor::{DType, Shape, Tensor, View, ViewMut};

use crate::env::Env;
use crate::error::{Error, Result, invalid};
use crate::op::Packed;
use crate::scratch::Scratch;

/// One call of a kernel.
///
/// Inputs live as long as the step (`'a`), so they may be held while outputs are written.
pub struct Ctx<'a> {
    inputs: SmallVec<[View<'a>; 8]>,
    outputs: SmallVec<[Output<'a>; 4]>,
    packed: &'a [Option<Packed>],
    scratch: &'a mut [u8],
    in_place: bool,
    env: &'a Env<'a>,
}

/// The tensors that a kernel made for open outputs, with their numbers.
pub type Made = SmallVec<[(usize, Tensor); 1]>;

/// Room for the inputs and outputs of a call.
pub type Room<'a> = (Vec<View<'a>>, Vec<Output<'a>>);

/// The destination of an output.
pub enum Output<'a> {
    /// To memory that the plan gave it: dtype and shape were inferred.
    Planned(ViewMut<'a>),
    /// To a tensor of its own, which the kernel makes.
    Open(Option<Tensor>),
}

impl<'a> Ctx<'a> {
    /// A call with these inputs and outputs.
    pub fn new(
        inputs: impl IntoIterator<Item = View<'a>>,
        outputs: impl IntoIterator<Item = Output<'a>>,
        env: &'a Env<'a>,
    ) -> Self {
        let mut ctx = Self::empty(env);
        ctx.fill(inputs, outputs);
        ctx
    }

    /// A call without inputs and outputs. It is large, so that it is filled where it stands, and
    /// never moved for one part.
    pub fn empty(env: &'a Env<'a>) -> Self {
        Self {
            inputs: SmallVec::new(),
            outputs: SmallVec::new(),
            packed: &[],
            scratch: &mut [],
            in_place: false,
            env,
        }
    }

    /// Gives it room for many inputs and outputs, before it is filled.
    pub fn set_room(&mut self, (inputs, outputs): Room<'a>) {
        self.inputs = SmallVec::from_vec(inputs);
        self.outputs = SmallVec::from_vec(outputs);
    }

    /// Adds inputs and outputs.
    pub fn fill(
        &mut self,
        inputs: impl IntoIterator<Item = View<'a>>,
        outputs: impl IntoIterator<Item = Output<'a>>,
    ) {
        self.inputs.extend(inputs);
        self.outputs.extend(outputs);
    }

    /// Gives the room back, when it is done.
    pub fn into_room(mut self) -> Room<'a> {
        self.inputs.clear();
        self.outputs.clear();
        (self.inputs.into_vec(), self.outputs.into_vec())
    }

    /// Gives it packed weights, by input; the shorter list is filled up with none.
    pub fn set_packed(&mut self, packed: &'a [Option<Packed>]) {
        self.packed = packed;
    }

    /// Gives it scratch memory.
    pub fn set_scratch(&mut self, scratch: &'a mut [u8]) {
        self.scratch = scratch;
    }

    /// Says whether output 0 is in the memory of the input that `Op::in_place` names.
    pub fn set_in_place(&mut self, in_place: bool) {
        self.in_place = in_place;
    }

    /// Returns the services of the run.
    pub fn env(&self) -> &'a Env<'a> {
        self.env
    }

    /// The number of inputs.
    pub fn n_inputs(&self) -> usize {
        self.inputs.len()
    }

    /// The number of outputs.
    pub fn n_outputs(&self) -> usize {
        self.outputs.len()
    }

    /// Input number `index`.
    ///
    /// # Panics
    /// If there is none: `infer` has checked their number.
    pub fn input(&self, index: usize) -> View<'a> {
        self.inputs[index]
    }

    /// All inputs.
    pub fn inputs(&self) -> &[View<'a>] {
        &self.inputs
    }

    /// The packed form of input number `index`, if it was packed as a `T`.
    pub fn packed<T: std::any::Any + Send + Sync>(&self, index: usize) -> Option<&'a T> {
        self.packed.get(index)?.as_ref()?.object.get()
    }

    /// Returns whether output 0 already holds the elements of the input that `Op::in_place` names;
    /// that input is then empty.
    pub fn is_in_place(&self) -> bool {
        self.in_place
    }

    /// Output 0, if it already holds the elements of the input that `Op::in_place` names.
    pub fn in_place(&mut self) -> Option<ViewMut<'_>> {
        match self.outputs.first_mut() {
            Some(Output::Planned(view)) if self.in_place => Some(view.reborrow()),
            _ => None,
        }
    }

    /// The tensor whose place output 0 takes, to be changed and made the output, if it is no plain
    /// one and nobody else needs it.
    pub fn take_in_place(&mut self) -> Option<Tensor> {
        match self.outputs.first_mut() {
            Some(Output::Open(tensor)) if self.in_place => tensor.take(),
            _ => None,
        }
    }

    /// The scratch memory that `Op::scratch_bytes` asked for, or none.
    pub fn take_scratch(&mut self) -> &'a mut [u8] {
        std::mem::take(&mut self.scratch)
    }

    /// The same, to be given out part by part.
    pub(crate) fn scratch(&mut self) -> Scratch<'a> {
        Scratch::new(self.take_scratch())
    }

    /// Output number `index`, to be written as `dtype` and `shape`. What it holds before is
    /// unspecified. Fails without memory.
    pub fn output(&mut self, index: usize, dtype: DType, shape: &Shape) -> Result<ViewMut<'_>> {
        self.outputs[index].view(dtype, shape)
    }

    /// All inputs, and output number `index` as in [`Ctx::output`].
    pub(crate) fn inputs_and_output(
        &mut self,
        index: usize,
        dtype: DType,
        shape: &Shape,
    ) -> Result<(&[View<'a>], ViewMut<'_>)> {
        Ok((&self.inputs, self.outputs[index].view(dtype, shape)?))
    }

    /// Output 0 and output 1 at once.
    pub fn two_outputs(
        &mut self,
        [first, second]: [(DType, &Shape); 2],
    ) -> Result<(ViewMut<'_>, ViewMut<'_>)> {
        let [a, b, ..] = &mut self.outputs[..] else {
            return Err(Error::Internal("two outputs of an op with fewer".to_owned()));
        };
        Ok((a.view(first.0, first.1)?, b.view(second.0, second.1)?))
    }

    /// Output number `index`, which was made before, to be changed. Fails if it is no plain tensor
    /// of its own memory.
    pub(crate) fn output_again(&mut self, index: usize) -> Result<ViewMut<'_>> {
        let view = match &mut self.outputs[index] {
            Output::Planned(view) => Some(view.reborrow()),
            Output::Open(open) => open.as_mut().and_then(Tensor::view_mut),
        };
        view.ok_or_else(|| Error::Internal("an output cannot be changed".to_owned()))
    }

    /// Makes `tensor` output number `index`.
    pub fn set_output(&mut self, index: usize, tensor: Tensor) -> Result<()> {
        match &mut self.outputs[index] {
            Output::Open(open) => *open = Some(tensor),
            Output::Planned(view) => {
                if view.dtype() != tensor.dtype() || view.shape() != tensor.shape() {
                    return Err(unlike(view, tensor.dtype(), tensor.shape()));
                }
                view.bytes().copy_from_slice(tensor.view().bytes());
            }
        }
        Ok(())
    }

    /// Makes the elements of `view` output number `index`, in a shape of as many elements.
    pub fn forward(&mut self, index: usize, view: View<'_>, shape: Shape) -> Result<()> {
        if shape.n_elements() != view.n_elements() {
            return invalid!("{} elements do not fill shape {shape}", view.n_elements());
        }
        if let Output::Planned(_) = self.outputs[index] {
            let mut output = self.output(index, view.dtype(), &shape)?;
            output.bytes().copy_from_slice(view.bytes());
            return Ok(());
        }
        self.set_output(index, view.to_tensor()?.reshaped(shape)?)
    }

    /// The only input and the output of the same dtype and shape.
    pub fn unary(&mut self) -> Result<(View<'a>, ViewMut<'_>)> {
        let input = self.input(0);
        Ok((input, self.output(0, input.dtype(), input.shape())?))
    }

    /// The tensors of open outputs, with the numbers of the outputs. Fails if one was not made.
    pub fn finish(&mut self) -> Result<Made> {
        let is_open = |output: &&Output<'_>| matches!(output, Output::Open(_));
        let mut made = Made::with_capacity(self.outputs.iter().filter(is_open).count());
        for (number, output) in self.outputs.iter_mut().enumerate() {
            if let Output::Open(open) = output {
                let tensor = open.take();
                let missing = || Error::Internal("an output was not made".to_owned());
                made.push((number, tensor.ok_or_else(missing)?));
            }
        }
        Ok(made)
    }
}

impl Output<'_> {
    fn view(&mut self, dtype: DType, shape: &Shape) -> Result<ViewMut<'_>> {
        match self {
            Output::Planned(view) => {
                if view.dtype() != dtype || view.shape() != shape {
                    return Err(unlike(view, dtype, shape));
                }
                Ok(view.reborrow())
            }
            Output::Open(_) if !dtype.is_plain() => {
                Err(Error::Unimplemented(format!("dtype {dtype} is not supported here")))
            }
            Output::Open(open) => {
                let tensor = open.insert(Tensor::zeros(dtype, shape.clone())?);
                Ok(tensor.view_mut().expect("a new plain tensor has one owner"))
            }
        }
    }
}

fn unlike(planned: &ViewMut<'_>, dtype: DType, shape: &Shape) -> Error {
    let (plan_dtype, plan_shape) = (planned.dtype(), planned.shape());
    Error::Internal(format!("planned {plan_dtype}{plan_shape} but made {dtype}{shape}"))
}
