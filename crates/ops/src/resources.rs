//! `Resources`: the variables and tables of one servable, by name.

use std::any::Any;
use std::sync::Arc;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use tensor::Handle;

use crate::error::{Error, Result};

/// Objects that outlive a run: variables, lookup tables. A handle op finds its object here, once,
/// when a plan is made.
#[derive(Debug, Default)]
pub struct Resources {
    objects: Mutex<FxHashMap<(String, String), Handle>>,
}

impl Resources {
    /// The object called `name` in `container`, made by `make` if there is none yet. Fails if there
    /// is one of another type.
    pub fn get_or_create<T: Any + Send + Sync>(
        &self,
        container: &str,
        name: &str,
        make: impl FnOnce() -> T,
    ) -> Result<Arc<T>> {
        let mut objects = self.objects.lock();
        let key = (container.to_owned(), name.to_owned());
        let handle = objects.entry(key).or_insert_with(|| Handle::new(make()));
        handle.get_shared().ok_or_else(|| {
            let kind = std::any::type_name::<T>().rsplit("::").next().unwrap_or_default();
            Error::InvalidArgument(format!("resource {container}/{name} exists and is no {kind}"))
        })
    }

    /// The object called `name` in `container`, if there is one of this type.
    pub fn get<T: Any + Send + Sync>(&self, container: &str, name: &str) -> Option<Arc<T>> {
        let objects = self.objects.lock();
        objects.get(&(container.to_owned(), name.to_owned()))?.get_shared()
    }
}
