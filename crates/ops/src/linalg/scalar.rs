//! `Scalar`: what a matrix product needs of its elements.

use num_complex::Complex;
use tensor::Element;

/// An element that can be multiplied and summed; integers wrap, as TensorFlow's do.
pub(crate) trait Scalar: Element {
    const ZERO: Self;

    /// `a * b + self`.
    #[must_use]
    fn plus_product(self, a: Self, b: Self) -> Self;

    /// The sum.
    #[must_use]
    fn plus(self, other: Self) -> Self;

    /// The complex conjugate; the number itself if it is real.
    #[must_use]
    fn conjugate(self) -> Self;
}

macro_rules! integers {
    ($($T:ty),*) => {$(
        impl Scalar for $T {
            const ZERO: Self = 0;
            fn plus_product(self, a: Self, b: Self) -> Self {
                self.wrapping_add(a.wrapping_mul(b))
            }
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            fn conjugate(self) -> Self {
                self
            }
        }
    )*};
}

macro_rules! floats {
    ($($T:ty),*) => {$(
        impl Scalar for $T {
            const ZERO: Self = 0.;
            fn plus_product(self, a: Self, b: Self) -> Self {
                self + a * b
            }
            fn plus(self, other: Self) -> Self {
                self + other
            }
            fn conjugate(self) -> Self {
                self
            }
        }
        impl Scalar for Complex<$T> {
            const ZERO: Self = Complex::new(0., 0.);
            fn plus_product(self, a: Self, b: Self) -> Self {
                self + a * b
            }
            fn plus(self, other: Self) -> Self {
                self + other
            }
            fn conjugate(self) -> Self {
                self.conj()
            }
        }
    )*};
}

integers!(i8, i16, i32, i64, u8, u16, u32, u64);
floats!(f32, f64);
