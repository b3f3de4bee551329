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
    OpDef::pure("SegmentSum", RowRule::Segments, |_| sorted::build(SegmentWay::Sum)),
    OpDef::pure("SegmentMean", RowRule::Segments, |_| sorted::build(SegmentWay::Mean)),
    OpDef::pure("SegmentProd", RowRule::Segments, |_| sorted::build(SegmentWay::Product)),
    OpDef::pure("SegmentMax", RowRule::Segments, |_| sorted::build(SegmentWay::Largest)),
    OpDef::pure("SegmentMin", RowRule::Segments, |_| sorted::build(SegmentWay::Smallest)),
    OpDef::pure("UnsortedSegmentSum", RowRule::Mixed, |_| unsorted::build(SegmentWay::Sum)),
    OpDef::pure("UnsortedSegmentProd", RowRule::Mixed, |_| unsorted::build(SegmentWay::Product)),
    OpDef::pure("UnsortedSegmentMax", RowRule::Mixed, |_| unsorted::build(SegmentWay::Largest)),
    OpDef::pure("UnsortedSegmentMin", RowRule::Mixed, |_| unsorted::build(SegmentWay::Smallest)),
    OpDef::pure("SparseSegmentSum", RowRule::SparseSegments, |_| sparse::build(SegmentWay::Sum)),
    OpDef::pure("SparseSegmentMean", RowRule::SparseSegments, |_| sparse::build(SegmentWay::Mean)),
    OpDef::pure("SparseSegmentSqrtN", RowRule::SparseSegments, |_| {
        sparse::build(SegmentWay::SqrtN)
    }),
    OpDef::pure("SparseSegmentSumWithNumSegments", RowRule::Mixed, |_| {
        sparse::build_with_n(SegmentWay::Sum)
    }),
    OpDef::pure("SparseSegmentMeanWithNumSegments", RowRule::Mixed, |_| {
        sparse::build_with_n(SegmentWay::Mean)
    }),
    OpDef::pure("SparseSegmentSqrtNWithNumSegments", RowRule::Mixed, |_| {
        sparse::build_with_n(SegmentWay::SqrtN)
    }),
];

/// The most segments, and elements of them, that ids may ask for: a single one decides.
const N_ELEMENTS_MAX: usize = 1 << 30;

/// The combination of the rows of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SegmentWay {
    Sum,
    /// The sum over the number of rows.
    Mean,
    /// The sum over the square root of the number of rows.
    SqrtN,
    Product,
    Largest,
    Smallest,
}

/// The value of the rows of a segment without any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Empty {
    /// 1 for a product, else 0.
    Zero,
    /// The value that changes nothing: the lowest number for the largest, and so on.
    Neutral,
}

/// The rows of the input for each segment, in the order they are joined.
struct SegmentPlan<'a> {
    /// Pairs of row and segment.
    rows: &'a [[usize; 2]],
    n_segments: usize,
    /// The elements of a row.
    width: usize,
    empty: Empty,
}

/// The elements that are joined, and the value of a segment without any.
#[derive(Clone, Copy)]
struct SegmentInput<'a, T> {
    x: &'a [T],
    empty: T,
}

/// The memory that joining takes: the rows of each segment, and scratch for the sums.
struct SegmentRoom<'a, 's> {
    counts: &'a mut [usize],
    scratch: Scratch<'s>,
}

impl SegmentPlan<'_> {
    /// Reduces the first input to the output of `shape`.
    fn run(
        &self,
        ctx: &mut Ctx<'_>,
        way: SegmentWay,
        shape: &Shape,
        mut scratch: Scratch<'_>,
    ) -> Result<()> {
        let x = ctx.input(0);
        let mut counts = scratch.part(self.n_segments)?;
        counts.fill(0);
        let mut out = ctx.output(0, x.dtype(), shape)?;
        match x.dtype() {
            DType::Complex64 => {
                return complex::reduce::<f32>(
                    self,
                    way,
                    x.as_slice(),
                    (&mut counts, out.as_mut_slice()),
                );
            }
            DType::Complex128 => {
                return complex::reduce::<f64>(
                    self,
                    way,
                    x.as_slice(),
                    (&mut counts, out.as_mut_slice()),
                );
            }
            _ => {}
        }
        for_number!(x.dtype(), T => {
            let room = SegmentRoom { counts: &mut counts, scratch };
            self.reduce::<T>(way, x.as_slice(), room, out.as_mut_slice())
        })
    }

    fn reduce<T: Segmented>(
        &self,
        way: SegmentWay,
        x: &[T],
        room: SegmentRoom<'_, '_>,
        out: &mut [T],
    ) -> Result<()>
    where
        Add: Join<T::Sum>,
        Multiply: Join<T::Sum>,
        Larger: Join<T::Sum>,
        Smaller: Join<T::Sum>,
    {
        let (empty, neutral) = (T::empty(way), T::neutral(way));
        let empty = if self.empty == Empty::Zero { empty } else { neutral };
        let of = SegmentInput { x, empty };
        match way {
            SegmentWay::Sum => self.join::<T, Add>(of, room, out, |sum, _| sum),
            SegmentWay::Mean => self.join::<T, Add>(of, room, out, T::divide),
            SegmentWay::SqrtN => self.join::<T, Add>(of, room, out, T::divide_by_root),
            SegmentWay::Product => self.join::<T, Multiply>(of, room, out, |product, _| product),
            SegmentWay::Largest => self.join::<T, Larger>(of, room, out, |max, _| max),
            SegmentWay::Smallest => self.join::<T, Smaller>(of, room, out, |min, _| min),
        }
    }

    fn join<T: Segmented, J: Join<T::Sum>>(
        &self,
        of: SegmentInput<'_, T>,
        room: SegmentRoom<'_, '_>,
        out: &mut [T],
        finish: fn(T::Sum, usize) -> T::Sum,
    ) -> Result<()> {
        let (SegmentInput { x, empty }, SegmentRoom { counts, mut scratch }) = (of, room);
        let width = self.width;
        if width == 0 {
            return Ok(());
        }
        // TensorFlow starts with the value of an empty segment, which is finite.
        let start = if self.empty == Empty::Zero { J::NEUTRAL } else { empty.widen() };
        let mut sums = scratch.part::<T::Sum>(self.n_segments.saturating_mul(width))?;
        sums.fill(start);
        for [row, segment] in self.rows {
            pace(width)?;
            let sums = &mut sums[segment * width..(segment + 1) * width];
            join_rows::<T, J>(&x[row * width..(row + 1) * width], sums);
            counts[*segment] += 1;
        }
        let segments = out.chunks_exact_mut(width).zip(sums.chunks_exact(width));
        for ((out, sums), count) in segments.zip(counts) {
            pace(width)?;
            if *count == 0 {
                out.fill(empty);
                continue;
            }
            out.iter_mut().zip(sums).for_each(|(out, sum)| *out = T::round(finish(*sum, *count)));
        }
        Ok(())
    }
}

/// A number whose rows are reduced by segment.
trait Segmented: Real {
    fn divide_by_root(sum: Self::Sum, n: usize) -> Self::Sum;
    fn empty(way: SegmentWay) -> Self;
    fn neutral(way: SegmentWay) -> Self;
}

macro_rules! segmented {
    ($($type:ty: $zero:expr, $one:expr, |$sum:ident, $n:ident| $root:expr;)*) => {$(
        impl Segmented for $type {
            fn divide_by_root($sum: Self::Sum, $n: usize) -> Self::Sum { $root }

            fn empty(way: SegmentWay) -> Self {
                if way == SegmentWay::Product { $one } else { $zero }
            }

            fn neutral(way: SegmentWay) -> Self {
                match way {
                    SegmentWay::Largest => <$type>::MIN,
                    SegmentWay::Smallest => <$type>::MAX,
                    SegmentWay::Product => $one,
                    SegmentWay::Sum | SegmentWay::Mean | SegmentWay::SqrtN => $zero,
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
fn sorted_ids<'a>(ids: &View<'_>, scratch: &mut Scratch<'a>) -> Result<Part<'a, usize>> {
    if !matches!(ids.dtype(), DType::I32 | DType::I64) {
        return invalid!("segment ids are of dtype {}, not int32 or int64", ids.dtype());
    }
    let n = ids.n_elements();
    for i in 1..n {
        pace(1)?;
        if int_at(ids, i - 1)? > int_at(ids, i)? {
            return invalid!("segment ids are not increasing");
        }
    }
    let mut sorted = scratch.part(n)?;
    for (i, segment) in sorted.iter_mut().enumerate() {
        let Ok(id) = usize::try_from(int_at(ids, i)?) else {
            return invalid!("segment ids must be >= 0");
        };
        *segment = id;
    }
    Ok(sorted)
}

/// The number of segments that sorted ids name.
fn n_sorted(ids: &[usize]) -> usize {
    ids.last().map_or(0, |last| last.saturating_add(1))
}

/// The same of ids that are known beforehand.
fn n_known(ids: &Spec) -> Result<Option<Dim>> {
    let Some(ids) = ids.as_constant() else { return Ok(None) };
    let ids = sorted_ids(&ids.view(), &mut Scratch::default())?;
    let n = n_sorted(&ids);
    segments_shape(n, &[])?;
    Ok(Some(Dim::of(n)))
}

/// The bytes of scratch memory for a reduction by these ids.
fn scratch_bytes(ids: &Spec, out: &Spec) -> usize {
    let (Some(ids), Some(shape)) = (ids.shape(), out.shape()) else { return 0 };
    let n = ids.n_elements();
    let counts = Scratch::bytes_of::<usize>(shape.first().copied().unwrap_or(0));
    let rows = Scratch::bytes_of::<usize>(n) + Scratch::bytes_of::<[usize; 2]>(n);
    rows + counts + Scratch::bytes_of::<u8>(shape.n_elements() * out.dtype.size().max(4))
}

/// The shape of `n` segments of rows of this shape. Fails if that is more than memory holds.
fn segments_shape(n: usize, row: &[usize]) -> Result<Shape> {
    let dims = std::iter::once(n).chain(row.iter().copied());
    let shape = Shape::checked(dims.map(|dim| i64::try_from(dim).unwrap_or(i64::MAX)))?;
    if n.max(shape.n_elements()) > N_ELEMENTS_MAX {
        let text = format!("segments of shape {shape} are more than {N_ELEMENTS_MAX} elements");
        return Err(Error::ResourceExhausted(text));
    }
    Ok(shape)
}

/// The spec of segments of rows, of which `n` are given, or as many as sorted `ids` have.
fn segments_spec(data: &Spec, skip: usize, n: Option<Dim>) -> Spec {
    let Some(dims) = data.dims() else { return Spec::unknown(data.dtype) };
    let rest = dims.iter().skip(skip).cloned();
    Spec::new(data.dtype, std::iter::once(n.unwrap_or(Dim::Unknown)).chain(rest))
}

/// The value of a scalar that numbers segments.
fn n_segments(n: View<'_>) -> Result<usize> {
    let is_integer = matches!(n.dtype(), DType::I32 | DType::I64) && n.n_elements() == 1;
    let value = if is_integer { Some(int_at(&n, 0)?) } else { None };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_cannot_ask_for_more_segments_than_memory_holds() {
        let check = |ids: &[i32]| {
            let ids = Spec::constant(Tensor::vector(ids).unwrap());
            n_known(&ids).map(|n| n.and_then(|n| n.known()))
        };
        assert_eq!(check(&[0, 7]).unwrap(), Some(8));
        assert!(matches!(check(&[0, i32::MAX]), Err(Error::ResourceExhausted(_))));
    }
}
