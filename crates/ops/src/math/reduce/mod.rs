//! Reductions along axes: `Sum`, `Mean`, `Prod`, `Max`, `Min`, `All`, `Any`.

mod axes;
pub(super) mod fold;

use half::{bf16, f16};
use num_complex::Complex;
use smallvec::SmallVec;

use axes::Runs;
use fold::{Add, Both, Either, Join, Larger, Multiply, Smaller, Term, fold};

use crate::error::unsupported;
use crate::prelude::*;

/// The rows.
pub(super) const OPS: &[OpDef] = &[
    OpDef::pure("Sum", RowRule::Along { value: 0, axes: 1 }, |attrs| build(attrs, ReduceWay::Sum)),
    OpDef::pure("Mean", RowRule::Along { value: 0, axes: 1 }, |attrs| {
        build(attrs, ReduceWay::Mean)
    }),
    OpDef::pure("Prod", RowRule::Along { value: 0, axes: 1 }, |attrs| {
        build(attrs, ReduceWay::Product)
    }),
    OpDef::pure("Max", RowRule::Along { value: 0, axes: 1 }, |attrs| {
        build(attrs, ReduceWay::Largest)
    }),
    OpDef::pure("Min", RowRule::Along { value: 0, axes: 1 }, |attrs| {
        build(attrs, ReduceWay::Smallest)
    }),
    OpDef::pure("EuclideanNorm", RowRule::Mixed, |attrs| build(attrs, ReduceWay::Norm)),
    OpDef::pure("All", RowRule::Along { value: 0, axes: 1 }, |attrs| build(attrs, ReduceWay::All)),
    OpDef::pure("Any", RowRule::Along { value: 0, axes: 1 }, |attrs| build(attrs, ReduceWay::Any)),
];

/// The reduction of the elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReduceWay {
    Sum,
    Mean,
    Product,
    Largest,
    Smallest,
    /// The root of the sum of squares.
    Norm,
    All,
    Any,
}

struct Reduce {
    way: ReduceWay,
    keep_dims: bool,
}

fn build(attrs: &Attrs<'_>, way: ReduceWay) -> Result<Box<dyn Op>> {
    Ok(Box::new(Reduce { way, keep_dims: attrs.bool_or("keep_dims", false)? }))
}

impl Op for Reduce {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [x, axes] = arity(inputs)?;
        let Some(dims) = x.dims() else { return Ok(vec![Spec::unknown(x.dtype)]) };
        let Some(list) = axes.ints() else {
            let rank = if self.keep_dims { Some(dims.len()) } else { None };
            let dims = rank.map(|rank| (0..rank).map(|_| Dim::Unknown).collect());
            return Ok(vec![Spec { dims, ..Spec::unknown(x.dtype) }]);
        };
        let flags = axes::flags(&list, dims.len())?;
        let one = Dim::Known(1);
        let spec = Spec::new(x.dtype, axes::kept(dims, &flags, self.keep_dims.then_some(&one)));
        Ok(vec![match self.size(x, &flags) {
            Some(size) => spec.with_sizes([size]),
            None => spec,
        }])
    }

    fn scratch_bytes(&self, inputs: &[Spec], outputs: &[Spec]) -> usize {
        // Squares and their sums; those of 16-bit floats are wider.
        let bytes = |spec: &Spec| {
            let n = spec.shape().map_or(0, |shape| shape.n_elements());
            Scratch::bytes_of::<u8>(n * spec.dtype.size().max(4))
        };
        if self.way == ReduceWay::Norm { bytes(&inputs[0]) + bytes(&outputs[0]) } else { 0 }
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (x, axes) = (ctx.input(0), ctx.input(1));
        if !matches!(axes.dtype(), DType::I32 | DType::I64) {
            return invalid!("axes are of dtype {}, not int32 or int64", axes.dtype());
        }
        let flags = axes::flags(&ints(&axes)?, x.shape().rank())?;
        let shape: Shape =
            axes::kept(x.shape(), &flags, self.keep_dims.then_some(&1)).into_iter().collect();
        if matches!(self.way, ReduceWay::All | ReduceWay::Any) {
            if x.dtype() != DType::Bool {
                return invalid!("expected dtype bool but got {}", x.dtype());
            }
            return match self.way {
                ReduceWay::All => run::<u8, Both>(ctx, &flags, &shape, |all, _| all),
                _ => run::<u8, Either>(ctx, &flags, &shape, |any, _| any),
            };
        }
        match x.dtype() {
            DType::Complex64 => self.complex::<f32>(ctx, &flags, &shape),
            DType::Complex128 => self.complex::<f64>(ctx, &flags, &shape),
            dtype => for_number!(dtype, T => self.real::<T>(ctx, &flags, &shape)),
        }
    }
}

impl Reduce {
    /// The one size that comes of a vector of sizes.
    fn size(&self, x: &Spec, flags: &[bool]) -> Option<Dim> {
        let op: fn(&Dim, &Dim) -> Dim = match self.way {
            ReduceWay::Product => Dim::times,
            ReduceWay::Sum => Dim::plus,
            _ => return None,
        };
        let sizes = x.sizes().filter(|_| flags == [true] && x.dtype.is_integer())?;
        let neutral = Dim::Known(i64::from(self.way == ReduceWay::Product));
        let size = sizes.iter().fold(neutral, |size, dim| op(&size, dim));
        // A number that does not fit has wrapped around.
        let fits = x.dtype == DType::I64 || size.known().is_none_or(|n| i32::try_from(n).is_ok());
        fits.then_some(size)
    }

    fn real<T: Real>(&self, ctx: &mut Ctx<'_>, flags: &[bool], shape: &Shape) -> Result<()>
    where
        T::Sum: Term<Sum = T::Sum>,
        Add: Join<T::Sum>,
        Multiply: Join<T::Sum>,
        Larger: Join<T::Sum>,
        Smaller: Join<T::Sum>,
    {
        match self.way {
            ReduceWay::Sum => run::<T, Add>(ctx, flags, shape, |sum, _| sum),
            ReduceWay::Mean => run::<T, Add>(ctx, flags, shape, T::divide),
            ReduceWay::Product => run::<T, Multiply>(ctx, flags, shape, |product, _| product),
            ReduceWay::Largest => run::<T, Larger>(ctx, flags, shape, |max, _| max),
            ReduceWay::Smallest => run::<T, Smaller>(ctx, flags, shape, |min, _| min),
            ReduceWay::Norm => norm::<T>(ctx, flags, shape, T::square, T::root),
            ReduceWay::All | ReduceWay::Any => unsupported!("{:?} of {}", self.way, T::DTYPE),
        }
    }

    fn complex<F>(&self, ctx: &mut Ctx<'_>, flags: &[bool], shape: &Shape) -> Result<()>
    where
        F: num_traits::Float,
        Complex<F>: Term<Sum = Complex<F>>,
        Add: Join<Complex<F>>,
        Multiply: Join<Complex<F>>,
    {
        let divide = |sum: Complex<F>, n: usize| sum / F::from(n).unwrap_or_else(F::nan);
        match self.way {
            ReduceWay::Sum => run::<Complex<F>, Add>(ctx, flags, shape, |sum, _| sum),
            ReduceWay::Mean => run::<Complex<F>, Add>(ctx, flags, shape, divide),
            ReduceWay::Product => {
                run::<Complex<F>, Multiply>(ctx, flags, shape, |product, _| product)
            }
            ReduceWay::Norm => norm::<Complex<F>>(
                ctx,
                flags,
                shape,
                // The imaginary part is 0 but for infinity, where it is NaN.
                |x| x * x.conj(),
                |x| Complex::new(x.re.sqrt(), x.im),
            ),
            way => unsupported!("{way:?} of complex numbers"),
        }
    }
}

/// A number that has a mean.
pub(super) trait Real: Term {
    /// The sum over `n`, rounded towards zero if it is an integer.
    fn divide(sum: Self::Sum, n: usize) -> Self::Sum;
    /// The square.
    fn square(x: Self::Sum) -> Self::Sum;
    /// The square root, rounded towards zero if it is an integer.
    fn root(x: Self::Sum) -> Self::Sum;
}

macro_rules! real {
    ($($type:ty)* => |$sum:ident, $n:ident| $body:expr) => {$(
        impl Real for $type {
            fn divide($sum: Self::Sum, $n: usize) -> Self::Sum { $body }
            fn square(x: Self::Sum) -> Self::Sum { <Multiply as Join<Self::Sum>>::join(x, x) }
            fn root(x: Self::Sum) -> Self::Sum { (x as f64).sqrt() as Self::Sum }
        }
    )*};
}

real!(f32 f16 bf16 => |sum, n| sum / n as f32);
real!(f64 => |sum, n| sum / n as f64);

macro_rules! real_integers {
    ($($type:ident)*) => { $(real!($type => |sum, n| match n as $type {
        0 => 0,
        n => sum.wrapping_div(n),
    });)* };
}

real_integers! { i8 i16 i32 i64 u8 u16 u32 u64 }

/// Elements that a thread reduces at a time.
const GRAIN: usize = 1 << 15;

/// Reduces the input to the output of `shape`; `finish` is given each sum and its number of terms.
fn run<T: Term, J: Join<T::Sum>>(
    ctx: &mut Ctx<'_>,
    flags: &[bool],
    shape: &Shape,
    finish: impl Fn(T::Sum, usize) -> T::Sum + Sync,
) -> Result<()> {
    let pool = ctx.env().pool;
    let input = ctx.input(0);
    let x: &[T] = input.as_slice();
    let mut out = ctx.output(0, input.dtype(), shape)?;
    let out: &mut [T] = out.as_mut_slice();
    let n_terms = input.shape().iter().zip(flags).filter(|(_, f)| **f).map(|(n, _)| n).product();
    if x.is_empty() {
        out.fill(T::round(finish(J::NEUTRAL, n_terms)));
        return Ok(());
    }
    let (n_parts, runs) = Runs::new(input.shape(), flags).independent();
    let (part_in, part_out) = (x.len() / n_parts, out.len() / n_parts);
    let n_parts_each = (GRAIN / part_in).max(1);
    in_pieces(pool, out, n_parts_each * part_out, |at, out| {
        let x = &x[at / part_out * part_in..];
        for (x, out) in x.chunks(part_in).zip(out.chunks_mut(part_out)) {
            // Sums that are elements are made where they go.
            if let Some(sums) = T::sums_in(out) {
                fold::<T, J>(&runs, x, sums);
                sums.iter_mut().for_each(|sum| *sum = finish(*sum, n_terms));
                continue;
            }
            let mut sums: SmallVec<[T::Sum; 16]> = SmallVec::from_elem(J::NEUTRAL, part_out);
            fold::<T, J>(&runs, x, &mut sums);
            out.iter_mut().zip(&sums).for_each(|(out, sum)| *out = T::round(finish(*sum, n_terms)));
        }
    });
    Ok(())
}

/// The roots of sums of squares.
fn norm<T: Term>(
    ctx: &mut Ctx<'_>,
    flags: &[bool],
    shape: &Shape,
    square: impl Fn(T::Sum) -> T::Sum,
    root: impl Fn(T::Sum) -> T::Sum,
) -> Result<()>
where
    T::Sum: Term<Sum = T::Sum>,
    Add: Join<T::Sum>,
{
    let input = ctx.input(0);
    let x: &[T] = input.as_slice();
    let mut scratch = ctx.scratch();
    let (mut squares, mut sums) = (scratch.part(x.len())?, scratch.part(shape.n_elements())?);
    squares.iter_mut().zip(x).for_each(|(to, x)| *to = square(x.widen()));
    sums.fill(Add::NEUTRAL);
    fold::<T::Sum, Add>(&Runs::new(input.shape(), flags), &squares, &mut sums);
    let mut out = ctx.output(0, input.dtype(), shape)?;
    let out = out.as_mut_slice::<T>().iter_mut();
    out.zip(sums.iter()).for_each(|(out, sum)| *out = T::round(root(*sum)));
    Ok(())
}

#[cfg(test)]
mod tests {
    use tensor::Symbol;

    use super::*;

    #[test]
    fn the_product_of_a_shape_is_its_number_of_elements() {
        let n = Dim::symbol(Symbol(0));
        let sizes = [n.clone(), Dim::Known(7), Dim::Known(2)];
        let shape = Spec::new(DType::I64, [Dim::Known(3)]).with_sizes(sizes);
        let axes = Spec::constant(Tensor::vector(&[0i32]).unwrap());
        let op = Reduce { way: ReduceWay::Product, keep_dims: false };
        let product = op.infer(&[shape, axes]).unwrap().remove(0);
        assert_eq!(product.rank(), Some(0));
        assert_eq!(product.sizes(), Some(vec![n.times(&Dim::Known(14))]));
    }

    #[test]
    fn axes_that_are_not_known_leave_the_rank_open() {
        let x = Spec::new(DType::F32, [Dim::Known(2), Dim::Unknown]);
        let axes = Spec::new(DType::I32, [Dim::Unknown]);
        let rank = |keep_dims| {
            let op = Reduce { way: ReduceWay::Sum, keep_dims };
            op.infer(&[x.clone(), axes.clone()]).unwrap()[0].rank()
        };
        assert_eq!([rank(false), rank(true)], [None, Some(2)]);
    }
}
