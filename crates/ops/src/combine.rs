//! `Combine`: what scatters and assignments do with an old and a new element.

use num_complex::Complex;
use tensor::{DType, Element, View, ViewMut};

use crate::dispatch::for_integer;
use crate::error::{Result, invalid};

/// The combination of an old element with a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Combine {
    /// The new one.
    Update,
    /// The sum.
    Add,
    /// The old minus the new.
    Sub,
    /// The product.
    Mul,
    /// The old divided by the new.
    Div,
    /// The smaller.
    Min,
    /// The larger.
    Max,
}

/// Numbers that can be combined.
pub(crate) trait Number: Element {
    /// Applies `how` to each pair.
    fn combine(how: Combine, old: &mut [Self], new: &[Self]);
}

/// Each pair through one expression.
fn each<T: Copy>(old: &mut [T], new: &[T], f: impl Fn(T, T) -> T) {
    for (x, y) in old.iter_mut().zip(new) {
        *x = f(*x, *y);
    }
}

macro_rules! floats {
    ($($T:ty),*) => {$(
        impl Number for $T {
            fn combine(how: Combine, old: &mut [Self], new: &[Self]) {
                match how {
                    Combine::Update => old.copy_from_slice(new),
                    Combine::Add => each(old, new, |a, b| a + b),
                    Combine::Sub => each(old, new, |a, b| a - b),
                    Combine::Mul => each(old, new, |a, b| a * b),
                    Combine::Div => each(old, new, |a, b| a / b),
                    // As Eigen: the first unless the second is beyond it.
                    Combine::Min => each(old, new, |a, b| if b < a { b } else { a }),
                    Combine::Max => each(old, new, |a, b| if a < b { b } else { a }),
                }
            }
        }
    )*};
}

macro_rules! integers {
    ($($T:ty),*) => {$(
        impl Number for $T {
            fn combine(how: Combine, old: &mut [Self], new: &[Self]) {
                match how {
                    Combine::Update => old.copy_from_slice(new),
                    Combine::Add => each(old, new, Self::wrapping_add),
                    Combine::Sub => each(old, new, Self::wrapping_sub),
                    Combine::Mul => each(old, new, Self::wrapping_mul),
                    // Divisors were checked, and MIN / -1 wraps to MIN.
                    Combine::Div => each(old, new, |a, b| a.checked_div(b).unwrap_or(a)),
                    Combine::Min => each(old, new, Self::min),
                    Combine::Max => each(old, new, Self::max),
                }
            }
        }
    )*};
}

macro_rules! complexes {
    ($($T:ty),*) => {$(
        impl Number for $T {
            fn combine(how: Combine, old: &mut [Self], new: &[Self]) {
                match how {
                    Combine::Update | Combine::Min | Combine::Max => old.copy_from_slice(new),
                    Combine::Add => each(old, new, |a, b| a + b),
                    Combine::Sub => each(old, new, |a, b| a - b),
                    Combine::Mul => each(old, new, |a, b| a * b),
                    Combine::Div => each(old, new, |a, b| a / b),
                }
            }
        }
    )*};
}

floats!(f32, f64, half::f16, half::bf16);
integers!(i8, i16, i32, i64, u8, u16, u32, u64);
complexes!(Complex<f32>, Complex<f64>);

/// Calls a generic expression for any dtype that can be combined so.
macro_rules! for_combined {
    ($how:expr, $dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            dtype if dtype.is_float() => $crate::dispatch::for_float!(dtype, $T => $body),
            ::tensor::DType::Complex64 if $crate::combine::is_complex($how) => {
                type $T = ::num_complex::Complex<f32>;
                $body
            }
            ::tensor::DType::Complex128 if $crate::combine::is_complex($how) => {
                type $T = ::num_complex::Complex<f64>;
                $body
            }
            dtype => $crate::dispatch::for_integer!(dtype, $T => $body),
        }
    };
}

pub(crate) use for_combined;

/// Returns whether complex numbers can be combined so: they have no order.
pub(crate) fn is_complex(how: Combine) -> bool {
    !matches!(how, Combine::Min | Combine::Max)
}

/// Applies `how` to all elements of two tensors of as many.
pub(crate) fn combine(how: Combine, old: &mut ViewMut<'_>, new: &View<'_>) -> Result<()> {
    if old.dtype() != new.dtype() {
        return invalid!("expected {} but got {}", old.dtype(), new.dtype());
    }
    if how == Combine::Update {
        old.bytes().copy_from_slice(new.bytes());
        return Ok(());
    }
    for_combined!(how, old.dtype(), T => {
        T::combine(how, old.as_mut_slice(), new.as_slice());
    });
    Ok(())
}

/// Fails if a division of integers would divide by zero.
pub(crate) fn check_divisors(how: Combine, new: &View<'_>) -> Result<()> {
    if how != Combine::Div {
        return Ok(());
    }
    let has_zero = match new.dtype() {
        DType::F32 => new.as_slice::<f32>().contains(&0.),
        DType::F64 => new.as_slice::<f64>().contains(&0.),
        // Zero has a sign.
        DType::F16 | DType::BF16 => new.as_wide::<u16>().iter().any(|x| x & 0x7FFF == 0),
        dtype if dtype.is_integer() => {
            for_integer!(dtype, T => new.as_slice::<T>().contains(&0))
        }
        _ => false,
    };
    if has_zero { invalid!("updates must not contain 0") } else { Ok(()) }
}
