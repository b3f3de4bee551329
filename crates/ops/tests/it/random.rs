//! The statistics of random numbers: their values are in `testdata/ops`, where seeds fix them.

use std::collections::BTreeMap;

use ops::{Attrs, Cancel, Ctx, Env, NoFiles, NoFunctions, Output, Resources};
use pool::Pool;
use proto::tensorflow::AttrValue;
use proto::tensorflow::attr_value::Value;
use tensor::{DType, Spec, Tensor};

/// The number of random numbers that are drawn.
const N: usize = 100_000;

/// Returns the numbers of dtype `dtype` that `op` draws with a seed and more inputs.
fn draw(op: &str, dtype: DType, seed: i64, more: &[Tensor]) -> Vec<f64> {
    let attr = |value| AttrValue { value: Some(value) };
    let number = Value::Type(dtype.number());
    let attrs: BTreeMap<String, AttrValue> = [
        ("seed", Value::I(seed)),
        ("seed2", Value::I(seed)),
        ("dtype", number.clone()),
        ("Tout", number),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), attr(value)))
    .collect();
    let def = ops::find(op).expect("an op that we have");
    let op = (def.build)(&Attrs::new(&attrs)).expect("good attributes");
    let (pool, resources) = (Pool::new(2), Resources::default());
    let env = Env {
        pool: &pool,
        functions: &NoFunctions,
        files: &NoFiles,
        resources: &resources,
        cancel: &Cancel::default(),
    };
    let shape =
        Tensor::vector(&[i32::try_from(N).expect("a small number")]).expect("a small vector");
    let inputs: Vec<Tensor> = std::iter::once(shape).chain(more.iter().cloned()).collect();
    let specs: Vec<Spec> = inputs.iter().cloned().map(Spec::constant).collect();
    let n_outputs = op.infer(&specs).expect("inputs that fit").len();
    let outputs = (0..n_outputs).map(|_| Output::Open(None));
    let mut ctx = Ctx::new(inputs.iter().map(Tensor::view), outputs, &env);
    op.run(&mut ctx).expect("it draws");
    let made = ctx.finish().expect("it was made").remove(0).1;
    if made.dtype() == DType::F64 {
        return made.view().as_slice::<f64>().to_vec();
    }
    if made.dtype() == DType::F32 {
        return made.view().as_slice::<f32>().iter().map(|x| f64::from(*x)).collect();
    }
    made.view().to_i64().expect("integers").iter().map(|x| *x as f64).collect()
}

/// Mean, variance, smallest and largest.
fn moments(x: &[f64]) -> (f64, f64, f64, f64) {
    let n = x.len() as f64;
    let mean = x.iter().sum::<f64>() / n;
    let variance = x.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n;
    let low = x.iter().copied().fold(f64::INFINITY, f64::min);
    (mean, variance, low, x.iter().copied().fold(f64::NEG_INFINITY, f64::max))
}

#[track_caller]
fn check(got: f64, expected: f64) {
    assert!((got - expected).abs() < 0.02, "{got} instead of {expected}");
}

#[test]
fn uniform_numbers_fill_the_unit_interval_evenly() {
    for dtype in [DType::F32, DType::F64] {
        for seed in [0, 7] {
            let (mean, variance, low, high) = moments(&draw("RandomUniform", dtype, seed, &[]));
            check(mean, 0.5);
            check(variance, 1.0 / 12.0);
            assert!((0.0..0.001).contains(&low) && (0.999..1.0).contains(&high));
        }
    }
}

#[test]
fn normal_numbers_have_unit_variance() {
    for dtype in [DType::F32, DType::F64] {
        for seed in [0, 7] {
            let x = draw("RandomStandardNormal", dtype, seed, &[]);
            let (mean, variance, low, high) = moments(&x);
            check(mean, 0.0);
            check(variance, 1.0);
            assert!(low < -3.5 && high > 3.5);
            let within = x.iter().filter(|x| x.abs() < 1.0).count() as f64 / N as f64;
            check(within, 0.6827);
        }
    }
}

#[test]
fn truncated_numbers_stay_within_two_deviations() {
    let (mean, variance, low, high) = moments(&draw("TruncatedNormal", DType::F32, 7, &[]));
    check(mean, 0.0);
    check(variance, 0.7737);
    assert!(low >= -2.0 && high <= 2.0);
}

#[test]
fn integers_lie_between_their_ends() {
    let ends = [Tensor::scalar(-3i64).unwrap(), Tensor::scalar(5i64).unwrap()];
    let x = draw("RandomUniformInt", DType::I64, 7, &ends);
    let (mean, _, low, high) = moments(&x);
    check(mean, 0.5);
    assert_eq!((low, high), (-3.0, 4.0));
    for value in -3..5 {
        let share = x.iter().filter(|x| **x == f64::from(value)).count() as f64 / N as f64;
        check(share, 0.125);
    }
}

#[test]
fn a_seed_repeats_and_no_seed_does_not() {
    let uniform = |seed| draw("RandomUniform", DType::F32, seed, &[]);
    assert_eq!(uniform(3), uniform(3));
    assert_ne!(uniform(3), uniform(4));
    assert_ne!(uniform(0), uniform(0));
}
