//! `Settling`: takes what a file says when two looks in a row saw the same, so that a file which is
//! just being written is not taken for what it will be.

/// The text of the last look, if that is not what is in force.
#[derive(Debug)]
pub struct Settling<T> {
    seen: Option<T>,
}

impl<T> Default for Settling<T> {
    fn default() -> Self {
        Self { seen: None }
    }
}

impl<T: PartialEq> Settling<T> {
    /// Takes in what a look saw beside what is `in_force`; gives it once it is new and has settled.
    pub fn look(&mut self, now: T, in_force: &T) -> Option<T> {
        if now == *in_force {
            self.seen = None;
            return None;
        }
        if self.seen.as_ref() == Some(&now) {
            self.seen = None;
            return Some(now);
        }
        self.seen = Some(now);
        None
    }

    /// Returns whether the last look saw something new that has not settled.
    pub fn is_open(&self) -> bool {
        self.seen.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each look is what it sees, then what it gives.
    #[track_caller]
    fn check(looks: &[(&str, Option<&str>)]) {
        let (mut settling, mut in_force) = (Settling::default(), "old".to_owned());
        for (number, (seen, given)) in looks.iter().enumerate() {
            let found = settling.look((*seen).to_owned(), &in_force);
            assert_eq!(found.as_deref(), *given, "look {number}");
            assert_eq!(settling.is_open(), *seen != in_force && found.is_none(), "look {number}");
            in_force = found.unwrap_or(in_force);
        }
    }

    #[test]
    fn what_two_looks_saw_is_taken() {
        check(&[("old", None), ("new", None), ("new", Some("new")), ("new", None)]);
    }

    #[test]
    fn what_is_being_written_is_left_until_it_rests() {
        check(&[("", None), ("ne", None), ("new", None), ("new", Some("new"))]);
        check(&[("", None), ("old", None), ("", None), ("old", None)]);
    }
}
