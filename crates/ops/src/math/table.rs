//! Tables of kernels: for each op one row, for each element type one column.
//!
//! A row is written as expressions on elements, by class of types:
//! `float(x) => x.abs(), signed(x) => x.wrapping_abs()`. The 16-bit floats have no column: they are
//! converted to `f32` and back, block by block.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use num_complex::Complex;
use tensor::Element;

/// A complex number of two `f32`.
#[expect(non_camel_case_types, reason = "the column's name")]
pub(super) type c64 = Complex<f32>;
/// A complex number of two `f64`.
#[expect(non_camel_case_types, reason = "the column's name")]
pub(super) type c128 = Complex<f64>;

/// Elements that are copied, splatted or converted at a time: few enough for the stack.
pub(super) const BLOCK: usize = 256;

/// Kernels of one signature, such as slice to slice.
pub(super) trait Family {
    /// The kernel for elements of `T`.
    type Kernel<T: 'static>: Copy;
}

/// The kernels of an op, as far as it has them.
pub(super) struct Table<F: Family> {
    pub(super) f32: Option<F::Kernel<f32>>,
    pub(super) f64: Option<F::Kernel<f64>>,
    pub(super) i8: Option<F::Kernel<i8>>,
    pub(super) i16: Option<F::Kernel<i16>>,
    pub(super) i32: Option<F::Kernel<i32>>,
    pub(super) i64: Option<F::Kernel<i64>>,
    pub(super) u8: Option<F::Kernel<u8>>,
    pub(super) u16: Option<F::Kernel<u16>>,
    pub(super) u32: Option<F::Kernel<u32>>,
    pub(super) u64: Option<F::Kernel<u64>>,
    pub(super) c64: Option<F::Kernel<c64>>,
    pub(super) c128: Option<F::Kernel<c128>>,
}

impl<F: Family> Table<F> {
    /// A row without kernels.
    pub(super) const NONE: Self = Self {
        f32: None,
        f64: None,
        i8: None,
        i16: None,
        i32: None,
        i64: None,
        u8: None,
        u16: None,
        u32: None,
        u64: None,
        c64: None,
        c128: None,
    };
}

/// A type with a column in every table.
pub(super) trait Column: Element {
    /// Its kernel in a row.
    fn of<F: Family>(table: &Table<F>) -> Option<F::Kernel<Self>>;
}

macro_rules! columns {
    ($($column:ident)*) => {$(
        impl Column for $column {
            fn of<F: Family>(table: &Table<F>) -> Option<F::Kernel<Self>> {
                table.$column
            }
        }
    )*};
}

columns! { f32 f64 i8 i16 i32 i64 u8 u16 u32 u64 c64 c128 }

/// A 16-bit float, computed as `f32`.
pub(super) trait Narrow: Element + Default {
    /// Widens a block.
    fn widen(narrow: &[Self], wide: &mut [f32]);
    /// Rounds a block.
    fn round(wide: &[f32], narrow: &mut [Self]);
}

impl Narrow for f16 {
    fn widen(narrow: &[Self], wide: &mut [f32]) {
        narrow.convert_to_f32_slice(wide);
    }

    fn round(wide: &[f32], narrow: &mut [Self]) {
        narrow.convert_from_f32_slice(wide);
    }
}

impl Narrow for bf16 {
    fn widen(narrow: &[Self], wide: &mut [f32]) {
        narrow.convert_to_f32_slice(wide);
    }

    fn round(wide: &[f32], narrow: &mut [Self]) {
        narrow.convert_from_f32_slice(wide);
    }
}

/// Sets the columns of one class of types in the table `$table`, with kernels that the macro
/// `$make` makes of type, arguments and body.
macro_rules! fill {
    ($table:ident $make:ident float $args:tt $body:expr) => {
        $crate::math::table::fill!($table $make f32 $args $body);
        $crate::math::table::fill!($table $make f64 $args $body);
    };
    ($table:ident $make:ident signed $args:tt $body:expr) => {
        $crate::math::table::fill!($table $make i8 $args $body);
        $crate::math::table::fill!($table $make i16 $args $body);
        $crate::math::table::fill!($table $make i32 $args $body);
        $crate::math::table::fill!($table $make i64 $args $body);
    };
    ($table:ident $make:ident unsigned $args:tt $body:expr) => {
        $crate::math::table::fill!($table $make u8 $args $body);
        $crate::math::table::fill!($table $make u16 $args $body);
        $crate::math::table::fill!($table $make u32 $args $body);
        $crate::math::table::fill!($table $make u64 $args $body);
    };
    ($table:ident $make:ident integer $args:tt $body:expr) => {
        $crate::math::table::fill!($table $make signed $args $body);
        $crate::math::table::fill!($table $make unsigned $args $body);
    };
    ($table:ident $make:ident real $args:tt $body:expr) => {
        $crate::math::table::fill!($table $make float $args $body);
        $crate::math::table::fill!($table $make integer $args $body);
    };
    ($table:ident $make:ident complex $args:tt $body:expr) => {
        $crate::math::table::fill!($table $make c64 $args $body);
        $crate::math::table::fill!($table $make c128 $args $body);
    };
    ($table:ident $make:ident any $args:tt $body:expr) => {
        $crate::math::table::fill!($table $make real $args $body);
        $crate::math::table::fill!($table $make complex $args $body);
    };
    ($table:ident $make:ident $type:ident $args:tt $body:expr) => {
        #[allow(unused_imports, reason = "only some columns are aliases")]
        {
            use $crate::math::table::{c64, c128};
            $table.$type = Some($crate::math::table::$make!($type $args $body));
        }
    };
}

/// A kernel `fn(&[T], &mut [T])` of an expression on one element.
macro_rules! one {
    ($type:ident ($x:ident) $body:expr) => {{
        struct F;
        impl $crate::math::map::One<$type, $type> for F {
            #[inline(always)]
            fn of<M: ::kernels::Madd>($x: $type) -> $type {
                $body
            }
        }
        $crate::math::map::map::<$type, $type, F> as fn(&[$type], &mut [$type])
    }};
}

/// A kernel `fn(&[T], &mut [u8])` of a condition on one element.
macro_rules! whether_one {
    ($type:ident ($x:ident) $body:expr) => {{
        struct F;
        impl $crate::math::map::One<$type, u8> for F {
            #[inline(always)]
            fn of<M: ::kernels::Madd>($x: $type) -> u8 {
                u8::from($body)
            }
        }
        $crate::math::map::map::<$type, u8, F> as fn(&[$type], &mut [u8])
    }};
}

/// A kernel `fn(&[T], &[T], &mut [T])` of an expression on two elements.
macro_rules! two {
    ($type:ident ($x:ident, $y:ident) $body:expr) => {{
        struct F;
        impl $crate::math::zip::Two<$type, $type> for F {
            #[inline(always)]
            fn of<M: ::kernels::Madd>($x: $type, $y: $type) -> $type {
                $body
            }
        }
        $crate::math::zip::zip::<$type, $type, F> as fn(&[$type], &[$type], &mut [$type])
    }};
}

/// A kernel `fn(&[T], &[T], &mut [u8])` of a condition on two elements.
macro_rules! whether_two {
    ($type:ident ($x:ident, $y:ident) $body:expr) => {{
        struct F;
        impl $crate::math::zip::Two<$type, u8> for F {
            #[inline(always)]
            fn of<M: ::kernels::Madd>($x: $type, $y: $type) -> u8 {
                u8::from($body)
            }
        }
        $crate::math::zip::zip::<$type, u8, F> as fn(&[$type], &[$type], &mut [u8])
    }};
}

/// The type with a column for a dtype; `Bool` is a `u8`. 16-bit floats are none of them.
macro_rules! for_column {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            ::tensor::DType::F32 => {
                type $T = f32;
                $body
            }
            ::tensor::DType::F64 => {
                type $T = f64;
                $body
            }
            ::tensor::DType::Complex64 => {
                type $T = $crate::math::table::c64;
                $body
            }
            ::tensor::DType::Complex128 => {
                type $T = $crate::math::table::c128;
                $body
            }
            ::tensor::DType::Bool => {
                type $T = u8;
                $body
            }
            dtype => $crate::dispatch::for_integer!(dtype, $T => $body),
        }
    };
}

pub(super) use {fill, for_column, one, two, whether_one, whether_two};
