//! `Where`: the places of the elements that are not zero.

use num_complex::Complex;
use num_traits::Zero;

use crate::prelude::*;

pub(super) const WHERE: OpDef = OpDef::pure("Where", RowRule::Where, |_| Ok(Box::new(Where)));

struct Where;

impl Op for Where {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [input] = arity(inputs)?;
        input.require_rank_at_least(1)?;
        let rank = input.rank().map_or(Dim::Unknown, Dim::of);
        Ok(vec![Spec::new(DType::I64, [Dim::Unknown, rank])])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let input = ctx.input(0);
        let places = match input.dtype() {
            // Zero is zero bits, but for the negative zero of floats.
            DType::F32 => places(input.as_slice::<f32>(), |x| *x != 0.0),
            DType::F64 => places(input.as_slice::<f64>(), |x| *x != 0.0),
            DType::F16 | DType::BF16 => places(input.as_wide::<u16>(), |x| x & 0x7fff != 0),
            DType::Complex64 => places(input.as_slice::<Complex<f32>>(), |x| !x.is_zero()),
            DType::Complex128 => places(input.as_slice::<Complex<f64>>(), |x| !x.is_zero()),
            dtype => for_width!(dtype, T => places(input.as_wide::<T>(), |x| *x != T::default())),
        }?;
        let rank = input.shape().rank();
        if rank == 0 {
            return invalid!("expected rank at least 1 but got a scalar");
        }
        let shape = Shape::checked([places.len() as i64, rank as i64])?;
        let mut output = ctx.output(0, DType::I64, &shape)?;
        write_places(&places, input.shape(), output.as_mut_slice());
        Ok(())
    }
}

fn places<T>(elements: &[T], is_true: impl Fn(&T) -> bool) -> Result<BookedVec<usize>> {
    let places = elements.iter().enumerate().filter(|(_, x)| is_true(x));
    Ok(BookedVec::collect(places.map(|(at, _)| at))?)
}

/// Writes flat places as one index a dimension.
fn write_places(places: &[usize], shape: &Shape, output: &mut [i64]) {
    if shape.rank() == 1 {
        places.iter().zip(output).for_each(|(at, x)| *x = *at as i64);
        return;
    }
    let strides = shape.strides();
    for (at, index) in places.iter().zip(output.chunks_exact_mut(shape.rank())) {
        if is_stopped(8) {
            return;
        }
        let mut rest = *at;
        for (x, stride) in index.iter_mut().zip(&strides) {
            *x = (rest / stride) as i64;
            rest %= stride;
        }
    }
}
