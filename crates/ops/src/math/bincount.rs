//! `Bincount` and `DenseBincount`: how often each number occurs, or the sum of its weights.

use crate::error::unsupported;
use crate::prelude::*;

pub(super) const BINCOUNT: OpDef =
    OpDef::pure("Bincount", RowRule::Mixed, |_| Ok(Box::new(Bincount)));
pub(super) const DENSE_BINCOUNT: OpDef = OpDef::pure("DenseBincount", RowRule::Mixed, |attrs| {
    Ok(Box::new(DenseBincount { binary: attrs.bool_or("binary_output", false)? }))
});

/// Of a tensor of any shape.
struct Bincount;

/// Of a vector, or of each row of a matrix.
struct DenseBincount {
    /// `true` if a bin only says that a number occurs.
    binary: bool,
}

impl Op for Bincount {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [_, size, weights] = arity(inputs)?;
        Ok(vec![Spec::new(weights.dtype, [size_dim(size)?])])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let n = ctx.input(0).n_elements();
        Counting { n_rows: 1, width: n, binary: false }.run(ctx, |size| Shape::checked([size]))
    }
}

impl Op for DenseBincount {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [x, size, weights] = arity(inputs)?;
        let size = size_dim(size)?;
        let dims = match x.dims() {
            None => return Ok(vec![Spec::unknown(weights.dtype)]),
            Some([] | [_]) => vec![size],
            Some([n, _]) => vec![n.clone(), size],
            Some(_) => return invalid!("Shape must be at most rank 2 but is {x}"),
        };
        Ok(vec![Spec::new(weights.dtype, dims)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (binary, x, weights) = (self.binary, ctx.input(0), ctx.input(2));
        if weights.n_elements() != 0 && weights.shape() != x.shape() {
            return invalid!(
                "`weights` must be the same shape as `arr` or a length-0 `Tensor`, got {} and {}",
                weights.shape(),
                x.shape()
            );
        }
        match *ctx.input(0).shape().dims() {
            [] => Counting { n_rows: 1, width: 1, binary }.run(ctx, |size| Shape::checked([size])),
            [n] => Counting { n_rows: 1, width: n, binary }.run(ctx, |size| Shape::checked([size])),
            [n, width] => Counting { n_rows: n, width, binary }
                .run(ctx, |size| Shape::checked([n as i64, size])),
            _ => invalid!("Shape must be at most rank 2 but is {}", ctx.input(0).shape()),
        }
    }
}

/// The settings by which the input is counted.
#[derive(Clone, Copy)]
struct Counting {
    n_rows: usize,
    width: usize,
    binary: bool,
}

impl Counting {
    fn run(self, ctx: &mut Ctx<'_>, shape: impl Fn(i64) -> tensor::Result<Shape>) -> Result<()> {
        match ctx.input(0).dtype() {
            DType::I32 => self.run_as::<i32>(ctx, shape),
            DType::I64 => self.run_as::<i64>(ctx, shape),
            other => invalid!("expected dtype int32 or int64 but got {other}"),
        }
    }

    fn run_as<N: Element + Into<i64>>(
        self,
        ctx: &mut Ctx<'_>,
        shape: impl Fn(i64) -> tensor::Result<Shape>,
    ) -> Result<()> {
        let (x, size, weights) = (ctx.input(0), ctx.input(1), ctx.input(2));
        let size = match int(&size) {
            Ok(size) if size < 0 => return invalid!("size ({size}) must be non-negative"),
            Ok(size) => size,
            Err(_) => {
                return invalid!("size must be a scalar integer but has shape {}", size.shape());
            }
        };
        let numbers: &[N] = x.as_slice();
        if numbers.iter().any(|number| (*number).into() < 0) {
            return invalid!("Input arr must be non-negative!");
        }
        if weights.n_elements() != 0 && weights.n_elements() != x.n_elements() {
            return invalid!(
                "`weights` must be the same shape as `arr` or a length-0 `Tensor`, got {} and {}",
                weights.shape(),
                x.shape()
            );
        }
        let mut out = ctx.output(0, weights.dtype(), &shape(size)?)?;
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        match weights.dtype() {
            DType::F32 => self.count::<N, f32>(numbers, weights, out.as_mut_slice(), size),
            DType::F64 => self.count::<N, f64>(numbers, weights, out.as_mut_slice(), size),
            DType::I32 => self.count::<N, i32>(numbers, weights, out.as_mut_slice(), size),
            DType::I64 => self.count::<N, i64>(numbers, weights, out.as_mut_slice(), size),
            other => return unsupported!("dtype {other} is not supported here"),
        }
        Ok(())
    }

    /// Adds up the weights, or ones, of each row's numbers below `size`.
    fn count<N: Copy + Into<i64>, T: BincountWeight>(
        self,
        numbers: &[N],
        weights: View<'_>,
        bins: &mut [T],
        size: usize,
    ) {
        let weights: &[T] = weights.as_slice();
        bins.fill(T::zeroed());
        if size == 0 || self.width == 0 {
            return;
        }
        for (row, numbers) in numbers.chunks(self.width).enumerate().take(self.n_rows) {
            let bins = &mut bins[row * size..(row + 1) * size];
            if is_stopped(4 * self.width) {
                return;
            }
            for (column, number) in numbers.iter().enumerate() {
                let number = usize::try_from((*number).into()).ok();
                let Some(bin) = number.and_then(|number| bins.get_mut(number)) else { continue };
                let weight = weights.get(row * self.width + column);
                *bin = match weight {
                    _ if self.binary => T::ONE,
                    Some(weight) => bin.plus(*weight),
                    None => bin.plus(T::ONE),
                };
            }
        }
    }
}

/// A number that is added up.
trait BincountWeight: Element {
    const ONE: Self;
    fn plus(self, other: Self) -> Self;
}

macro_rules! weights {
    ($($type:ident: $one:literal, |$a:ident, $b:ident| $sum:expr;)*) => {$(
        impl BincountWeight for $type {
            const ONE: Self = $one;
            fn plus(self, other: Self) -> Self {
                let ($a, $b) = (self, other);
                $sum
            }
        }
    )*};
}

weights! {
    f32: 1.0, |a, b| a + b;
    f64: 1.0, |a, b| a + b;
    i32: 1, |a, b| a.wrapping_add(b);
    i64: 1, |a, b| a.wrapping_add(b);
}

/// The number of bins, if it is known.
fn size_dim(size: &Spec) -> Result<Dim> {
    size.require_rank(0)?;
    match size.sizes().and_then(|sizes| sizes.first().cloned()) {
        Some(Dim::Known(size)) if size < 0 => invalid!("size ({size}) must be non-negative"),
        dim => Ok(dim.unwrap_or(Dim::Unknown)),
    }
}
