//! `ArgMax` and `ArgMin`: where along an axis the largest or smallest element is, the first of
//! equal ones.

use half::{bf16, f16};

use super::table::Narrow;
use crate::prelude::*;

pub(super) const ARG_MAX: OpDef =
    OpDef::pure("ArgMax", RowRule::Along { value: 0, axes: 1 }, |attrs| {
        build(attrs, Seeks::Largest)
    });
pub(super) const ARG_MIN: OpDef =
    OpDef::pure("ArgMin", RowRule::Along { value: 0, axes: 1 }, |attrs| {
        build(attrs, Seeks::Smallest)
    });

#[derive(Clone, Copy)]
enum Seeks {
    Largest,
    Smallest,
}

struct Arg {
    seeks: Seeks,
    dtype: DType,
}

fn build(attrs: &Attrs<'_>, seeks: Seeks) -> Result<Box<dyn Op>> {
    Ok(Box::new(Arg { seeks, dtype: attrs.dtype_or("output_type", DType::I64)? }))
}

impl Op for Arg {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [x, axis] = arity(inputs)?;
        axis.require_rank(0)?;
        let Some(dims) = x.dims() else { return Ok(vec![Spec::unknown(self.dtype)]) };
        let mut dims: Vec<Dim> = dims.to_vec();
        if let Some(&[axis]) = axis.ints().as_deref() {
            let axis = checked_axis(axis, dims.len())?;
            if dims[axis] == Dim::Known(0) {
                return invalid!("Reduction axis {axis} is empty in shape {x}");
            }
            dims.remove(axis);
        } else {
            dims.pop();
            dims.fill(Dim::Unknown);
        }
        Ok(vec![Spec::new(self.dtype, dims)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let x = ctx.input(0);
        let axis = axis_value(ctx.input(1))?;
        let axis = checked_axis(axis, x.shape().rank())?;
        let n = x.shape()[axis];
        if n == 0 {
            return invalid!("Reduction axis {axis} is empty in shape {}", x.shape());
        }
        let dims = x.shape().iter().enumerate().filter(|(i, _)| *i != axis).map(|(_, n)| *n);
        let shape: Shape = dims.collect();
        let inner: usize = x.shape()[axis + 1..].iter().product();
        let mut scratch = ctx.scratch();
        let mut places = scratch.part(shape.n_elements())?;
        let rows = ArgRows { n, inner, places: &mut places };
        match x.dtype() {
            DType::F16 => self.seek(&wide::<f16>(x, &mut scratch)?, rows, scratch),
            DType::BF16 => self.seek(&wide::<bf16>(x, &mut scratch)?, rows, scratch),
            DType::Bool => self.seek::<u8>(x.as_slice(), rows, scratch),
            dtype => for_number!(dtype, T => self.seek::<T>(x.as_slice(), rows, scratch)),
        }?;
        let mut out = ctx.output(0, self.dtype, &shape)?;
        for_integer!(self.dtype, T => {
            let out = out.as_mut_slice::<T>().iter_mut();
            out.zip(places.iter()).for_each(|(out, place)| *out = *place as T);
        });
        Ok(())
    }

    fn scratch_bytes(&self, inputs: &[Spec], outputs: &[Spec]) -> usize {
        let (Some(x), Some(out)) = (inputs[0].shape(), outputs[0].shape()) else { return 0 };
        let is_half = matches!(inputs[0].dtype, DType::F16 | DType::BF16);
        let wide = if is_half { Scratch::bytes_of::<f32>(x.n_elements()) } else { 0 };
        let Some(&[axis]) = inputs[1].ints().as_deref() else { return 0 };
        let Ok(axis) = checked_axis(axis, x.rank()) else { return 0 };
        let inner: usize = x[axis + 1..].iter().product();
        let best = inner * inputs[0].dtype.size().max(4);
        let best = if inner == 1 { 0 } else { Scratch::bytes_of::<u8>(best) };
        Scratch::bytes_of::<usize>(out.n_elements()) + wide + best
    }
}

/// The rows around an axis.
struct ArgRows<'a> {
    /// The elements along the axis, and those inside of it.
    n: usize,
    inner: usize,
    /// The place of the best element of each row.
    places: &'a mut [usize],
}

impl Arg {
    fn seek<T: Element + PartialOrd>(
        &self,
        x: &[T],
        rows: ArgRows<'_>,
        mut scratch: Scratch<'_>,
    ) -> Result<()> {
        if rows.places.is_empty() {
            return Ok(());
        }
        let mut best = scratch.part(if rows.inner == 1 { 0 } else { rows.inner })?;
        match self.seeks {
            Seeks::Largest => seek(x, rows, &mut best, |a, b| a > b),
            Seeks::Smallest => seek(x, rows, &mut best, |a, b| a < b),
        }
        Ok(())
    }
}

/// For each of the rows around the axis, writes the first place of the best element to `places`.
/// NaN is never better, and anything is better than it. `best` has room for `inner` elements.
fn seek<T: Copy + PartialOrd>(
    x: &[T],
    ArgRows { n, inner, places }: ArgRows<'_>,
    best: &mut [T],
    better: impl Fn(T, T) -> bool,
) {
    let improves = |new: T, old: T| better(new, old) || (is_nan(old) && !is_nan(new));
    if inner == 1 {
        for (row, place) in x.chunks_exact(n).zip(places) {
            if is_stopped(n) {
                return;
            }
            let mut best = row[0];
            *place = 0;
            for (i, x) in row.iter().enumerate().skip(1) {
                if improves(*x, best) {
                    (best, *place) = (*x, i);
                }
            }
        }
        return;
    }
    for (x, places) in x.chunks_exact(n * inner).zip(places.chunks_exact_mut(inner)) {
        places.fill(0);
        best.copy_from_slice(&x[..inner]);
        for (i, row) in x.chunks_exact(inner).enumerate().skip(1) {
            if is_stopped(2 * inner) {
                return;
            }
            for ((x, best), place) in row.iter().zip(&mut *best).zip(&mut *places) {
                if improves(*x, *best) {
                    (*best, *place) = (*x, i);
                }
            }
        }
    }
}

#[expect(clippy::eq_op, reason = "only NaN is not itself")]
fn is_nan<T: Copy + PartialOrd>(x: T) -> bool {
    x != x
}

fn wide<'a, T: Narrow>(x: View<'_>, scratch: &mut Scratch<'a>) -> Result<Part<'a, f32>> {
    let mut wide = scratch.part(x.n_elements())?;
    T::widen(x.as_slice(), &mut wide);
    Ok(wide)
}

/// The value of an axis input of any integer dtype.
pub(super) fn axis_value(axis: View<'_>) -> Result<i64> {
    if axis.n_elements() != 1 {
        return invalid!("the axis must be a scalar but has shape {}", axis.shape());
    }
    for_integer!(axis.dtype(), T => Ok(axis.as_slice::<T>()[0] as i64))
}

fn checked_axis(axis: i64, rank: usize) -> Result<usize> {
    normalise_axis(axis, rank).map_err(|_| {
        let low = -(rank as i64);
        Error::InvalidArgument(format!(
            "Expected dimension in the range [{low}, {rank}), but got {axis}"
        ))
    })
}
