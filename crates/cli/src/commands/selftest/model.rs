//! The model of the self-test: the product of a matrix with itself, plus one.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use proto::tensorflow::attr_value::Value;
use proto::tensorflow::meta_graph_def::MetaInfoDef;
use proto::tensorflow::tensor_info::Encoding;
use proto::tensorflow::tensor_shape_proto::Dim;
use proto::tensorflow::{
    AttrValue, GraphDef, MetaGraphDef, NodeDef, SavedModel, SignatureDef, TensorInfo,
    TensorShapeProto, VersionDef,
};
use tensor::{DType, Shape, Tensor};

/// The rows and columns.
const SIZE: usize = 64;

/// The input's shape.
pub(super) fn shape() -> Shape {
    Shape::of(&[SIZE, SIZE])
}

/// An input that is not the same everywhere.
#[expect(clippy::cast_precision_loss, reason = "the numbers are small")]
pub(super) fn input() -> Vec<f32> {
    (0..SIZE * SIZE).map(|i| ((i * 37) % 101) as f32 / 101.0 - 0.5).collect()
}

/// Returns the right answer of the model.
pub(super) fn answer(x: &[f32]) -> Vec<f32> {
    let element = |i: usize| {
        let (row, column) = (i / SIZE, i % SIZE);
        let products = (0..SIZE).map(|k| x[row * SIZE + k] * x[k * SIZE + column]);
        products.sum::<f32>() + 1.0
    };
    (0..SIZE * SIZE).map(element).collect()
}

/// Writes the SavedModel into a folder.
pub(super) fn write(folder: &Path) -> Result<()> {
    use prost::Message as _;
    let file = folder.join("saved_model.pb");
    let bytes = saved_model()?.encode_to_vec();
    std::fs::write(&file, bytes).with_context(|| format!("cannot write {}", file.display()))
}

fn saved_model() -> Result<SavedModel> {
    let float = || ("T", Value::Type(DType::F32.number()));
    let dtype = || ("dtype", Value::Type(DType::F32.number()));
    let one = Tensor::scalar(1f32)?.to_proto(tensor::Layout::Values)?;
    let nodes = vec![
        node("x", "Placeholder", &[], vec![dtype()]),
        node("one", "Const", &[], vec![dtype(), ("value", Value::Tensor(Box::new(one)))]),
        node("product", "MatMul", &["x", "x"], vec![float()]),
        node("y", "AddV2", &["product", "one"], vec![float()]),
    ];
    let graph = GraphDef {
        node: nodes,
        versions: Some(VersionDef { producer: 1395, ..VersionDef::default() }),
        ..GraphDef::default()
    };
    let signature = SignatureDef {
        inputs: BTreeMap::from([("x".to_owned(), endpoint("x:0"))]),
        outputs: BTreeMap::from([("y".to_owned(), endpoint("y:0"))]),
        method_name: "tensorflow/serving/predict".to_owned(),
        ..SignatureDef::default()
    };
    let tags = MetaInfoDef { tags: vec!["serve".to_owned()], ..MetaInfoDef::default() };
    let meta = MetaGraphDef {
        meta_info_def: Some(tags),
        graph_def: Some(graph),
        signature_def: BTreeMap::from([(session::DEFAULT_SIGNATURE.to_owned(), signature)]),
        ..MetaGraphDef::default()
    };
    Ok(SavedModel { saved_model_schema_version: 1, meta_graphs: vec![meta] })
}

fn node(name: &str, op: &str, inputs: &[&str], attributes: Vec<(&str, Value)>) -> NodeDef {
    let attribute =
        |(name, value): (&str, Value)| (name.to_owned(), AttrValue { value: Some(value) });
    NodeDef {
        name: name.to_owned(),
        op: op.to_owned(),
        input: inputs.iter().map(|input| (*input).to_owned()).collect(),
        attr: attributes.into_iter().map(attribute).collect(),
        ..NodeDef::default()
    }
}

fn endpoint(tensor: &str) -> TensorInfo {
    let dim = || Dim { size: i64::try_from(SIZE).unwrap_or(-1), name: String::new() };
    TensorInfo {
        dtype: DType::F32.number(),
        tensor_shape: Some(TensorShapeProto { dim: vec![dim(), dim()], unknown_rank: false }),
        encoding: Some(Encoding::Name(tensor.to_owned())),
    }
}
