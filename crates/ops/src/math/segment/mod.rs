//! Reductions of rows by segment: sorted, unsorted and through indices.

mod complex;
mod sorted;
mod sparse;
mod unsorted;

use half::{bf16, f16};

use super::reduce::Real;
use super::reduce::fold::{Add, Join, Larger, Multiply, Smaller, join_rows};
use crate::prelude::*;

/// The rows.
pub(super) const OPS: &[OpDef] = &[
    OpDef::pure("SegmentSum", |_| sorted::build(Way::Sum)),
    OpDef::pure("SegmentMean", |_| sorted::build(Way::Mean)),
    OpDef::pure("SegmentProd", |_| sorted::build(Way::Product)),
    OpDef::pure("SegmentMax", |_| sorted::build(Way::Largest)),
    OpDef::pure("SegmentMin", |_| sorted::build(Way::Smallest)),
    OpDef::pure("UnsortedSegmentSum", |_| unsorted::build(Way::Sum)),
    OpDef::pure("UnsortedSegmentProd", |_| unsorted::build(Way::Product)),
    OpDef::pure("UnsortedSegmentMax", |_| unsorted::build(Way::Largest)),
    OpDef::pure("UnsortedSegmentMin", |_| unsorted::build(Way::Smallest)),
    OpDef::pure("SparseSegmentSum", |_| sparse::build(Way::Sum)),
    OpDef::pure("SparseSegmentMean", |_| sparse::build(Way::Mean)),
    OpDef::pure("SparseSegmentSqrtN", |_| sparse::build(Way::SqrtN)),
    OpDef::pure("SparseSegmentSumWithNumSegments", |_| sparse::build_with_n(Way::Sum)),
    OpDef::pure("SparseSegmentMeanWithNumSegments", |_| sparse::build_with_n(Way::Mean)),
    OpDef::pure("SparseSegmentSqrtNWithNumSegments", |_| sparse::build_with_n(Way::SqrtN)),
];

/// What becomes of the rows of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Sum,
    /// The sum over the number of rows.
    Mean,
    /// The sum over the square root of the number of rows.
    SqrtN,
    Product,
    Largest,
    Smallest,
}

/// What the rows of a segment without any are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Empty {
    /// 1 for a product, else 0.
    Zero,
    /// What changes nothing: the lowest number for the largest, and so on.
    Neutral,
}

/// Which row of the input goes to which segment, in the order they are joined.
struct Plan {
    /// Pairs of row and segment.
    rows: Vec<(usize, usize)>,
    n_segments: usize,
    /// The elements of a row.
    width: usize,
    empty: Empty,
}

impl Plan {
    /// Reduces the first input to the output of `shape`.
    fn run(&self, ctx: &mut Ctx<'_>, way: Way, shape: &Shape) -> Result<()> {
        let x = ctx.input(0);
        let mut out = ctx.output(0, x.dtype(), shape)?;
        match x.dtype() {
            DType::Complex64 => {
                return complex::reduce::<f32>(self, way, x.as_slice(), out.as_mut_slice());
            }
            DType::Complex128 => {
                return complex::reduce::<f64>(self, way, x.as_slice(), out.as_mut_slice());
            }
            _ => {}
        }
        for_number!(x.dtype(), T => {
            self.reduce::<T>(way, x.as_slice(), out.as_mut_slice());
        });
        Ok(())
    }

    fn reduce<T: Segmented>(&self, way: Way, x: &[T], out: &mut [T])
    where
        Add: Join<T::Sum>,
        Multiply: Join<T::Sum>,
        Larger: Join<T::Sum>,
        Smaller: Join<T::Sum>,
    {
        let (empty, neutral) = (T::empty(way), T::neutral(way));
        let empty = if self.empty == Empty::Zero { empty } else { neutral };
        match way {
            Way::Sum => self.join::<T, Add>(x, out, empty, |sum, _| sum),
            Way::Mean => self.join::<T, Add>(x, out, empty, T::divide),
            Way::SqrtN => self.join::<T, Add>(x, out, empty, T::divide_by_root),
            Way::Product => self.join::<T, Multiply>(x, out, empty, |product, _| product),
            Way::Largest => self.join::<T, Larger>(x, out, empty, |max, _| max),
            Way::Smallest => self.join::<T, Smaller>(x, out, empty, |min, _| min),
        }
    }

    fn join<T: Segmented, J: Join<T::Sum>>(
        &self,
        x: &[T],
        out: &mut [T],
        empty: T,
        finish: fn(T::Sum, usize) -> T::Sum,
    ) {
        let width = self.width;
        if width == 0 {
            return;
        }
        // TensorFlow starts with the value of an empty segment, which is finite.
        let start = if self.empty == Empty::Zero { J::NEUTRAL } else { empty.widen() };
        let mut sums = vec![start; self.n_segments * width];
        let mut counts = vec![0usize; self.n_segments];
        for (row, segment) in &self.rows {
            let sums = &mut sums[segment * width..(segment + 1) * width];
            join_rows::<T, J>(&x[row * width..(row + 1) * width], sums);
            counts[*segment] += 1;
        }
        let segments = out.chunks_exact_mut(width).zip(sums.chunks_exact(width));
        for ((out, sums), count) in segments.zip(counts) {
            if count == 0 {
                out.fill(empty);
                continue;
            }
            out.iter_mut().zip(sums).for_each(|(out, sum)| *out = T::round(finish(*sum, count)));
        }
    }
}

/// A number whose rows are reduced by segment.
trait Segmented: Real {
    fn divide_by_root(sum: Self::Sum, n: usize) -> Self::Sum;
    fn empty(way: Way) -> Self;
    fn neutral(way: Way) -> Self;
}

macro_rules! segmented {
    ($($type:ty: $zero:expr, $one:expr, |$sum:ident, $n:ident| $root:expr;)*) => {$(
        impl Segmented for $type {
            fn divide_by_root($sum: Self::Sum, $n: usize) -> Self::Sum { $root }

            fn empty(way: Way) -> Self {
                if way == Way::Product { $one } else { $zero }
            }

            fn neutral(way: Way) -> Self {
                match way {
                    Way::Largest => <$type>::MIN,
                    Way::Smallest => <$type>::MAX,
                    Way::Product => $one,
                    Way::Sum | Way::Mean | Way::SqrtN => $zero,
                }
            }
        }
    )*};
}

segmented! {
    f32: 0.0, 1.0, |sum, n| sum / (n as f32).sqrt();
    f64: 0.0, 1.0, |sum, n| sum / (n as f64).sqrt();
    f16: Self::ZERO, Self::ONE, |sum, n| sum / (n as f32).sqrt();
    bf16: Self::ZERO, Self::ONE, |sum, n| sum / (n as f32).sqrt();
    i8: 0, 1, |sum, _n| sum;
    i16: 0, 1, |sum, _n| sum;
    i32: 0, 1, |sum, _n| sum;
    i64: 0, 1, |sum, _n| sum;
    u8: 0, 1, |sum, _n| sum;
    u16: 0, 1, |sum, _n| sum;
    u32: 0, 1, |sum, _n| sum;
    u64: 0, 1, |sum, _n| sum;
}

/// The segments of rows that come in order: their ids never fall. Fails if they do, or start below
/// zero. The texts are those of `segment_reduction_ops_impl.h`.
fn sorted_ids(ids: View<'_>) -> Result<Vec<usize>> {
    let Some(ids) = ids.to_i64() else {
        return invalid!("segment ids are of dtype {}, not int32 or int64", ids.dtype());
    };
    if ids.windows(2).any(|pair| pair[0] > pair[1]) {
        return invalid!("segment ids are not increasing");
    }
    let ids = ids.iter().map(|id| usize::try_from(*id));
    ids.collect::<std::result::Result<_, _>>()
        .map_err(|_| Error::InvalidArgument("segment ids must be >= 0".to_owned()))
}

/// The shape of `n` segments of rows of this shape. Fails if that is more than memory holds.
fn segments_shape(n: usize, row: &[usize]) -> Result<Shape> {
    let dims = std::iter::once(n).chain(row.iter().copied());
    Ok(Shape::checked(dims.map(|dim| i64::try_from(dim).unwrap_or(i64::MAX)))?)
}

/// The spec of segments of rows, of which `n` are given, or as many as sorted `ids` have.
fn segments_spec(data: &Spec, skip: usize, n: Option<Dim>) -> Spec {
    let Some(dims) = data.dims() else { return Spec::unknown(data.dtype) };
    let rest = dims.iter().skip(skip).cloned();
    Spec::new(data.dtype, std::iter::once(n.unwrap_or(Dim::Unknown)).chain(rest))
}

/// The value of a scalar that numbers segments.
fn n_segments(n: View<'_>) -> Result<usize> {
    let value = n.to_i64().filter(|values| values.len() == 1).map(|values| values[0]);
    match value.map(usize::try_from) {
        Some(Ok(n)) => Ok(n),
        Some(Err(_)) => invalid!("num_segments must be >= 0"),
        None => invalid!("num_segments should be a scalar but has shape {}", n.shape()),
    }
}

/// The number of segments that a spec says, if it does.
fn n_segments_dim(n: &Spec) -> Result<Option<Dim>> {
    n.require_rank(0)?;
    match n.sizes().and_then(|sizes| sizes.first().cloned()) {
        Some(Dim::Known(n)) if n < 0 => invalid!("num_segments must be >= 0"),
        dim => Ok(dim),
    }
}
