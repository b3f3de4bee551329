//! `Signature`: named inputs and named outputs.

use std::collections::BTreeMap;

use status::{Result, Status};
use tensor::{DType, Spec, Tensor};

/// The signature that a request means when it names none.
pub const DEFAULT_SIGNATURE: &str = "serving_default";

/// The most bytes that a default value may unfold to.
const DEFAULT_LIMIT_BYTES: usize = 64 << 20;

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
    /// The dtype that the graph takes or gives, which may be another one.
    pub fed: DType,
}

impl Endpoint {
    /// A tensor of the graph of which the signature says what the graph does.
    pub fn new(tensor: impl Into<String>, spec: Spec) -> Self {
        let fed = spec.dtype;
        Self { tensor: tensor.into(), spec, fed }
    }
}

impl Signature {
    /// The signature as a SavedModel has it.
    ///
    /// # Errors
    /// If a default value cannot be read.
    pub fn read(from: &savedmodel::Signature) -> Result<Self> {
        let endpoints = |all: &BTreeMap<String, savedmodel::Endpoint>| {
            let convert = |(alias, endpoint): (&String, &savedmodel::Endpoint)| {
                let (tensor, spec) = (endpoint.tensor.clone(), endpoint.spec.clone());
                (alias.clone(), Endpoint { tensor, spec, fed: endpoint.fed })
            };
            all.iter().map(convert).collect()
        };
        let mut defaults = BTreeMap::new();
        for (alias, proto) in &from.defaults {
            let value = Tensor::from_proto(proto, DEFAULT_LIMIT_BYTES).map_err(|error| {
                let place = format!("signature {}, default of {alias}", from.name);
                Status::invalid(format!("{place}: {error}"))
            })?;
            defaults.insert(alias.clone(), value);
        }
        Ok(Self {
            name: from.name.clone(),
            method: from.method.clone(),
            inputs: endpoints(&from.inputs),
            outputs: endpoints(&from.outputs),
            defaults,
        })
    }

    /// The place of an input among the inputs.
    pub fn input_number(&self, alias: &str) -> Option<usize> {
        self.inputs.keys().position(|key| key == alias)
    }

    /// The place of an output among the outputs.
    pub fn output_number(&self, alias: &str) -> Option<usize> {
        self.outputs.keys().position(|key| key == alias)
    }
}
