//! `Signature`: named inputs and named outputs.

use std::collections::BTreeMap;

use tensor::{Spec, Tensor};

/// The signature that a request means when it names none.
pub const DEFAULT_SIGNATURE: &str = "serving_default";

/// Named inputs → named outputs, in the order of their names.
#[derive(Debug, Clone)]
pub struct Signature {
    /// Its name.
    pub name: String,
    /// Its method, such as `tensorflow/serving/predict`.
    pub method: String,
    /// The inputs by their aliases.
    pub inputs: BTreeMap<String, Endpoint>,
    /// The outputs by their aliases.
    pub outputs: BTreeMap<String, Endpoint>,
    /// Values of inputs that a request may leave out.
    pub defaults: BTreeMap<String, Tensor>,
}

/// One input or output of a signature.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// The name of the tensor in the graph, such as `x:0`.
    pub tensor: String,
    /// Its dtype, and its shape as far as the signature says it.
    pub spec: Spec,
}

impl Signature {
    /// The place of an input among the inputs.
    pub fn input_number(&self, alias: &str) -> Option<usize> {
        self.inputs.keys().position(|key| key == alias)
    }

    /// The place of an output among the outputs.
    pub fn output_number(&self, alias: &str) -> Option<usize> {
        self.outputs.keys().position(|key| key == alias)
    }
}
