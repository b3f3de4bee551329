//! `DType`: the element types of TensorFlow.

use std::fmt;

/// An element type. The numbers are TensorFlow's (`types.proto`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names say it")]
pub enum DType {
    F32 = 1,
    F64 = 2,
    I32 = 3,
    U8 = 4,
    I16 = 5,
    I8 = 6,
    String = 7,
    Complex64 = 8,
    I64 = 9,
    Bool = 10,
    QI8 = 11,
    QU8 = 12,
    QI32 = 13,
    BF16 = 14,
    QI16 = 15,
    QU16 = 16,
    U16 = 17,
    Complex128 = 18,
    F16 = 19,
    Resource = 20,
    Variant = 21,
    U32 = 22,
    U64 = 23,
    F8E5M2 = 24,
    F8E4M3FN = 25,
    F8E4M3FNUZ = 26,
    F8E4M3B11FNUZ = 27,
    F8E5M2FNUZ = 28,
    I4 = 29,
    U4 = 30,
}

/// Each dtype with TensorFlow's name for it, our short name, and its bytes per element (0: none).
const TABLE: &[(DType, &str, &str, usize)] = &[
    (DType::F32, "float", "f32", 4),
    (DType::F64, "double", "f64", 8),
    (DType::I32, "int32", "i32", 4),
    (DType::U8, "uint8", "u8", 1),
    (DType::I16, "int16", "i16", 2),
    (DType::I8, "int8", "i8", 1),
    (DType::String, "string", "str", 0),
    (DType::Complex64, "complex64", "c64", 8),
    (DType::I64, "int64", "i64", 8),
    (DType::Bool, "bool", "bool", 1),
    (DType::QI8, "qint8", "qi8", 1),
    (DType::QU8, "quint8", "qu8", 1),
    (DType::QI32, "qint32", "qi32", 4),
    (DType::BF16, "bfloat16", "bf16", 2),
    (DType::QI16, "qint16", "qi16", 2),
    (DType::QU16, "quint16", "qu16", 2),
    (DType::U16, "uint16", "u16", 2),
    (DType::Complex128, "complex128", "c128", 16),
    (DType::F16, "half", "f16", 2),
    (DType::Resource, "resource", "resource", 0),
    (DType::Variant, "variant", "variant", 0),
    (DType::U32, "uint32", "u32", 4),
    (DType::U64, "uint64", "u64", 8),
    (DType::F8E5M2, "float8_e5m2", "f8e5m2", 1),
    (DType::F8E4M3FN, "float8_e4m3fn", "f8e4m3fn", 1),
    (DType::F8E4M3FNUZ, "float8_e4m3fnuz", "f8e4m3fnuz", 1),
    (DType::F8E4M3B11FNUZ, "float8_e4m3b11fnuz", "f8e4m3b11fnuz", 1),
    (DType::F8E5M2FNUZ, "float8_e5m2fnuz", "f8e5m2fnuz", 1),
    (DType::I4, "int4", "i4", 1),
    (DType::U4, "uint4", "u4", 1),
];

impl DType {
    /// All dtypes.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|row| row.0)
    }

    /// The dtype of a number of `types.proto`; a reference type gives its value type. `None` for
    /// `DT_INVALID` and numbers we do not know.
    pub fn from_number(number: i32) -> Option<Self> {
        let value = if number > 100 { number - 100 } else { number };
        Self::all().find(|dtype| dtype.number() == value)
    }

    /// The number in `types.proto`.
    pub fn number(self) -> i32 {
        i32::from(self as u8)
    }

    /// The dtype of a short name such as `f32`.
    pub fn from_short_name(name: &str) -> Option<Self> {
        TABLE.iter().find(|row| row.2 == name).map(|row| row.0)
    }

    /// TensorFlow's name, as it stands in messages: `float`.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// Our short name: `f32`.
    pub fn short_name(self) -> &'static str {
        self.row().2
    }

    /// Bytes per element; 0 for strings, resources and variants, which have no fixed size.
    pub fn size(self) -> usize {
        self.row().3
    }

    /// Returns whether elements are plain bytes of a fixed size.
    pub fn is_plain(self) -> bool {
        self.size() > 0
    }

    /// Returns whether the type is a floating-point type.
    pub fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F64 | Self::F16 | Self::BF16)
    }

    /// Returns whether the type is a plain integer type.
    pub fn is_integer(self) -> bool {
        use DType::{I8, I16, I32, I64, U8, U16, U32, U64};
        matches!(self, I8 | I16 | I32 | I64 | U8 | U16 | U32 | U64)
    }

    fn row(self) -> &'static (DType, &'static str, &'static str, usize) {
        TABLE.iter().find(|row| row.0 == self).expect("the table lists every dtype")
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_short_names_lead_back() {
        for dtype in DType::all() {
            assert_eq!(DType::from_number(dtype.number()), Some(dtype));
            assert_eq!(DType::from_number(dtype.number() + 100), Some(dtype));
            assert_eq!(DType::from_short_name(dtype.short_name()), Some(dtype));
        }
        assert_eq!(DType::from_number(0), None);
        assert_eq!(DType::from_number(99), None);
    }
}
