//! `Shape`: concrete dimensions.

use std::fmt;
use std::ops::Deref;

use smallvec::SmallVec;

use crate::DType;
use crate::error::{Error, Result};

/// The dimensions of a tensor, outermost first. Their product fits in memory for any dtype.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Shape(SmallVec<[usize; 5]>);

impl Shape {
    /// Returns the bytes of the heap that the shape takes: none but for very many dimensions.
    pub fn heap_bytes(&self) -> usize {
        if self.0.spilled() { self.0.capacity() * size_of::<usize>() } else { 0 }
    }

    /// The shape of a scalar.
    pub fn scalar() -> Self {
        Self::default()
    }

    /// A shape of dimensions that a program has, not a file or a client.
    ///
    /// # Panics
    /// If the elements would not fit in memory.
    pub fn of(dims: &[usize]) -> Self {
        let shape = Self(SmallVec::from_slice(dims));
        assert!(shape.fits(), "shape {shape} is too large");
        shape
    }

    /// A shape of dimensions that somebody gave us. Fails if one is negative, or if their product
    /// times 16 bytes, the widest element, would not fit in memory.
    pub fn checked(dims: impl IntoIterator<Item = i64>) -> Result<Self> {
        let dims: SmallVec<[i64; 5]> = dims.into_iter().collect();
        let negative = || Error::NegativeDim { dims: dims.to_vec() };
        let sizes: Option<SmallVec<[usize; 5]>> =
            dims.iter().map(|dim| usize::try_from(*dim).ok()).collect();
        let shape = Self(sizes.ok_or_else(negative)?);
        if !shape.fits() {
            return Err(Error::TooLarge { dtype: DType::Complex128, dims: dims.to_vec() });
        }
        Ok(shape)
    }

    /// The dimensions.
    pub fn dims(&self) -> &[usize] {
        &self.0
    }

    /// The number of dimensions.
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// The product of the dimensions: 1 for a scalar.
    pub fn n_elements(&self) -> usize {
        self.0.iter().product()
    }

    /// The innermost dimension; 1 for a scalar.
    pub fn last_dim(&self) -> usize {
        self.0.last().copied().unwrap_or(1)
    }

    /// The dimensions as TensorFlow's `int64`.
    pub fn to_i64(&self) -> SmallVec<[i64; 5]> {
        self.0.iter().map(|dim| i64::try_from(*dim).expect("a dimension fits in memory")).collect()
    }

    /// Returns how many elements apart neighbours along each dimension are, in row-major order.
    pub fn strides(&self) -> SmallVec<[usize; 5]> {
        let mut strides = SmallVec::from_elem(1, self.rank());
        for i in (1..self.rank()).rev() {
            strides[i - 1] = strides[i] * self.0[i];
        }
        strides
    }

    /// Returns whether the dimensions, even those around a zero, multiply to less than memory can
    /// hold.
    fn fits(&self) -> bool {
        let mut product: usize = 16;
        for dim in self.0.iter().filter(|dim| **dim != 0) {
            match product.checked_mul(*dim) {
                Some(next) if isize::try_from(next).is_ok() => product = next,
                _ => return false,
            }
        }
        true
    }
}

impl Deref for Shape {
    type Target = [usize];

    fn deref(&self) -> &[usize] {
        &self.0
    }
}

impl FromIterator<usize> for Shape {
    fn from_iter<I: IntoIterator<Item = usize>>(dims: I) -> Self {
        let dims: SmallVec<[usize; 5]> = dims.into_iter().collect();
        Self::of(&dims)
    }
}

/// As TensorFlow prints shapes: `[2,3]`.
impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, dim) in self.0.iter().enumerate() {
            write!(f, "{}{dim}", if i > 0 { "," } else { "" })?;
        }
        f.write_str("]")
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_dimensions_are_refused() {
        assert!(matches!(Shape::checked([2, -1]), Err(Error::NegativeDim { .. })));
        assert!(matches!(Shape::checked([1 << 40, 1 << 40]), Err(Error::TooLarge { .. })));
        assert!(matches!(Shape::checked([0, 1 << 40, 1 << 40]), Err(Error::TooLarge { .. })));
        assert_eq!(Shape::checked([0, 3]).unwrap().n_elements(), 0);
    }

    #[test]
    fn strides_are_row_major() {
        assert_eq!(Shape::of(&[2, 3, 4]).strides()[..], [12, 4, 1]);
        assert_eq!(Shape::scalar().n_elements(), 1);
        assert_eq!(Shape::of(&[2, 3]).to_string(), "[2,3]");
    }
}
