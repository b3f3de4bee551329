//! `Elements`: the elements of a tensor while they are read, typed by the signature's dtype.

use status::{Result, Status};
use tensor::{DType, Element, Shape, Strings, Tensor};

use super::base64::decode;
use super::cursor::{Cursor, Kind};
use super::number::{self, Number};
use super::scan;
use super::syntax::Syntax;

/// Elements of one dtype, in the order they were read.
#[expect(clippy::large_enum_variant, reason = "there is one for each input of a request")]
pub(crate) enum Elements {
    F32(Vec<f32>),
    F64(Vec<f64>),
    I32(Vec<i32>),
    I16(Vec<i16>),
    I8(Vec<i8>),
    U8(Vec<u8>),
    I64(Vec<i64>),
    U32(Vec<u32>),
    U64(Vec<u64>),
    Bool(Bools),
    Strings(Texts),
    /// A dtype that JSON cannot give.
    Unsupported(Nothing),
}

/// The reason that an element was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The text is wrong.
    Syntax(Syntax),
    /// It is a value of another type.
    Type,
    /// It is an object, but not one of base64.
    NotBase64,
    /// It is wrong base64.
    Base64,
    /// No value has this type.
    Unsupported,
    /// There is no memory for it.
    Memory,
}

impl From<Syntax> for Refusal {
    fn from(syntax: Syntax) -> Self {
        Self::Syntax(syntax)
    }
}

/// Takes elements one by one.
pub(crate) trait Sink {
    /// Reads the value at a cursor, which is no list. After a refusal the cursor may be anywhere in
    /// the value.
    fn read(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Refusal>;

    /// Reads what stands at a place of a text if it is a value of the most common kind, and gives
    /// the place behind it. Nothing happens otherwise.
    #[inline(always)]
    fn read_common(&mut self, _text: &[u8], _at: usize) -> Option<usize> {
        None
    }

    /// The number of elements read.
    fn len(&self) -> usize;
}

/// Calls a function with whatever sink the elements are.
macro_rules! with_sink {
    ($elements:expr, $sink:ident => $body:expr) => {
        match $elements {
            $crate::elements::Elements::F32($sink) => $body,
            $crate::elements::Elements::F64($sink) => $body,
            $crate::elements::Elements::I32($sink) => $body,
            $crate::elements::Elements::I16($sink) => $body,
            $crate::elements::Elements::I8($sink) => $body,
            $crate::elements::Elements::U8($sink) => $body,
            $crate::elements::Elements::I64($sink) => $body,
            $crate::elements::Elements::U32($sink) => $body,
            $crate::elements::Elements::U64($sink) => $body,
            $crate::elements::Elements::Bool($sink) => $body,
            $crate::elements::Elements::Strings($sink) => $body,
            $crate::elements::Elements::Unsupported($sink) => $body,
        }
    };
}
pub(crate) use with_sink;

impl Elements {
    /// No elements of a dtype, with room for `n_expected` if they are of a fixed size.
    pub(crate) fn new(dtype: DType, n_expected: usize) -> Self {
        match dtype {
            DType::F32 => Self::F32(Vec::with_capacity(n_expected)),
            DType::F64 => Self::F64(Vec::with_capacity(n_expected)),
            DType::I32 => Self::I32(Vec::with_capacity(n_expected)),
            DType::I16 => Self::I16(Vec::with_capacity(n_expected)),
            DType::I8 => Self::I8(Vec::with_capacity(n_expected)),
            DType::U8 => Self::U8(Vec::with_capacity(n_expected)),
            DType::I64 => Self::I64(Vec::with_capacity(n_expected)),
            DType::U32 => Self::U32(Vec::with_capacity(n_expected)),
            DType::U64 => Self::U64(Vec::with_capacity(n_expected)),
            DType::Bool => Self::Bool(Bools(Vec::with_capacity(n_expected))),
            DType::String => Self::Strings(Texts::default()),
            _ => Self::Unsupported(Nothing),
        }
    }

    /// Reads the value at a cursor, which is no list.
    pub(crate) fn read(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Refusal> {
        with_sink!(self, sink => sink.read(cursor))
    }

    /// The number of elements read.
    pub(crate) fn len(&self) -> usize {
        with_sink!(self, sink => sink.len())
    }

    /// The elements as a tensor. Those beyond its shape are left out: names that are repeated in an
    /// instance bring too many, of which TensorFlow ignores the last.
    pub(crate) fn into_tensor(self, name: &str, dims: &[usize]) -> Result<Tensor> {
        let failed = |error: tensor::Error| {
            Status::new(error.code(), format!("tensor parsing error: {name}: {error}"))
        };
        let sizes = dims.iter().map(|size| i64::try_from(*size).unwrap_or(i64::MAX));
        let shape = Shape::checked(sizes).map_err(failed)?;
        let tensor = match self {
            Self::F32(values) => tensor(shape, &values),
            Self::F64(values) => tensor(shape, &values),
            Self::I32(values) => tensor(shape, &values),
            Self::I16(values) => tensor(shape, &values),
            Self::I8(values) => tensor(shape, &values),
            Self::U8(values) => tensor(shape, &values),
            Self::I64(values) => tensor(shape, &values),
            Self::U32(values) => tensor(shape, &values),
            Self::U64(values) => tensor(shape, &values),
            Self::Bool(values) => {
                let n_elements = shape.n_elements().min(values.0.len());
                Tensor::from_bytes(DType::Bool, shape, &values.0[..n_elements])
            }
            Self::Strings(texts) => {
                let n_elements = shape.n_elements();
                let strings = if texts.strings.len() > n_elements {
                    Strings::copied(texts.strings.iter().take(n_elements))
                } else {
                    Ok(texts.strings)
                };
                strings.and_then(|strings| Tensor::from_strings(shape, strings))
            }
            Self::Unsupported(_) => return Err(Status::invalid("the type has no values in JSON")),
        };
        tensor.map_err(failed)
    }
}

fn tensor<T: Element>(shape: Shape, values: &[T]) -> tensor::Result<Tensor> {
    let n_elements = shape.n_elements().min(values.len());
    Tensor::from_slice(shape, &values[..n_elements])
}

/// A type of numbers that can be read.
trait Numeric: Sized {
    /// The element that a number gives, if it gives one.
    fn of(number: Number) -> Option<Self>;

    /// The element that a decimal at a place of a text gives and where that ends, if there is one.
    #[inline(always)]
    fn decimal(_text: &[u8], _at: usize) -> Option<(Self, usize)> {
        None
    }
}

impl<T: Numeric> Sink for Vec<T> {
    #[inline]
    fn read(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Refusal> {
        if cursor.kind() != Kind::Number {
            return Err(Refusal::Type);
        }
        let value = T::of(cursor.number()?).ok_or(Refusal::Type)?;
        self.push(value);
        Ok(())
    }

    #[inline(always)]
    fn read_common(&mut self, text: &[u8], at: usize) -> Option<usize> {
        let (value, end) = T::decimal(text, at)?;
        self.push(value);
        Some(end)
    }

    fn len(&self) -> usize {
        self.len()
    }
}

impl Numeric for f32 {
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "overflow gives infinity, as upstream")]
    fn of(number: Number) -> Option<Self> {
        Some(number.to_f64() as f32)
    }

    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "through a double, as upstream")]
    fn decimal(text: &[u8], at: usize) -> Option<(Self, usize)> {
        number::decimal(text, at).map(|(value, end)| (value as f32, end))
    }
}

impl Numeric for f64 {
    #[inline]
    fn of(number: Number) -> Option<Self> {
        Some(number.to_f64())
    }

    #[inline(always)]
    fn decimal(text: &[u8], at: usize) -> Option<(Self, usize)> {
        number::decimal(text, at)
    }
}

macro_rules! integers {
    ($($type:ty: $range:ty),*) => {$(
        impl Numeric for $type {
            #[inline]
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss,
                clippy::unnecessary_cast,
                reason = "what fits 32 bits wraps around, as TensorProto's int_val does")]
            fn of(number: Number) -> Option<Self> {
                number.to_integer::<$range>().map(|value| value as $type)
            }
        }
    )*};
}
integers!(i32: i32, i16: i32, i8: i32, u8: i32, i64: i64, u32: u32, u64: u64);

/// Bools, a byte each.
pub(crate) struct Bools(Vec<u8>);

impl Sink for Bools {
    fn read(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Refusal> {
        match cursor.kind() {
            Kind::True => cursor.word(b"true")?,
            Kind::False => {
                cursor.word(b"false")?;
                self.0.push(0);
                return Ok(());
            }
            _ => return Err(Refusal::Type),
        }
        self.0.push(1);
        Ok(())
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

/// Strings, and objects of base64 that stand for strings.
#[derive(Default)]
pub(crate) struct Texts {
    strings: Strings,
    scratch: Vec<u8>,
    decoded: Vec<u8>,
}

impl Sink for Texts {
    fn read(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Refusal> {
        match cursor.kind() {
            Kind::String => {
                let string = cursor.string()?;
                let pushed = self.strings.push(string.decode(&mut self.scratch));
                pushed.map_err(|_| Refusal::Memory)
            }
            Kind::Object => {
                self.decoded.clear();
                base64_object(cursor, &mut self.scratch, &mut self.decoded)?;
                self.strings.push(&self.decoded).map_err(|_| Refusal::Memory)
            }
            _ => Err(Refusal::Type),
        }
    }

    fn len(&self) -> usize {
        self.strings.len()
    }
}

/// Takes nothing.
pub(crate) struct Nothing;

impl Sink for Nothing {
    fn read(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Refusal> {
        // An object is refused for what it is, before its dtype is looked at.
        let is_object = cursor.kind() == Kind::Object;
        Err(if is_object { Refusal::Type } else { Refusal::Unsupported })
    }

    fn len(&self) -> usize {
        0
    }
}

/// Returns whether an object with one member, `b64`, which is a string, is at a cursor.
pub(crate) fn is_base64_object(mut cursor: Cursor<'_>) -> bool {
    base64_member(&mut cursor).is_ok()
}

/// Reads an object of base64, and appends what it stands for.
pub(crate) fn base64_object(
    cursor: &mut Cursor<'_>,
    scratch: &mut Vec<u8>,
    out: &mut Vec<u8>,
) -> Result<(), Refusal> {
    let string = base64_member(cursor)?;
    if decode(string.decode(scratch), out) { Ok(()) } else { Err(Refusal::Base64) }
}

fn base64_member<'a>(cursor: &mut Cursor<'a>) -> Result<super::cursor::Raw<'a>, Refusal> {
    if !cursor.take(b'{') || cursor.skip_blanks() == b'}' {
        return Err(Refusal::NotBase64);
    }
    let name = scan::key(cursor)?;
    if !name.is("b64") || cursor.kind() != Kind::String {
        return Err(Refusal::NotBase64);
    }
    let string = cursor.string()?;
    let is_end = scan::end_of_member(cursor)?;
    if is_end { Ok(string) } else { Err(Refusal::NotBase64) }
}
