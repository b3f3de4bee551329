//! `Tensor`: an owned value that clones cheaply.

use std::sync::Arc;

use device::{Booked, Buffer};
use smallvec::{SmallVec, smallvec};

use crate::error::{Error, Result};
use crate::{DType, Element, Handle, Shape, Strings, View, ViewMut};

/// A dtype, a shape and the elements. Clones share the elements.
#[derive(Debug, Clone)]
pub struct Tensor {
    dtype: DType,
    shape: Shape,
    data: Data,
}

#[derive(Debug, Clone)]
enum Data {
    Bytes(Buffer),
    Strings(Arc<Strings>),
    Handles(Arc<Handles>),
}

/// Handles, and who pays for the place of more than one.
#[derive(Debug)]
struct Handles {
    list: SmallVec<[Handle; 1]>,
    /// Kept for its drop.
    _booked: Booked,
}

impl Handles {
    /// The first `n` of some handles, and one more if there are more.
    fn new(handles: impl IntoIterator<Item = Handle>, n: usize) -> Result<Self> {
        let bytes = if n > 1 { n.saturating_mul(size_of::<Handle>()) } else { 0 };
        let booked = Booked::new(bytes)?;
        let mut list = SmallVec::new();
        list.try_reserve_exact(n).map_err(|_| device::Error::OutOfMemory { bytes })?;
        list.extend(handles.into_iter().take(n.saturating_add(1)));
        Ok(Self { list, _booked: booked })
    }
}

impl Tensor {
    /// A tensor of zeros (empty strings for strings). Fails without memory, and for resource and
    /// variant tensors, which have no zero.
    pub fn zeros(dtype: DType, shape: Shape) -> Result<Self> {
        if dtype == DType::String {
            let strings = Strings::repeated(b"", shape.n_elements())?;
            return Self::from_strings(shape, strings);
        }
        let buffer = Buffer::allocate(n_bytes(dtype, &shape)?)?;
        Ok(Self { dtype, shape, data: Data::Bytes(buffer) })
    }

    /// A tensor over memory that is already filled.
    pub fn from_buffer(dtype: DType, shape: Shape, buffer: Buffer) -> Result<Self> {
        let expected = n_bytes(dtype, &shape)?;
        if buffer.len() != expected {
            return Err(Error::WrongCount { got: buffer.len() / dtype.size(), shape });
        }
        Ok(Self { dtype, shape, data: Data::Bytes(buffer) })
    }

    /// A tensor with a copy of little-endian row-major `bytes`.
    pub fn from_bytes(dtype: DType, shape: Shape, bytes: &[u8]) -> Result<Self> {
        let expected = n_bytes(dtype, &shape)?;
        if bytes.len() != expected {
            return Err(Error::WrongCount { got: bytes.len() / dtype.size(), shape });
        }
        let mut buffer = Buffer::allocate(expected)?;
        buffer.bytes_mut().expect("a new buffer has one owner").copy_from_slice(bytes);
        Ok(Self { dtype, shape, data: Data::Bytes(buffer) })
    }

    /// A tensor with a copy of `values`.
    pub fn from_slice<T: Element>(shape: Shape, values: &[T]) -> Result<Self> {
        Self::from_bytes(T::DTYPE, shape, bytemuck::cast_slice(values))
    }

    /// A scalar.
    pub fn scalar<T: Element>(value: T) -> Result<Self> {
        Self::from_slice(Shape::scalar(), &[value])
    }

    /// A vector.
    pub fn vector<T: Element>(values: &[T]) -> Result<Self> {
        Self::from_slice(Shape::of(&[values.len()]), values)
    }

    /// A string tensor. Fails if there are not as many as the shape has.
    pub fn from_strings(shape: Shape, mut strings: Strings) -> Result<Self> {
        if strings.len() != shape.n_elements() {
            return Err(Error::WrongCount { got: strings.len(), shape });
        }
        strings.shrink_to_fit();
        Ok(Self { dtype: DType::String, shape, data: Data::Strings(Arc::new(strings)) })
    }

    /// A string tensor of strings that have `n_bytes` bytes together and that `fill` writes. They
    /// are booked before any of them is written.
    pub fn of_strings(
        shape: Shape,
        n_bytes: usize,
        fill: impl FnOnce(&mut Strings) -> Result<()>,
    ) -> Result<Self> {
        let mut strings = Strings::with_capacity(shape.n_elements(), n_bytes)?;
        fill(&mut strings)?;
        Self::from_strings(shape, strings)
    }

    /// A resource or variant tensor. Fails without memory, and if there are not as many handles as
    /// the shape has elements.
    pub fn from_handles(
        dtype: DType,
        shape: Shape,
        handles: impl IntoIterator<Item = Handle>,
    ) -> Result<Self> {
        assert!(matches!(dtype, DType::Resource | DType::Variant));
        let handles = Handles::new(handles, shape.n_elements())?;
        if handles.list.len() != shape.n_elements() {
            return Err(Error::WrongCount { got: handles.list.len(), shape });
        }
        Ok(Self { dtype, shape, data: Data::Handles(Arc::new(handles)) })
    }

    /// A scalar resource or variant tensor.
    pub fn from_handle(dtype: DType, handle: Handle) -> Self {
        assert!(matches!(dtype, DType::Resource | DType::Variant));
        let handles = Handles { list: smallvec![handle], _booked: Booked::nothing() };
        Self { dtype, shape: Shape::scalar(), data: Data::Handles(Arc::new(handles)) }
    }

    /// A plain tensor whose elements nobody has: they take no memory and read as zeros.
    pub fn vacant(dtype: DType, shape: Shape) -> Result<Self> {
        assert!(dtype.is_plain());
        let buffer = Buffer::vacant(shape.n_elements() * dtype.size())?;
        Self::from_buffer(dtype, shape, buffer)
    }

    /// Returns whether nobody has the tensor's elements: see [`Tensor::vacant`].
    pub fn is_vacant(&self) -> bool {
        self.buffer().is_some_and(Buffer::is_vacant)
    }

    /// Returns whether the tensor's elements are counted but not meant: see
    /// [`Buffer::is_rehearsed`].
    pub fn is_rehearsed(&self) -> bool {
        self.buffer().is_some_and(Buffer::is_rehearsed)
    }

    /// The dtype.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The shape.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The number of elements.
    pub fn n_elements(&self) -> usize {
        self.shape.n_elements()
    }

    /// The bytes of memory that the elements take.
    pub fn n_bytes(&self) -> usize {
        match &self.data {
            Data::Bytes(buffer) => buffer.len(),
            Data::Strings(strings) => strings.n_bytes(),
            Data::Handles(handles) => size_of_val(&handles.list[..]),
        }
    }

    /// A view of it.
    pub fn view(&self) -> View<'_> {
        match &self.data {
            Data::Bytes(buffer) => View::of_bytes(self, buffer.bytes()),
            Data::Strings(strings) => View::of_strings(self, strings),
            Data::Handles(handles) => View::of_handles(self, &handles.list),
        }
    }

    /// The elements of a plain tensor.
    ///
    /// # Panics
    /// If `T` does not stand for the dtype.
    pub fn as_slice<T: Element>(&self) -> &[T] {
        self.view().as_slice()
    }

    /// The elements of a string tensor.
    ///
    /// # Panics
    /// If they are no strings.
    pub fn strings(&self) -> &Strings {
        self.view().strings()
    }

    /// The memory of a plain tensor.
    pub fn buffer(&self) -> Option<&Buffer> {
        match &self.data {
            Data::Bytes(buffer) => Some(buffer),
            Data::Strings(_) | Data::Handles(_) => None,
        }
    }

    /// A view to write a plain tensor through, if nothing else shares its memory.
    pub fn view_mut(&mut self) -> Option<ViewMut<'_>> {
        let Data::Bytes(buffer) = &mut self.data else { return None };
        Some(ViewMut::plain(self.dtype, &self.shape, buffer.bytes_mut()?))
    }

    /// The elements of a resource or variant tensor to be changed, if nothing else shares them.
    pub fn handles_mut(&mut self) -> Option<&mut [Handle]> {
        match &mut self.data {
            Data::Handles(handles) => Arc::get_mut(handles).map(|handles| &mut handles.list[..]),
            Data::Bytes(_) | Data::Strings(_) => None,
        }
    }

    /// Returns the same elements in another shape of as many. Shares the memory.
    pub fn reshaped(&self, shape: Shape) -> Result<Self> {
        if shape.n_elements() != self.n_elements() {
            return Err(Error::WrongCount { got: self.n_elements(), shape });
        }
        Ok(Self { dtype: self.dtype, shape, data: self.data.clone() })
    }

    /// Returns the same bits as another dtype of the same width. Shares the memory.
    ///
    /// # Panics
    /// If the widths differ or the elements are not plain.
    pub fn bitcast(&self, dtype: DType) -> Self {
        assert!(dtype.is_plain() && dtype.size() == self.dtype.size());
        Self { dtype, shape: self.shape.clone(), data: self.data.clone() }
    }
}

/// The bytes of plain elements. Fails if they are not plain.
fn n_bytes(dtype: DType, shape: &Shape) -> Result<usize> {
    if !dtype.is_plain() {
        return Err(Error::Proto { reason: format!("a tensor of dtype {dtype} has no bytes") });
    }
    // A shape's product times 16 fits, and no element is wider.
    Ok(shape.n_elements() * dtype.size())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_share_and_reshaping_keeps_the_elements() {
        let tensor = Tensor::from_slice(Shape::of(&[2, 2]), &[1f32, 2., 3., 4.]).unwrap();
        let flat = tensor.reshaped(Shape::of(&[4])).unwrap();
        assert_eq!(flat.as_slice::<f32>(), [1., 2., 3., 4.]);
        assert!(flat.buffer().unwrap().shares_memory_with(tensor.buffer().unwrap()));
        assert!(tensor.reshaped(Shape::of(&[3])).is_err());
    }

    #[test]
    fn wrong_counts_are_refused() {
        assert!(Tensor::from_slice(Shape::of(&[3]), &[1f32]).is_err());
        assert!(Tensor::from_strings(Shape::of(&[2]), Strings::default()).is_err());
        assert!(Tensor::zeros(DType::Resource, Shape::scalar()).is_err());
    }
}
