//! The epilogue of a fused op: a bias, a sum with another tensor, an activation.
//!
//! The attributes are TensorFlow's (`fused_ops`, `num_args`, `leakyrelu_alpha`), with more
//! activations than it knows. Follows `fused_eigen_output_kernels.cc`.

use kernels::{Activation, Epilogue};

use crate::error::unsupported;
use crate::prelude::*;

/// The steps after a product. Their tensors are the inputs from number 2 on, bias first.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Steps {
    bias: bool,
    pub(super) residual: bool,
    activation: Activation,
}

impl Steps {
    /// Reads the steps of a node. Fails for an order that our kernels do not know.
    pub(crate) fn read(attrs: &Attrs<'_>) -> Result<Self> {
        let names: Vec<String> = attrs
            .strings("fused_ops")?
            .into_iter()
            .map(|name| String::from_utf8_lossy(name).into_owned())
            .collect();
        let mut rest = names.iter().map(String::as_str).peekable();
        let bias = rest.next_if_eq(&"BiasAdd").is_some();
        let residual = rest.next_if(|name| matches!(*name, "Add" | "AddV2")).is_some();
        let activation = match rest.next() {
            None => Activation::None,
            Some(name) => activation(name, attrs)?,
        };
        if rest.next().is_some() {
            return unsupported!("no kernel for the fused ops {names:?}");
        }
        Ok(Self { bias, residual, activation })
    }

    /// The number of inputs of an op with these steps.
    fn n_inputs(self) -> usize {
        2 + usize::from(self.bias) + usize::from(self.residual)
    }

    /// Checks the inputs after the second against the output, whose channels are dimension number
    /// `channel`.
    pub(crate) fn check(self, inputs: &[Spec], output: &Spec, channel: usize) -> Result<()> {
        let channels = output.dims().map_or(Dim::Unknown, |dims| dims[channel].clone());
        self.check_channels(inputs, output, &channels)
    }

    /// Checks the inputs after the second against the output and the number of its channels.
    pub(crate) fn check_channels(
        self,
        inputs: &[Spec],
        output: &Spec,
        channels: &Dim,
    ) -> Result<()> {
        if inputs.len() != self.n_inputs() {
            return invalid!("expected {} inputs but got {}", self.n_inputs(), inputs.len());
        }
        if output.dtype != DType::F32 {
            return unsupported!("fused ops are for float, not for {}", output.dtype);
        }
        if self.bias {
            inputs[2].require_rank(1)?;
            let bias = inputs[2].dims().map_or(&Dim::Unknown, |dims| &dims[0]);
            if bias.differs(channels) {
                return invalid!("a bias of {bias} for {channels} channels");
            }
        }
        if self.residual {
            let other = &inputs[self.n_inputs() - 1];
            let (Some(a), Some(b)) = (other.shape(), output.shape()) else { return Ok(()) };
            if a != b {
                return invalid!("{other} cannot be added to {output}");
            }
        }
        Ok(())
    }

    /// The steps with their tensors, for an output of this shape, whose channels are dimension
    /// number `channel`.
    pub(crate) fn epilogue<'a>(
        self,
        ctx: &Ctx<'a>,
        output: &Shape,
        channel: usize,
    ) -> Result<Epilogue<'a>> {
        self.epilogue_of(ctx, output, output[channel])
    }

    /// The steps with their tensors, for an output of this shape and number of channels.
    pub(crate) fn epilogue_of<'a>(
        self,
        ctx: &Ctx<'a>,
        output: &Shape,
        channels: usize,
    ) -> Result<Epilogue<'a>> {
        if ctx.n_inputs() != self.n_inputs() {
            return invalid!("expected {} inputs but got {}", self.n_inputs(), ctx.n_inputs());
        }
        if ctx.inputs().iter().any(|input| input.dtype() != DType::F32) {
            return unsupported!("fused ops are for float alone");
        }
        let bias = self.bias.then(|| ctx.input(2));
        if let Some(bias) = bias.filter(|bias| bias.n_elements() != channels) {
            return invalid!("a bias of {} for {channels} channels", bias.shape());
        }
        let residual = self.residual.then(|| ctx.input(self.n_inputs() - 1));
        if let Some(other) = residual.filter(|residual| residual.shape() != output) {
            return invalid!("{} cannot be added to {output}", other.shape());
        }
        Ok(Epilogue {
            bias: bias.map(|view| view.as_slice()),
            residual: residual.map(|view| view.as_slice()),
            activation: self.activation,
        })
    }
}

/// The activation of this name.
pub(super) fn activation(name: &str, attrs: &Attrs<'_>) -> Result<Activation> {
    Ok(match name {
        "Relu" => Activation::Relu,
        "Relu6" => Activation::Relu6,
        "Elu" => Activation::Elu,
        "LeakyRelu" => Activation::LeakyRelu(attrs.float_or("leakyrelu_alpha", 0.2)?),
        "Sigmoid" => Activation::Sigmoid,
        "Tanh" => Activation::Tanh,
        "Swish" => Activation::Swish,
        "HardSigmoid" => Activation::HardSigmoid,
        "HardSwish" => Activation::HardSwish,
        "GeluExact" => Activation::GeluExact,
        "GeluApproximate" => Activation::GeluApproximate,
        _ => return unsupported!("no kernel for the fused op {name}"),
    })
}
