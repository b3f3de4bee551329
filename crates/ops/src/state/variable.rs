//! `Variable`: a tensor that outlives a run.

use parking_lot::Mutex;
use smallvec::SmallVec;
use tensor::{DType, Dim, Spec, Tensor, View};

use crate::combine::{self, Combine};
use crate::error::{Error, Result, invalid};

/// A variable of a servable: declared by its handle op, given a value by a checkpoint or by an
/// assignment. Reading shares memory; a write never changes a tensor that somebody has read.
#[derive(Debug)]
pub struct Variable {
    name: String,
    dtype: DType,
    /// The declared dimensions; `None` if any shape may be assigned.
    dims: Option<Vec<Option<i64>>>,
    value: Mutex<Option<Tensor>>,
}

impl Variable {
    /// A variable without a value, which takes any shape.
    pub fn new(name: &str, dtype: DType) -> Self {
        Self { name: name.to_owned(), dtype, dims: None, value: Mutex::default() }
    }

    /// The same for values of these dimensions only, of which some, or even their number, may be
    /// unknown.
    #[must_use]
    pub fn with_dims(self, dims: Option<Vec<Option<i64>>>) -> Self {
        Self { dims, ..self }
    }

    /// The name, for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The dtype of its values.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the declared spec of every value.
    pub fn spec(&self) -> Spec {
        let Some(dims) = &self.dims else { return Spec::unknown(self.dtype) };
        let dims: SmallVec<[Dim; 5]> =
            dims.iter().map(|dim| dim.map_or(Dim::Unknown, Dim::Known)).collect();
        Spec::new(self.dtype, dims)
    }

    /// The value, if it has one. Shares its memory.
    pub fn read(&self) -> Option<Tensor> {
        self.value.lock().clone()
    }

    /// The value. Shares its memory. Fails if there is none.
    pub(crate) fn value(&self) -> Result<Tensor> {
        self.read().ok_or_else(|| {
            // The text is TensorFlow's (`resource_variable_ops.cc`).
            Error::FailedPrecondition(format!(
                "Could not find variable {}. This could mean that the variable has been deleted. \
                 In TF1, it can also mean the variable is uninitialized.",
                self.name
            ))
        })
    }

    /// Takes the value away, so that its memory returns.
    pub fn clear(&self) {
        *self.value.lock() = None;
    }

    /// Replaces the value. Fails if dtype or shape are not as declared.
    pub fn assign(&self, value: Tensor) -> Result<()> {
        if value.dtype() != self.dtype {
            // The text is TensorFlow's (`resource_variable_ops.cc`).
            return invalid!(
                "Trying to assign variable with wrong dtype. Expected {} got {}",
                self.dtype,
                value.dtype()
            );
        }
        if !self.allows(&value) {
            let (name, declared, shape) = (&self.name, self.spec(), value.shape());
            return invalid!(
                "variable {name} is declared {declared} but is assigned shape {shape}"
            );
        }
        *self.value.lock() = Some(value);
        Ok(())
    }

    /// Combines the value with another of the same shape, in one step that nobody sees half done.
    pub(crate) fn combine(&self, how: Combine, new: &View<'_>) -> Result<Tensor> {
        self.change(|old| {
            if old.shape() != new.shape() {
                // The text is TensorFlow's (`resource_variable_ops.cc`).
                return invalid!(
                    "Cannot update variable with shape {} using a Tensor with shape {}, shapes \
                     must be equal.",
                    old.shape(),
                    new.shape()
                );
            }
            combine::check_divisors(how, new)?;
            let mut view = writable(old)?;
            combine::combine(how, &mut view, new)
        })
    }

    /// Changes the value by `change` while nobody reads or writes it, and gives the new value. If
    /// `change` fails it must not have begun.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Tensor) -> Result<()>) -> Result<Tensor> {
        let mut guard = self.value.lock();
        let Some(value) = guard.as_mut() else {
            // As TensorFlow, which looks for the resource of that name.
            return Err(Error::NotFound(format!("Resource {} does not exist.", self.name)));
        };
        change(value)?;
        Ok(value.clone())
    }

    fn allows(&self, value: &Tensor) -> bool {
        let Some(dims) = &self.dims else { return true };
        let sizes = value.shape().to_i64();
        dims.len() == sizes.len()
            && dims.iter().zip(&sizes).all(|(dim, size)| dim.is_none_or(|dim| dim == *size))
    }
}

/// A view to change a plain tensor through: of its own memory, copied first if others share it.
pub(crate) fn writable(tensor: &mut Tensor) -> Result<tensor::ViewMut<'_>> {
    if !tensor.dtype().is_plain() {
        let dtype = tensor.dtype();
        return Err(Error::Unimplemented(format!("a tensor of {dtype} cannot be changed")));
    }
    if tensor.view_mut().is_none() {
        let view = tensor.view();
        *tensor = Tensor::from_bytes(tensor.dtype(), tensor.shape().clone(), view.bytes())?;
    }
    tensor.view_mut().ok_or_else(|| Error::Internal("a copied tensor is shared".to_owned()))
}

#[cfg(test)]
mod tests {
    use tensor::Shape;

    use super::*;

    #[test]
    fn a_value_that_was_read_does_not_change() {
        let variable = Variable::new("v", DType::F32).with_dims(Some(vec![Some(2)]));
        assert!(matches!(variable.value(), Err(Error::FailedPrecondition(_))));
        variable.assign(Tensor::vector(&[1f32, 2.]).unwrap()).unwrap();
        let before = variable.value().unwrap();
        let one = Tensor::vector(&[1f32, 1.]).unwrap();
        variable.combine(Combine::Add, &one.view()).unwrap();
        assert_eq!(before.as_slice::<f32>(), [1., 2.]);
        assert_eq!(variable.value().unwrap().as_slice::<f32>(), [2., 3.]);
    }

    #[test]
    fn values_are_as_declared() {
        let variable = Variable::new("v", DType::F32).with_dims(Some(vec![None, Some(2)]));
        let value = |dtype, dims: &[usize]| Tensor::zeros(dtype, Shape::of(dims)).unwrap();
        variable.assign(value(DType::F32, &[3, 2])).unwrap();
        assert!(variable.assign(value(DType::F32, &[2, 3])).is_err());
        assert!(variable.assign(value(DType::I32, &[3, 2])).is_err());
        assert_eq!(variable.spec().to_string(), "float[?,2]");
        variable.clear();
        assert!(variable.read().is_none());
    }
}
