//! Memory of a program: it holds only the bytes it was built with, and a run takes its workspace
//! and nothing more.

use super::*;

/// The rows of the table.
const N_ROWS: usize = 256 << 10;

/// The floats of a row: the table has 64 MiB.
const WIDTH: usize = 64;

/// Less than any copy of the table.
const SLACK_BYTES: usize = 16 << 20;

/// The resident memory of this process.
fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
}

#[test]
fn the_first_request_takes_no_memory_that_was_not_announced() {
    let mut index = node("i Placeholder");
    index.attr.insert("dtype".to_owned(), attr(Value::Type(DType::I32.number())));
    let mut gather = node("y GatherV2 read i axis");
    gather.attr.insert("Tparams".to_owned(), attr(Value::Type(DType::F32.number())));
    let axis = Tensor::scalar(0i32).unwrap().to_proto(Layout::Values).unwrap();
    let mut axis_node = node("axis Const");
    axis_node.attr.insert("value".to_owned(), attr(Value::Tensor(Box::new(axis))));
    let nodes = vec![
        index,
        variable("v"),
        node("read ReadVariableOp v"),
        axis_node,
        gather,
        node("z Neg y"),
    ];
    let source = source(nodes, vec![]).unwrap();
    let runner = Runner::default();
    let table: Vec<f32> = (0..N_ROWS * WIDTH).map(|i| i as f32).collect();
    let table = Tensor::from_slice(Shape::of(&[N_ROWS, WIDTH]), &table).unwrap();
    let value = runner.resources.get_or_create("", "v", || Variable::new("v", DType::F32)).unwrap();
    value.assign(table).unwrap();
    let request = Request {
        feeds: vec![("i:0".to_owned(), Spec::unknown(DType::I32))],
        fetches: vec!["z:0".to_owned()],
        targets: Vec::new(),
    };
    let program = runner.program(&source, &request).unwrap();
    let before = resident_bytes();
    let input = [Tensor::vector(&[3i32, 7]).unwrap()];
    let outputs = runner.run(&program, &input).unwrap();
    assert_eq!(outputs[0].as_slice::<f32>()[WIDTH], -(7.0 * WIDTH as f32));
    let planned = runner.with_env(|env| program.plan_for(&input, env).unwrap().work_bytes());
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < planned + SLACK_BYTES, "{grown} bytes more, of which {planned} were planned");
}
