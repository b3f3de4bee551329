//! `Element`: the Rust types that stand for plain dtypes.

use half::{bf16, f16};
use num_complex::Complex;

use crate::DType;

/// A Rust type whose slices may be seen through tensors of the dtypes it stands for.
pub trait Element: bytemuck::Pod + Send + Sync {
    /// The dtype it stands for first of all.
    const DTYPE: DType;

    /// Returns whether a tensor of `dtype` may be seen as a slice of this type.
    fn stands_for(dtype: DType) -> bool {
        dtype == Self::DTYPE
    }
}

macro_rules! elements {
    ($($type:ty => $first:ident $(| $more:ident)*),* $(,)?) => {$(
        impl Element for $type {
            const DTYPE: DType = DType::$first;
            fn stands_for(dtype: DType) -> bool {
                matches!(dtype, DType::$first $(| DType::$more)*)
            }
        }
    )*};
}

// A bool is a byte that is 0 or 1.
elements! {
    f32 => F32, f64 => F64, f16 => F16, bf16 => BF16,
    i8 => I8 | QI8 | I4, i16 => I16 | QI16, i32 => I32 | QI32, i64 => I64,
    u8 => U8 | QU8 | Bool | U4, u16 => U16 | QU16, u32 => U32, u64 => U64,
    Complex<f32> => Complex64, Complex<f64> => Complex128,
}
