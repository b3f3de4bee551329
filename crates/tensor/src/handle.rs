//! `Handle`: what an element of a resource or variant tensor refers to.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// A shared object: a variable, a lookup table, a tensor list. Kernels know its type.
#[derive(Clone)]
pub struct Handle(Arc<dyn Any + Send + Sync>);

impl Handle {
    /// A handle to a new object.
    pub fn new<T: Any + Send + Sync>(object: T) -> Self {
        Self(Arc::new(object))
    }

    /// A handle to an object that others hold too.
    pub fn shared<T: Any + Send + Sync>(object: Arc<T>) -> Self {
        Self(object)
    }

    /// The object, if it is a `T`.
    pub fn get<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.0.downcast_ref()
    }

    /// The object to be changed, if it is a `T` and nobody else refers to it.
    pub fn get_mut<T: Any + Send + Sync>(&mut self) -> Option<&mut T> {
        Arc::get_mut(&mut self.0)?.downcast_mut()
    }

    /// The object as a shared pointer, if it is a `T`.
    pub fn get_shared<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        Arc::clone(&self.0).downcast().ok()
    }

    /// Returns whether both refer to one object.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handle")
    }
}
