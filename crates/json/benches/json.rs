//! Reading and writing an image of 224 × 224 × 3 floats as JSON, beside `serde_json::Value`.
#![allow(missing_docs, reason = "criterion's macros write undocumented functions")]

use std::fmt::Write as _;
use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use json::{Format, Input, Inputs, Request, write_outputs};
use serde_json::Value;
use status::Result;
use tensor::{DType, Shape, Spec, Tensor};

const SIDE: usize = 224;
const N_FLOATS: usize = SIDE * SIDE * 3;

/// Floats in [0, 1), as an image has them.
fn floats() -> Vec<f32> {
    let mut state: u64 = 1;
    let next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        #[expect(clippy::cast_precision_loss, reason = "24 bits fit a float")]
        let value = (state >> 40) as f32 / 16_777_216.0;
        value
    };
    std::iter::repeat_with(next).take(N_FLOATS).collect()
}

/// A request with one image, the floats written with as many digits as they need.
fn request(floats: &[f32]) -> String {
    let mut text = String::from("{\"instances\": [[");
    for (row_number, row) in floats.chunks(SIDE * 3).enumerate() {
        text.push_str(if row_number == 0 { "[" } else { ", [" });
        for (column, pixel) in row.chunks(3).enumerate() {
            let comma = if column == 0 { "" } else { ", " };
            write!(text, "{comma}[{:?}, {:?}, {:?}]", pixel[0], pixel[1], pixel[2])
                .expect("writing to memory does not fail");
        }
        text.push(']');
    }
    text.push_str("]]}");
    text
}

/// Flattens a tree of values, as a server does that goes through one.
fn flatten(value: &Value, out: &mut Vec<f32>) {
    match value {
        Value::Array(all) => all.iter().for_each(|value| flatten(value, out)),
        #[expect(clippy::cast_possible_truncation, reason = "the tensor is of floats")]
        Value::Number(number) => out.push(number.as_f64().unwrap_or(f64::NAN) as f32),
        Value::Null | Value::Bool(_) | Value::String(_) | Value::Object(_) => {}
    }
}

fn read(criterion: &mut Criterion) {
    let text = request(&floats());
    let spec = Spec::unknown(DType::F32);
    let find = |_: &str| -> Result<_> {
        Ok(((), Inputs::new([Input { name: "x", tensor: "x:0", spec: &spec }])))
    };
    let mut group = criterion.benchmark_group("read 150528 floats");
    group.throughput(Throughput::Bytes(text.len() as u64));
    group.bench_function("ours", |bencher| {
        bencher.iter(|| {
            let request = Request::read(black_box(text.as_bytes()), find);
            request.expect("the request is right").inputs
        });
    });
    group.bench_function("serde_json::Value", |bencher| {
        bencher.iter(|| {
            let value: Value = serde_json::from_str(black_box(&text)).expect("it is JSON");
            let mut all = Vec::with_capacity(N_FLOATS);
            flatten(&value["instances"], &mut all);
            Tensor::from_slice(Shape::of(&[1, SIDE, SIDE, 3]), &all).expect("there is memory")
        });
    });
    group.finish();
}

fn write(criterion: &mut Criterion) {
    let floats = floats();
    let tensor = Tensor::from_slice(Shape::of(&[1, N_FLOATS]), &floats).expect("there is memory");
    let outputs = [("y".to_owned(), tensor)];
    let mut group = criterion.benchmark_group("write 150528 floats");
    group.throughput(Throughput::Elements(N_FLOATS as u64));
    group.bench_function("ours", |bencher| {
        bencher
            .iter(|| write_outputs(black_box(&outputs), Format::Row).expect("it can be written"));
    });
    group.bench_function("serde_json::Value", |bencher| {
        bencher.iter(|| {
            let value = serde_json::json!({ "predictions": [black_box(&floats)] });
            serde_json::to_vec(&value).expect("it can be written")
        });
    });
    group.finish();
}

criterion_group!(benches, read, write);
criterion_main!(benches);
