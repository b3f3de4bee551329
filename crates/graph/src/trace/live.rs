//! `Lives`: under which conditions nodes are alive, in the sense of TensorFlow 1's switches.

use rustc_hash::FxHashMap;

use crate::error::{Error, Result};
use crate::graph::Port;
use crate::merge::Conditions;

/// The most conditions that a trace keeps: nested switches could multiply them.
const CONDITIONS_MAX: usize = 4 << 20;

/// Conditions that must all hold, by their number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Live(u32);

impl Live {
    /// No conditions.
    pub(super) const ALWAYS: Self = Self(0);
    /// Conditions that exclude each other.
    pub(super) const NEVER: Self = Self(1);
}

/// Sets of conditions, each once. A set is sorted by its ports: what decides whether a condition is
/// alive was traced before it.
pub(super) struct Lives {
    sets: Vec<Conditions>,
    numbers: FxHashMap<Conditions, Live>,
    n_conditions: usize,
}

impl Lives {
    pub(super) fn new() -> Self {
        let none = Conditions::new();
        let numbers = [(none.clone(), Live::ALWAYS)].into_iter().collect();
        Self { sets: vec![none.clone(), none], numbers, n_conditions: 0 }
    }

    /// The conditions that must hold.
    pub(super) fn conditions(&self, live: Live) -> &Conditions {
        assert!(live != Live::NEVER, "what never runs is not traced");
        &self.sets[live.0 as usize]
    }

    /// Alive when both are.
    pub(super) fn both(&mut self, a: Live, b: Live) -> Result<Live> {
        match (a, b) {
            (Live::NEVER, _) | (_, Live::NEVER) => return Ok(Live::NEVER),
            (Live::ALWAYS, other) | (other, Live::ALWAYS) => return Ok(other),
            (a, b) if a == b => return Ok(a),
            _ => {}
        }
        let mut set: Vec<(Port, bool)> = self.sets[a.0 as usize].to_vec();
        set.extend(&self.sets[b.0 as usize]);
        self.number(set)
    }

    /// Alive when `live` is and a condition holds.
    pub(super) fn with(&mut self, live: Live, port: Port, when: bool) -> Result<Live> {
        if live == Live::NEVER {
            return Ok(Live::NEVER);
        }
        let mut set = self.sets[live.0 as usize].to_vec();
        set.push((port, when));
        self.number(set)
    }

    /// Alive when either is, if that is a set of conditions again: one implies the other, or they
    /// differ in a single condition that is true for one and false for the other.
    pub(super) fn either(&mut self, a: Live, b: Live) -> Result<Option<Live>> {
        if a == Live::NEVER || a == b {
            return Ok(Some(b));
        }
        if b == Live::NEVER {
            return Ok(Some(a));
        }
        let (x, y) = (&self.sets[a.0 as usize], &self.sets[b.0 as usize]);
        let only_x: Vec<_> = x.iter().filter(|condition| !y.contains(condition)).collect();
        let only_y: Vec<_> = y.iter().filter(|condition| !x.contains(condition)).collect();
        match (&only_x[..], &only_y[..]) {
            ([], _) => Ok(Some(a)),
            (_, []) => Ok(Some(b)),
            ([(port, when)], [(other, unless)]) if port == other && when != unless => {
                let common = x.iter().filter(|condition| y.contains(condition)).copied().collect();
                self.number(common).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn number(&mut self, mut set: Vec<(Port, bool)>) -> Result<Live> {
        set.sort_unstable_by_key(|(port, when)| (port.node, port.output, *when));
        set.dedup();
        if set.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return Ok(Live::NEVER);
        }
        let set = Conditions::from_vec(set);
        if let Some(live) = self.numbers.get(&set) {
            return Ok(*live);
        }
        self.n_conditions += set.len();
        if self.n_conditions > CONDITIONS_MAX {
            return Err(Error::Malformed("conditions are nested too deep".to_owned()));
        }
        let live = Live(u32::try_from(self.sets.len()).expect("their number is bounded"));
        self.sets.push(set.clone());
        self.numbers.insert(set, live);
        Ok(live)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opposite_conditions_exclude_and_complete_each_other() {
        let mut lives = Lives::new();
        let port = |node| Port { node, output: 0 };
        let then = lives.with(Live::ALWAYS, port(1), true).unwrap();
        let otherwise = lives.with(Live::ALWAYS, port(1), false).unwrap();
        assert_eq!(lives.both(then, otherwise).unwrap(), Live::NEVER);
        assert_eq!(lives.either(then, otherwise).unwrap(), Some(Live::ALWAYS));
        let inner = lives.with(then, port(2), true).unwrap();
        let inner_else = lives.with(then, port(2), false).unwrap();
        assert_eq!(lives.either(inner, inner_else).unwrap(), Some(then));
        assert_eq!(lives.either(inner, then).unwrap(), Some(then));
        assert_eq!(lives.either(inner, otherwise).unwrap(), None);
        assert_eq!(lives.both(inner, then).unwrap(), inner);
    }
}
