//! The arithmetic of reductions: what is carried along, and how two of it are joined.

use std::marker::PhantomData;

use half::{bf16, f16};
use kernels::{Loop, Madd, widest};
use num_complex::Complex;
use tensor::Element;

use super::axes::Runs;
use crate::cancel::is_stopped;

/// An element that can be added up, with the type of the sum.
pub(in crate::math) trait Term: Element {
    /// The type that is carried along: `f32` for 16-bit floats.
    type Sum: Element;
    /// Makes it of an element.
    fn widen(self) -> Self::Sum;
    /// The element that it is rounded to.
    fn round(sum: Self::Sum) -> Self;
    /// Elements as sums, if they are the same.
    fn sums_in(elements: &mut [Self]) -> Option<&mut [Self::Sum]>;
}

macro_rules! own_sum {
    ($($type:ty)*) => {$(
        impl Term for $type {
            type Sum = Self;
            #[inline(always)]
            fn widen(self) -> Self { self }
            #[inline(always)]
            fn round(sum: Self) -> Self { sum }
            #[inline(always)]
            fn sums_in(elements: &mut [Self]) -> Option<&mut [Self]> { Some(elements) }
        }
    )*};
}

own_sum! { f32 f64 i8 i16 i32 i64 u8 u16 u32 u64 Complex<f32> Complex<f64> }

macro_rules! wide_sum {
    ($($type:ty)*) => {$(
        impl Term for $type {
            type Sum = f32;
            #[inline(always)]
            fn widen(self) -> f32 { self.to_f32() }
            #[inline(always)]
            fn round(sum: f32) -> Self { Self::from_f32(sum) }
            #[inline(always)]
            fn sums_in(_: &mut [Self]) -> Option<&mut [f32]> { None }
        }
    )*};
}

wide_sum! { f16 bf16 }

/// A way to join two values into one.
pub(in crate::math) trait Join<S>: Send + Sync {
    /// The value that leaves any other as it is.
    const NEUTRAL: S;
    /// The two as one.
    fn join(a: S, b: S) -> S;
}

/// `a + b`.
pub(in crate::math) struct Add;
/// `a * b`.
pub(in crate::math) struct Multiply;
/// The larger; NaN if one is.
pub(in crate::math) struct Larger;
/// The smaller; NaN if one is.
pub(in crate::math) struct Smaller;
/// Both of two bools.
pub(in crate::math) struct Both;
/// Any of two bools.
pub(in crate::math) struct Either;

macro_rules! joins {
    ($join:ident: $($type:ty)* = $neutral:expr, |$a:ident, $b:ident| $body:expr) => {$(
        impl Join<$type> for $join {
            const NEUTRAL: $type = $neutral;
            #[inline(always)]
            fn join($a: $type, $b: $type) -> $type { $body }
        }
    )*};
}

joins!(Add: f32 f64 = 0.0, |a, b| a + b);
joins!(Add: i8 i16 i32 i64 u8 u16 u32 u64 = 0, |a, b| a.wrapping_add(b));
joins!(Add: Complex<f32> Complex<f64> = Complex::new(0.0, 0.0), |a, b| a + b);
joins!(Multiply: f32 f64 = 1.0, |a, b| a * b);
joins!(Multiply: i8 i16 i32 i64 u8 u16 u32 u64 = 1, |a, b| a.wrapping_mul(b));
joins!(Multiply: Complex<f32> Complex<f64> = Complex::new(1.0, 0.0), |a, b| a * b);
joins!(Larger: f32 = f32::NEG_INFINITY, |a, b| if a > b || a.is_nan() { a } else { b });
joins!(Larger: f64 = f64::NEG_INFINITY, |a, b| if a > b || a.is_nan() { a } else { b });
joins!(Smaller: f32 = f32::INFINITY, |a, b| if a < b || a.is_nan() { a } else { b });
joins!(Smaller: f64 = f64::INFINITY, |a, b| if a < b || a.is_nan() { a } else { b });
joins!(Both: u8 = 1, |a, b| a & b);
joins!(Either: u8 = 0, |a, b| a | b);

macro_rules! ends {
    ($($type:ident)*) => {$(
        joins!(Larger: $type = <$type>::MIN, |a, b| a.max(b));
        joins!(Smaller: $type = <$type>::MAX, |a, b| a.min(b));
    )*};
}

ends! { i8 i16 i32 i64 u8 u16 u32 u64 }

/// Values that are joined side by side before they are joined together: enough for two vectors.
const LANES: usize = 16;
/// Elements of a row that are joined in lanes at a time, so that long sums stay precise.
const SPAN: usize = 4096;

/// Reduces `x` to `sums`, which are written.
pub(super) fn fold<T: Term, J: Join<T::Sum>>(runs: &Runs, x: &[T], sums: &mut [T::Sum]) {
    sums.fill(J::NEUTRAL);
    let row = runs.row;
    if x.is_empty() {
        return;
    }
    runs.for_each_row(|number, to| {
        let x = &x[number * row..(number + 1) * row];
        if runs.reduced {
            sums[to] = J::join(sums[to], across::<T, J>(x));
        } else {
            join_rows::<T, J>(x, &mut sums[to..to + row]);
        }
    });
}

/// Joins the elements of a row.
pub(in crate::math) fn across<T: Term, J: Join<T::Sum>>(x: &[T]) -> T::Sum {
    let mut all = J::NEUTRAL;
    for span in x.chunks(SPAN) {
        if is_stopped(span.len()) {
            break;
        }
        let mut sum = J::NEUTRAL;
        widest(Across { x: span, sum: &mut sum, join: PhantomData::<J> });
        all = J::join(all, sum);
    }
    all
}

/// Joins a row to a row of sums, element by element.
pub(in crate::math) fn join_rows<T: Term, J: Join<T::Sum>>(x: &[T], sums: &mut [T::Sum]) {
    widest(Down { x, sums, join: PhantomData::<J> });
}

/// Joins the elements of a row.
struct Across<'a, T: Term, J> {
    x: &'a [T],
    sum: &'a mut T::Sum,
    join: PhantomData<J>,
}

impl<T: Term, J: Join<T::Sum>> Loop for Across<'_, T, J> {
    #[inline(always)]
    fn run<M: Madd>(self) {
        let mut lanes = [J::NEUTRAL; LANES];
        let mut blocks = self.x.chunks_exact(LANES);
        for block in &mut blocks {
            for (lane, x) in lanes.iter_mut().zip(block) {
                *lane = J::join(*lane, x.widen());
            }
        }
        let mut half = LANES / 2;
        while half > 0 {
            for i in 0..half {
                lanes[i] = J::join(lanes[i], lanes[i + half]);
            }
            half /= 2;
        }
        let rest = blocks.remainder().iter();
        *self.sum = rest.fold(lanes[0], |sum, x| J::join(sum, x.widen()));
    }
}

/// Joins a row to a row of sums, element by element.
struct Down<'a, T: Term, J> {
    x: &'a [T],
    sums: &'a mut [T::Sum],
    join: PhantomData<J>,
}

impl<T: Term, J: Join<T::Sum>> Loop for Down<'_, T, J> {
    #[inline(always)]
    fn run<M: Madd>(self) {
        for (sum, x) in self.sums.iter_mut().zip(self.x) {
            *sum = J::join(*sum, x.widen());
        }
    }
}
