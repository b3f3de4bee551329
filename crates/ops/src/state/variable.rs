//! `Variable`: a tensor with a name, which may change.

use parking_lot::Mutex;
use tensor::{DType, Tensor};

use crate::error::{Error, Result};

/// A tensor that ops find by name, read and assign. It has no value until it is assigned.
#[derive(Debug)]
pub struct Variable {
    name: String,
    dtype: DType,
    value: Mutex<Option<Tensor>>,
}

impl Variable {
    /// A variable without a value.
    pub fn new(name: &str, dtype: DType) -> Self {
        Self { name: name.to_owned(), dtype, value: Mutex::default() }
    }

    /// The name, for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The dtype of its values.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The value, if it has one. Shares its memory.
    pub fn read(&self) -> Option<Tensor> {
        self.value.lock().clone()
    }

    /// Replaces the value. Fails if the dtype is another.
    pub fn assign(&self, value: Tensor) -> Result<()> {
        if value.dtype() != self.dtype {
            let (name, want, got) = (&self.name, self.dtype, value.dtype());
            let text = format!("variable {name} is {want} and cannot be assigned {got}");
            return Err(Error::InvalidArgument(text));
        }
        *self.value.lock() = Some(value);
        Ok(())
    }

    /// Replaces the value by what `change` makes of it; nobody sees or changes it in between.
    pub fn update(&self, change: impl FnOnce(Option<&Tensor>) -> Result<Tensor>) -> Result<()> {
        let mut value = self.value.lock();
        *value = Some(change(value.as_ref())?);
        Ok(())
    }

    /// Takes the value away, so that its memory returns.
    pub fn clear(&self) {
        *self.value.lock() = None;
    }
}
