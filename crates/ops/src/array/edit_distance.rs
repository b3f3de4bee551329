//! `EditDistance`: how many insertions, deletions and substitutions turn one sequence into another.
//!
//! Sequences are the rows of two sparse tensors of one rank.

use rustc_hash::FxHashMap;

use crate::prelude::*;

pub(super) const EDIT_DISTANCE: OpDef = OpDef::pure("EditDistance", |attrs| {
    Ok(Box::new(EditDistance { normalize: attrs.bool_or("normalize", true)? }))
});

struct EditDistance {
    normalize: bool,
}

impl Op for EditDistance {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [_, _, hypothesis, _, _, truth] = arity(inputs)?;
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
        let hypothesis = Rows::of(ctx, 0)?;
        let truth = Rows::of(ctx, 3)?;
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
        let mut output = ctx.output(0, DType::F32, &shape)?;
        let strides = shape.strides();
        let out = output.as_mut_slice::<f32>();
        out.fill(0.0);
        let same = |a: usize, b: usize| element_eq(&hypothesis.values, a, &truth.values, b);
        let mut keys: Vec<&Vec<i64>> = hypothesis.rows.keys().chain(truth.rows.keys()).collect();
        keys.sort_unstable();
        keys.dedup();
        for key in keys {
            let empty = 0..0;
            let a = hypothesis.rows.get(key).unwrap_or(&empty);
            let b = truth.rows.get(key).unwrap_or(&empty);
            let mut at = 0;
            for ((index, size), stride) in key.iter().zip(shape.iter()).zip(&strides) {
                match usize::try_from(*index).ok().filter(|index| index < size) {
                    Some(index) => at += index * stride,
                    None => return invalid!("index {index} is outside of {shape}"),
                }
            }
            out[at] = self.distance(a.clone(), b.clone(), same);
        }
        Ok(())
    }
}

impl EditDistance {
    fn distance(
        &self,
        a: std::ops::Range<usize>,
        b: std::ops::Range<usize>,
        same: impl Fn(usize, usize) -> bool,
    ) -> f32 {
        let edits = levenshtein(a.clone(), b.clone(), same) as f32;
        match (self.normalize, b.len()) {
            (false, _) => edits,
            (true, 0) if a.is_empty() => 0.0,
            (true, 0) => f32::INFINITY,
            (true, length) => edits / length as f32,
        }
    }
}

/// The values of each row of a sparse tensor, which must stand in order.
struct Rows<'a> {
    shape: Ints,
    values: View<'a>,
    rows: FxHashMap<Vec<i64>, std::ops::Range<usize>>,
}

impl<'a> Rows<'a> {
    /// The sparse tensor at inputs `first`, of indices, values and shape.
    fn of(ctx: &Ctx<'a>, first: usize) -> Result<Self> {
        let (indices, values) = (ctx.input(first), ctx.input(first + 1));
        let shape = ints(&ctx.input(first + 2))?;
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
        let mut rows: FxHashMap<Vec<i64>, std::ops::Range<usize>> = FxHashMap::default();
        for (i, index) in ints(&indices)?.chunks_exact(rank).enumerate() {
            let row = rows.entry(index[..rank - 1].to_vec()).or_insert(i..i);
            if row.end != i {
                return invalid!("the indices of a sparse tensor must stand in order");
            }
            row.end = i + 1;
        }
        Ok(Self { shape, values, rows })
    }
}

fn element_eq(a: &View<'_>, at: usize, b: &View<'_>, bt: usize) -> bool {
    if a.dtype() != b.dtype() {
        return false;
    }
    if a.dtype() == DType::String {
        return a.strings().get(at) == b.strings().get(bt);
    }
    let size = a.dtype().size();
    a.bytes()[at * size..][..size] == b.bytes()[bt * size..][..size]
}

fn levenshtein(
    a: std::ops::Range<usize>,
    b: std::ops::Range<usize>,
    same: impl Fn(usize, usize) -> bool,
) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, y) in b.clone().enumerate() {
            let changed = corner + usize::from(!same(x, y));
            corner = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(corner + 1);
        }
    }
    row[b.len()]
}
