//! Shapes that travel through a graph as symbols, before any tensor is there.

use std::collections::BTreeMap;

use ops::{Attrs, NoFunctions};
use proto::tensorflow::AttrValue;
use proto::tensorflow::attr_value::Value;
use tensor::{DType, Dim, Spec, Symbol, Tensor};

fn n(number: u32) -> Dim {
    Dim::symbol(Symbol(number))
}

fn ints(values: &[i32]) -> Spec {
    Spec::constant(Tensor::vector(values).expect("a small vector"))
}

fn int(value: i32) -> Spec {
    Spec::constant(Tensor::scalar(value).expect("a scalar"))
}

/// Returns the specs that `op` with integer attributes infers from `inputs`.
fn infer(op: &str, attrs: &[(&str, i64)], inputs: &[Spec]) -> Vec<Spec> {
    let attr = |(name, value): &(&str, i64)| {
        ((*name).to_owned(), AttrValue { value: Some(Value::I(*value)) })
    };
    let attrs: BTreeMap<String, AttrValue> = attrs.iter().map(attr).collect();
    let def = ops::find(op).expect("an op that we have");
    let op = (def.build)(&Attrs::new(&attrs)).expect("good attributes");
    op.infer_with(inputs, &NoFunctions).expect("inputs that fit")
}

/// The only output.
fn one(op: &str, attrs: &[(&str, i64)], inputs: &[Spec]) -> Spec {
    infer(op, attrs, inputs).remove(0)
}

/// `shape[index]` as TensorFlow writes it.
fn element(shape: Spec, index: i32) -> Spec {
    let inputs = [shape, ints(&[index]), ints(&[index + 1]), ints(&[1])];
    one("StridedSlice", &[("shrink_axis_mask", 1)], &inputs)
}

#[test]
fn flattening_keeps_the_batch() {
    let images = Spec::new(DType::F32, [n(0), Dim::Known(7), Dim::Known(7), Dim::Known(64)]);
    let batch = element(one("Shape", &[], std::slice::from_ref(&images)), 0);
    let target = one("Pack", &[], &[batch, int(-1)]);
    assert_eq!(one("Reshape", &[], &[images, target]).to_string(), "float[n0,3136]");
}

#[test]
fn splitting_heads_keeps_batch_and_length() {
    let tokens = Spec::new(DType::F32, [n(0), n(1), Dim::Known(384)]);
    let shape = one("Shape", &[], std::slice::from_ref(&tokens));
    let (batch, length) = (element(shape.clone(), 0), element(shape, 1));
    let target = one("Pack", &[], &[batch, length, int(12), int(32)]);
    let heads = one("Reshape", &[], &[tokens, target]);
    let turned = one("Transpose", &[], &[heads, ints(&[0, 2, 1, 3])]);
    assert_eq!(turned.to_string(), "float[n0,12,n1,32]");
}

#[test]
fn pieces_of_shapes_are_put_together() {
    let x = Spec::new(DType::F32, [n(0), n(1), Dim::Known(4)]);
    let shape = one("Shape", &[], std::slice::from_ref(&x));
    let front = one("Slice", &[], &[shape.clone(), ints(&[0]), ints(&[2])]);
    let target = one("ConcatV2", &[], &[front, ints(&[2, 2]), int(0)]);
    assert_eq!(one("Reshape", &[], &[x, target]).to_string(), "float[n0,n1,2,2]");
    let picked = one("GatherV2", &[], &[shape, ints(&[1, 0]), int(0)]);
    assert_eq!(one("Fill", &[], &[picked, int(7)]).to_string(), "int32[n1,n0]");
}

#[test]
fn joining_and_cutting_adds_and_divides() {
    let x = Spec::new(DType::F32, [n(0), Dim::Known(6)]);
    let joined = one("ConcatV2", &[], &[x.clone(), x.clone(), int(0)]);
    assert_eq!(joined.to_string(), "float[2·n0,6]");
    let parts = infer("Split", &[("num_split", 3)], &[int(1), x.clone()]);
    assert_eq!(parts[2].to_string(), "float[n0,2]");
    let tiled = one("Tile", &[], &[x.clone(), ints(&[3, 1])]);
    assert_eq!(tiled.to_string(), "float[3·n0,6]");
    let cut = one(
        "StridedSlice",
        &[("begin_mask", 1), ("end_mask", 1)],
        &[x, ints(&[0, 1]), ints(&[0, 4]), ints(&[1, 1])],
    );
    assert_eq!(cut.to_string(), "float[n0,3]");
}

#[test]
fn nothing_is_claimed_that_is_not_known() {
    let x = Spec::new(DType::F32, [n(0), n(1)]);
    let range = [ints(&[1]), ints(&[3]), ints(&[1])];
    let [begin, end, strides] = range;
    let cut = one("StridedSlice", &[], &[x.clone(), begin, end, strides]);
    assert_eq!(cut.to_string(), "float[?,n1]");
    assert_eq!(one("Squeeze", &[], std::slice::from_ref(&x)).to_string(), "float<unknown>");
    let shape = Spec::new(DType::I32, [Dim::Known(3)]);
    assert_eq!(one("Reshape", &[], &[x.clone(), shape]).to_string(), "float[?,?,?]");
    assert_eq!(one("Where", &[], &[x]).to_string(), "int64[?,2]");
}
