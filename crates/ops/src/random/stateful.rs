//! Ops that go on in their own stream each time they run.

use parking_lot::Mutex;

use super::philox::Philox;
use super::{Draw, shape_spec, shape_value};
use crate::prelude::*;

/// Numbers of the generator that each element may use up.
const RESERVED: u64 = 256;

struct StatefulRandom {
    draw: Draw,
    dtype: DType,
    stream: Stream,
}

pub(super) fn build(attrs: &Attrs<'_>, draw: Draw) -> Result<Box<dyn Op>> {
    Ok(Box::new(StatefulRandom { draw, dtype: attrs.dtype("dtype")?, stream: Stream::new(attrs)? }))
}

pub(super) fn build_int(attrs: &Attrs<'_>) -> Result<Box<dyn Op>> {
    let (draw, dtype) = (Draw::Integers, attrs.dtype("Tout")?);
    Ok(Box::new(StatefulRandom { draw, dtype, stream: Stream::new(attrs)? }))
}

impl Op for StatefulRandom {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let shape = match (inputs, self.draw) {
            ([shape, low, high], Draw::Integers) => {
                low.require_rank(0)?;
                high.require_rank(0)?;
                shape
            }
            ([shape], _) => shape,
            _ => return invalid!("got {} inputs", inputs.len()),
        };
        Ok(vec![shape_spec(self.dtype, shape)?])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let shape = shape_value(ctx.input(0))?;
        let ends = (self.draw == Draw::Integers).then(|| (ctx.input(1), ctx.input(2)));
        let philox = self.stream.reserve(shape.n_elements());
        self.draw.run(ctx, philox, self.dtype, &shape, ends)
    }
}

/// The stream of a node.
pub(super) struct Stream(Mutex<Philox>);

impl Stream {
    /// The stream of the seeds of a node.
    pub(super) fn new(attrs: &Attrs<'_>) -> Result<Self> {
        let (seed, seed2) = (attrs.int_or("seed", 0)?, attrs.int_or("seed2", 0)?);
        Ok(Self(Mutex::new(Philox::of_attributes(seed, seed2))))
    }

    /// The generator for `n` elements; the stream goes on behind them.
    pub(super) fn reserve(&self, n: usize) -> Philox {
        let mut stream = self.0.lock();
        let reserved = *stream;
        stream.skip((n as u64).wrapping_mul(RESERVED));
        reserved
    }
}
