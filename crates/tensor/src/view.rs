//! `View` and `ViewMut`: tensors as kernels see them, wherever their bytes live.

use crate::{DType, Element, Handle, Shape, Strings, Tensor};

/// A tensor to read.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    dtype: DType,
    shape: &'a Shape,
    data: Data<'a>,
    /// The tensor it is a view of, if it is one: cloning that shares its memory.
    owner: Option<&'a Tensor>,
}

#[derive(Debug, Clone, Copy)]
enum Data<'a> {
    Bytes(&'a [u8]),
    Strings(&'a Strings),
    Handles(&'a [Handle]),
}

impl<'a> View<'a> {
    /// A view of plain elements.
    ///
    /// # Panics
    /// If the bytes are not just those of the shape.
    pub fn plain(dtype: DType, shape: &'a Shape, bytes: &'a [u8]) -> Self {
        assert!(dtype.is_plain());
        assert_eq!(bytes.len(), shape.n_elements() * dtype.size(), "{dtype}{shape}");
        Self { dtype, shape, data: Data::Bytes(bytes), owner: None }
    }

    pub(crate) fn of_bytes(tensor: &'a Tensor, bytes: &'a [u8]) -> Self {
        Self::of(tensor, Data::Bytes(bytes))
    }

    pub(crate) fn of_strings(tensor: &'a Tensor, strings: &'a Strings) -> Self {
        Self::of(tensor, Data::Strings(strings))
    }

    pub(crate) fn of_handles(tensor: &'a Tensor, handles: &'a [Handle]) -> Self {
        Self::of(tensor, Data::Handles(handles))
    }

    fn of(tensor: &'a Tensor, data: Data<'a>) -> Self {
        Self { dtype: tensor.dtype(), shape: tensor.shape(), data, owner: Some(tensor) }
    }

    /// The dtype.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The shape.
    pub fn shape(&self) -> &'a Shape {
        self.shape
    }

    /// The number of elements.
    pub fn n_elements(&self) -> usize {
        self.shape.n_elements()
    }

    /// The bytes of plain elements.
    ///
    /// # Panics
    /// If the elements are strings or handles: kernels check the dtype first.
    pub fn bytes(&self) -> &'a [u8] {
        match self.data {
            Data::Bytes(bytes) => bytes,
            Data::Strings(_) | Data::Handles(_) => panic!("{} has no bytes", self.dtype),
        }
    }

    /// The elements of a plain tensor.
    ///
    /// # Panics
    /// If `T` does not stand for the dtype.
    pub fn as_slice<T: Element>(&self) -> &'a [T] {
        assert!(T::stands_for(self.dtype), "{} seen as {}", self.dtype, T::DTYPE);
        bytemuck::cast_slice(self.bytes())
    }

    /// The elements by their width alone: any plain type as wide as the dtype.
    ///
    /// # Panics
    /// If `T` is not as wide as the dtype.
    pub fn as_wide<T: bytemuck::Pod>(&self) -> &'a [T] {
        assert_eq!(size_of::<T>(), self.dtype.size(), "{}", self.dtype);
        bytemuck::cast_slice(self.bytes())
    }

    /// The elements of a string tensor.
    ///
    /// # Panics
    /// If they are no strings.
    pub fn strings(&self) -> &'a Strings {
        match self.data {
            Data::Strings(strings) => strings,
            Data::Bytes(_) | Data::Handles(_) => panic!("{} has no strings", self.dtype),
        }
    }

    /// The elements of a resource or variant tensor.
    ///
    /// # Panics
    /// If they are no handles.
    pub fn handles(&self) -> &'a [Handle] {
        match self.data {
            Data::Handles(handles) => handles,
            Data::Bytes(_) | Data::Strings(_) => panic!("{} has no handles", self.dtype),
        }
    }

    /// The same as a tensor of its own: shares the memory of the tensor it is a view of, else
    /// copies.
    pub fn to_tensor(&self) -> crate::Result<Tensor> {
        if let Some(owner) = self.owner {
            return Ok(owner.clone());
        }
        match self.data {
            Data::Bytes(bytes) => Tensor::from_bytes(self.dtype, self.shape.clone(), bytes),
            Data::Strings(strings) => {
                Tensor::from_strings(self.shape.clone(), strings.try_clone()?)
            }
            Data::Handles(handles) => {
                Tensor::from_handles(self.dtype, self.shape.clone(), handles.iter().cloned())
            }
        }
    }

    /// The elements of a small tensor of `int32` or `int64`, widened; `None` for other dtypes.
    pub fn to_i64(&self) -> Option<Vec<i64>> {
        if self.dtype == DType::I64 {
            return Some(self.as_slice::<i64>().to_vec());
        }
        let narrow = self.dtype == DType::I32;
        narrow.then(|| self.as_slice::<i32>().iter().map(|x| i64::from(*x)).collect())
    }
}

/// A plain tensor to write.
#[derive(Debug)]
pub struct ViewMut<'a> {
    dtype: DType,
    shape: &'a Shape,
    bytes: &'a mut [u8],
}

impl<'a> ViewMut<'a> {
    /// A view of plain elements.
    ///
    /// # Panics
    /// If the bytes are not just those of the shape.
    pub fn plain(dtype: DType, shape: &'a Shape, bytes: &'a mut [u8]) -> Self {
        assert!(dtype.is_plain());
        assert_eq!(bytes.len(), shape.n_elements() * dtype.size(), "{dtype}{shape}");
        Self { dtype, shape, bytes }
    }

    /// The dtype.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The shape.
    pub fn shape(&self) -> &'a Shape {
        self.shape
    }

    /// The bytes. What they hold before they are written is unspecified.
    pub fn bytes(&mut self) -> &mut [u8] {
        self.bytes
    }

    /// The elements.
    ///
    /// # Panics
    /// If `T` does not stand for the dtype.
    pub fn as_mut_slice<T: Element>(&mut self) -> &mut [T] {
        assert!(T::stands_for(self.dtype), "{} seen as {}", self.dtype, T::DTYPE);
        bytemuck::cast_slice_mut(self.bytes)
    }

    /// The elements by their width alone.
    ///
    /// # Panics
    /// If `T` is not as wide as the dtype.
    pub fn as_wide_mut<T: bytemuck::Pod>(&mut self) -> &mut [T] {
        assert_eq!(size_of::<T>(), self.dtype.size(), "{}", self.dtype);
        bytemuck::cast_slice_mut(self.bytes)
    }

    /// The elements, for as long as the view's own lifetime.
    ///
    /// # Panics
    /// If `T` does not stand for the dtype.
    pub fn into_mut_slice<T: Element>(self) -> &'a mut [T] {
        assert!(T::stands_for(self.dtype), "{} seen as {}", self.dtype, T::DTYPE);
        bytemuck::cast_slice_mut(self.bytes)
    }

    /// A shorter-lived view of the same.
    pub fn reborrow(&mut self) -> ViewMut<'_> {
        ViewMut { dtype: self.dtype, shape: self.shape, bytes: self.bytes }
    }
}
