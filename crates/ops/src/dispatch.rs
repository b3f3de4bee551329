//! From a dtype to the Rust type that a generic kernel is called with.
//!
//! `for_float!(dtype, T => kernel::<T>(…))` is the value of the arm, or an `Unimplemented` error
//! returned from the function for a dtype outside of the group.

/// `f32`, `f64`, `f16`, `bf16`.
macro_rules! for_float {
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
            ::tensor::DType::F16 => {
                type $T = ::half::f16;
                $body
            }
            ::tensor::DType::BF16 => {
                type $T = ::half::bf16;
                $body
            }
            other => return $crate::error::unsupported!("dtype {other} is not supported here"),
        }
    };
}

/// The integers.
macro_rules! for_integer {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            ::tensor::DType::I32 => {
                type $T = i32;
                $body
            }
            ::tensor::DType::I64 => {
                type $T = i64;
                $body
            }
            ::tensor::DType::I8 => {
                type $T = i8;
                $body
            }
            ::tensor::DType::I16 => {
                type $T = i16;
                $body
            }
            ::tensor::DType::U8 => {
                type $T = u8;
                $body
            }
            ::tensor::DType::U16 => {
                type $T = u16;
                $body
            }
            ::tensor::DType::U32 => {
                type $T = u32;
                $body
            }
            ::tensor::DType::U64 => {
                type $T = u64;
                $body
            }
            other => return $crate::error::unsupported!("dtype {other} is not supported here"),
        }
    };
}

/// The floats and the integers.
macro_rules! for_number {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            dtype if dtype.is_float() => $crate::dispatch::for_float!(dtype, $T => $body),
            dtype => $crate::dispatch::for_integer!(dtype, $T => $body),
        }
    };
}

/// By the width of an element alone, for ops that only move data: `u8`, `u16`, `u32`, `u64` or
/// `u128`; used with `as_wide`.
macro_rules! for_width {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype.size() {
            1 => {
                type $T = u8;
                $body
            }
            2 => {
                type $T = u16;
                $body
            }
            4 => {
                type $T = u32;
                $body
            }
            8 => {
                type $T = u64;
                $body
            }
            16 => {
                type $T = u128;
                $body
            }
            _ => return $crate::error::unsupported!("dtype {} is not supported here", $dtype),
        }
    };
}

pub(crate) use {for_float, for_integer, for_number, for_width};
