//! The engine of binary ops: a kernel on slices, called with the parts that broadcasting pairs.

use std::marker::PhantomData;

use half::{bf16, f16};
use kernels::{Loop, Madd, widest};

use super::broadcast::{Layout, Operands, Share};
use super::map::{CHEAP, lacking};
use super::strings;
use super::table::{BLOCK, Column, Family, Narrow, Table, for_column};
use crate::infer::broadcast_sizes;
use crate::prelude::*;

/// A function of two elements.
pub(super) trait Two<T, U> {
    /// Its value; products are added to by `M`.
    fn of<M: Madd>(x: T, y: T) -> U;
}

/// Two slices to a third.
pub(super) struct Binary;

impl Family for Binary {
    type Kernel<T: 'static> = fn(&[T], &[T], &mut [T]);
}

/// Two slices to bools.
pub(super) struct Comparison;

impl Family for Comparison {
    type Kernel<T: 'static> = fn(&[T], &[T], &mut [u8]);
}

/// A binary op: its row of kernels and what else there is to know.
pub(super) struct Zip {
    pub(super) kernels: &'static Table<Binary>,
    pub(super) traits: Traits,
}

/// The properties of an op besides its arithmetic.
#[derive(Clone, Copy)]
pub(super) struct Traits {
    /// The elements that a thread takes at a time.
    pub(super) grain: usize,
    /// The integer operands that are refused.
    pub(super) refuses: Refuses,
    /// The op on sizes that are not known yet.
    pub(super) sizes: Option<fn(&Dim, &Dim) -> Dim>,
}

/// Second operands that an integer kernel does not take.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Refuses {
    /// It takes all.
    Nothing,
    /// There is no quotient.
    Zero,
    /// The same, by an op for which TensorFlow has no text and says that it is its own fault.
    ZeroInternally,
    /// There is no integer power.
    Negative,
}

/// An op that compares two elements.
pub(super) struct Compare {
    pub(super) kernels: &'static Table<Comparison>,
    /// The answer for shapes that do not broadcast; `None` refuses them.
    pub(super) mismatch: Option<bool>,
    /// The comparison of strings, if it has one.
    pub(super) strings: Option<fn(&[u8], &[u8]) -> bool>,
}

/// The cheap op that takes all.
pub(super) const PLAIN: Traits = Traits { grain: CHEAP, refuses: Refuses::Nothing, sizes: None };

/// Writes `F` of each pair of `x` and `y` to `z`.
pub(super) fn zip<T: Copy, U, F: Two<T, U>>(x: &[T], y: &[T], z: &mut [U]) {
    widest(ZipRun { x, y, z, function: PhantomData::<F> });
}

struct ZipRun<'a, T, U, F> {
    x: &'a [T],
    y: &'a [T],
    z: &'a mut [U],
    function: PhantomData<F>,
}

impl<T: Copy, U, F: Two<T, U>> Loop for ZipRun<'_, T, U, F> {
    #[inline(always)]
    fn run<M: Madd>(self) {
        for (z, (x, y)) in self.z.iter_mut().zip(self.x.iter().zip(self.y)) {
            *z = F::of::<M>(*x, *y);
        }
    }
}

impl Op for Zip {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [a, b] = arity(inputs)?;
        same_dtypes(a, b)?;
        let dims = broadcast(a, b)?;
        let spec = Spec { dims, ..Spec::unknown(a.dtype) };
        Ok(vec![match self.traits.sizes.and_then(|op| sizes(op, a, b)) {
            Some(sizes) => spec.with_sizes(sizes),
            None => spec,
        }])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let b = ctx.input(1);
        let dtype = b.dtype();
        let (table, traits) = (self.kernels, &self.traits);
        if dtype.is_integer() && traits.refuses != Refuses::Nothing && out_elements(ctx)? > 0 {
            for_integer!(dtype, T => traits.refuses.check(b.as_slice::<T>())?);
        }
        match dtype {
            DType::String => strings::add(ctx),
            DType::F16 => run::<f16, f16>(ctx, dtype, traits.grain, half(table.f32, dtype)?),
            DType::BF16 => run::<bf16, bf16>(ctx, dtype, traits.grain, half(table.f32, dtype)?),
            _ => for_column!(dtype, T => {
                let kernel = <T as Column>::of(table).ok_or_else(|| lacking(dtype))?;
                run::<T, T>(ctx, dtype, traits.grain, kernel)
            }),
        }
    }

    fn in_place(&self) -> Option<usize> {
        Some(0)
    }
}

impl Op for Compare {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [a, b] = arity(inputs)?;
        same_dtypes(a, b)?;
        let dims = match (broadcast(a, b), self.mismatch) {
            (Err(_), Some(_)) => Some([].into_iter().collect()),
            // Unknown dimensions may yet turn out not to match.
            (Ok(_), Some(_)) if a.shape().is_none() || b.shape().is_none() => None,
            (dims, _) => dims?,
        };
        Ok(vec![Spec { dims, ..Spec::unknown(DType::Bool) }])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (a, b) = (ctx.input(0), ctx.input(1));
        let fits = broadcast_sizes(a.shape(), b.shape()).is_some();
        if let Some(answer) = self.mismatch.filter(|_| !fits) {
            ctx.output(0, DType::Bool, &Shape::scalar())?.bytes().fill(u8::from(answer));
            return Ok(());
        }
        let (table, dtype) = (self.kernels, b.dtype());
        let bool = DType::Bool;
        match dtype {
            DType::String => strings::compare(ctx, self.strings.ok_or_else(|| lacking(dtype))?),
            DType::F16 => run::<f16, u8>(ctx, bool, CHEAP, compare_half(table.f32, dtype)?),
            DType::BF16 => run::<bf16, u8>(ctx, bool, CHEAP, compare_half(table.f32, dtype)?),
            _ => for_column!(self.compared_as(dtype), T => {
                let kernel = <T as Column>::of(table).ok_or_else(|| lacking(dtype))?;
                run::<T, u8>(ctx, bool, CHEAP, kernel)
            }),
        }
    }
}

impl Compare {
    /// Quantized numbers are equal where their integers are; they have no order.
    fn compared_as(&self, dtype: DType) -> DType {
        match dtype {
            _ if self.strings.is_none() => dtype,
            DType::QI8 => DType::I8,
            DType::QU8 => DType::U8,
            DType::QI16 => DType::I16,
            DType::QU16 => DType::U16,
            DType::QI32 => DType::I32,
            dtype => dtype,
        }
    }
}

impl Refuses {
    /// Fails if one of the divisors or exponents is refused.
    fn check<T: PartialOrd + bytemuck::Zeroable>(self, b: &[T]) -> Result<()> {
        let zero = T::zeroed();
        // The texts are TensorFlow's (`cwise_ops_common.cc`).
        match self {
            Self::Zero if b.contains(&zero) => invalid!("Integer division by zero"),
            Self::Negative if b.iter().any(|b| *b < zero) => {
                invalid!("Integers to negative integer powers are not allowed")
            }
            Self::ZeroInternally if b.contains(&zero) => Err(Error::Internal(
                "Unexpected error in binary operator: division by zero".to_owned(),
            )),
            Self::Nothing | Self::Zero | Self::ZeroInternally | Self::Negative => Ok(()),
        }
    }
}

/// Calls `kernel` with the two inputs, broadcast, and the output of `dtype`.
pub(super) fn run<T: Element, U: Element>(
    ctx: &mut Ctx<'_>,
    dtype: DType,
    grain: usize,
    kernel: impl Fn(&[T], &[T], &mut [U]) + Sync,
) -> Result<()> {
    let pool = ctx.env().pool;
    let b = ctx.input(1);
    if let Some(mut out) = ctx.in_place() {
        let layout = Layout::new(out.shape(), b.shape(), out.shape());
        let operands = Operands { a: None, b: b.as_slice::<T>() };
        layout.walk(Share { pool, grain }, operands, out.as_mut_slice::<U>(), kernel);
        return Ok(());
    }
    let a = ctx.input(0);
    let shape = broadcast_shapes(a.shape(), b.shape())?;
    let layout = Layout::new(a.shape(), b.shape(), &shape);
    let operands = Operands { a: Some(a.as_slice::<T>()), b: b.as_slice() };
    let mut out = ctx.output(0, dtype, &shape)?;
    layout.walk(Share { pool, grain }, operands, out.as_mut_slice::<U>(), kernel);
    Ok(())
}

/// The number of elements that the output has.
fn out_elements(ctx: &mut Ctx<'_>) -> Result<usize> {
    if let Some(out) = ctx.in_place() {
        return Ok(out.shape().n_elements());
    }
    Ok(broadcast_shapes(ctx.input(0).shape(), ctx.input(1).shape())?.n_elements())
}

fn same_dtypes(a: &Spec, b: &Spec) -> Result<()> {
    if a.dtype != b.dtype {
        return invalid!("expected inputs of one dtype but got {} and {}", a.dtype, b.dtype);
    }
    Ok(())
}

/// The sizes that come of two small tensors of sizes, if those are known.
fn sizes(op: fn(&Dim, &Dim) -> Dim, a: &Spec, b: &Spec) -> Option<Vec<Dim>> {
    let small = |spec: &Spec| spec.rank().is_some_and(|rank| rank <= 1);
    if !matches!(a.dtype, DType::I32 | DType::I64) || !small(a) || !small(b) {
        return None;
    }
    let (x, y) = (a.sizes()?, b.sizes()?);
    let n = if x.len() == 1 { y.len() } else { x.len() };
    if (x.len() != n && x.len() != 1) || (y.len() != n && y.len() != 1) {
        return None;
    }
    let at = |sizes: &[Dim], i: usize| sizes[if sizes.len() == 1 { 0 } else { i }].clone();
    // A number that does not fit has wrapped around.
    let fits =
        |dim: &Dim| a.dtype == DType::I64 || dim.known().is_none_or(|n| i32::try_from(n).is_ok());
    let dims = (0..n).map(|i| Some(op(&at(&x, i), &at(&y, i))).filter(fits));
    Some(dims.map(|dim| dim.unwrap_or(Dim::Unknown)).collect())
}

/// The kernel for 16-bit floats: that of `f32` between conversions.
pub(super) fn half<T: Narrow>(
    kernel: Option<fn(&[f32], &[f32], &mut [f32])>,
    dtype: DType,
) -> Result<impl Fn(&[T], &[T], &mut [T]) + Sync> {
    let kernel = kernel.ok_or_else(|| lacking(dtype))?;
    Ok(move |x: &[T], y: &[T], z: &mut [T]| {
        let mut result = [0f32; BLOCK];
        for_wide(x, y, z, |x, y, z| {
            let result = &mut result[..z.len()];
            kernel(x, y, result);
            T::round(result, z);
        });
    })
}

fn compare_half<T: Narrow>(
    kernel: Option<fn(&[f32], &[f32], &mut [u8])>,
    dtype: DType,
) -> Result<impl Fn(&[T], &[T], &mut [u8]) + Sync> {
    let kernel = kernel.ok_or_else(|| lacking(dtype))?;
    Ok(move |x: &[T], y: &[T], z: &mut [u8]| for_wide(x, y, z, kernel))
}

/// Calls `work` with blocks of widened operands and the block of `z` that they belong to.
fn for_wide<T: Narrow, U>(
    x: &[T],
    y: &[T],
    z: &mut [U],
    mut work: impl FnMut(&[f32], &[f32], &mut [U]),
) {
    let (mut wide_x, mut wide_y) = ([0f32; BLOCK], [0f32; BLOCK]);
    for ((x, y), z) in x.chunks(BLOCK).zip(y.chunks(BLOCK)).zip(z.chunks_mut(BLOCK)) {
        let (wide_x, wide_y) = (&mut wide_x[..x.len()], &mut wide_y[..x.len()]);
        T::widen(x, wide_x);
        T::widen(y, wide_y);
        work(wide_x, wide_y, z);
    }
}

#[cfg(test)]
mod tests {
    use tensor::Symbol;

    use super::super::OPS;
    use super::*;

    /// Returns the sizes that op `name` infers of two vectors of sizes.
    fn infer(name: &str, a: &[Dim], b: &[Dim]) -> Option<Vec<Dim>> {
        let def = OPS.iter().find(|def| def.name == name).expect("an op");
        let op = (def.build)(&Attrs::new(&Default::default())).expect("no attributes");
        let spec = |sizes: &[Dim]| {
            Spec::new(DType::I32, [Dim::of(sizes.len())]).with_sizes(sizes.to_vec())
        };
        op.infer(&[spec(a), spec(b)]).expect("shapes that broadcast")[0].sizes()
    }

    fn one(dim: &Dim) -> &[Dim] {
        std::slice::from_ref(dim)
    }

    #[test]
    fn sizes_that_are_not_known_yet_are_computed_with() {
        let n = Dim::symbol(Symbol(0));
        let [two, three] = [Dim::Known(2), Dim::Known(3)];
        let twice = n.times(&two);
        let both = [n.clone(), three.clone()];
        assert_eq!(infer("Mul", &both, one(&two)), Some(vec![twice.clone(), Dim::Known(6)]));
        assert_eq!(infer("AddV2", one(&n), one(&n)), Some(vec![twice.clone()]));
        assert_eq!(infer("Sub", one(&twice), one(&n)), Some(vec![n.clone()]));
        assert_eq!(infer("FloorDiv", &[twice], &[two]), Some(vec![n.clone()]));
        assert_eq!(infer("Maximum", one(&n), one(&n)), Some(vec![n.clone()]));
        assert_eq!(infer("Maximum", &[n], &[three]), Some(vec![Dim::Unknown]));
    }

    #[test]
    fn a_size_that_wraps_around_is_not_claimed() {
        let large = [Dim::Known(1 << 20)];
        assert_eq!(infer("Mul", &large, &large), Some(vec![Dim::Unknown]));
    }
}
