use std::collections::BTreeMap;

use proto::tensorflow::AttrValue;
use proto::tensorflow::attr_value::Value as AttrKind;
use smallvec::SmallVec;
use tensor::{Shape, Tensor};

use super::super::rules;
use super::*;
use crate::graph::Body;

fn node(op: &str, name: &str, attrs: &[(&str, i64)]) -> Node {
    let attr = |(name, value): &(&str, i64)| {
        ((*name).to_owned(), AttrValue { value: Some(AttrKind::I(*value)) })
    };
    let attrs: BTreeMap<String, AttrValue> = attrs.iter().map(attr).collect();
    let def = ops::find(op).expect("it is built in");
    // The rules never ask the op itself.
    let any = ops::find("Identity").expect("it is built in");
    let op = (any.build)(&Attrs::new(&attrs)).expect("it wants nothing");
    let body = Body::Op { def, op: Arc::from(op) };
    let (name, inputs, when) = (name.into(), Vec::new(), SmallVec::new());
    Node { name, body, inputs, when, attrs: Arc::new(attrs) }
}

fn vector(dtype: DType) -> Spec {
    Spec::new(dtype, [Dim::Unknown])
}

fn free(value: Tensor) -> RowsTensor {
    RowsTensor { state: RowsState::Free, spec: Spec::constant(value) }
}

fn ints(values: &[i64]) -> RowsTensor {
    free(Tensor::vector(values).unwrap())
}

fn scalar(value: i64) -> RowsTensor {
    free(Tensor::scalar(value).unwrap())
}

/// The indices, the values and the shape of a sparse feature.
fn feature() -> [RowsTensor; 3] {
    let parser = node("ParseExampleV2", "parse", &[]);
    let indices = Spec::new(DType::I64, [Dim::Unknown, Dim::Known(2)]);
    let outputs = [indices, vector(DType::I64), Spec::new(DType::I64, [Dim::Known(2)])];
    let part = |number: usize| parsed(&parser, 1, number, &outputs[number]).unwrap();
    [part(0), part(1), part(2)]
}

/// Fills the rows without entries; the indices, the values and the rows that had none.
fn filled(indices: &RowsTensor, values: &RowsTensor, shape: &RowsTensor) -> [RowsTensor; 3] {
    let inputs = [indices.clone(), values.clone(), shape.clone(), scalar(0)];
    let outputs = [&indices.spec, &values.spec, &vector(DType::Bool), &vector(DType::I64)];
    let fill = node("SparseFillEmptyRows", "fill", &[]);
    let made = judge(&fill, &inputs, &outputs.map(Clone::clone)).unwrap();
    let [indices, values, empty, back] = <[RowsTensor; 4]>::try_from(made).unwrap();
    assert!(matches!(back.state, RowsState::Mixed(_)));
    [indices, values, empty]
}

/// `indices[:, column]`.
fn column(indices: &RowsTensor, column: i64) -> Judged {
    let masks = [("begin_mask", 1), ("end_mask", 1), ("shrink_axis_mask", 2)];
    let slice = node("StridedSlice", "column", &masks);
    let inputs = [indices.clone(), ints(&[0, column]), ints(&[0, column + 1]), ints(&[1, 1])];
    judge(&slice, &inputs, &[vector(DType::I64)])
}

/// Looks embeddings up for the different values, and takes their mean for each segment.
fn embedded(values: &RowsTensor, segments: &RowsTensor) -> Judged {
    let unique = node("Unique", "unique", &[]);
    let outputs = [vector(DType::I64), vector(DType::I32)];
    let made = judge(&unique, std::slice::from_ref(values), &outputs)?;
    let table = free(Tensor::zeros(DType::F32, Shape::of(&[10, 8])).unwrap());
    let row = Spec::new(DType::F32, [Dim::Unknown, Dim::Known(8)]);
    let inputs = [table, made[0].clone(), scalar(0)];
    let looked_up = judge(&node("GatherV2", "look", &[]), &inputs, std::slice::from_ref(&row))?;
    let inputs = [looked_up[0].clone(), made[1].clone(), segments.clone()];
    judge(&node("SparseSegmentMean", "mean", &[]), &inputs, &[row])
}

#[test]
fn embeddings_of_a_sparse_feature_have_a_row_for_each_example() {
    let [indices, values, shape] = feature();
    // Values that are no ids are left out.
    let flags = judge(
        &node("GreaterEqual", "is_id", &[]),
        &[values.clone(), scalar(0)],
        &[vector(DType::Bool)],
    );
    let places = Spec::new(DType::I64, [Dim::Unknown, Dim::Known(1)]);
    let at = judge(&node("Where", "where", &[]), &flags.unwrap(), &[places]).unwrap();
    let at =
        judge(&node("Reshape", "flat", &[]), &[at[0].clone(), ints(&[-1])], &[vector(DType::I64)]);
    let at = at.unwrap().remove(0);
    let pick = |from: &RowsTensor| {
        let inputs = [from.clone(), at.clone(), scalar(0)];
        judge(&node("GatherV2", "pick", &[]), &inputs, std::slice::from_ref(&from.spec))
            .unwrap()
            .remove(0)
    };
    let (picked, ids) = (pick(&indices), pick(&values));
    // Entries of one group are not those of another.
    let both = [picked.clone(), values.clone(), shape.clone(), scalar(0)];
    let outputs = vec![values.spec.clone(); 4];
    assert!(judge(&node("SparseFillEmptyRows", "wrong", &[]), &both, &outputs).is_err());

    let [full, ids, empty] = filled(&picked, &ids, &shape);
    assert!(
        empty.state == RowsState::Rows && empty.spec.dims().unwrap()[0].same(&Dim::symbol(ROWS))
    );
    let segments = column(&full, 0).unwrap().remove(0);
    let rows = embedded(&ids, &segments).unwrap().remove(0);
    assert_eq!(rows.state, RowsState::Rows);
    let dims = rows.spec.dims().unwrap();
    assert!(dims[0].same(&Dim::symbol(ROWS)) && dims[1].known() == Some(8));
    // The numbers of the rows themselves, and places within rows, are not for each row.
    assert_eq!(column(&full, 1).unwrap_err(), NUMBERS);
    assert!(embedded(&ids, &column(&indices, 0).unwrap()[0]).is_err(), "of another group");
}

#[test]
fn a_row_without_entries_would_have_no_embedding() {
    let [indices, values, _] = feature();
    let segments = column(&indices, 0).unwrap().remove(0);
    assert_eq!(embedded(&values, &segments).unwrap_err(), TRAILING);
}

#[test]
fn what_has_the_width_of_the_longest_row_is_mixed() {
    let [indices, values, shape] = feature();
    let inputs = [indices.clone(), shape.clone(), values, scalar(0)];
    let dense = Spec::new(DType::I64, [Dim::symbol(ROWS), Dim::Unknown]);
    let judged = judge(&node("SparseToDense", "dense", &[]), &inputs, &[dense]);
    assert_eq!(judged.unwrap_err(), NUMBERS);
    // So is another shape of the feature, unless its rows stay.
    let other = ints(&[-1]);
    let outputs = [indices.spec.clone(), shape.spec.clone()];
    let reshape = node("SparseReshape", "reshape", &[]);
    assert!(judge(&reshape, &[indices.clone(), shape.clone(), other], &outputs).is_err());
    let same = judge(&reshape, &[indices.clone(), shape.clone(), shape], &outputs).unwrap();
    assert_eq!((&same[0].state, &same[1].state), (&indices.state, &RowsState::Bounds));
}

#[test]
fn a_dense_feature_of_any_length_is_filled_up_to_the_longest_row() {
    let parser = node("ParseExampleV2", "parse", &[("num_sparse", 0)]);
    let rows = || Dim::symbol(ROWS);
    let input = RowsTensor { state: RowsState::Rows, spec: Spec::new(DType::String, [rows()]) };
    let outputs = [[rows(), Dim::Known(3)], [rows(), Dim::Unknown]];
    let outputs = outputs.map(|dims| Spec::new(DType::F32, dims));
    let made = rules::parsed(&parser, &[input], &outputs).unwrap().unwrap();
    assert_eq!(made[0].state, RowsState::Rows);
    assert!(matches!(&made[1].state, RowsState::Mixed(why) if why.contains("width")));
}
