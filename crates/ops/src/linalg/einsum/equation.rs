//! `Equation`: which name each dimension has.

use crate::prelude::*;

/// A name of a dimension: a letter, or a place in the ellipsis counted from its end.
pub(super) type Label = u32;

/// The first label of the dimensions that an ellipsis stands for.
const ELLIPSIS: Label = 1 << 24;

/// The names of the dimensions of each input and of the output, as they were written.
#[derive(Debug)]
pub(super) struct Equation {
    inputs: Vec<Term>,
    output: Term,
}

/// The names of one tensor's dimensions.
#[derive(Debug)]
struct Term {
    before: Vec<Label>,
    /// The names after the ellipsis, if there is one.
    after: Option<Vec<Label>>,
}

impl Equation {
    /// Reads an equation such as `ab,bc->ac`.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let Some((inputs, output)) = text.split_once("->") else {
            return invalid!("Expecting exactly one '->' in einsum equation: {text}");
        };
        let inputs: Vec<Term> =
            inputs.split(',').map(|term| Term::parse(term, text)).collect::<Result<_>>()?;
        if inputs.len() > 2 {
            return invalid!("Expecting 1 or 2 input subscripts in equation: {text}");
        }
        let output = Term::parse(output, text)?;
        let known = |label: &Label| inputs.iter().any(|term| term.labels().any(|l| l == *label));
        if !output.labels().all(|label| known(&label)) {
            return invalid!("an output subscript of {text} is in no input");
        }
        Ok(Self { inputs, output })
    }

    pub(super) fn n_inputs(&self) -> usize {
        self.inputs.len()
    }

    pub(super) fn has_ellipsis(&self) -> bool {
        self.inputs.iter().chain([&self.output]).any(|term| term.after.is_some())
    }

    /// The labels of two inputs and the output, if there is no ellipsis.
    pub(super) fn letters(&self) -> Option<(Vec<Label>, Vec<Label>, Vec<Label>)> {
        let [left, right] = &self.inputs[..] else { return None };
        let letters = |term: &Term| term.labels().collect();
        (!self.has_ellipsis()).then(|| (letters(left), letters(right), letters(&self.output)))
    }

    /// The labels of each input of these ranks, and of the output.
    pub(super) fn labels(&self, ranks: &[usize]) -> Result<(Vec<Vec<Label>>, Vec<Label>)> {
        let mut longest = 0;
        let mut inputs = Vec::new();
        for (term, rank) in self.inputs.iter().zip(ranks) {
            let named = term.labels().count();
            let n = match (&term.after, rank.checked_sub(named)) {
                (Some(_), Some(n)) => n,
                (None, Some(0)) => 0,
                _ => return invalid!("{named} subscripts for an input of rank {rank}"),
            };
            longest = longest.max(n);
            inputs.push(term.expand(n));
        }
        Ok((inputs, self.output.expand(longest)))
    }

    /// The dimensions of the output, as far as they are known.
    pub(super) fn infer(&self, inputs: &[&[Dim]]) -> Result<Vec<Dim>> {
        let ranks: Vec<usize> = inputs.iter().map(|dims| dims.len()).collect();
        let (labels, output) = self.labels(&ranks)?;
        let mut sizes: Vec<(Label, Dim)> = Vec::new();
        for (labels, dims) in labels.iter().zip(inputs) {
            for (label, dim) in labels.iter().zip(*dims) {
                match sizes.iter_mut().find(|(known, _)| known == label) {
                    None => sizes.push((*label, dim.clone())),
                    Some((_, known)) => *known = merge(*label, known, dim)?,
                }
            }
        }
        let size = |label: &Label| sizes.iter().find(|(known, _)| known == label);
        Ok(output.iter().map(|l| size(l).map_or(Dim::Known(1), |(_, d)| d.clone())).collect())
    }
}

/// The size of a dimension that has two; those of an ellipsis may be broadcast.
fn merge(label: Label, a: &Dim, b: &Dim) -> Result<Dim> {
    if label >= ELLIPSIS {
        let (a, b) = (Spec::new(DType::F32, [a.clone()]), Spec::new(DType::F32, [b.clone()]));
        let dims = broadcast(&a, &b)?;
        return Ok(dims.map_or(Dim::Unknown, |dims| dims[0].clone()));
    }
    if a.differs(b) {
        return invalid!("Expected dimension {a} but got dimension {b} for the same subscript");
    }
    Ok(if a.known().is_some() { a.clone() } else { b.clone() })
}

impl Term {
    fn parse(term: &str, equation: &str) -> Result<Self> {
        let letters = |text: &str| -> Result<Vec<Label>> {
            match text.chars().find(|c| !c.is_ascii_alphabetic()) {
                Some(c) => invalid!("{c:?} is no subscript, in equation: {equation}"),
                None => Ok(text.chars().map(Label::from).collect()),
            }
        };
        Ok(match term.split_once("...") {
            None => Self { before: letters(term)?, after: None },
            Some((before, after)) => {
                Self { before: letters(before)?, after: Some(letters(after)?) }
            }
        })
    }

    /// The letters.
    fn labels(&self) -> impl Iterator<Item = Label> + '_ {
        self.before.iter().chain(self.after.iter().flatten()).copied()
    }

    /// All labels, with an ellipsis of `n` dimensions.
    fn expand(&self, n: usize) -> Vec<Label> {
        let mut labels = self.before.clone();
        if let Some(after) = &self.after {
            labels.extend((0..n).rev().map(|i| ELLIPSIS + i as Label));
            labels.extend(after);
        }
        labels
    }
}
