//! Ops whose numbers are a function of a seed, or of a key and a counter.

use super::philox::Philox;
use super::{Draw, shape_spec, shape_value};
use crate::prelude::*;

/// Inputs: shape and seed; the ends of integers.
struct Seeded {
    draw: Draw,
    dtype: DType,
}

/// Inputs: shape, key, counter and algorithm; the ends of integers.
struct Keyed {
    draw: Draw,
    dtype: DType,
}

/// The key and counter of a seed.
pub(super) struct KeyCounter;
/// The number of the algorithm.
pub(super) struct Algorithm;
/// All three.
pub(super) struct KeyCounterAlgorithm;

/// The numbers of algorithms: Philox, and whichever the device likes best.
const PHILOX: i32 = 1;
const AUTO: i32 = 3;

pub(super) fn build(attrs: &Attrs<'_>, draw: Draw) -> Result<Box<dyn Op>> {
    Ok(Box::new(Seeded { draw, dtype: dtype(attrs, draw)? }))
}

pub(super) fn build_v2(attrs: &Attrs<'_>, draw: Draw) -> Result<Box<dyn Op>> {
    Ok(Box::new(Keyed { draw, dtype: dtype(attrs, draw)? }))
}

fn dtype(attrs: &Attrs<'_>, draw: Draw) -> Result<DType> {
    match draw {
        Draw::Integers => attrs.dtype("dtype"),
        Draw::Bits => attrs.dtype_or("dtype", DType::U64),
        Draw::Uniform | Draw::Normal | Draw::Truncated => attrs.dtype_or("dtype", DType::F32),
    }
}

/// Checks the number of inputs, with two more for integers.
fn check_arity(inputs: &[Spec], n: usize, draw: Draw) -> Result<()> {
    let n = if draw == Draw::Integers { n + 2 } else { n };
    if inputs.len() != n {
        return invalid!("expected {n} inputs but got {}", inputs.len());
    }
    Ok(())
}

impl Op for Seeded {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        check_arity(inputs, 2, self.draw)?;
        check_seed(&inputs[1])?;
        Ok(vec![shape_spec(self.dtype, &inputs[0])?])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let shape = shape_value(ctx.input(0))?;
        let philox = Philox::scrambled(seed_value(ctx.input(1))?);
        let ends = (self.draw == Draw::Integers).then(|| (ctx.input(2), ctx.input(3)));
        self.draw.run(ctx, philox, self.dtype, &shape, ends)
    }
}

impl Op for Keyed {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        check_arity(inputs, 4, self.draw)?;
        inputs[1].require_rank(1)?;
        inputs[2].require_rank(1)?;
        inputs[3].require_rank(0)?;
        Ok(vec![shape_spec(self.dtype, &inputs[0])?])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let shape = shape_value(ctx.input(0))?;
        let (key, counter, algorithm) = (ctx.input(1), ctx.input(2), ctx.input(3));
        // The texts are TensorFlow's (`stateless_random_ops_v2.cc`).
        if key.shape().dims() != [1] || counter.n_elements() == 0 {
            let (key, counter) = (key.shape(), counter.shape());
            return invalid!("key must have shape [1], not {key}, and counter elements: {counter}");
        }
        if shape.n_elements() == 0 {
            ctx.output(0, self.dtype, &shape)?;
            return Ok(());
        }
        match algorithm.as_slice::<i32>() {
            [PHILOX | AUTO] => {}
            [other] => return invalid!("Unsupported algorithm id: {other}"),
            _ => return invalid!("alg must be of shape [], not {}", algorithm.shape()),
        }
        let (&[key], &[low, high, ..]) = (key.as_slice::<u64>(), counter.as_slice::<u64>()) else {
            return invalid!(
                "key must have one element and counter at least two, got {} and {}",
                key.shape(),
                counter.shape()
            );
        };
        let philox = Philox::of_key(key, [low, high]);
        let ends = (self.draw == Draw::Integers).then(|| (ctx.input(4), ctx.input(5)));
        self.draw.run(ctx, philox, self.dtype, &shape, ends)
    }
}

impl Op for KeyCounter {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [seed] = arity(inputs)?;
        check_seed(seed)?;
        let [key, counter] = key_counter_specs();
        Ok(vec![key, counter])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        write_key_counter(ctx)
    }
}

impl Op for Algorithm {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        arity::<0>(inputs)?;
        Ok(vec![Spec::scalar(DType::I32)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        ctx.output(0, DType::I32, &Shape::scalar())?.as_mut_slice().fill(PHILOX);
        Ok(())
    }
}

impl Op for KeyCounterAlgorithm {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [seed] = arity(inputs)?;
        check_seed(seed)?;
        let [key, counter] = key_counter_specs();
        Ok(vec![key, counter, Spec::scalar(DType::I32)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        write_key_counter(ctx)?;
        ctx.output(2, DType::I32, &Shape::scalar())?.as_mut_slice().fill(PHILOX);
        Ok(())
    }
}

fn key_counter_specs() -> [Spec; 2] {
    [1, 2].map(|n| Spec::concrete(DType::U64, &Shape::of(&[n])))
}

fn write_key_counter(ctx: &mut Ctx<'_>) -> Result<()> {
    let philox = Philox::scrambled(seed_value(ctx.input(0))?);
    let (one, two) = (Shape::of(&[1]), Shape::of(&[2]));
    ctx.output(0, DType::U64, &one)?.as_mut_slice().fill(philox.key());
    ctx.output(1, DType::U64, &two)?.as_mut_slice().copy_from_slice(&philox.counter());
    Ok(())
}

fn check_seed(seed: &Spec) -> Result<()> {
    seed.require_rank(1)?;
    if seed.dims().is_some_and(|dims| dims[0].differs(&Dim::Known(2))) {
        return invalid!("seed must have shape [2], not {seed}");
    }
    Ok(())
}

/// The two numbers of a seed.
pub(super) fn seed_value(seed: View<'_>) -> Result<[u64; 2]> {
    if seed.n_elements() != 2 {
        return invalid!("seed must have shape [2], not {}", seed.shape());
    }
    let one = |i: usize| match seed.dtype() {
        DType::U64 => Ok(seed.as_slice::<u64>()[i]),
        DType::U32 => Ok(u64::from(seed.as_slice::<u32>()[i])),
        _ => int_at(&seed, i).map(i64::cast_unsigned),
    };
    Ok([one(0)?, one(1)?])
}
