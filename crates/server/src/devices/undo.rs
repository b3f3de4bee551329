//! `Undo`: a change that is made whole or not at all.

/// A change that can be taken back. Dropped, it does so, the last change first; kept, it is
/// forgotten.
#[derive(Default)]
#[must_use = "what was changed is taken back when it is dropped"]
pub(crate) struct Undo<'a>(Vec<Box<dyn FnOnce() + 'a>>);

impl<'a> Undo<'a> {
    /// Says how to take back a change that was just made.
    pub(crate) fn push(&mut self, undo: impl FnOnce() + 'a) {
        self.0.push(Box::new(undo));
    }

    /// The change stays.
    pub(crate) fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        while let Some(undo) = self.0.pop() {
            undo();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn what_is_not_kept_is_taken_back_the_last_change_first() {
        let values = RefCell::new(Vec::new());
        let values_of = &values;
        let change = || {
            let mut undo = Undo::default();
            for value in [1, 2, 3] {
                undo.push(move || values_of.borrow_mut().push(value));
            }
            undo
        };
        change().keep();
        assert!(values.borrow().is_empty());
        drop(change());
        assert_eq!(*values.borrow(), [3, 2, 1]);
    }
}
