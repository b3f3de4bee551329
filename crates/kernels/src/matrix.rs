//! `Matrix`: elements in a slice, read as rows and columns.

/// A matrix to read: elements and how far apart they are.
#[derive(Debug, Clone, Copy)]
pub struct Matrix<'a, T> {
    /// The elements.
    pub data: &'a [T],
    /// Rows and columns, as they are multiplied.
    pub size: (usize, usize),
    /// The distances between rows and between columns.
    pub strides: (usize, usize),
    /// `true` if the complex conjugates are meant.
    pub conjugate: bool,
}

/// The form in which a matrix is multiplied, compared with the one in which it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// As it is.
    Plain,
    /// Transposed.
    Transposed,
    /// Transposed and conjugated.
    Adjoint,
}

impl Form {
    /// The two numbers of a matrix as it is multiplied, from those as it is stored.
    pub fn orient<N>(self, (rows, columns): (N, N)) -> (N, N) {
        if self == Self::Plain { (rows, columns) } else { (columns, rows) }
    }
}

impl<'a, T> Matrix<'a, T> {
    /// A matrix stored row by row, of the stored `size`.
    ///
    /// # Panics
    /// If there are not as many elements.
    pub fn new(data: &'a [T], size: (usize, usize), form: Form) -> Self {
        assert_eq!(data.len(), size.0 * size.1);
        Self {
            data,
            size: form.orient(size),
            strides: form.orient((size.1, 1)),
            conjugate: form == Form::Adjoint,
        }
    }
}
