//! The fused ops against the ops that they stand for, for what TensorFlow has no kernel to compare.

#![allow(clippy::unwrap_used, reason = "a test stops at what should not be")]

use std::collections::BTreeMap;

use ops::{Attrs, Cancel, Ctx, Env, NoFiles, NoFunctions, Output, Resources};
use pool::Pool;
use proto::tensorflow::AttrValue;
use proto::tensorflow::attr_value::{ListValue, Value};
use tensor::{Shape, Tensor};

type Attributes = BTreeMap<String, AttrValue>;

/// A fused op's name for a function.
type Activation = (&'static str, fn(f32) -> f32);

/// Numbers in [-1, 1) that a seed decides.
fn random(dims: &[usize], seed: u64) -> Tensor {
    let (shape, mut x) = (Shape::of(dims), seed);
    let values: Vec<f32> = (0..shape.n_elements())
        .map(|_| {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (x >> 40) as f32 / (1 << 23) as f32 - 1.
        })
        .collect();
    Tensor::from_slice(shape, &values).unwrap()
}

fn run(op: &str, attrs: &Attributes, inputs: &[&Tensor]) -> Tensor {
    testkit::sets::use_asked(ops::use_instruction_set);
    let op = (ops::find(op).unwrap().build)(&Attrs::new(attrs)).unwrap();
    let pool = Pool::new(2);
    let env = Env {
        pool: &pool,
        functions: &NoFunctions,
        files: &NoFiles,
        resources: &Resources::default(),
        cancel: &Cancel::default(),
    };
    let mut ctx = Ctx::new(inputs.iter().map(|t| t.view()), [Output::Open(None)], &env);
    op.run(&mut ctx).unwrap();
    ctx.finish().unwrap().remove(0).1
}

fn strings(values: &[&str]) -> Value {
    let s = values.iter().map(|value| value.as_bytes().to_vec().into()).collect();
    Value::List(Box::new(ListValue { s, ..ListValue::default() }))
}

/// Runs `op` fused with each activation, with bias and sum, and compares with its parts.
fn check(op: &str, attrs: &[(&str, Value)], image: &Tensor, filter: &Tensor, channel: usize) {
    let mut attrs: Attributes = attrs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), AttrValue { value: Some(value.clone()) }))
        .collect();
    let bare = run(op, &attrs, &[image, filter]);
    let dims = bare.shape().dims();
    let (bias, other) = (random(&[dims[channel]], 3), random(dims, 4));
    let inner: usize = dims[channel + 1..].iter().product();
    let activations: [Activation; 7] = [
        ("Relu", |x| x.max(0.)),
        ("Relu6", |x| x.clamp(0., 6.)),
        ("Elu", |x| if x < 0. { x.exp_m1() } else { x }),
        ("Sigmoid", |x| 1. / (1. + (-x).exp())),
        ("Tanh", f32::tanh),
        ("Swish", |x| x / (1. + (-x).exp())),
        ("GeluApproximate", |x| {
            0.5 * x * (1. + (0.797_884_6 * (x + 0.044_715 * x.powi(3))).tanh())
        }),
    ];
    for (name, activation) in activations {
        for (steps, with_bias, with_other) in [
            (vec!["BiasAdd", "Add", name], true, true),
            (vec!["Add", name], false, true),
            (vec!["BiasAdd", name], true, false),
            (vec![name], false, false),
        ] {
            attrs.insert("fused_ops".to_owned(), AttrValue { value: Some(strings(&steps)) });
            let mut inputs = vec![image, filter];
            inputs.extend(with_bias.then_some(&bias));
            inputs.extend(with_other.then_some(&other));
            let got = run(&format!("_Fused{op}"), &attrs, &inputs);
            assert_eq!(got.shape(), bare.shape());
            for (i, (got, x)) in
                got.as_slice::<f32>().iter().zip(bare.as_slice::<f32>()).enumerate()
            {
                let mut x = *x;
                if with_bias {
                    x += bias.as_slice::<f32>()[i / inner % dims[channel]];
                }
                if with_other {
                    x += other.as_slice::<f32>()[i];
                }
                let want = activation(x);
                assert!((got - want).abs() < 1e-5, "{op} {steps:?}: {got} is not {want}");
            }
        }
    }
}

fn window(format: &str, stride: i64) -> Vec<(&'static str, Value)> {
    let strides = if format == "NHWC" { [1, stride, stride, 1] } else { [1, 1, stride, stride] };
    let strides = ListValue { i: strides.to_vec(), ..ListValue::default() };
    vec![
        ("strides", Value::List(Box::new(strides))),
        ("padding", Value::S(b"SAME".to_vec().into())),
        ("data_format", Value::S(format.as_bytes().to_vec().into())),
    ]
}

#[test]
fn a_fused_product_gives_what_its_parts_give() {
    check("MatMul", &[], &random(&[7, 30], 1), &random(&[30, 21], 2), 1);
}

#[test]
fn a_fused_convolution_gives_what_its_parts_give() {
    let filter = random(&[3, 3, 5, 18], 2);
    check("Conv2D", &window("NHWC", 1), &random(&[2, 6, 5, 5], 1), &filter, 3);
    check("Conv2D", &window("NHWC", 2), &random(&[2, 6, 5, 10], 1), &filter, 3);
    check("Conv2D", &window("NCHW", 1), &random(&[2, 5, 6, 5], 1), &filter, 1);
}

#[test]
fn a_fused_depthwise_convolution_gives_what_its_parts_give() {
    for (channels, multiplier) in [(19, 1), (8, 1), (3, 1), (5, 2)] {
        let filter = random(&[3, 3, channels, multiplier], 2);
        let image = random(&[2, 6, 5, channels], 1);
        check("DepthwiseConv2dNative", &window("NHWC", 1), &image, &filter, 3);
    }
}

#[test]
fn fused_ops_give_what_their_parts_give_with_the_other_instruction_sets() {
    let tests = [
        "fused::a_fused_product_gives_what_its_parts_give",
        "fused::a_fused_convolution_gives_what_its_parts_give",
        "fused::a_fused_depthwise_convolution_gives_what_its_parts_give",
    ];
    testkit::sets::run_again(ops::instruction_sets().into_iter().skip(1), &tests);
}
