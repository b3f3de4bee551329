//! Code that the decompositions share: stacks of square matrices, computed in double precision.

use half::f16;
use num_complex::Complex;
use num_traits::{One, Zero};

use crate::prelude::*;

/// An element of a matrix that is decomposed: a real or complex double.
pub(super) trait Field:
    bytemuck::Pod
    + Send
    + Sync
    + Zero
    + One
    + std::ops::Add<Output = Self>
    + std::ops::Sub<Output = Self>
    + std::ops::Mul<Output = Self>
    + std::ops::Div<Output = Self>
    + std::ops::Neg<Output = Self>
{
    /// The complex conjugate.
    fn conjugate(self) -> Self;
    /// The absolute value.
    fn size(self) -> f64;
    /// A real number.
    fn real(x: f64) -> Self;
    /// The part of it that is real.
    fn real_part(self) -> f64;
    /// Returns the value that TensorFlow writes where there is no answer: `std::numeric_limits` has
    /// no NaN of complex numbers, so that is zero.
    fn undefined() -> Self;
}

impl Field for f64 {
    fn conjugate(self) -> Self {
        self
    }
    fn size(self) -> f64 {
        self.abs()
    }
    fn real(x: f64) -> Self {
        x
    }
    fn real_part(self) -> f64 {
        self
    }
    fn undefined() -> Self {
        f64::NAN
    }
}

impl Field for Complex<f64> {
    fn conjugate(self) -> Self {
        self.conj()
    }
    fn size(self) -> f64 {
        self.norm()
    }
    fn real(x: f64) -> Self {
        Self::new(x, 0.)
    }
    fn real_part(self) -> f64 {
        self.re
    }
    fn undefined() -> Self {
        Self::zero()
    }
}

/// A dtype of a matrix, which is widened to a field.
pub(super) trait Number: Element {
    type Field: Field;
    fn widen(self) -> Self::Field;
    fn narrow(wide: Self::Field) -> Self;
}

impl Number for f32 {
    type Field = f64;
    fn widen(self) -> f64 {
        f64::from(self)
    }
    fn narrow(wide: f64) -> Self {
        wide as Self
    }
}

impl Number for f16 {
    type Field = f64;
    fn widen(self) -> f64 {
        self.to_f64()
    }
    fn narrow(wide: f64) -> Self {
        Self::from_f64(wide)
    }
}

impl Number for f64 {
    type Field = f64;
    fn widen(self) -> f64 {
        self
    }
    fn narrow(wide: f64) -> Self {
        wide
    }
}

impl Number for Complex<f32> {
    type Field = Complex<f64>;
    fn widen(self) -> Complex<f64> {
        Complex::new(f64::from(self.re), f64::from(self.im))
    }
    fn narrow(wide: Complex<f64>) -> Self {
        Self::new(wide.re as f32, wide.im as f32)
    }
}

impl Number for Complex<f64> {
    type Field = Self;
    fn widen(self) -> Self {
        self
    }
    fn narrow(wide: Self) -> Self {
        wide
    }
}

/// The bytes of scratch memory of `n` numbers of `dtype` as elements of its field.
pub(super) fn field_bytes(dtype: DType, n: usize) -> usize {
    let is_complex = matches!(dtype, DType::Complex64 | DType::Complex128);
    Scratch::bytes_of::<f64>(if is_complex { 2 * n } else { n })
}

/// Calls `$body` with the type of a dtype that can be decomposed.
macro_rules! for_number_field {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            ::tensor::DType::F32 => {
                type $T = f32;
                $body
            }
            ::tensor::DType::F16 => {
                type $T = ::half::f16;
                $body
            }
            ::tensor::DType::F64 => {
                type $T = f64;
                $body
            }
            ::tensor::DType::Complex64 => {
                type $T = ::num_complex::Complex<f32>;
                $body
            }
            ::tensor::DType::Complex128 => {
                type $T = ::num_complex::Complex<f64>;
                $body
            }
            other => return $crate::error::unsupported!("dtype {other} is not supported here"),
        }
    };
}

pub(super) use for_number_field;

/// Fails unless the last two dimensions may be the same.
pub(super) fn require_square(spec: &Spec) -> Result<()> {
    spec.require_rank_at_least(2)?;
    match spec.dims() {
        Some([.., rows, columns]) if rows.differs(columns) => {
            invalid!("Dimensions must be equal, but are {rows} and {columns} in {spec}")
        }
        _ => Ok(()),
    }
}

/// The size of the square matrices in a stack.
pub(super) fn square_size(shape: &Shape) -> Result<usize> {
    match shape.dims() {
        [.., rows, columns] if rows == columns => Ok(*rows),
        _ => invalid!("Input matrix must be square: {shape}"),
    }
}
