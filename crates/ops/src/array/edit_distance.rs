//! `EditDistance`: how many insertions, deletions and substitutions turn one sequence into another.
//!
//! Sequences are the rows of two sparse tensors of one rank. Follows `edit_distance_op.cc`: rows
//! are taken as they stand, those of both tensors together while their indices are the same.

use std::cmp::Ordering;
use std::ops::Range;

use crate::Cancel;
use crate::prelude::*;

pub(super) const EDIT_DISTANCE: OpDef = OpDef::pure("EditDistance", RowRule::Mixed, |attrs| {
    Ok(Box::new(EditDistance { normalize: attrs.bool_or("normalize", true)? }))
});

struct EditDistance {
    normalize: bool,
}

impl Op for EditDistance {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [indices, _, hypothesis, truth_indices, _, truth] = arity(inputs)?;
        indices.require_dtype(DType::I64)?;
        truth_indices.require_dtype(DType::I64)?;
        let (Some(a), Some(b)) = (sizes_of(hypothesis), sizes_of(truth)) else {
            return Ok(vec![Spec::unknown(DType::F32)]);
        };
        let max = |(a, b): (&Dim, &Dim)| match (a.known(), b.known()) {
            (Some(a), Some(b)) => Dim::Known(a.max(b)),
            _ if a.same(b) => a.clone(),
            _ => Dim::Unknown,
        };
        let rank = a.len().saturating_sub(1);
        Ok(vec![Spec::new(DType::F32, a.iter().zip(&b).take(rank).map(max))])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (hypothesis, truth) = (EditDistanceRows::of(ctx, 0)?, EditDistanceRows::of(ctx, 3)?);
        if hypothesis.shape.len() != truth.shape.len() || truth.shape.len() < 2 {
            return invalid!(
                "hypothesis_shape and truth_shape must have one length of at least 2, got {} and \
                 {}",
                hypothesis.shape.len(),
                truth.shape.len()
            );
        }
        let rank = truth.shape.len() - 1;
        let dims = hypothesis.shape.iter().zip(&truth.shape).take(rank);
        let shape = Shape::checked(dims.map(|(a, b)| *a.max(b)))?;
        let mut row = ctx.scratch().part::<usize>(truth.n_values() + 1)?;
        let cancel = ctx.env().cancel;
        let mut output = ctx.output(0, DType::F32, &shape)?;
        let strides = shape.strides();
        let out = output.as_mut_slice::<f32>();
        out.fill(0.0);
        let same = |a: usize, b: usize| element_eq(&hypothesis.values, a, &truth.values, b);
        let (mut a, mut b) = (0, 0);
        while a < hypothesis.n_values() || b < truth.n_values() {
            let order = match (hypothesis.key(a), truth.key(b)) {
                (Some(a), Some(b)) => a.cmp(b),
                (Some(_), None) => Ordering::Less,
                _ => Ordering::Greater,
            };
            let key = if order.is_le() { hypothesis.key(a) } else { truth.key(b) };
            let a_row = if order.is_le() { hypothesis.row(a) } else { a..a };
            let b_row = if order.is_ge() { truth.row(b) } else { b..b };
            (a, b) = (a_row.end, b_row.end);
            let terms = key.unwrap_or_default().iter().zip(&strides);
            let place = terms
                .fold(0i64, |sum, (i, stride)| sum.wrapping_add(i.wrapping_mul(*stride as i64)));
            match usize::try_from(place).ok().and_then(|place| out.get_mut(place)) {
                Some(out) => {
                    let (a_len, b_len) = (a_row.len(), b_row.len());
                    let edits = levenshtein(a_row, b_row, same, (&mut row, cancel))?;
                    *out = self.distance(edits, a_len, b_len);
                }
                // The text and the code are TensorFlow's.
                None => {
                    return Err(Error::Internal(format!(
                        "Got an inner product {place} which would require writing to outside of \
                         the buffer for the output tensor (max elements {})",
                        shape.n_elements()
                    )));
                }
            }
        }
        Ok(())
    }

    fn scratch_bytes(&self, inputs: &[Spec], _: &[Spec]) -> usize {
        let n_values = inputs[4].shape().map_or(0, |shape| shape.n_elements());
        Scratch::bytes_of::<usize>(n_values.saturating_add(1))
    }
}

impl EditDistance {
    /// The distance of rows of these lengths that so many edits make the same.
    fn distance(&self, edits: usize, a_len: usize, b_len: usize) -> f32 {
        let edits = edits as f32;
        match (self.normalize, b_len) {
            (false, _) => edits,
            (true, 0) if a_len == 0 => 0.0,
            (true, 0) => f32::INFINITY,
            (true, length) => edits / length as f32,
        }
    }
}

/// A sparse tensor whose values stand row by row.
struct EditDistanceRows<'a> {
    shape: Ints,
    values: View<'a>,
    indices: &'a [i64],
}

impl<'a> EditDistanceRows<'a> {
    /// The sparse tensor at inputs `first`, of indices, values and shape.
    fn of(ctx: &Ctx<'a>, first: usize) -> Result<Self> {
        let (indices, values) = (ctx.input(first), ctx.input(first + 1));
        let shape = ctx.input(first + 2);
        if values.shape().rank() != 1 || shape.shape().rank() != 1 {
            let (values, shape) = (values.shape(), shape.shape());
            return invalid!("values {values} and dense shape {shape} should be vectors");
        }
        let shape = ints(&shape)?;
        let [n_values, rank] = indices.shape()[..] else {
            return invalid!("indices should be a matrix, but got {}", indices.shape());
        };
        if n_values != values.n_elements() || rank != shape.len() || rank == 0 {
            return invalid!(
                "indices {} do not fit {} values of rank {}",
                indices.shape(),
                values.n_elements(),
                shape.len()
            );
        }
        if shape.iter().any(|dim| *dim < 0) {
            return invalid!("a dense shape of {shape:?}");
        }
        Ok(Self { shape, values, indices: indices.as_slice() })
    }

    fn n_values(&self) -> usize {
        self.values.n_elements()
    }

    /// In which row a value stands; `None` behind the last.
    fn key(&self, value: usize) -> Option<&'a [i64]> {
        let rank = self.shape.len();
        Some(&self.indices.chunks_exact(rank).nth(value)?[..rank - 1])
    }

    /// The values of the row that begins with this one.
    fn row(&self, first: usize) -> Range<usize> {
        let key = self.key(first);
        let n_more = (first..self.n_values()).take_while(|value| self.key(*value) == key).count();
        first..first + n_more
    }
}

/// Returns whether two elements are equal, as numbers are: no NaN is, and zeros of both signs are.
fn element_eq(a: &View<'_>, at: usize, b: &View<'_>, bt: usize) -> bool {
    fn eq<T: Element + PartialEq>(a: &View<'_>, at: usize, b: &View<'_>, bt: usize) -> bool {
        a.as_slice::<T>()[at] == b.as_slice::<T>()[bt]
    }
    match (a.dtype(), b.dtype()) {
        (a, b) if a != b => false,
        (DType::String, _) => a.strings().get(at) == b.strings().get(bt),
        (DType::F32, _) => eq::<f32>(a, at, b, bt),
        (DType::F64, _) => eq::<f64>(a, at, b, bt),
        (DType::F16, _) => eq::<half::f16>(a, at, b, bt),
        (DType::BF16, _) => eq::<half::bf16>(a, at, b, bt),
        (DType::Complex64, _) => eq::<num_complex::Complex<f32>>(a, at, b, bt),
        (DType::Complex128, _) => eq::<num_complex::Complex<f64>>(a, at, b, bt),
        (dtype, _) => {
            let size = dtype.size();
            a.bytes()[at * size..][..size] == b.bytes()[bt * size..][..size]
        }
    }
}

/// The distance of two sequences; `row` has room for one number more than `b` has elements.
fn levenshtein(
    a: Range<usize>,
    b: Range<usize>,
    same: impl Fn(usize, usize) -> bool,
    (row, cancel): (&mut [usize], &Cancel),
) -> Result<usize> {
    row.iter_mut().zip(0..=b.len()).for_each(|(cell, i)| *cell = i);
    for (i, x) in a.enumerate() {
        cancel.check()?;
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, y) in b.clone().enumerate() {
            let changed = corner + usize::from(!same(x, y));
            corner = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(corner + 1);
        }
    }
    Ok(row[b.len()])
}
