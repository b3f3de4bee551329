//! A value as a product: a number times others.

use super::CollapseScan;
use crate::graph::Port;

/// A product, flattened.
pub(super) struct Terms {
    /// The product of the numbers in it.
    pub(super) number: f32,
    /// The factors that are no numbers.
    pub(super) factors: Vec<Port>,
    /// The nodes that multiply.
    pub(super) nodes: Vec<u32>,
}

impl Terms {
    /// Takes a value apart, as far as it is made by products that nobody else reads.
    pub(super) fn from_product(look: &CollapseScan<'_>, port: Port) -> Self {
        let mut terms = Self { number: 1., factors: Vec::new(), nodes: Vec::new() };
        terms.add(look, port, true);
        terms
    }

    fn add(&mut self, look: &CollapseScan<'_>, port: Port, is_root: bool) {
        if let Some(number) = look.number(port) {
            self.number *= number;
            return;
        }
        let is_private = is_root || look.uses.readers(port.node).len() == 1;
        match (look.op(port), look.inputs(port)) {
            ("Mul", [a, b]) if is_private => {
                self.nodes.push(port.node);
                self.add(look, *a, false);
                self.add(look, *b, false);
            }
            ("RealDiv", [a, b]) if is_private && look.number(*b).is_some() => {
                self.nodes.push(port.node);
                self.number /= look.number(*b).unwrap_or(1.);
                self.add(look, *a, false);
            }
            ("Neg", [a]) if is_private => {
                self.nodes.push(port.node);
                self.number = -self.number;
                self.add(look, *a, false);
            }
            _ => self.factors.push(port),
        }
    }

    /// The number, if the value is it times `x`.
    pub(super) fn times(&self, x: Port) -> Option<f32> {
        (self.factors[..] == [x]).then_some(self.number)
    }

    /// The factors besides one `x`.
    pub(super) fn besides(&self, x: Port) -> Option<Vec<Port>> {
        let at = self.factors.iter().position(|factor| *factor == x)?;
        let mut rest = self.factors.clone();
        rest.remove(at);
        Some(rest)
    }
}
