//! Handles, which keep a version alive.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use tokio::sync::mpsc;

/// A version of a model.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id {
    /// The model's name.
    pub model: Arc<str>,
    /// The version's number.
    pub version: i64,
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{name: {} version: {}}}", self.model, self.version)
    }
}

/// Keeps one loaded version alive. Cheap to clone.
///
/// Whoever drops the last handle does not free the servable: it goes back to the lifecycle, which
/// frees it on its own threads.
pub struct Handle<S> {
    held: Arc<Held<S>>,
}

/// The channel that servables go to when their last handle is gone. Never holds more than are
/// loaded.
pub(crate) type Home<S> = mpsc::UnboundedSender<(Id, S)>;

struct Held<S> {
    id: Id,
    /// Taken by `drop`, and only there.
    servable: Option<S>,
    home: Home<S>,
}

impl<S> Handle<S> {
    pub(crate) fn new(id: Id, servable: S, home: Home<S>) -> Self {
        Handle { held: Arc::new(Held { id, servable: Some(servable), home }) }
    }

    /// Model and version.
    pub fn id(&self) -> &Id {
        &self.held.id
    }

    /// The version's number.
    pub fn version(&self) -> i64 {
        self.held.id.version
    }
}

impl<S> Clone for Handle<S> {
    fn clone(&self) -> Self {
        Handle { held: Arc::clone(&self.held) }
    }
}

impl<S> Deref for Handle<S> {
    type Target = S;

    fn deref(&self) -> &S {
        self.held.servable.as_ref().expect("only dropping takes the servable")
    }
}

impl<S> fmt::Debug for Handle<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle({})", self.held.id)
    }
}

impl<S> Drop for Held<S> {
    fn drop(&mut self) {
        if let Some(servable) = self.servable.take() {
            // Refused only when the lifecycle has ended; then there is no better place than here.
            drop(self.home.send((self.id.clone(), servable)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_handle_sends_the_servable_home() {
        let (home, mut came_home) = mpsc::unbounded_channel();
        let id = Id { model: "m".into(), version: 3 };
        let handle = Handle::new(id.clone(), "servable", home);
        let other = handle.clone();
        drop(handle);
        assert!(came_home.try_recv().is_err());
        assert_eq!((*other, other.version()), ("servable", 3));
        drop(other);
        assert_eq!(came_home.try_recv().unwrap(), (id, "servable"));
    }
}
