//! A row's answer does not depend, in any digit, on the batch that it rides in, on the number of
//! threads, or on whether weights were packed.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::wildcard_enum_match_arm,
    reason = "a test stops at what should not be; its numbers are small"
)]

use std::collections::BTreeMap;

use half::{bf16, f16};
use ops::{Attrs, Cancel, Ctx, Env, NoFiles, NoFunctions, Op, Output, Packed, Resources};
use pool::Pool;
use proto::tensorflow::AttrValue;
use proto::tensorflow::attr_value::{ListValue, Value};
use tensor::{DType, Shape, Tensor};

/// A stream of numbers that a seed decides.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn tensor(&mut self, dims: &[usize]) -> Tensor {
        self.tensor_of(DType::F32, dims)
    }

    fn tensor_of(&mut self, dtype: DType, dims: &[usize]) -> Tensor {
        let shape = Shape::of(dims);
        let values: Vec<f32> = (0..shape.n_elements())
            .map(|_| (self.next() as f32 / (1u64 << 30) as f32) - 1.)
            .collect();
        let values = values.into_iter();
        match dtype {
            DType::F16 => Tensor::from_slice(shape, &values.map(f16::from_f32).collect::<Vec<_>>()),
            DType::BF16 => {
                Tensor::from_slice(shape, &values.map(bf16::from_f32).collect::<Vec<_>>())
            }
            DType::F64 => Tensor::from_slice(shape, &values.map(f64::from).collect::<Vec<_>>()),
            _ => Tensor::from_slice(shape, &values.collect::<Vec<_>>()),
        }
        .unwrap()
    }
}

/// An op whose input number `batched` has rows along its first dimension.
struct Subject {
    op: Box<dyn Op>,
    inputs: Vec<Tensor>,
    batched: usize,
}

impl Subject {
    fn new(name: &str, attrs: &[(&str, Value)], inputs: Vec<Tensor>, batched: usize) -> Self {
        let attrs: BTreeMap<String, AttrValue> = attrs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), AttrValue { value: Some(value.clone()) }))
            .collect();
        let op = (ops::find(name).unwrap().build)(&Attrs::new(&attrs)).unwrap();
        Self { op, inputs, batched }
    }

    /// The output for some rows of the batch, row by row.
    fn run(&self, rows: &[usize], pool: &Pool, pack: bool) -> Vec<Vec<u8>> {
        let batch = &self.inputs[self.batched];
        let len = batch.n_bytes() / batch.shape()[0];
        let bytes: Vec<u8> =
            rows.iter().flat_map(|row| batch.view().bytes()[row * len..][..len].to_vec()).collect();
        let mut dims = batch.shape().dims().to_vec();
        dims[0] = rows.len();
        let mut inputs = self.inputs.clone();
        inputs[self.batched] = Tensor::from_bytes(batch.dtype(), Shape::of(&dims), &bytes).unwrap();
        if inputs[0].dtype() == DType::I32 {
            // The sizes of a transposed convolution.
            let mut sizes = inputs[0].as_slice::<i32>().to_vec();
            sizes[0] = i32::try_from(rows.len()).unwrap();
            inputs[0] = Tensor::vector(&sizes).unwrap();
        }
        let env = Env {
            pool,
            functions: &NoFunctions,
            files: &NoFiles,
            resources: &Resources::default(),
            cancel: &Cancel::default(),
        };
        let packed: Vec<Option<Packed>> = match pack {
            true => inputs
                .iter()
                .enumerate()
                .map(|(i, input)| self.op.pack(i, input).unwrap())
                .collect(),
            false => Vec::new(),
        };
        let mut ctx = Ctx::new(inputs.iter().map(Tensor::view), [Output::Open(None)], &env);
        ctx.set_packed(&packed);
        self.op.run(&mut ctx).unwrap();
        let out = ctx.finish().unwrap().remove(0).1;
        let bytes = out.view().bytes();
        bytes.chunks_exact(bytes.len() / rows.len()).map(<[u8]>::to_vec).collect()
    }

    #[track_caller]
    fn check(&self, what: &str) {
        testkit::sets::use_asked(ops::use_instruction_set);
        let pools = [Pool::new(1), Pool::new(2), Pool::new(3)];
        let n = self.inputs[self.batched].shape()[0];
        let all: Vec<usize> = (0..n).collect();
        let alone: Vec<Vec<u8>> =
            all.iter().map(|row| self.run(&[*row], &pools[0], false).remove(0)).collect();
        let mut random = Random(7);
        for round in 0..12 {
            let size = 1 + random.next() as usize % (2 * n);
            let rows: Vec<usize> = (0..size).map(|_| random.next() as usize % n).collect();
            let got = self.run(&rows, &pools[round % 3], round % 2 == 0);
            for (row, got) in rows.iter().zip(got) {
                assert!(got == alone[*row], "{what}: row {row} differs in a batch of {size}");
            }
        }
    }
}

fn ints(values: &[i64]) -> Value {
    Value::List(Box::new(ListValue { i: values.to_vec(), ..ListValue::default() }))
}

fn text(value: &str) -> Value {
    Value::S(value.as_bytes().to_vec().into())
}

fn sliding(stride: i64) -> Vec<(&'static str, Value)> {
    vec![("strides", ints(&[1, stride, stride, 1])), ("padding", text("SAME"))]
}

/// The dtypes that models compute in.
const FLOATS: [DType; 4] = [DType::F32, DType::F16, DType::BF16, DType::F64];

#[test]
fn products_are_the_same_in_any_company() {
    let mut random = Random(1);
    for dtype in FLOATS {
        for (inner, columns) in [(5, 3), (64, 48), (300, 70), (784, 10), (1000, 17)] {
            let rows = random.tensor_of(dtype, &[9, inner]);
            let inputs = vec![rows, random.tensor_of(dtype, &[inner, columns])];
            Subject::new("MatMul", &[], inputs, 0).check(&format!("MatMul of {dtype}"));
        }
    }
    for (inner, columns) in [(5, 3), (64, 48), (300, 70)] {
        let inputs = vec![
            random.tensor(&[7, 3, inner]),
            random.tensor(&[inner, columns]),
            random.tensor(&[columns]),
        ];
        let steps = ListValue {
            s: ["BiasAdd", "Relu"].map(|name| name.as_bytes().to_vec().into()).into(),
            ..ListValue::default()
        };
        let attrs = [
            ("contracted", Value::I(1)),
            ("tail", ints(&[i64::try_from(columns).unwrap()])),
            ("fused_ops", Value::List(Box::new(steps))),
        ];
        Subject::new("_Linear", &attrs, inputs, 0).check("_Linear");
    }
    let inputs = vec![random.tensor(&[5, 2, 7, 20]), random.tensor(&[2, 20, 9])];
    Subject::new("BatchMatMulV2", &[], inputs, 0).check("BatchMatMulV2");
    let inputs = vec![random.tensor(&[5, 7, 20]), random.tensor(&[20, 2, 9])];
    let equation = [("equation", text("abc,cde->abde"))];
    Subject::new("Einsum", &equation, inputs, 0).check("Einsum");
}

#[test]
fn convolutions_are_the_same_in_any_company() {
    let mut random = Random(2);
    for dtype in FLOATS {
        for (window, stride, ins, outs) in
            [(1, 1, 24, 40), (3, 1, 5, 18), (3, 2, 32, 16), (5, 1, 40, 7)]
        {
            let image = random.tensor_of(dtype, &[4, 9, 7, ins]);
            let inputs = vec![image, random.tensor_of(dtype, &[window, window, ins, outs])];
            let what = format!("Conv2D of {dtype}");
            Subject::new("Conv2D", &sliding(stride), inputs, 0).check(&what);
        }
        let volume = random.tensor_of(dtype, &[4, 5, 6, 4, 7]);
        let inputs = vec![volume, random.tensor_of(dtype, &[3, 2, 3, 7, 10])];
        let attrs = [("strides", ints(&[1, 1, 2, 1, 1])), ("padding", text("SAME"))];
        Subject::new("Conv3D", &attrs, inputs, 0).check(&format!("Conv3D of {dtype}"));
    }
    for (channels, stride) in [(3, 1), (8, 2), (19, 1), (32, 1)] {
        let image = random.tensor(&[4, 9, 7, channels]);
        let inputs = vec![image, random.tensor(&[3, 3, channels, 1])];
        Subject::new("DepthwiseConv2dNative", &sliding(stride), inputs, 0).check("depthwise");
    }
    let sizes = Tensor::vector(&[4i32, 8, 6, 5]).unwrap();
    let inputs = vec![sizes, random.tensor(&[3, 3, 5, 18]), random.tensor(&[4, 4, 3, 18])];
    Subject::new("Conv2DBackpropInput", &sliding(2), inputs, 2).check("Conv2DBackpropInput");
}

#[test]
fn pools_and_softmax_are_the_same_in_any_company() {
    let mut random = Random(3);
    let window = [
        ("ksize", ints(&[1, 3, 3, 1])),
        ("strides", ints(&[1, 2, 2, 1])),
        ("padding", text("SAME")),
    ];
    for name in ["AvgPool", "MaxPool"] {
        Subject::new(name, &window, vec![random.tensor(&[5, 9, 7, 13])], 0).check(name);
    }
    Subject::new("Softmax", &[], vec![random.tensor(&[6, 3, 37])], 0).check("Softmax");
}

#[test]
fn sums_and_norms_are_the_same_in_any_company() {
    let mut random = Random(4);
    for dtype in FLOATS {
        // Inner, outer and both dimensions of a row, of few elements and of many.
        for (dims, axes) in [
            (&[6, 37, 5][..], &[1][..]),
            (&[6, 37, 5][..], &[2][..]),
            (&[6, 37, 5][..], &[-1, 1][..]),
            (&[5, 40, 41, 3][..], &[1, 2][..]),
            (&[3, 5000][..], &[1][..]),
        ] {
            for name in ["Sum", "Mean"] {
                let inputs =
                    vec![random.tensor_of(dtype, dims), Tensor::vector::<i32>(axes).unwrap()];
                Subject::new(name, &[], inputs, 0).check(&format!("{name} of {dtype} {axes:?}"));
            }
        }
    }
    for width in [3, 24, 300] {
        let inputs =
            vec![random.tensor(&[5, 7, width]), random.tensor(&[width]), random.tensor(&[width])];
        Subject::new("_LayerNorm", &[("epsilon", Value::F(1e-3))], inputs, 0).check("_LayerNorm");
    }
}

#[test]
fn all_of_them_are_the_same_in_any_company_with_the_other_instruction_sets() {
    let tests = [
        "company::products_are_the_same_in_any_company",
        "company::convolutions_are_the_same_in_any_company",
        "company::pools_and_softmax_are_the_same_in_any_company",
        "company::sums_and_norms_are_the_same_in_any_company",
    ];
    testkit::sets::run_again(ops::instruction_sets().into_iter().skip(1), &tests);
}
