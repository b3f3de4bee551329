//! `Dim`: a dimension that may depend on the sizes of the inputs.
//!
//! A dimension is a polynomial over symbols, one symbol for each unknown dimension of an input, so
//! that `[batch, 7, 7, 64]` flattened is `[3136·batch]`. What cannot be written so is unknown.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// An unknown size of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Symbol(pub u32);

/// A size, or an element of a tensor of sizes (which may be negative: -1 asks to be inferred).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dim {
    /// A number.
    Known(i64),
    /// A polynomial with at least one symbol in it.
    Symbolic(Arc<Polynomial>),
    /// Anything.
    Unknown,
}

/// A sum of products of symbols, each with a factor that is not zero. Products are sorted; the
/// empty one is the constant.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Polynomial(BTreeMap<Vec<Symbol>, i64>);

impl Dim {
    /// The dimension that is a symbol.
    pub fn symbol(symbol: Symbol) -> Self {
        Self::Symbolic(Arc::new(Polynomial(BTreeMap::from([(vec![symbol], 1)]))))
    }

    /// The dimension of a concrete size.
    pub fn of(size: usize) -> Self {
        i64::try_from(size).map_or(Self::Unknown, Self::Known)
    }

    /// The number, if it is known.
    pub fn known(&self) -> Option<i64> {
        match self {
            Self::Known(value) => Some(*value),
            Self::Symbolic(_) | Self::Unknown => None,
        }
    }

    /// The number as a size, if it is known and not negative.
    pub fn size(&self) -> Option<usize> {
        usize::try_from(self.known()?).ok()
    }

    /// Returns whether two dimensions are surely the same.
    pub fn same(&self, other: &Self) -> bool {
        *self != Self::Unknown && self == other
    }

    /// Returns whether two dimensions surely differ.
    pub fn differs(&self, other: &Self) -> bool {
        matches!((self, other), (Self::Known(a), Self::Known(b)) if a != b)
    }

    /// The sum; unknown if either is, or on overflow.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let (Some(a), Some(b)) = (self.polynomial(), other.polynomial()) else {
            return Self::Unknown;
        };
        let mut sum = a.0;
        for (product, factor) in b.0 {
            let entry = sum.entry(product).or_insert(0);
            let Some(total) = entry.checked_add(factor) else { return Self::Unknown };
            *entry = total;
        }
        Self::from_terms(sum)
    }

    /// The difference; unknown if either is, or on overflow.
    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        self.plus(&other.times(&Self::Known(-1)))
    }

    /// The product; unknown if either is, or on overflow.
    #[must_use]
    pub fn times(&self, other: &Self) -> Self {
        let (Some(a), Some(b)) = (self.polynomial(), other.polynomial()) else {
            // Nothing times zero is zero, whatever the other is.
            let zero = self.known() == Some(0) || other.known() == Some(0);
            return if zero { Self::Known(0) } else { Self::Unknown };
        };
        let mut terms = BTreeMap::new();
        for (left, x) in &a.0 {
            for (right, y) in &b.0 {
                let mut product = [&left[..], &right[..]].concat();
                product.sort_unstable();
                let entry = terms.entry(product).or_insert(0i64);
                let total = x.checked_mul(*y).and_then(|xy| entry.checked_add(xy));
                let Some(total) = total else { return Self::Unknown };
                *entry = total;
            }
        }
        Self::from_terms(terms)
    }

    /// The quotient rounded towards negative infinity; unknown unless both are numbers or the
    /// division is exact term by term.
    #[must_use]
    pub fn divided_by(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::Known(_) | Self::Symbolic(_), Self::Known(1)) => self.clone(),
            (Self::Known(a), Self::Known(b)) if *b != 0 => {
                a.checked_div_euclid(*b).map_or(Self::Unknown, |quotient| {
                    // Euclid rounds up for negative divisors; floor division does not.
                    let floor =
                        if *b < 0 && a.rem_euclid(*b) != 0 { quotient - 1 } else { quotient };
                    Self::Known(floor)
                })
            }
            (Self::Symbolic(a), Self::Known(b)) if *b != 0 => {
                let exact = a.0.values().all(|factor| factor % b == 0);
                if !exact {
                    return Self::Unknown;
                }
                Self::from_terms(a.0.iter().map(|(p, factor)| (p.clone(), factor / b)).collect())
            }
            (Self::Symbolic(a), Self::Symbolic(b)) => divide_by_product(a, b),
            _ => Self::Unknown,
        }
    }

    /// The value when each symbol has the size that `sizes` gives it; `None` if that is not known
    /// or overflows.
    pub fn evaluate(&self, sizes: impl Fn(Symbol) -> Option<i64>) -> Option<i64> {
        let mut sum = 0i64;
        for (product, factor) in &self.polynomial()?.0 {
            let mut term = *factor;
            for symbol in product {
                term = term.checked_mul(sizes(*symbol)?)?;
            }
            sum = sum.checked_add(term)?;
        }
        Some(sum)
    }

    fn polynomial(&self) -> Option<Polynomial> {
        match self {
            Self::Known(0) => Some(Polynomial::default()),
            Self::Known(value) => Some(Polynomial(BTreeMap::from([(vec![], *value)]))),
            Self::Symbolic(polynomial) => Some((**polynomial).clone()),
            Self::Unknown => None,
        }
    }

    fn from_terms(mut terms: BTreeMap<Vec<Symbol>, i64>) -> Self {
        terms.retain(|_, factor| *factor != 0);
        match terms.len() {
            0 => Self::Known(0),
            1 if terms.contains_key(&[][..]) => Self::Known(terms[&[][..]]),
            _ => Self::Symbolic(Arc::new(Polynomial(terms))),
        }
    }
}

/// Divides by a single product of symbols, where that leaves no remainder.
fn divide_by_product(a: &Polynomial, b: &Polynomial) -> Dim {
    let Some((divisor, by)) = b.0.iter().next().filter(|_| b.0.len() == 1) else {
        return Dim::Unknown;
    };
    let mut terms = BTreeMap::new();
    for (product, factor) in &a.0 {
        let mut rest = product.clone();
        for symbol in divisor {
            let Some(at) = rest.iter().position(|s| s == symbol) else { return Dim::Unknown };
            rest.remove(at);
        }
        if factor % by != 0 {
            return Dim::Unknown;
        }
        terms.insert(rest, factor / by);
    }
    Dim::from_terms(terms)
}

impl From<usize> for Dim {
    fn from(size: usize) -> Self {
        Self::of(size)
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let terms = match self {
            Self::Known(value) => return write!(f, "{value}"),
            Self::Unknown => return f.write_str("?"),
            Self::Symbolic(polynomial) => &polynomial.0,
        };
        for (i, (product, factor)) in terms.iter().enumerate() {
            let names: Vec<String> = product.iter().map(|s| format!("n{}", s.0)).collect();
            let plus = if i > 0 { "+" } else { "" };
            match (names.is_empty(), *factor) {
                (true, factor) => write!(f, "{plus}{factor}")?,
                (false, 1) => write!(f, "{plus}{}", names.join("·"))?,
                (false, factor) => write!(f, "{plus}{factor}·{}", names.join("·"))?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn n(number: u32) -> Dim {
        Dim::symbol(Symbol(number))
    }

    #[test]
    fn arithmetic_keeps_symbols() {
        let flat = n(0).times(&Dim::Known(49));
        assert_eq!(flat.divided_by(&Dim::Known(7)), n(0).times(&Dim::Known(7)));
        assert_eq!(flat.divided_by(&n(0)), Dim::Known(49));
        assert_eq!(n(0).plus(&n(1)).minus(&n(1)), n(0));
        assert_eq!(n(0).minus(&n(0)), Dim::Known(0));
        assert_eq!(n(0).plus(&Dim::Known(1)).divided_by(&Dim::Known(2)), Dim::Unknown);
        assert_eq!(Dim::Known(-7).divided_by(&Dim::Known(2)), Dim::Known(-4));
        assert_eq!(Dim::Known(7).divided_by(&Dim::Known(-2)), Dim::Known(-4));
        assert_eq!(Dim::Unknown.times(&Dim::Known(0)), Dim::Known(0));
        assert_eq!(Dim::Known(i64::MAX).plus(&Dim::Known(1)), Dim::Unknown);
    }

    #[test]
    fn symbols_are_replaced_by_sizes() {
        let area = n(0).times(&n(1)).plus(&Dim::Known(3));
        assert_eq!(area.evaluate(|s| Some(i64::from(s.0) + 4)), Some(23));
        assert_eq!(area.evaluate(|_| None), None);
        assert_eq!(area.to_string(), "3+n0·n1");
    }

    #[test]
    fn unknown_is_the_same_as_nothing() {
        assert!(!Dim::Unknown.same(&Dim::Unknown));
        assert!(n(3).same(&n(3)));
        assert!(Dim::Known(1).differs(&Dim::Known(2)));
        assert!(!Dim::Known(1).differs(&n(0)));
    }
}
