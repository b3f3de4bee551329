//! To and from `TensorProto`, by the rules of TensorFlow's `tensor.cc`: fewer values than elements
//! repeat the last one, none at all mean zeros, more are ignored, and `tensor_content` has exactly
//! the right size.
//!
//! A few bytes of a message may stand for any number of elements. So the bytes of a tensor are
//! computed, held against the limit and booked before anything of it is built.

use ::proto::tensorflow::tensor_shape_proto::Dim as ProtoDim;
use ::proto::tensorflow::{TensorProto, TensorShapeProto};
use bytemuck::Pod;

use crate::error::{Error, Result};
use crate::{DType, Dim, Shape, Spec, Tensor};

/// The layout of the elements of a `TensorProto`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// One entry of a typed field for each, as TensorFlow Serving answers.
    Values,
    /// All of them in `tensor_content`.
    Content,
}

impl Tensor {
    /// Reads a `TensorProto`. Refuses one whose elements would take more than `limit_bytes`, or
    /// more than whom the thread works for may hold: a few bytes on the wire may stand for any
    /// number of elements.
    pub fn from_proto(proto: &TensorProto, limit_bytes: usize) -> Result<Self> {
        let dtype = proto_dtype(proto)
            .ok_or_else(|| malformed(format!("dtype {} is not a value type", proto.dtype)))?;
        let shape = shape(proto)?;
        let width = dtype.size().max(size_of::<usize>() * usize::from(!dtype.is_plain()));
        let too_large = |bytes: Option<usize>| bytes.is_none_or(|bytes| bytes > limit_bytes);
        let refused = || {
            let reason = format!("{dtype}{shape} is larger than the limit of {limit_bytes} bytes");
            malformed(reason)
        };
        if too_large(shape.n_elements().checked_mul(width)) {
            return Err(refused());
        }
        match dtype {
            DType::String => {
                let given = ProtoValues::new(proto, shape.n_elements())?;
                if too_large(given.held_bytes()) {
                    return Err(refused());
                }
                given.into_tensor(shape)
            }
            DType::Resource | DType::Variant => {
                Err(malformed(format!("a {dtype} tensor cannot be sent")))
            }
            _ if proto.tensor_content.is_empty() => values(proto, dtype, shape),
            _ => content(proto, dtype, shape),
        }
    }

    /// The bytes of memory that its `TensorProto` takes, at most.
    pub fn proto_bytes(&self) -> usize {
        // A field for each string, and what the heap adds to each.
        const STRING_BYTES: usize = 64;
        match self.dtype() {
            DType::String => self.n_bytes() + self.n_elements() * STRING_BYTES,
            // Narrow values travel in fields of four bytes.
            dtype => self.n_elements() * dtype.size().max(size_of::<i32>()),
        }
    }

    /// Writes a `TensorProto`. Fails for resource and variant tensors.
    pub fn to_proto(&self, layout: Layout) -> Result<TensorProto> {
        let mut proto = TensorProto {
            dtype: self.dtype().number(),
            tensor_shape: Some(shape_to_proto(self.shape())),
            ..TensorProto::default()
        };
        if self.dtype() == DType::String {
            proto.string_val = self.strings().iter().map(|s| s.to_vec().into()).collect();
            return Ok(proto);
        }
        if !self.dtype().is_plain() {
            return Err(malformed(format!("a {} tensor cannot be sent", self.dtype())));
        }
        if layout == Layout::Content {
            proto.tensor_content = self.view().bytes().to_vec().into();
            return Ok(proto);
        }
        write_values(self, &mut proto);
        Ok(proto)
    }
}

/// The dtype of a message, if it is one that values have.
pub fn proto_dtype(proto: &TensorProto) -> Option<DType> {
    DType::from_number(proto.dtype).filter(|dtype| dtype.number() == proto.dtype)
}

/// Reads a partial shape: a negative size is unknown, as in signatures and attributes.
pub fn dims_from_proto(shape: &TensorShapeProto) -> Option<Vec<Option<i64>>> {
    if shape.unknown_rank {
        return None;
    }
    Some(shape.dim.iter().map(|dim| (dim.size >= 0).then_some(dim.size)).collect())
}

impl Spec {
    /// A spec of a partial shape, with unknown dimensions unknown.
    pub fn from_proto(dtype: DType, shape: &TensorShapeProto) -> Self {
        match dims_from_proto(shape) {
            None => Self::unknown(dtype),
            Some(dims) => {
                Self::new(dtype, dims.into_iter().map(|dim| dim.map_or(Dim::Unknown, Dim::Known)))
            }
        }
    }
}

fn shape_to_proto(shape: &Shape) -> TensorShapeProto {
    let dim = shape.to_i64().into_iter().map(|size| ProtoDim { size, name: String::new() });
    TensorShapeProto { dim: dim.collect(), unknown_rank: false }
}

fn shape(proto: &TensorProto) -> Result<Shape> {
    let Some(shape) = &proto.tensor_shape else { return Ok(Shape::scalar()) };
    if shape.unknown_rank {
        return Ok(Shape::scalar());
    }
    // TensorFlow itself allows 254.
    if shape.dim.len() > 254 {
        return Err(malformed(format!("{} dimensions, more than 254", shape.dim.len())));
    }
    Shape::checked(shape.dim.iter().map(|dim| dim.size))
}

fn content(proto: &TensorProto, dtype: DType, shape: Shape) -> Result<Tensor> {
    let expected = shape.n_elements() * dtype.size();
    if proto.tensor_content.len() != expected {
        return Err(malformed(format!(
            "tensor_content has {} bytes, but {dtype}{shape} has {expected}",
            proto.tensor_content.len()
        )));
    }
    Tensor::from_bytes(dtype, shape, &proto.tensor_content)
}

/// The strings of a message, of which nothing is copied yet.
struct ProtoValues<'a> {
    /// The strings that are given, in order.
    each: Vec<&'a [u8]>,
    /// The string that stands for each one that is missing, and how many are.
    last: &'a [u8],
    n_missing: usize,
}

impl<'a> ProtoValues<'a> {
    /// Finds `count` strings in `string_val`, or in `tensor_content` as lengths followed by bytes.
    fn new(proto: &'a TensorProto, count: usize) -> Result<Self> {
        if !proto.tensor_content.is_empty() {
            let each = strings_in_content(&proto.tensor_content, count)?;
            return Ok(Self { each, last: b"", n_missing: 0 });
        }
        let each: Vec<&[u8]> = proto.string_val.iter().take(count).map(|s| &**s).collect();
        let last: &[u8] = proto.string_val.last().map_or(b"", |last| last);
        let n_missing = count - each.len();
        Ok(Self { each, last, n_missing })
    }

    fn len(&self) -> usize {
        self.each.len() + self.n_missing
    }

    /// The bytes of all strings without their ends. `None` if they are more than can be counted.
    fn text_bytes(&self) -> Option<usize> {
        let repeated = self.last.len().checked_mul(self.n_missing)?;
        self.each.iter().try_fold(repeated, |sum, string| sum.checked_add(string.len()))
    }

    /// The bytes that the strings take in a tensor.
    fn held_bytes(&self) -> Option<usize> {
        self.text_bytes()?.checked_add(self.len().checked_mul(size_of::<usize>())?)
    }

    /// Books the bytes, and builds the tensor.
    fn into_tensor(self, shape: Shape) -> Result<Tensor> {
        let uncountable = || malformed(format!("string{shape} has more bytes than can be counted"));
        let n_bytes = self.text_bytes().ok_or_else(uncountable)?;
        Tensor::of_strings(shape, n_bytes, |strings| {
            self.each.iter().try_for_each(|string| strings.push(string))?;
            (0..self.n_missing).try_for_each(|_| strings.push(self.last))
        })
    }
}

/// The strings in `tensor_content`: all lengths, and then the bytes of all.
fn strings_in_content(content: &[u8], count: usize) -> Result<Vec<&[u8]>> {
    let truncated = || malformed("tensor_content ends inside a string tensor".to_owned());
    // Each string has a length, of a byte at least.
    if count > content.len() {
        return Err(truncated());
    }
    let mut rest = content;
    let mut lengths = Vec::with_capacity(count);
    for _ in 0..count {
        let length = varint(&mut rest).ok_or_else(truncated)?;
        lengths.push(usize::try_from(length).map_err(|_| truncated())?);
    }
    let mut strings = Vec::with_capacity(count);
    for length in lengths {
        let (string, more) = rest.split_at_checked(length).ok_or_else(truncated)?;
        strings.push(string);
        rest = more;
    }
    if !rest.is_empty() {
        return Err(malformed(format!("tensor_content has {} bytes too many", rest.len())));
    }
    Ok(strings)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn values(proto: &TensorProto, dtype: DType, shape: Shape) -> Result<Tensor> {
    let mut tensor = Tensor::zeros(dtype, shape)?;
    let mut view = tensor.view_mut().expect("a new plain tensor has one owner");
    let bytes = view.bytes();
    match dtype {
        DType::F32 => fill(bytes, &proto.float_val),
        DType::F64 => fill(bytes, &proto.double_val),
        DType::I64 => fill(bytes, &proto.int64_val),
        DType::U32 => fill(bytes, &proto.uint32_val),
        DType::U64 => fill(bytes, &proto.uint64_val),
        DType::I32 | DType::QI32 => fill(bytes, &proto.int_val),
        DType::I16 | DType::QI16 | DType::U16 | DType::QU16 => {
            fill_as(bytes, &proto.int_val, low_half);
        }
        DType::I8 | DType::QI8 | DType::U8 | DType::QU8 | DType::I4 | DType::U4 => {
            fill_as(bytes, &proto.int_val, |value| value.to_le_bytes()[0]);
        }
        DType::F16 | DType::BF16 => fill_as(bytes, &proto.half_val, low_half),
        DType::Bool => fill_as(bytes, &proto.bool_val, u8::from),
        DType::Complex64 => fill(bytes, proto.scomplex_val.as_chunks::<2>().0),
        DType::Complex128 => fill(bytes, proto.dcomplex_val.as_chunks::<2>().0),
        DType::F8E5M2
        | DType::F8E4M3FN
        | DType::F8E4M3FNUZ
        | DType::F8E4M3B11FNUZ
        | DType::F8E5M2FNUZ => fill(bytes, &proto.float8_val),
        DType::String | DType::Resource | DType::Variant => {
            unreachable!("the caller keeps these dtypes away")
        }
    }
    Ok(tensor)
}

/// Writes `values` to `bytes`, repeating the last one; leaves zeros if there are none.
fn fill<T: Pod>(bytes: &mut [u8], values: &[T]) {
    let Some(last) = values.last() else { return };
    let elements: &mut [T] = bytemuck::cast_slice_mut(bytes);
    let given = values.len().min(elements.len());
    elements[..given].copy_from_slice(&values[..given]);
    elements[given..].fill(*last);
}

/// The same with values that become narrower elements on their way.
fn fill_as<V: Copy, T: Pod>(bytes: &mut [u8], values: &[V], narrow: impl Fn(V) -> T) {
    let Some(last) = values.last() else { return };
    let elements: &mut [T] = bytemuck::cast_slice_mut(bytes);
    let given = values.len().min(elements.len());
    elements.iter_mut().zip(values).for_each(|(element, value)| *element = narrow(*value));
    elements[given..].fill(narrow(*last));
}

/// 16-bit values travel in the low bits; higher ones are dropped, as TensorFlow does.
fn low_half(value: i32) -> [u8; 2] {
    [value.to_le_bytes()[0], value.to_le_bytes()[1]]
}

fn write_values(tensor: &Tensor, proto: &mut TensorProto) {
    let view = tensor.view();
    match tensor.dtype() {
        DType::F32 => proto.float_val = view.as_wide().to_vec(),
        DType::F64 => proto.double_val = view.as_wide().to_vec(),
        DType::I64 => proto.int64_val = view.as_wide().to_vec(),
        DType::U32 => proto.uint32_val = view.as_wide().to_vec(),
        DType::U64 => proto.uint64_val = view.as_wide().to_vec(),
        DType::I32 | DType::QI32 => proto.int_val = view.as_wide().to_vec(),
        DType::I16 | DType::QI16 => proto.int_val = widened::<i16>(view.as_wide()),
        DType::U16 | DType::QU16 => proto.int_val = widened::<u16>(view.as_wide()),
        DType::I8 | DType::QI8 | DType::I4 => proto.int_val = widened::<i8>(view.as_wide()),
        DType::U8 | DType::QU8 | DType::U4 => proto.int_val = widened::<u8>(view.as_wide()),
        DType::F16 | DType::BF16 => proto.half_val = widened::<u16>(view.as_wide()),
        DType::Bool => proto.bool_val = view.as_wide::<u8>().iter().map(|b| *b != 0).collect(),
        DType::Complex64 => proto.scomplex_val = bytemuck::cast_slice(view.bytes()).to_vec(),
        DType::Complex128 => proto.dcomplex_val = bytemuck::cast_slice(view.bytes()).to_vec(),
        DType::F8E5M2
        | DType::F8E4M3FN
        | DType::F8E4M3FNUZ
        | DType::F8E4M3B11FNUZ
        | DType::F8E5M2FNUZ => proto.float8_val = view.bytes().to_vec().into(),
        DType::String | DType::Resource | DType::Variant => {
            unreachable!("the caller keeps these dtypes away")
        }
    }
}

fn widened<T: Copy + Into<i32>>(values: &[T]) -> Vec<i32> {
    values.iter().map(|value| (*value).into()).collect()
}

fn malformed(reason: String) -> Error {
    Error::Proto { reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: usize = 1 << 20;

    fn proto(dtype: DType, dims: &[i64]) -> TensorProto {
        let dim = dims.iter().map(|size| ProtoDim { size: *size, name: String::new() }).collect();
        TensorProto {
            dtype: dtype.number(),
            tensor_shape: Some(TensorShapeProto { dim, unknown_rank: false }),
            ..TensorProto::default()
        }
    }

    #[test]
    fn the_last_value_repeats_none_means_zeros_and_more_are_ignored() {
        let check = |values: &[f32], expected: &[f32]| {
            let proto = TensorProto { float_val: values.to_vec(), ..proto(DType::F32, &[3]) };
            let tensor = Tensor::from_proto(&proto, LIMIT).unwrap();
            assert_eq!(tensor.as_slice::<f32>(), expected);
        };
        check(&[1., 2.], &[1., 2., 2.]);
        check(&[], &[0., 0., 0.]);
        check(&[1., 2., 3., 4.], &[1., 2., 3.]);
    }

    #[test]
    fn narrow_integers_wrap_silently() {
        let proto = TensorProto { int_val: vec![300, -1], ..proto(DType::U8, &[2]) };
        assert_eq!(Tensor::from_proto(&proto, LIMIT).unwrap().as_slice::<u8>(), [44, 255]);
    }

    #[test]
    fn every_dtype_comes_back_in_both_layouts() {
        for dtype in DType::all().filter(|d| d.is_plain() && *d != DType::Bool) {
            let shape = Shape::of(&[2, 3]);
            let bytes: Vec<u8> = (0..).take(6 * dtype.size()).collect();
            let tensor = Tensor::from_bytes(dtype, shape, &bytes).unwrap();
            for layout in [Layout::Values, Layout::Content] {
                let proto = tensor.to_proto(layout).unwrap();
                let back = Tensor::from_proto(&proto, LIMIT).unwrap();
                assert_eq!(back.view().bytes(), bytes, "{dtype} {layout:?}");
            }
        }
    }

    #[test]
    fn strings_are_read_from_both_fields() {
        let mut given = proto(DType::String, &[3]);
        given.string_val = vec!["a".into(), "b\0".into()];
        let tensor = Tensor::from_proto(&given, LIMIT).unwrap();
        assert_eq!(tensor.strings().iter().collect::<Vec<_>>(), [&b"a"[..], b"b\0", b"b\0"]);
        let mut content = proto(DType::String, &[2]);
        content.tensor_content = vec![1, 2, b'x', b'y', b'z'].into();
        let tensor = Tensor::from_proto(&content, LIMIT).unwrap();
        assert_eq!(tensor.strings().iter().collect::<Vec<_>>(), [&b"x"[..], b"yz"]);
        content.tensor_content = vec![1, 200, b'x'].into();
        assert!(Tensor::from_proto(&content, LIMIT).is_err());
    }

    #[test]
    fn hostile_protos_are_refused_before_anything_is_allocated() {
        let check = |proto: &TensorProto, expected: &str| {
            let error = Tensor::from_proto(proto, LIMIT).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        check(&proto(DType::F32, &[1 << 31, 1 << 31]), "too large");
        check(&proto(DType::F32, &[1 << 30]), "larger than the limit");
        check(&proto(DType::String, &[1 << 30]), "larger than the limit");
        check(&proto(DType::F32, &[-1]), "negative");
        check(&TensorProto { dtype: 0, ..proto(DType::F32, &[1]) }, "dtype 0");
        check(&TensorProto { dtype: 101, ..proto(DType::F32, &[1]) }, "dtype 101");
        check(&proto(DType::Resource, &[]), "cannot be sent");
        let short = TensorProto { tensor_content: vec![0; 3].into(), ..proto(DType::F32, &[1]) };
        check(&short, "3 bytes");
        let mut repeated = proto(DType::String, &[10_000]);
        repeated.string_val = vec![vec![b'x'; 1000].into()];
        check(&repeated, "larger than the limit");
        let mut content = proto(DType::String, &[100_000]);
        content.tensor_content = vec![0; 10].into();
        check(&content, "ends inside");
    }

    #[test]
    fn strings_are_refused_by_the_books_before_they_are_built() {
        use std::sync::Arc;
        let driver = Arc::new(device::Host::new("cpu:0", 1 << 20)) as Arc<dyn device::Driver>;
        let driver = Arc::new(device::Limited::new(driver, "cpu:0", 1 << 20));
        let physical = Arc::clone(driver.account());
        let growth = device::logical::GrowthRule::OnDemand;
        let options = device::SpaceOptions {
            driver,
            physical: Arc::new(device::Account::new(physical.name(), 1 << 20)),
            growth,
            step_bytes: 4096,
            context_bytes: 0,
        };
        let space = device::Space::new(options).unwrap();
        let owner = device::Owner::new(&space, device::Holder::Server, None);
        let _scope = device::booked_to(&owner, device::Category::Requests);
        let mut large = proto(DType::String, &[1 << 40]);
        large.string_val = vec![vec![b'x'; 1000].into()];
        // Nothing but the books stands in the way: what is built first would end the process.
        let error = Tensor::from_proto(&large, usize::MAX).unwrap_err();
        assert!(matches!(error, Error::Memory(_)), "{error}");
        large.tensor_shape.as_mut().unwrap().dim[0].size = 100;
        let tensor = Tensor::from_proto(&large, usize::MAX).unwrap();
        assert_eq!(owner.bytes(), tensor.n_bytes() as u64);
    }
}
