//! `ListDiff`: the elements of one vector that are not in another, and where they stood.

use crate::hash::{self, Index};
use crate::prelude::*;

pub(super) const LIST_DIFF: OpDef = OpDef::pure("ListDiff", RowRule::Mixed, |attrs| {
    Ok(Box::new(ListDiff { index: attrs.dtype_or("out_idx", DType::I32)? }))
});

struct ListDiff {
    index: DType,
}

impl Op for ListDiff {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [x, y] = arity(inputs)?;
        x.require_rank(1)?;
        y.require_rank(1)?;
        let unknown = [Dim::Unknown];
        Ok(vec![Spec::new(x.dtype, unknown.clone()), Spec::new(self.index, unknown)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (x, y) = (ctx.input(0), ctx.input(1));
        if x.dtype() != y.dtype() || x.shape().rank() != 1 || y.shape().rank() != 1 {
            return invalid!("x and y must be vectors of one dtype");
        }
        let kept = if x.dtype() == DType::String {
            let (x, y) = (x.strings(), y.strings());
            let hash_of = |at: usize| Some(hash::of_bytes(y.get(at)));
            let known = index(y.len(), hash_of, |a, b| y.get(a) == y.get(b))?;
            let is_in = |text: &[u8]| known.find(hash::of_bytes(text), |at| y.get(at) == text);
            BookedVec::collect(paced(0..x.len(), 32).filter(|at| is_in(x.get(*at)).is_none()))?
        } else {
            let (x, y) = (bits(&x)?, bits(&y)?);
            let known = index(y.len(), |at| y[at].map(hash::of_u64), |a, b| y[a] == y[b])?;
            let is_in = |bits: u64| known.find(hash::of_u64(bits), |at| y[at] == Some(bits));
            let is_kept = |at: &usize| x[*at].and_then(is_in).is_none();
            BookedVec::collect(paced(0..x.len(), 16).filter(is_kept))?
        };
        pace(1)?;
        rearrange(ctx, 0, &[x], &Shape::of(&[kept.len()]), &Picked { places: &kept })?;
        let indices = ctx.output(1, self.index, &Shape::of(&[kept.len()]))?;
        super::write_sizes(indices, &kept)
    }
}

/// The places of elements that have a hash, by it.
fn index(
    n: usize,
    hash_of: impl Fn(usize) -> Option<u64>,
    same: impl Fn(usize, usize) -> bool,
) -> Result<ListDiffPlaces> {
    let mut places = ListDiffPlaces::default();
    for at in 0..n {
        pace(16)?;
        let Some(hash) = hash_of(at) else { continue };
        if places.find(hash, |other| same(at, other)).is_none() {
            let kept = &places.places;
            places.index.add(hash, |number| hash_of(kept[number]).unwrap_or(0))?;
            places.places.push(at)?;
        }
    }
    Ok(places)
}

/// Places of elements, each of another value.
#[derive(Default)]
struct ListDiffPlaces {
    index: Index,
    places: BookedVec<usize>,
}

impl ListDiffPlaces {
    fn find(&self, hash: u64, is_it: impl Fn(usize) -> bool) -> Option<usize> {
        self.index.find(hash, |number| is_it(self.places[number]))
    }
}

/// Numbers that are equal just if the elements are; none for what equals nothing.
fn bits(view: &View<'_>) -> Result<BookedVec<Option<u64>>> {
    let float = |x: f64| (!x.is_nan()).then(|| (x + 0.0).to_bits());
    Ok(match view.dtype() {
        DType::F32 => {
            BookedVec::collect(view.as_slice::<f32>().iter().map(|x| float(f64::from(*x))))?
        }
        DType::F64 => BookedVec::collect(view.as_slice::<f64>().iter().map(|x| float(*x)))?,
        DType::F16 => {
            BookedVec::collect(view.as_slice::<half::f16>().iter().map(|x| float(f64::from(*x))))?
        }
        DType::BF16 => {
            BookedVec::collect(view.as_slice::<half::bf16>().iter().map(|x| float(f64::from(*x))))?
        }
        dtype => match dtype.size() {
            1 => BookedVec::collect(view.as_wide::<u8>().iter().map(|x| Some(u64::from(*x))))?,
            2 => BookedVec::collect(view.as_wide::<u16>().iter().map(|x| Some(u64::from(*x))))?,
            4 => BookedVec::collect(view.as_wide::<u32>().iter().map(|x| Some(u64::from(*x))))?,
            8 => BookedVec::collect(view.as_wide::<u64>().iter().map(|x| Some(*x)))?,
            _ => return crate::error::unsupported!("dtype {dtype} is not supported here"),
        },
    })
}

struct Picked<'a> {
    places: &'a [usize],
}

impl Move for Picked<'_> {
    fn apply<T: bytemuck::Pod + Send + Sync>(
        &self,
        inputs: &[&[T]],
        output: &mut [T],
    ) -> Result<()> {
        self.places.iter().zip(output).for_each(|(at, x)| *x = inputs[0][*at]);
        Ok(())
    }
}
