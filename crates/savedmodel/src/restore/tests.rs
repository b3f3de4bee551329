//! The wiring of models written by TensorFlow 2.21 (`tools/fixtures/savedmodel.py`), and hostile
//! graphs.

use super::*;
use crate::SavedModel;

fn open(path: &str) -> SavedModel {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../");
    let dir = storage::open(&format!("{root}/{path}")).unwrap();
    SavedModel::open(&dir, &["serve"]).unwrap()
}

/// Each assignment as `variable <- key part`, sorted.
fn shown(restore: &Restore) -> Vec<String> {
    let show = |assignment: &Assignment| {
        let Assignment { variable, source } = assignment;
        let mark = if variable.kind == VariableKind::Reference { "&" } else { "" };
        let part = source.part.as_ref().map(|part| format!(" {} {}", part.shape, part.slice));
        format!("{mark}{} <- {}{}", variable.name, source.key, part.unwrap_or_default())
    };
    let mut all: Vec<String> = restore.assignments.iter().map(show).collect();
    all.sort();
    all
}

#[track_caller]
fn check(name: &str, expected: &[&str]) -> SavedModel {
    let model = open(&format!("testdata/models/{name}/1"));
    assert_eq!(shown(&model.restore().unwrap()), expected);
    model
}

#[test]
fn reference_variables_of_tf1_are_followed() {
    check("tf1_variables", &["&dense/kernel <- dense/kernel", "&step <- step"]);
    check("tf1_reshaped", &["&a <- a"]);
}

#[test]
fn resource_variables_of_tf1_are_followed() {
    check("tf1_resource", &["a <- a", "scope/b <- scope/b"]);
}

#[test]
fn sharded_savers_are_followed() {
    check("tf1_sharded", &["&a <- a", "b <- b"]);
}

#[test]
fn partitioned_variables_take_their_slices() {
    let model = check(
        "tf1_partitioned",
        &[
            "&rows/part_0 <- rows [7,4] 0,3:0,4",
            "&rows/part_1 <- rows [7,4] 3,2:0,4",
            "&rows/part_2 <- rows [7,4] 5,2:0,4",
            "columns/part_0 <- columns [2,100] 0,2:0,50",
            "columns/part_1 <- columns [2,100] 0,2:50,50",
        ],
    );
    let checkpoint = model.checkpoint().unwrap().unwrap();
    for assignment in model.restore().unwrap().assignments {
        let shape = assignment.source.shape(&checkpoint).unwrap();
        let mut bytes = vec![0; shape.n_elements() * assignment.source.dtype.size()];
        assignment.source.read_into(&checkpoint, &mut bytes).unwrap();
        if assignment.variable.name == "rows/part_1" {
            assert_eq!(shape.to_i64()[..], [2, 4]);
            assert_eq!(bytes[..4], 12_f32.to_le_bytes());
        }
    }
}

#[test]
fn the_function_that_restores_a_model_of_tf2_is_followed() {
    check(
        "tf2_nested",
        &[
            "w <- list/0/.ATTRIBUTES/VARIABLE_VALUE",
            "w_1 <- right/w/.ATTRIBUTES/VARIABLE_VALUE",
            "w_2 <- left/w/.ATTRIBUTES/VARIABLE_VALUE",
        ],
    );
}

#[test]
fn tables_take_their_keys_and_values() {
    let model = check("tf2_table", &["Variable <- v/.ATTRIBUTES/VARIABLE_VALUE"]);
    let restore = model.restore().unwrap();
    let [table] = &restore.tables[..] else { panic!("{:?}", restore.tables) };
    assert_eq!(table.table, "MutableHashTable");
    assert_eq!(
        (&*table.keys.key, table.keys.dtype),
        ("table/.ATTRIBUTES/table-keys", DType::String)
    );
    assert_eq!(
        (&*table.values.key, table.values.dtype),
        ("table/.ATTRIBUTES/table-values", DType::I64)
    );
}

#[test]
fn every_variable_of_every_demo_model_is_in_its_checkpoint() {
    for name in ["clicks/1", "digits/1", "digits/2", "half_plus_two/00000123", "sentiment/1"] {
        let model = open(&format!("models/{name}"));
        let restore = model.restore().unwrap();
        let Some(checkpoint) = model.checkpoint().unwrap() else { continue };
        for assignment in &restore.assignments {
            let shape = assignment.source.shape(&checkpoint).unwrap();
            let mut bytes = vec![0; shape.n_elements() * assignment.source.dtype.size()];
            assignment.source.read_into(&checkpoint, &mut bytes).unwrap();
        }
        // What the signatures call takes no variable that is not restored.
        let node = |name: &str| model.graph.node.iter().find(|node| node.name == name).unwrap();
        let outputs = model.signatures.values().flat_map(|signature| signature.outputs.values());
        for output in outputs {
            let call = node(output.tensor.split(':').next().unwrap());
            for input in call.input.iter().filter(|input| !input.contains([':', '^'])) {
                let Some(variable) = VariableId::of(node(input)) else { continue };
                assert!(restore.assignments.iter().any(|a| a.variable == variable), "{input}");
            }
        }
    }
}

#[test]
fn a_source_of_another_dtype_or_shape_is_refused() {
    let model = open("testdata/models/tf1_partitioned/1");
    let checkpoint = model.checkpoint().unwrap().unwrap();
    let source = Source { key: "rows".to_owned(), part: None, dtype: DType::I32 };
    let error = source.shape(&checkpoint).unwrap_err();
    let expected = "variables/variables.index: tensor \"rows\": expected int32, got float";
    assert_eq!((error.code(), error.to_string()), (Code::InvalidArgument, expected.to_owned()));
    let (_, slice) = Slice::parse_with_shape("8 4 0,8:-").unwrap();
    let part = Some(Part { shape: Shape::of(&[8, 4]), slice });
    let error = Source { part, dtype: DType::F32, ..source }.shape(&checkpoint).unwrap_err();
    assert!(error.to_string().ends_with("expected [8,4], got [7,4]"), "{error}");
}

/// A graph with `v`, a variable, `r`, which restores `key` as a float, and more nodes.
fn graph(more: &str) -> tf::GraphDef {
    let text = |name: &str, value: &str| {
        format!(
            "node {{ name: '{name}' op: 'Const' attr {{ key: 'value' value {{ tensor {{
               dtype: DT_STRING tensor_shape {{ dim {{ size: 1 }} }} 
               string_val: '{value}' }} }} }} }}"
        )
    };
    let keys = text("keys", "key") + &text("parts", "");
    proto::text::parse(&format!(
        "{keys} node {{ name: 'v' op: 'VariableV2' }}
         node {{ name: 'r' op: 'RestoreV2' input: ['keys', 'keys', 'parts']
                 attr {{ key: 'dtypes' value {{ list {{ type: DT_FLOAT }} }} }} }} {more}"
    ))
    .unwrap()
}

#[track_caller]
fn check_error(more: &str, code: Code, expected: &str) {
    let error = follow(&graph(more), "all").unwrap_err();
    assert_eq!((error.code(), error.to_string()), (code, expected.to_owned()));
}

#[test]
fn a_graph_that_we_cannot_follow_is_refused() {
    let assign = "node { name: 'all' op: 'Assign' input: ['v', 'r'] }";
    assert_eq!(shown(&follow(&graph(assign), "all").unwrap()), ["&v <- key"]);
    use Code::{InvalidArgument, Unimplemented};
    check_error("", InvalidArgument, "node \"all\" restores variables: there is no node \"all\"");
    check_error(
        "node { name: 'all' op: 'NoOp' input: '^gone' }",
        InvalidArgument,
        "node \"all\" restores variables: there is no node \"gone\"",
    );
    check_error(
        "node { name: 'all' op: 'Assign' input: ['v'] }",
        InvalidArgument,
        "node \"all\" restores variables: it has no input 1",
    );
    check_error(
        "node { name: 'all' op: 'Assign' input: ['v', 'r:1'] }",
        InvalidArgument,
        "node \"r\" restores variables: it has no output 1",
    );
    check_error(
        "node { name: 'all' op: 'Assign' input: ['v', 'r:x'] }",
        InvalidArgument,
        "node \"all\" restores variables: its input \"r:x\" is malformed",
    );
    check_error(
        "node { name: 'all' op: 'Assign' input: ['keys', 'r'] }",
        InvalidArgument,
        "node \"all\" restores variables: it assigns to \"keys\", a Const",
    );
    check_error(
        "node { name: 'c' op: 'Cast' input: 'r' } \
         node { name: 'all' op: 'Assign' input: ['v', 'c'] }",
        Unimplemented,
        "node \"all\" restores variables: its value comes from \"c\", a Cast",
    );
    check_error(
        "node { name: 'all' op: 'Restore' }",
        Unimplemented,
        "node \"all\" restores variables: checkpoints of version 1 are not supported",
    );
}

#[test]
fn a_cycle_is_walked_once_or_refused() {
    let cycle = "node { name: 'all' op: 'NoOp' input: '^b' } \
                 node { name: 'b' op: 'NoOp' input: ['^all', '^b', '^a'] } \
                 node { name: 'a' op: 'Assign' input: ['v', 'r'] }";
    assert_eq!(follow(&graph(cycle), "all").unwrap().assignments.len(), 1);
    check_error(
        "node { name: 'i' op: 'Identity' input: 'i' } \
         node { name: 'all' op: 'Assign' input: ['v', 'i'] }",
        Code::InvalidArgument,
        "node \"all\" restores variables: its input 1 comes a way of over 1000 nodes",
    );
}

/// A function whose body is `nodes`, and which gives its argument back.
fn function(name: &str, nodes: &str) -> String {
    format!(
        "function {{ signature {{ name: '{name}' input_arg {{ name: 'x' }}
           output_arg {{ name: 'y' }} }} ret {{ key: 'y' value: 'x' }} {nodes} }}"
    )
}

/// A library of functions, and a node.
fn library(functions: &str, node: &str) -> String {
    format!("library {{ {functions} }} node {{ {node} }}")
}

fn call(name: &str, function: &str, input: &str) -> String {
    format!(
        "name: '{name}' op: 'StatefulPartitionedCall' input: '{input}'
         attr {{ key: 'f' value {{ func {{ name: '{function}' }} }} }}"
    )
}

#[test]
fn a_value_is_followed_through_what_a_function_gives_back() {
    let text = library(&function("f", ""), &call("c", "f", "r"))
        + "node { name: 'all' op: 'Assign' input: ['v', 'c'] }";
    assert_eq!(shown(&follow(&graph(&text), "all").unwrap()), ["&v <- key"]);
}

#[test]
fn functions_that_call_themselves_are_refused() {
    let body = format!("node_def {{ {} }}", call("c", "f", "x"));
    let text = library(&function("f", &body), &call("all", "f", "r"));
    check_error(
        &text,
        Code::InvalidArgument,
        "node \"c\" restores variables: its functions call one another without end",
    );
    // Not deep, but wide: each function calls the next sixteen times.
    let body = |i: usize| {
        let node = |c: usize| {
            format!("node_def {{ {} }}", call(&format!("c{c}"), &format!("f{}", i + 1), "x"))
        };
        (0..16).map(node).collect::<String>()
    };
    let text: String = (0..20).map(|i| function(&format!("f{i}"), &body(i))).collect();
    let text = library(&(text + &function("f20", "")), &call("all", "f0", "r"));
    let error = follow(&graph(&text), "all").unwrap_err();
    assert!(error.to_string().contains("without end"), "{error}");
    check_error(
        &format!("node {{ {} }}", call("all", "gone", "r")),
        Code::InvalidArgument,
        "node \"all\" restores variables: there is no function \"gone\"",
    );
}

#[test]
fn a_long_chain_is_walked_without_recursion() {
    let link = |i: usize| format!("node {{ name: 'n{i}' op: 'NoOp' input: '^n{}' }}", i + 1);
    let chain: String = (0..20_000).map(link).collect();
    let text =
        chain + "node { name: 'all' op: 'NoOp' input: '^n0' } node { name: 'n20000' op: 'NoOp' }";
    assert_eq!(follow(&graph(&text), "all").unwrap(), Restore::default());
}
