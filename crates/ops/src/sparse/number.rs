//! `Number`: the arithmetic that ops on sparse tensors share. Integers wrap, as TensorFlow's do.

use half::{bf16, f16};
use num_complex::Complex;

use crate::prelude::*;

/// An element to compute with.
pub(super) trait Number: Element {
    fn zero() -> Self;
    fn plus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    /// The quotient; `None` for an integer divided by zero.
    fn over(self, other: Self) -> Option<Self>;
    fn conjugate(self) -> Self {
        self
    }
}

macro_rules! numbers {
    ($($T:ty: $x:ident $y:ident => $plus:expr, $times:expr, $over:expr;)*) => {$(
        impl Number for $T {
            fn zero() -> Self {
                <$T as num_traits::Zero>::zero()
            }
            fn plus(self, $y: Self) -> Self {
                let $x = self;
                $plus
            }
            fn times(self, $y: Self) -> Self {
                let $x = self;
                $times
            }
            fn over(self, $y: Self) -> Option<Self> {
                let $x = self;
                $over
            }
        }
    )*};
    (integers $($T:ty)*) => { numbers! {$(
        $T: x y => x.wrapping_add(y), x.wrapping_mul(y),
            (y != 0).then(|| x.wrapping_div(y));
    )*} };
    (floats $($T:ty)*) => { numbers! {$( $T: x y => x + y, x * y, Some(x / y); )*} };
}

numbers!(integers i8 i16 i32 i64 u8 u16 u32 u64);
numbers!(floats f32 f64 f16 bf16);

macro_rules! complex_numbers {
    ($($T:ty)*) => {$(
        impl Number for Complex<$T> {
            fn zero() -> Self {
                Complex::new(0.0, 0.0)
            }
            fn plus(self, other: Self) -> Self {
                self + other
            }
            fn times(self, other: Self) -> Self {
                self * other
            }
            fn over(self, other: Self) -> Option<Self> {
                Some(self / other)
            }
            fn conjugate(self) -> Self {
                self.conj()
            }
        }
    )*};
}

complex_numbers!(f32 f64);

/// Floats, integers and complex numbers.
macro_rules! for_any_number {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            DType::Complex64 => {
                type $T = num_complex::Complex<f32>;
                $body
            }
            DType::Complex128 => {
                type $T = num_complex::Complex<f64>;
                $body
            }
            dtype => for_number!(dtype, $T => $body),
        }
    };
}

pub(super) use for_any_number;
