//! `MaxPoolWithArgmax`: the largest element of each window, and where it stands.
//!
//! Follows `maxpooling_op.cc`.

use num_traits::Bounded;

use super::pooling::{Kind, Pool};
use super::pooling_kernel::Pooling;
use crate::error::unsupported;
use crate::prelude::*;

pub(super) const DEF: OpDef = OpDef::pure("MaxPoolWithArgmax", RowRule::Mixed, |attrs| {
    let index = attrs.dtype_or("Targmax", DType::I64)?;
    if !matches!(index, DType::I32 | DType::I64) {
        return invalid!("Targmax must be int32 or int64, not {index}");
    }
    let pool = Pool::read(attrs, 2, Kind::Max)?;
    pool.require_flat()?;
    Ok(Box::new(MaxPoolWithArgmax {
        pool,
        index,
        with_batch: attrs.bool_or("include_batch_in_index", false)?,
    }))
});

struct MaxPoolWithArgmax {
    pool: Pool,
    index: DType,
    with_batch: bool,
}

impl Op for MaxPoolWithArgmax {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [image] = arity(inputs)?;
        let output = self.pool.infer_output(image)?;
        let index = output.with_dtype(self.index);
        Ok(vec![output, index])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let image = ctx.input(0);
        let pooling = self.pool.checked(image.shape())?;
        let shape = self.pool.output_shape(&pooling)?;
        let mut places = ctx.scratch().part(shape.n_elements())?;
        let (mut out, mut index) =
            ctx.two_outputs([(image.dtype(), &shape), (self.index, &shape)])?;
        for_number!(image.dtype(), T => {
            largest::<T>(&pooling, image.as_slice(), out.as_mut_slice(), &mut places);
        });
        let size = if self.with_batch { 0 } else { pooling.window.n_inputs() * pooling.channels };
        let place = |at: usize| at.checked_rem(size).unwrap_or(at);
        match self.index {
            DType::I64 => {
                let index = index.as_mut_slice::<i64>().iter_mut();
                index.zip(places.iter()).for_each(|(out, at)| *out = place(*at) as i64);
            }
            DType::I32 => {
                let index = index.as_mut_slice::<i32>().iter_mut();
                index.zip(places.iter()).for_each(|(out, at)| *out = place(*at) as i32);
            }
            dtype => return unsupported!("an index of dtype {dtype} is not supported here"),
        }
        Ok(())
    }

    fn scratch_bytes(&self, _: &[Spec], outputs: &[Spec]) -> usize {
        Scratch::bytes_for::<usize>(&outputs[0])
    }
}

/// Writes the largest elements and where they stand in `image`, the first if several do.
fn largest<T: Copy + PartialOrd + Bounded>(
    pooling: &Pooling,
    image: &[T],
    out: &mut [T],
    places: &mut [usize],
) {
    let Pooling { window, channels, .. } = *pooling;
    places.fill(0);
    let pixels =
        out.chunks_exact_mut(channels.max(1)).zip(places.chunks_exact_mut(channels.max(1)));
    for (number, (out, places)) in pixels.enumerate() {
        let (batch, place) = (number / window.n_outputs(), number % window.n_outputs());
        let (y, x) = (place / window.output[2], place % window.output[2]);
        if is_stopped(channels * window.n_taps()) {
            return;
        }
        let mut first = true;
        for tap_y in window.inside(1, y) {
            for tap_x in window.inside(2, x) {
                let (Some(y), Some(x)) = (window.at(1, y, tap_y), window.at(2, x, tap_x)) else {
                    continue;
                };
                let pixel = (batch * window.input[1] + y) * window.input[2] + x;
                for c in 0..channels {
                    let at = pixel * channels + c;
                    if first || image[at] > out[c] {
                        (out[c], places[c]) = (image[at], at);
                    }
                }
                first = false;
            }
        }
    }
}
