//! The decisions of the prover for every op: a table in `testdata/op_rows.txt`.
//!
//! A question is a node with given inputs, attributes and inferred outputs. A line of the table has
//! an answer for each question, and the ops that answer so. An op that is not in the table is not
//! asked. `BatchFunction` is none: tracing puts its function in its place.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use ops::{Cancel, Ctx, NoFiles, NoFunctions, Op, Resources};
use proto::tensorflow::AttrValue;
use proto::tensorflow::attr_value::Value as AttrKind;
use smallvec::SmallVec;
use tensor::{DType, Tensor, Value};

use super::*;

const TABLE: &str = "testdata/op_rows.txt";

/// Name, inputs, attributes, outputs: see `seen`, `attr` and `spec`.
#[rustfmt::skip]
const QUESTIONS: &[[&str; 4]] = &[
    ["matrix", "rows:R,4", "", "R,4"],
    ["vector", "rows:R", "", "R"],
    ["images", "rows:R,8,8,3", "", "R,8,8,3"],
    ["sums", "rows:R,4 ints:1", "", "R"],
    ["sums of rows", "rows:R,4 ints:0", "", "4"],
    ["two", "rows:R,4 rows:R,4", "", "R,4"],
    ["with a row", "rows:R,4 free:4", "", "R,4"],
    ["of a weight", "rows:R,4 free:4,6", "", "R,6"],
    ["of a stack", "rows:R,3,4 free:4,6", "adj_y=0", "R,3,6"],
    ["of two stacks", "rows:R,3,4 rows:R,4,6", "", "R,3,6"],
    ["transposed", "rows:R,4 free:4,6", "transpose_a=true", "R,6"],
    ["in numbers", "rows:R,4 free:4,6", "equation=ab,bc->ac", "R,6"],
    ["across", "rows:R,4 free:4,6", "equation=ab,bc->ca", "R,6"],
    ["filter", "rows:R,8,8,3 free:3,3,3,16", "", "R,8,8,16"],
    ["filter and sum", "rows:R,8,8,3 free:3,3,3,16 rows:R,8,8,16", "", "R,8,8,16"],
    ["transposed filter", "ints:1,8,8,3 free:3,3,3,16 rows:R,4,4,16", "", "R,8,8,3"],
    ["norm", "rows:R,8,8,3 free:3 free:3 free:3 free:3", "is_training=false", "R,8,8,3 3"],
    ["norm of all", "rows:R,8,8,3 free:3 free:3 free:3 free:3", "is_training=true", "R,8,8,3 3"],
    ["chosen", "rows:R rows:R,4 rows:R,4", "", "R,4"],
    ["boxes", "rows:R,9,1,4 rows:R,9,2 free: free:", "", "R,9,4 R,9"],
    ["axis first", "ints:1 rows:R,4 rows:R,4", "", "R,8"],
    ["axis last", "rows:R,4 rows:R,4 ints:1", "", "R,8"],
    ["axis last is first", "rows:R,4 rows:R,4 ints:0", "", "R,4"],
    ["packed", "rows:R,4 rows:R,4", "axis=1", "R,2,4"],
    ["packed steps", "rows:R,4 rows:R,4", "axis=0", "2,R,4"],
    ["unpacked", "rows:R,2", "axis=1", "R R"],
    ["split", "ints:1 rows:R,4", "", "R,2 R,2"],
    ["split by sizes", "rows:R,4 ints:2,2 ints:1", "", "R,2 R,2"],
    ["order kept", "rows:R,3,4 ints:0,2,1", "", "R,4,3"],
    ["order changed", "rows:R,3,4 ints:1,0,2", "", "3,R,4"],
    ["put", "free: ints:0 rows:R,4", "", "V"],
    ["looked up", "free:10,4 rows:R,3 ints:0", "", "R,3,4"],
    ["looked up, no axis", "free:10,4 rows:R,3", "", "R,4"],
    ["picked", "rows:R,4 ints:1,2 ints:1", "", "R,2"],
    ["picked each", "rows:R,4 rows:R,2 ints:1", "batch_dims=1", "R,2"],
    ["in a table", "free: rows:R,3 free:", "", "R,3"],
    ["slice", "rows:R,4 ints:0,1 ints:0,2 ints:1,1", "begin_mask=1 end_mask=1", "R,1"],
    ["slice of rows", "rows:R,4 ints:0,1 ints:1,2 ints:1,1", "", "1,1"],
    ["piece", "rows:R,4 ints:0,1 ints:-1,2", "", "R,2"],
    ["padded", "rows:R,4 pairs:0,0,1,1", "", "R,6"],
    ["padded rows", "rows:R,4 pairs:1,0,1,1", "", "R,6"],
    ["repeated", "rows:R,4 ints:1,3", "", "R,12"],
    ["one hot", "rows:R ints:5 free: free:", "axis=-1", "R,5"],
    ["reshaped", "rows:R,4 ints:-1,2,2", "", "R,2,2"],
    ["pieces of text", "rows:R free:", "", "?,2 ? 2"],
    ["parsed", "rows:R free: free:", "num_sparse=1 Nsparse=1", "?,2 ? 2 R,3 R,?"],
    ["cells", "rows:R,8,8,3 ints:2,2 pairs:0,0,0,0", "", "4R,4,4,3"],
    ["filled", "sizes:R,4 free:", "", "R,4"],
    ["repeated row", "free:1,4 sizes:R,4", "", "R,4"],
    ["of sizes", "sizes:R,4 ints:0", "", "i2"],
    ["with bounds", "bounds: ints:0", "", "i2"],
    ["nothing", "", "", "4"],
    ["free", "free:4 free:4 free:4", "", "4"],
    ["steps", "inner:5,R,4", "", "5,R,4"],
    ["steps and a row", "inner:5,R,4 free:4", "", "5,R,4"],
    ["steps to rows", "inner:5,R,4 ints:1,0,2", "", "R,5,4"],
    ["steps back", "inner:5,R,4 ints:0", "", "5,R,4"],
    ["a step", "inner:5,R,4 ints:0 ints:1 ints:1", "shrink_axis_mask=1", "R,4"],
    ["each step", "inner:2,R,4", "axis=0", "R,4 R,4"],
    ["list of steps", "inner:5,R,4 ints:4", "", "V"],
    ["item", "list:0 ints:0 ints:4", "", "?,4"],
    ["new item", "list:0 ints:0 rows:R,4", "", "V"],
    ["stacked", "list:0 ints:4", "", "5,?,4"],
    ["length", "list:0", "", ""],
    ["each cell", "copies:4R,4,4,3", "", "4R,4,4,3"],
    ["filtered cells", "copies:4R,4,4,3 free:3,3,3,3", "", "4R,4,4,3"],
    ["padded cells", "copies:4R,4,4,3 pairs:0,0,1,1,1,1,0,0", "", "4R,6,6,3"],
    ["cells together", "copies:4R,4,4,3 ints:2,2 pairs:0,0,0,0", "", "R,8,8,3"],
    ["entries", "entries:?", "", "?"],
    ["entries and one", "entries:? free:", "", "?"],
    ["two of entries", "entries:?", "", "? ?"],
    ["entries looked up", "free:10,8 entries:? ints:0", "", "?,8"],
    ["entries in a table", "free: entries:? free:", "", "?"],
    ["places", "entries:?", "", "?,1"],
    ["flat places", "positions:?,1 ints:-1", "", "?"],
    ["picked entries", "entries:? positions:? ints:0", "", "?"],
    ["another shape", "indices:?,2 bounds: bounds:", "", "?,2 2"],
    ["full", "indices:?,2 entries:? bounds: free:", "", "?,2 ? ? ?"],
    ["row numbers", "indices:?,2 ints:0,0 ints:0,1 ints:1,1",
        "begin_mask=1 end_mask=1 shrink_axis_mask=2", "?"],
    ["sums of entries", "entries:?,8 segments:?", "", "?,8"],
    ["sums by codes", "dictionary:?,8 codes:? segments:?", "", "?,8"],
];

/// The specs that inference gave.
struct Given(Vec<Spec>);

impl Op for Given {
    fn infer(&self, _: &[Spec]) -> ops::Result<Vec<Spec>> {
        Ok(self.0.clone())
    }

    fn run(&self, _: &mut Ctx<'_>) -> ops::Result<()> {
        Ok(())
    }
}

/// `4`, `R`, `4R` or `?`.
fn dim(text: &str) -> Dim {
    match (text, text.strip_suffix('R')) {
        ("?", _) => Dim::Unknown,
        (_, Some("")) => Dim::symbol(ROWS),
        (_, Some(n)) => Dim::symbol(ROWS).times(&Dim::Known(n.parse().unwrap())),
        (n, None) => Dim::Known(n.parse().unwrap()),
    }
}

fn dims(text: &str) -> Vec<Dim> {
    text.split(',').filter(|dim| !dim.is_empty()).map(dim).collect()
}

/// `R,4` is of floats, `i2` two integers, `V` a list.
fn spec(text: &str) -> Spec {
    match text.strip_prefix('i') {
        Some(size) => {
            let n = size.parse().unwrap();
            let value = Value::Sizes(vec![Dim::symbol(ROWS); n].into());
            Spec { value, ..Spec::new(DType::I32, dims(size)) }
        }
        None if text == "V" => Spec::new(DType::Variant, []),
        None => Spec::new(DType::F32, dims(text)),
    }
}

fn integers(text: &str) -> Vec<i64> {
    text.split(',').map(|number| number.parse().unwrap()).collect()
}

/// `state:R,4` and the like.
fn seen(text: &str) -> RowsTensor {
    let (state, rest) = text.split_once(':').unwrap();
    let of = |state: RowsState| RowsTensor { state, spec: Spec::new(DType::F32, dims(rest)) };
    let part = |part: sparse::Part| of(RowsState::Sparse(part, sparse::Group::full("group")));
    let free = |tensor: Tensor| RowsTensor { state: RowsState::Free, spec: Spec::constant(tensor) };
    match state {
        "rows" => of(RowsState::Rows),
        "free" => of(RowsState::Free),
        "inner" => of(RowsState::Inner(1)),
        "copies" => of(RowsState::Copies(vec![2, 2])),
        "list" => RowsTensor { state: RowsState::List(0), spec: Spec::new(DType::Variant, []) },
        "ints" => free(Tensor::vector(&integers(rest)).unwrap()),
        "pairs" => {
            let values = integers(rest);
            let shape = tensor::Shape::of(&[values.len() / 2, 2]);
            free(Tensor::from_slice(shape, &values).unwrap())
        }
        "sizes" => {
            let sizes = dims(rest);
            let spec = Spec::new(DType::I32, [Dim::Known(2)]);
            let spec = Spec { value: Value::Sizes(sizes.into()), ..spec };
            RowsTensor { state: RowsState::Sizes, spec }
        }
        "bounds" => sparse::bounds(&Spec::new(DType::I64, [Dim::Known(2)])),
        "entries" => part(sparse::Part::Entries),
        "indices" => part(sparse::Part::Indices),
        "segments" => part(sparse::Part::Segments),
        "dictionary" => part(sparse::Part::Dictionary),
        "codes" => part(sparse::Part::Codes),
        "positions" => part(sparse::Part::Positions(sparse::Group::full("group"))),
        _ => panic!("no state is called {state}"),
    }
}

fn attr(text: &str) -> (String, AttrValue) {
    let (name, value) = text.split_once('=').unwrap();
    let value = match value {
        "true" => AttrKind::B(true),
        "false" => AttrKind::B(false),
        _ => match value.parse() {
            Ok(number) => AttrKind::I(number),
            Err(_) => AttrKind::S(value.as_bytes().to_vec().into()),
        },
    };
    (name.to_owned(), AttrValue { value: Some(value) })
}

/// The answer to a question: a letter for each output, or one if all are alike; and in full.
fn answer(def: &'static ops::OpDef, [_, inputs, attrs, outputs]: &[&str; 4]) -> (String, String) {
    let inputs: Vec<Vec<RowsTensor>> =
        inputs.split_whitespace().map(|text| vec![seen(text)]).collect();
    let outputs = if outputs.is_empty() { vec![""] } else { outputs.split(' ').collect() };
    let ports = (0u32..).zip(&inputs).map(|(node, _)| Port { node, output: 0 }).collect();
    let attrs: BTreeMap<String, AttrValue> = attrs.split_whitespace().map(attr).collect();
    let op = Arc::new(Given(outputs.into_iter().map(spec).collect()));
    let node = Node {
        name: "node".into(),
        body: Body::Op { def, op },
        inputs: ports,
        when: SmallVec::new(),
        attrs: Arc::new(attrs),
    };
    let (pool, cancel, resources) = (pool::Pool::new(1), Cancel::default(), Resources::default());
    let env = Env {
        pool: &pool,
        functions: &NoFunctions,
        files: &NoFiles,
        resources: &resources,
        cancel: &cancel,
    };
    // Rules rely on inference, which is left out here: it refuses what has too few inputs.
    let walk = RowsWalk { env: &env, depth: 0 };
    let look = || look(&node, &[], &inputs, &walk);
    let Ok(looked) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(look)) else {
        return ("/".to_owned(), "is not asked".to_owned());
    };
    match looked {
        Err(error) => (reason(&error.to_string()).to_string(), error.to_string()),
        Ok(seen) => {
            let letters: Vec<char> = seen.iter().map(|seen| letter(&seen.state)).collect();
            let is_alike = letters.iter().all(|one| *one == letters[0]);
            let short = match letters[..] {
                [] => "-".to_owned(),
                [one, ..] if is_alike => one.to_string(),
                _ => format!("({})", letters.iter().collect::<String>()),
            };
            (short, format!("{:?}", seen.iter().map(|seen| &seen.state).collect::<Vec<_>>()))
        }
    }
}

fn letter(state: &RowsState) -> char {
    match state {
        RowsState::Free => 'F',
        RowsState::Sizes => 'S',
        RowsState::Rows => 'R',
        RowsState::Inner(_) => 'I',
        RowsState::List(_) => 'L',
        RowsState::Copies(_) => 'C',
        RowsState::Bounds => 'B',
        RowsState::Sparse(part, _) => match part {
            sparse::Part::Entries => 'E',
            sparse::Part::Indices => 'N',
            sparse::Part::Segments => 'G',
            sparse::Part::Positions(_) => 'P',
            sparse::Part::Dictionary => 'D',
            sparse::Part::Codes => 'O',
        },
        RowsState::Mixed(why) => reason(why),
    }
}

/// A letter for what mixes rows.
fn reason(why: &str) -> char {
    let known = [
        (rules::UNKNOWN, '.'),
        (rules::SHAPES, 's'),
        (rules::AXIS, 'a'),
        ("computes with the number of rows", 'n'),
        ("has a width that depends on the other rows", 'w'),
        ("pieces as all rows have together", 'p'),
        ("values as all rows", 'v'),
        ("reads the numbers of rows", 'o'),
        ("has no row for what has no entry", 't'),
        ("takes the mean over the batch", 'm'),
        ("gives statistics", 'g'),
        ("gives the places of all entries", 'q'),
        ("may change state", '!'),
        ("reads state or draws random numbers", '*'),
        ("calls nothing", 'c'),
        ("takes a branch by what is in its rows", 'b'),
        ("has no input", 'i'),
    ];
    known.iter().find(|(text, _)| why.ends_with(text)).map_or_else(|| panic!("{why}"), |it| it.1)
}

/// The single answers of a line.
fn cells(line: &str) -> Vec<String> {
    let mut cells: Vec<String> = Vec::new();
    let mut is_open = false;
    for c in line.chars() {
        match (is_open, cells.last_mut()) {
            (true, Some(cell)) => cell.push(c),
            _ => cells.push(c.to_string()),
        }
        is_open = c == '(' || (is_open && c != ')');
    }
    cells
}

#[test]
fn every_op_is_judged_as_the_table_says() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(TABLE);
    let text = std::fs::read_to_string(&path).unwrap();
    let mut wrong = String::new();
    let mut n_asked = 0;
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (answers, names) = line.split_once(' ').unwrap();
        let expected = cells(answers);
        assert_eq!(expected.len(), QUESTIONS.len(), "{line}");
        for name in names.split(' ') {
            let def = ops::find(name).expect("it is built in");
            for (question, expected) in QUESTIONS.iter().zip(&expected) {
                let (short, full) = answer(def, question);
                if short != *expected {
                    let asked = question[0];
                    writeln!(wrong, "{name}, {asked}: {short} ({full}), not {expected}").unwrap();
                }
            }
            n_asked += 1;
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(n_asked > 500, "{n_asked}");
}
