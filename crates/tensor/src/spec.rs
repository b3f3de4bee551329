//! `Spec`: what is known of a tensor before it is there.

use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::{DType, Dim, Shape, Tensor};

/// The dtype of a tensor, and what is known of its shape and its value.
#[derive(Debug, Clone)]
pub struct Spec {
    /// The dtype.
    pub dtype: DType,
    /// The dimensions; `None` if not even their number is known.
    pub dims: Option<SmallVec<[Dim; 5]>>,
    /// The facts that are known of the elements.
    pub value: Value,
}

/// The facts that are known of the elements of a tensor.
#[derive(Debug, Clone, Default)]
pub enum Value {
    /// Nothing.
    #[default]
    Unknown,
    /// All of them.
    Constant(Tensor),
    /// The elements of an integer tensor of rank 0 or 1, such as the shape of another.
    Sizes(Arc<[Dim]>),
    /// The list that a handle stands for.
    List(ListSpec),
}

/// The known properties of a list of tensors.
#[derive(Debug, Clone, PartialEq)]
pub struct ListSpec {
    /// The dtype of its tensors.
    pub dtype: DType,
    /// The number of tensors, set or not.
    pub len: Dim,
    /// The known properties of the tensors.
    pub items: Items,
}

/// The known properties of the tensors of a list.
#[derive(Debug, Clone, PartialEq)]
pub enum Items {
    /// None is set.
    Unset,
    /// Those that are set have these dimensions.
    Like(Arc<[Dim]>),
    /// Nothing.
    Unknown,
}

impl ListSpec {
    /// The bytes that the tensors take if all are set, as far as that is known.
    pub fn n_bytes(&self) -> Option<usize> {
        match &self.items {
            Items::Unset => Some(0),
            Items::Unknown => None,
            Items::Like(dims) => {
                let sizes = dims.iter().chain([&self.len]).map(Dim::size);
                let mut bytes = self.dtype.is_plain().then(|| self.dtype.size())?;
                for size in sizes {
                    bytes = bytes.checked_mul(size?)?;
                }
                Some(bytes)
            }
        }
    }
}

impl Spec {
    /// A tensor of which only the dtype is known.
    pub fn unknown(dtype: DType) -> Self {
        Self { dtype, dims: None, value: Value::Unknown }
    }

    /// A tensor of a dtype and dimensions.
    pub fn new(dtype: DType, dims: impl IntoIterator<Item = Dim>) -> Self {
        Self { dtype, dims: Some(dims.into_iter().collect()), value: Value::Unknown }
    }

    /// A tensor of a concrete shape.
    pub fn concrete(dtype: DType, shape: &Shape) -> Self {
        Self::new(dtype, shape.iter().map(|size| Dim::of(*size)))
    }

    /// A scalar.
    pub fn scalar(dtype: DType) -> Self {
        Self::new(dtype, [])
    }

    /// A tensor that is known altogether.
    pub fn constant(tensor: Tensor) -> Self {
        let mut spec = Self::concrete(tensor.dtype(), tensor.shape());
        spec.value = Value::Constant(tensor);
        spec
    }

    /// Returns the spec with elements that are sizes.
    #[must_use]
    pub fn with_sizes(mut self, sizes: impl IntoIterator<Item = Dim>) -> Self {
        self.value = Value::Sizes(sizes.into_iter().collect());
        self
    }

    /// Returns the spec for a handle of a list.
    #[must_use]
    pub fn with_list(mut self, list: ListSpec) -> Self {
        self.value = Value::List(list);
        self
    }

    /// Returns the known properties of the list that a handle stands for.
    pub fn list(&self) -> Option<&ListSpec> {
        match &self.value {
            Value::List(list) => Some(list),
            Value::Unknown | Value::Constant(_) | Value::Sizes(_) => None,
        }
    }

    /// Returns the same shape in another dtype, its value forgotten.
    #[must_use]
    pub fn with_dtype(&self, dtype: DType) -> Self {
        Self { dtype, dims: self.dims.clone(), value: Value::Unknown }
    }

    /// The dimensions, if their number is known.
    pub fn dims(&self) -> Option<&[Dim]> {
        self.dims.as_deref()
    }

    /// The number of dimensions, if known.
    pub fn rank(&self) -> Option<usize> {
        self.dims().map(<[Dim]>::len)
    }

    /// The shape, if every dimension is known and they fit in memory.
    pub fn shape(&self) -> Option<Shape> {
        let sizes: Option<SmallVec<[i64; 5]>> = self.dims()?.iter().map(Dim::known).collect();
        Shape::checked(sizes?).ok()
    }

    /// The tensor, if it is known altogether.
    pub fn as_constant(&self) -> Option<&Tensor> {
        match &self.value {
            Value::Constant(tensor) => Some(tensor),
            Value::Unknown | Value::Sizes(_) | Value::List(_) => None,
        }
    }

    /// The elements of an integer tensor as dimensions, if they are known (or known to be symbols).
    pub fn sizes(&self) -> Option<Vec<Dim>> {
        match &self.value {
            Value::Unknown | Value::List(_) => None,
            Value::Sizes(sizes) => Some(sizes.to_vec()),
            Value::Constant(tensor) => {
                Some(tensor.view().to_i64()?.into_iter().map(Dim::Known).collect())
            }
        }
    }

    /// The elements of an integer tensor, if all are numbers.
    pub fn ints(&self) -> Option<Vec<i64>> {
        self.sizes()?.iter().map(Dim::known).collect()
    }

    /// The product of the dimensions.
    pub fn n_elements(&self) -> Dim {
        let Some(dims) = self.dims() else { return Dim::Unknown };
        dims.iter().fold(Dim::Known(1), |product, dim| product.times(dim))
    }
}

/// As TensorFlow prints partial shapes: `float[?,3]`.
impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(dims) = self.dims() else { return write!(f, "{}<unknown>", self.dtype) };
        let dims: Vec<String> = dims.iter().map(ToString::to_string).collect();
        write!(f, "{}[{}]", self.dtype, dims.join(","))
    }
}
