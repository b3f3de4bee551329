//! Proofs of independent rows where they are folded into other dimensions and taken out again, and
//! refusals where they only look so.

use graph::ROWS;
use tensor::{Dim, Symbol};

use super::*;

/// Integers, as a vector.
fn ints(name: &str, values: &[i32]) -> NodeDef {
    integers(name, &Tensor::vector(values).unwrap())
}

/// An integer, as a scalar.
fn int(name: &str, value: i32) -> NodeDef {
    integers(name, &Tensor::scalar(value).unwrap())
}

fn integers(name: &str, tensor: &Tensor) -> NodeDef {
    let mut node = node(&format!("{name} Const"));
    let value = tensor.to_proto(Layout::Values).unwrap();
    node.attr.insert("value".to_owned(), attr(Value::Tensor(Box::new(value))));
    node.attr.insert("dtype".to_owned(), attr(Value::Type(DType::I32.number())));
    node
}

fn matrix(name: &str, dims: &[usize]) -> NodeDef {
    let n: usize = dims.iter().product();
    let values: Vec<f32> = (0..n).map(|i| if i % 3 == 0 { 0.5 } else { -1.25 }).collect();
    let tensor = Tensor::from_slice(Shape::of(dims), &values).unwrap();
    let mut node = node(&format!("{name} Const"));
    let value = tensor.to_proto(Layout::Values).unwrap();
    node.attr.insert("value".to_owned(), attr(Value::Tensor(Box::new(value))));
    node
}

/// A node with whole numbers as attributes and integers as operands: `name Op input axis=1`.
fn of_ints(text: &str) -> NodeDef {
    let (attrs, words): (Vec<&str>, Vec<&str>) =
        text.split_whitespace().partition(|word| word.contains('='));
    let mut node = node(&words.join(" "));
    for name in ["T", "Tparams"] {
        node.attr.insert(name.to_owned(), attr(Value::Type(DType::I32.number())));
    }
    for text in attrs {
        let (name, value) = text.split_once('=').unwrap();
        node.attr.insert(name.to_owned(), attr(Value::I(value.parse().unwrap())));
    }
    node
}

/// An input of rows with these other dimensions; 0 is one that is not known.
fn rows_of(number: u32, dims: &[i64]) -> Spec {
    let dim = |(at, size): (u32, &i64)| match size {
        0 => Dim::symbol(Symbol(10 * number + at)),
        size => Dim::Known(*size),
    };
    let others = (1..).zip(dims).map(dim);
    Spec::new(DType::F32, std::iter::once(Dim::symbol(ROWS)).chain(others))
}

/// The reason that the rows of `y` are not proved to be independent, if they are not.
fn why_not(nodes: Vec<NodeDef>, inputs: &[(&str, &[i64])]) -> Option<String> {
    let placeholders = inputs.iter().map(|(name, _)| node(&format!("{name} Placeholder")));
    let source = source(placeholders.chain(nodes).collect(), vec![]).unwrap();
    let feeds: Vec<String> = inputs.iter().map(|(name, _)| format!("{name}:0")).collect();
    let feeds: Vec<&str> = feeds.iter().map(String::as_str).collect();
    let runner = Runner::default();
    let program = runner.program(&source, &request(&feeds, &["y:0"])).unwrap();
    let specs: Vec<Spec> = (1..).zip(inputs).map(|(n, (_, dims))| rows_of(n, dims)).collect();
    runner.with_env(|env| program.prove_rows(&specs, env).err().map(|why| why.to_string()))
}

#[track_caller]
fn proved(nodes: Vec<NodeDef>, inputs: &[(&str, &[i64])]) {
    assert_eq!(why_not(nodes, inputs), None);
}

#[track_caller]
fn mixed(nodes: Vec<NodeDef>, inputs: &[(&str, &[i64])], reason: &str) {
    let why = why_not(nodes, inputs).expect("it is not proved");
    assert!(why.contains(reason), "{why}");
}

/// The nodes that Keras makes of a dense layer over the last of three dimensions: `x` is folded to
/// a matrix by sizes that are picked from its shape, multiplied, and unfolded again.
fn dense(x: &str) -> Vec<NodeDef> {
    vec![
        ints("free", &[0, 1]),
        ints("axes", &[2]),
        int("zero", 0),
        ints("first", &[0]),
        ints("width", &[6]),
        matrix("w", &[4, 6]),
        node(&format!("shape Shape {x}")),
        of_ints("kept GatherV2 shape free zero"),
        of_ints("summed GatherV2 shape axes zero"),
        of_ints("n_kept Prod kept first"),
        of_ints("n_summed Prod summed first"),
        of_ints("folded Pack n_kept n_summed N=2 axis=0"),
        node(&format!("matrix Reshape {x} folded")),
        node("product MatMul matrix w"),
        of_ints("unfolded ConcatV2 kept width zero N=2"),
        node("y Reshape product unfolded"),
    ]
}

#[test]
fn a_dense_layer_over_three_dimensions_keeps_rows_apart() {
    proved(dense("x"), &[("x", &[7, 4])]);
    proved(dense("x"), &[("x", &[0, 4])]);
    // Two sequences whose lengths have nothing to do with each other, as far as it is known.
    let sum = [node("sum AddV2 x z")];
    proved(sum.into_iter().chain(dense("sum")).collect(), &[("x", &[0, 4]), ("z", &[0, 4])]);
}

#[test]
fn blocks_of_rows_stay_together_or_are_not_batched() {
    let folded = |more: Vec<NodeDef>| {
        let fold = vec![ints("half", &[-1, 2]), node("h Reshape x half"), int("zero", 0)];
        fold.into_iter().chain(more).collect::<Vec<_>>()
    };
    let x: &[(&str, &[i64])] = &[("x", &[4])];
    let back = || ints("whole", &[-1, 4]);
    proved(folded(vec![node("r Relu h"), back(), node("y Reshape r whole")]), x);
    // Halves are not rows.
    mixed(folded(vec![node("y Relu h")]), x, "has several rows for each input");
    let sum = vec![node("s Sum h zero"), node("a AddV2 h s"), back(), node("y Reshape a whole")];
    mixed(folded(sum), x, "the first dimension");
    mixed(folded(vec![node("c Cumsum h zero"), back(), node("y Reshape c whole")]), x, "the first");
    let turned = [ints("order", &[1, 0]), node("t Transpose h order")];
    let turned = || turned.iter().cloned().chain([back(), node("y Reshape t whole")]);
    mixed(folded(turned().collect()), x, "the first dimension");
    let slice = ["begin 0", "end 1", "step 1"].map(|text| {
        let (name, value) = text.split_once(' ').unwrap();
        ints(name, &[value.parse().unwrap()])
    });
    let slice = slice.into_iter().chain([node("s StridedSlice h begin end step")]);
    let slice = slice.chain([node("a AddV2 h s"), back(), node("y Reshape a whole")]);
    mixed(folded(slice.collect()), x, "the first dimension");
    mixed(folded(vec![ints("six", &[-1, 6]), node("y Reshape h six")]), x, "shapes");
}

#[test]
fn a_first_dimension_that_is_a_number_has_no_rows() {
    let two = [ints("two", &[2, -1]), node("h Reshape x two"), ints("whole", &[-1, 4])];
    let nodes = || two.iter().cloned();
    let x: &[(&str, &[i64])] = &[("x", &[4])];
    mixed(nodes().chain([node("y Reshape h whole")]).collect(), x, "shapes");
    mixed(nodes().chain([node("y Relu h")]).collect(), x, "shapes");
    // Rows in the last dimension.
    let turned = [ints("order", &[1, 0]), node("y Transpose x order")];
    mixed(turned.into(), x, "does not have its rows first");
}

#[test]
fn a_width_that_comes_from_the_number_of_rows_is_not_a_width() {
    let n_rows = [
        node("shape Shape x"),
        ints("at", &[0]),
        ints("to", &[1]),
        of_ints("n StridedSlice shape at to to shrink_axis_mask=1"),
        int("two", 2),
        ints("none", &[0, 0]),
    ];
    let with = |more: Vec<NodeDef>| n_rows.iter().cloned().chain(more).collect::<Vec<_>>();
    let x: &[(&str, &[i64])] = &[("x", &[64])];
    let cut = |width: &str| {
        vec![of_ints(&format!("size Pack n {width} N=2 axis=0")), node("y Slice x none size")]
    };
    mixed(with(cut("n")), x, "computes with the number of rows");
    let half = || of_ints("half FloorDiv n two");
    let halves = std::iter::once(half()).chain(cut("half")).collect();
    mixed(with(halves), x, "computes with the number of rows");
    let fill = vec![half(), of_ints("size Pack n half N=2 axis=0"), constant("value", &[1.0])];
    let fill = fill.into_iter().chain([
        node("one Reshape value scalar"),
        integers("scalar", &Tensor::vector(&[0i32; 0]).unwrap()),
        node("y Fill size one"),
    ]);
    mixed(with(fill.collect()), x, "computes with the number of rows");
    proved(with(cut("two")), x);
}

#[test]
fn cells_that_are_taken_apart_are_put_together_again_or_not_batched() {
    let apart = [
        ints("cells", &[2]),
        matrix_of_ints("paddings", &[1, 1]),
        matrix_of_ints("crops", &[0, 0]),
        of_ints("c SpaceToBatchND x cells paddings"),
        int("zero", 0),
        int("one", 1),
    ];
    let with = |more: Vec<NodeDef>| apart.iter().cloned().chain(more).collect::<Vec<_>>();
    let x: &[(&str, &[i64])] = &[("x", &[6, 4])];
    proved(with(vec![node("r Relu c"), node("y BatchToSpaceND r cells crops")]), x);
    mixed(with(vec![node("y Relu c")]), x, "does not have its rows first");
    let others = vec![ints("four", &[4]), node("y BatchToSpaceND c four crops")];
    mixed(with(others), x, "works along the first dimension");
    // As many as there are rows, but each has cells of two.
    let other = vec![ints("whole", &[-1, 8, 4]), node("y Reshape c whole")];
    mixed(with(other), x, "shapes");
    mixed(with(vec![node("s Cumsum c zero"), node("y BatchToSpaceND s cells crops")]), x, "Cumsum");
    let wide = vec![node("s Concat zero c c"), node("y BatchToSpaceND s cells crops")];
    mixed(with(wide), x, "Concat");
}

fn matrix_of_ints(name: &str, row: &[i32]) -> NodeDef {
    integers(name, &Tensor::from_slice(Shape::of(&[1, row.len()]), row).unwrap())
}
