//! A model whose buffers are hard to pack: greedy offsets take more than the best ones.

use std::collections::BTreeMap;
use std::path::Path;

use proto::tensorflow::attr_value::Value;
use proto::tensorflow::meta_graph_def::MetaInfoDef;
use proto::tensorflow::tensor_info::Encoding;
use proto::tensorflow::tensor_shape_proto::Dim;
use proto::tensorflow::{
    AttrValue, GraphDef, MetaGraphDef, NodeDef, SavedModel, SignatureDef, TensorInfo, TensorProto,
    TensorShapeProto, VersionDef,
};
use tensor::{DType, Layout, Tensor};

/// The times at which each buffer is first and last needed, and the number of its units.
const BUFFERS: [(u32, u32, usize); 10] = [
    (1, 7, 2),
    (1, 3, 7),
    (1, 2, 1),
    (5, 7, 4),
    (10, 11, 8),
    (3, 4, 2),
    (8, 11, 8),
    (4, 9, 6),
    (1, 5, 5),
    (8, 10, 1),
];

/// The units that are alive at once at most: the best offsets take no more.
pub const BEST_UNITS: usize = 17;

/// The units that greedy offsets take, and some more.
pub const GREEDY_UNITS: usize = 18;

/// The graph of a function from `x:0`, a vector of floats, to `y:0`, one of as many: `x` plus what
/// [`answer`] says. A unit has `unit_bytes` bytes, a multiple of four.
pub fn graph(unit_bytes: usize) -> GraphDef {
    let mut nodes = Nodes { all: Vec::new(), last: None };
    nodes.all.push(node("x", "Placeholder", &[], vec![type_of("dtype", DType::F32)]));
    nodes.constant("first", &[0]);
    // A kernel that has scratch memory.
    let axis = Tensor::scalar(0i32).and_then(|tensor| tensor.to_proto(Layout::Values));
    nodes.tensor("axis", axis.expect("there is memory for a number"));
    nodes.push("scan", "Cumsum", &["x", "axis"]);
    nodes.push("sum", "Max", &["scan", "first"]);
    let mut sum = "sum".to_owned();
    for time in 0..=BUFFERS.iter().map(|buffer| buffer.1).max().unwrap_or(0) {
        for (number, _) in buffers(|buffer| buffer.0 == time) {
            let n_elements = BUFFERS[number].2 * unit_bytes / 4;
            nodes.constant(
                &format!("shape{number}"),
                &[i32::try_from(n_elements).expect("a unit is small")],
            );
            let shape = format!("shape{number}");
            nodes.push(&format!("buffer{number}"), "BroadcastTo", &[&sum, &shape]);
        }
        for (number, _) in buffers(|buffer| buffer.1 == time) {
            let buffer = format!("buffer{number}");
            nodes.push(&format!("max{number}"), "Max", &[&buffer, "first"]);
            nodes.push(&format!("sum{number}"), "AddV2", &[&sum, &format!("max{number}")]);
            sum = format!("sum{number}");
        }
    }
    nodes.push("y", "AddV2", &["x", &sum]);
    let versions = Some(VersionDef { producer: 1395, ..VersionDef::default() });
    GraphDef { node: nodes.all, versions, ..GraphDef::default() }
}

/// A graph from `x:0` to `y:0` that does in a loop, `n_rounds` times, what [`graph`] does once.
pub fn looped(unit_bytes: usize, n_rounds: i32) -> GraphDef {
    let mut looped: GraphDef = proto::text::parse(&format!(
        "versions {{ producer: 1395 }}
         node {{ name: 'x' op: 'Placeholder' attr {{ key: 'dtype' value {{ type: DT_FLOAT }} }} }}
         node {{ name: 'i' op: 'Const' attr {{ key: 'dtype' value {{ type: DT_INT32 }} }}
           attr {{ key: 'value' value {{
             tensor {{ dtype: DT_INT32 tensor_shape {{ }} int_val: 0 }} }} }} }}
         node {{ name: 'loop' op: 'StatelessWhile' input: ['i', 'x']
           attr {{ key: 'T' value {{ list {{ type: [DT_INT32, DT_FLOAT] }} }} }}
           attr {{ key: 'cond' value {{ func {{ name: 'cond' }} }} }}
           attr {{ key: 'body' value {{ func {{ name: 'body' }} }} }} }}
         node {{ name: 'y' op: 'Identity' input: 'loop:1'
           attr {{ key: 'T' value {{ type: DT_FLOAT }} }} }}
         library {{
           function {{ signature {{ name: 'cond' input_arg: [{INPUTS}]
               output_arg {{ name: 'more' type: DT_BOOL }} }}
             node_def {{ name: 'n' op: 'Const' attr {{ key: 'dtype' value {{ type: DT_INT32 }} }}
               attr {{ key: 'value' value {{
                 tensor {{ dtype: DT_INT32 tensor_shape {{ }} int_val: {n_rounds} }} }} }} }}
             node_def {{ name: 'less' op: 'Less' input: ['i', 'n:output:0']
               attr {{ key: 'T' value {{ type: DT_INT32 }} }} }}
             ret {{ key: 'more' value: 'less:z:0' }} }}
           function {{ signature {{ name: 'body' input_arg: [{INPUTS}]
               output_arg: [{{ name: 'next_i' type: DT_INT32 }},
                 {{ name: 'next_x' type: DT_FLOAT }}] }}
             node_def {{ name: 'one' op: 'Const' attr {{ key: 'dtype' value {{ type: DT_INT32 }} }}
               attr {{ key: 'value' value {{
                 tensor {{ dtype: DT_INT32 tensor_shape {{ }} int_val: 1 }} }} }} }}
             node_def {{ name: 'next' op: 'AddV2' input: ['i', 'one:output:0']
               attr {{ key: 'T' value {{ type: DT_INT32 }} }} }}
             ret {{ key: 'next_i' value: 'next:z:0' }} ret {{ key: 'next_x' value: 'y:z:0' }} }} }}"
    ))
    .expect("it is written above");
    let nodes = graph(unit_bytes).node;
    let output = |name: &str| nodes.iter().find(|node| node.name == name).map(|node| &*node.op);
    let in_function = |input: &String| match output(input) {
        Some("Placeholder") | None => input.clone(),
        Some("AddV2") => format!("{input}:z:0"),
        Some("Cumsum") => format!("{input}:out:0"),
        Some(_) => format!("{input}:output:0"),
    };
    let body = nodes.iter().filter(|node| node.op != "Placeholder").map(|node| NodeDef {
        input: node.input.iter().map(in_function).collect(),
        ..node.clone()
    });
    let library = looped.library.get_or_insert_default();
    if let Some(function) = library.function.last_mut() {
        function.node_def.extend(body);
    }
    looped
}

/// The arguments of the functions of a loop.
const INPUTS: &str = "{ name: 'i' type: DT_INT32 }, { name: 'x' type: DT_FLOAT }";

/// Returns the number that is added to each element of an input whose largest running sum is `max`.
pub fn answer(max: f32) -> f32 {
    let mut sum = max;
    let mut values = [0.0; BUFFERS.len()];
    for time in 0..=BUFFERS.iter().map(|buffer| buffer.1).max().unwrap_or(0) {
        buffers(|buffer| buffer.0 == time).for_each(|(number, _)| values[number] = sum);
        buffers(|buffer| buffer.1 == time).for_each(|(number, _)| sum += values[number]);
    }
    sum
}

/// Writes the SavedModel of the graph into a folder.
pub fn write(folder: &Path, unit_bytes: usize) {
    use prost::Message as _;
    let signature = SignatureDef {
        inputs: BTreeMap::from([("x".to_owned(), endpoint("x:0"))]),
        outputs: BTreeMap::from([("y".to_owned(), endpoint("y:0"))]),
        method_name: "tensorflow/serving/predict".to_owned(),
        ..SignatureDef::default()
    };
    let tags = MetaInfoDef { tags: vec!["serve".to_owned()], ..MetaInfoDef::default() };
    let meta = MetaGraphDef {
        meta_info_def: Some(tags),
        graph_def: Some(graph(unit_bytes)),
        signature_def: BTreeMap::from([("serving_default".to_owned(), signature)]),
        ..MetaGraphDef::default()
    };
    let model = SavedModel { saved_model_schema_version: 1, meta_graphs: vec![meta] };
    std::fs::create_dir_all(folder).expect("tests have a folder to write to");
    let file = folder.join("saved_model.pb");
    std::fs::write(file, model.encode_to_vec()).expect("tests have a folder to write to");
}

type TightBuffer = (u32, u32, usize);

fn buffers(
    is_it: impl Fn(&TightBuffer) -> bool,
) -> impl Iterator<Item = (usize, &'static TightBuffer)> {
    BUFFERS.iter().enumerate().filter(move |(_, buffer)| is_it(buffer))
}

/// Nodes, of which each runs after the one before.
struct Nodes {
    all: Vec<NodeDef>,
    last: Option<String>,
}

impl Nodes {
    fn push(&mut self, name: &str, op: &str, inputs: &[&str]) {
        let mut node = node(name, op, inputs, vec![type_of("T", DType::F32)]);
        node.input.extend(self.last.replace(name.to_owned()).map(|last| format!("^{last}")));
        let (name, value) = type_of("Tidx", DType::I32);
        node.attr.insert(name.to_owned(), AttrValue { value: Some(value) });
        self.all.push(node);
    }

    fn constant(&mut self, name: &str, values: &[i32]) {
        let value = Tensor::vector(values).and_then(|tensor| tensor.to_proto(Layout::Values));
        self.tensor(name, value.expect("there is memory for a few numbers"));
    }

    fn tensor(&mut self, name: &str, value: TensorProto) {
        let attributes =
            vec![type_of("dtype", DType::I32), ("value", Value::Tensor(Box::new(value)))];
        self.all.push(node(name, "Const", &[], attributes));
    }
}

fn type_of(name: &str, dtype: DType) -> (&str, Value) {
    (name, Value::Type(dtype.number()))
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
    let rows = Dim { size: -1, name: String::new() };
    TensorInfo {
        dtype: DType::F32.number(),
        tensor_shape: Some(TensorShapeProto { dim: vec![rows], unknown_rank: false }),
        encoding: Some(Encoding::Name(tensor.to_owned())),
    }
}
