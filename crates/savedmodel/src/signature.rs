//! `Signature`: named inputs and outputs of a graph.

use std::collections::BTreeMap;

use proto::tensorflow as tf;
use proto::tensorflow::attr_value::Value;
use proto::tensorflow::tensor_info::Encoding;
use tensor::{DType, Spec};

use crate::error::{Error, Result};

/// Signatures that only name an op, which has no tensor.
const OP_SIGNATURES: [&str; 2] = ["__saved_model_init_op", "__saved_model_train_op"];

/// Named inputs and outputs, to be run together.
#[derive(Debug, Clone)]
pub struct Signature {
    /// The signature's name, such as `serving_default`.
    pub name: String,
    /// The purpose of the signature, such as `tensorflow/serving/predict`.
    pub method: String,
    /// The inputs, by the name that clients use.
    pub inputs: BTreeMap<String, Endpoint>,
    /// The outputs, by the name that clients use.
    pub outputs: BTreeMap<String, Endpoint>,
    /// The inputs that a client may leave out, and what they are then.
    pub defaults: BTreeMap<String, tf::TensorProto>,
    /// Inputs that cannot be fed, and why: they are not in `inputs`. With any of these the
    /// signature cannot be run.
    pub unusable_inputs: BTreeMap<String, String>,
    /// Outputs that cannot be fetched, and why: they are not in `outputs`.
    pub unusable_outputs: BTreeMap<String, String>,
}

/// A tensor of the graph, and what is known of it.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// The tensor's name in the graph, such as `x:0`.
    pub tensor: String,
    /// Its dtype and shape. The dtype is that of the value if the graph has a reference. Requests
    /// are not held to the shape: neither does TensorFlow Serving.
    pub spec: Spec,
    /// The dtype that the graph takes or gives there. It is that of the placeholder where the two
    /// differ, as in exports of TensorFlow 1.0.
    pub fed: DType,
}

/// Reads all signatures that can be run.
pub(crate) fn read(
    defs: &BTreeMap<String, tf::SignatureDef>,
    graph: Option<&tf::GraphDef>,
) -> Result<BTreeMap<String, Signature>> {
    let nodes = graph.map_or(&[][..], |graph| &graph.node);
    let is_placeholder = |node: &&tf::NodeDef| node.op == "Placeholder";
    let dtype = |node: &tf::NodeDef| {
        let Value::Type(number) = node.attr.get("dtype")?.value.as_ref()? else { return None };
        DType::from_number(*number)
    };
    let placeholders = nodes.iter().filter(is_placeholder);
    let placeholders =
        placeholders.filter_map(|node| Some((node.name.as_str(), dtype(node)?))).collect();
    let defs = defs.iter().filter(|(name, _)| !OP_SIGNATURES.contains(&name.as_str()));
    defs.map(|(name, def)| Ok((name.clone(), read_one(name, def, &placeholders)?))).collect()
}

/// The dtypes of a graph's placeholders, by name.
type Placeholders<'a> = BTreeMap<&'a str, DType>;

fn read_one(
    name: &str,
    def: &tf::SignatureDef,
    placeholders: &Placeholders<'_>,
) -> Result<Signature> {
    let (mut inputs, unusable_inputs) = endpoints(name, &def.inputs)?;
    for input in inputs.values_mut() {
        let node = input.tensor.split(':').next().unwrap_or_default();
        input.fed = placeholders.get(node).copied().unwrap_or(input.fed);
    }
    let (outputs, unusable_outputs) = endpoints(name, &def.outputs)?;
    Ok(Signature {
        name: name.to_owned(),
        method: def.method_name.clone(),
        inputs,
        outputs,
        defaults: def.defaults.clone(),
        unusable_inputs,
        unusable_outputs,
    })
}

type Endpoints = (BTreeMap<String, Endpoint>, BTreeMap<String, String>);

fn endpoints(signature: &str, infos: &BTreeMap<String, tf::TensorInfo>) -> Result<Endpoints> {
    let mut all = Endpoints::default();
    for (alias, info) in infos {
        if let Some(dim) = bad_dim(info) {
            return Err(Error::Signature {
                signature: signature.to_owned(),
                alias: alias.clone(),
                reason: format!("expected dimensions of -1 or more, got {dim}"),
            });
        }
        match endpoint(info) {
            Ok(endpoint) => drop(all.0.insert(alias.clone(), endpoint)),
            Err(reason) => drop(all.1.insert(alias.clone(), reason)),
        }
    }
    Ok(all)
}

fn endpoint(info: &tf::TensorInfo) -> Result<Endpoint, String> {
    let tensor = match &info.encoding {
        Some(Encoding::Name(name)) if !name.is_empty() => name.clone(),
        Some(Encoding::Name(_)) | None => return Err("it names no tensor".to_owned()),
        Some(Encoding::CooSparse(_)) => return Err("it is a sparse tensor".to_owned()),
        Some(Encoding::CompositeTensor(_)) => return Err("it is a composite tensor".to_owned()),
    };
    let dtype = DType::from_number(info.dtype)
        .ok_or_else(|| format!("it has the unknown dtype {}", info.dtype))?;
    if matches!(dtype, DType::Resource | DType::Variant) {
        return Err(format!("it is a {dtype}"));
    }
    // Without a shape it is a scalar, as in protobuf's default.
    let spec = Spec::from_proto(dtype, info.tensor_shape.as_ref().unwrap_or(&SCALAR));
    Ok(Endpoint { tensor, spec, fed: dtype })
}

const SCALAR: tf::TensorShapeProto = tf::TensorShapeProto { dim: Vec::new(), unknown_rank: false };

fn bad_dim(info: &tf::TensorInfo) -> Option<i64> {
    info.tensor_shape.as_ref()?.dim.iter().map(|dim| dim.size).find(|size| *size < -1)
}
