//! `Unique` and its kin: each element, or slice along an axis, once, in the order of its first.

use crate::hash::{self, Index};
use crate::prelude::*;

pub(super) const UNIQUE: OpDef = OpDef::pure("Unique", RowRule::Unique, |attrs| {
    Ok(Box::new(Unique { has_axis: false, has_counts: false, index: index_dtype(attrs)? }))
});
pub(super) const UNIQUE_V2: OpDef = OpDef::pure("UniqueV2", RowRule::Mixed, |attrs| {
    Ok(Box::new(Unique { has_axis: true, has_counts: false, index: index_dtype(attrs)? }))
});
pub(super) const UNIQUE_WITH_COUNTS: OpDef =
    OpDef::pure("UniqueWithCounts", RowRule::Mixed, |attrs| {
        Ok(Box::new(Unique { has_axis: false, has_counts: true, index: index_dtype(attrs)? }))
    });
pub(super) const UNIQUE_WITH_COUNTS_V2: OpDef =
    OpDef::pure("UniqueWithCountsV2", RowRule::Mixed, |attrs| {
        Ok(Box::new(Unique { has_axis: true, has_counts: true, index: index_dtype(attrs)? }))
    });

fn index_dtype(attrs: &Attrs<'_>) -> Result<DType> {
    attrs.dtype_or("out_idx", DType::I32)
}

struct Unique {
    has_axis: bool,
    has_counts: bool,
    index: DType,
}

impl Unique {
    /// The axis that the inputs name; `None` for a vector without one.
    fn axis(&self, axis: &[i64], rank: usize) -> Result<usize> {
        match axis {
            [] if rank == 1 => Ok(0),
            [] => invalid!("unique expects a 1D vector."),
            [axis] => normalise_axis(*axis, rank).map_err(|_| {
                Error::InvalidArgument(format!("axis expected to be between [0, {rank})"))
            }),
            _ => invalid!("axis does not support input tensors larger than 1 elements"),
        }
    }
}

impl Op for Unique {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        arity_at_least(inputs, 1 + usize::from(self.has_axis))?;
        let input = &inputs[0];
        if let Some(axis) = inputs.get(1).filter(|_| self.has_axis) {
            axis.require_rank(1)?;
        }
        let axis = if self.has_axis { known_ints(&inputs[1]) } else { Some(Vec::new()) };
        let (unique, n) = match (input.dims(), axis) {
            (Some(dims), Some(axis)) => {
                let axis = self.axis(&axis, dims.len())?;
                let mut unique: Dims = dims.iter().cloned().collect();
                let n = std::mem::replace(&mut unique[axis], Dim::Unknown);
                (Some(unique), n)
            }
            (dims, _) => (spec_of_rank(input.dtype, dims.map(<[Dim]>::len)).dims, Dim::Unknown),
        };
        let mut specs = vec![spec_of(input.dtype, unique), Spec::new(self.index, [n])];
        if self.has_counts {
            specs.push(Spec::new(self.index, [Dim::Unknown]));
        }
        Ok(specs)
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let input = ctx.input(0);
        let axis = if self.has_axis { ints(&ctx.input(1))? } else { Ints::new() };
        let shape = input.shape();
        let axis = self.axis(&axis, shape.rank())?;
        let n_slices = shape[axis];
        let n_inner: usize = shape[axis + 1..].iter().product();
        let n_outer: usize = shape[..axis].iter().product();
        let slices = UniqueSlices { n_slices, n_inner, n_outer };
        let found = slices.group(&input)?;
        let row = (n_slices * n_inner) as isize;
        let mut dims = shape.to_i64();
        dims[axis] = found.firsts.len() as i64;
        let kept = UniqueKept { firsts: &found.firsts, slices: &slices, row };
        rearrange(ctx, 0, &[input], &Shape::checked(dims)?, &kept)?;
        write_indices(ctx, 1, self.index, &found.groups)?;
        if self.has_counts {
            let mut counts = BookedVec::filled(0u32, found.firsts.len())?;
            found.groups.iter().for_each(|group| counts[*group as usize] += 1);
            write_indices(ctx, 2, self.index, &counts)?;
        }
        Ok(())
    }
}

fn write_indices(ctx: &mut Ctx<'_>, output: usize, dtype: DType, values: &[u32]) -> Result<()> {
    let mut view = ctx.output(output, dtype, &Shape::of(&[values.len()]))?;
    match dtype {
        DType::I64 => {
            let pairs = view.as_mut_slice::<i64>().iter_mut().zip(values);
            pairs.for_each(|(x, value)| *x = i64::from(*value));
        }
        DType::I32 => {
            let pairs = view.as_mut_slice::<i32>().iter_mut().zip(values);
            pairs.for_each(|(x, value)| *x = *value as i32);
        }
        other => return invalid!("indices are int32 or int64, not {other}"),
    }
    Ok(())
}

/// The slices of a tensor along an axis.
struct UniqueSlices {
    n_slices: usize,
    n_inner: usize,
    n_outer: usize,
}

/// The slices that stand for their like, and which of them each slice is like.
struct UniqueGroups {
    firsts: BookedVec<usize>,
    groups: BookedVec<u32>,
}

impl UniqueSlices {
    fn group(&self, input: &View<'_>) -> Result<UniqueGroups> {
        if u32::try_from(self.n_slices).is_err() {
            return invalid!("unique does not support input tensors larger than 2^32 elements");
        }
        match input.dtype() {
            DType::String => {
                let strings = input.strings();
                let same = |a, b| strings.get(a) == strings.get(b);
                self.group_by(|at| hash::of_bytes(strings.get(at)), same)
            }
            DType::F32 => {
                let x = input.as_slice::<f32>();
                self.group_floats(|at| f64::from(x[at]))
            }
            DType::F64 => {
                let x = input.as_slice::<f64>();
                self.group_floats(|at| x[at])
            }
            // TensorFlow hashes halves by their bits: their zeros are not one.
            DType::F16 => {
                let x = input.as_slice::<half::f16>();
                self.group_halves(input.as_wide(), |at| x[at].is_nan())
            }
            DType::BF16 => {
                let x = input.as_slice::<half::bf16>();
                self.group_halves(input.as_wide(), |at| x[at].is_nan())
            }
            dtype if dtype.size() == 8 => self.group_bits(input.as_wide::<u64>()),
            dtype if dtype.size() == 4 => self.group_bits(input.as_wide::<u32>()),
            dtype if dtype.size() == 2 => self.group_bits(input.as_wide::<u16>()),
            dtype if dtype.size() == 1 => self.group_bits(input.as_wide::<u8>()),
            other => crate::error::unsupported!("dtype {other} is not supported here"),
        }
    }

    fn group_bits<T: Copy + PartialEq + Into<u64>>(&self, x: &[T]) -> Result<UniqueGroups> {
        self.group_by(|at| hash::of_u64(x[at].into()), |a, b| x[a] == x[b])
    }

    fn group_halves(&self, bits: &[u16], is_nan: impl Fn(usize) -> bool) -> Result<UniqueGroups> {
        let hash =
            |at: usize| hash::of_u64(if is_nan(at) { at as u64 } else { u64::from(bits[at]) });
        self.group_by(hash, |a, b| bits[a] == bits[b] && !is_nan(a))
    }

    /// The two zeros are equal and no NaN is: floats are not compared by their bits.
    fn group_floats(&self, x: impl Fn(usize) -> f64) -> Result<UniqueGroups> {
        let hash = |at: usize| {
            // Many NaNs must not share a hash, since each is looked for in vain.
            let bits = if x(at).is_nan() { at as u64 } else { (x(at) + 0.0).to_bits() };
            hash::of_u64(bits)
        };
        self.group_by(hash, |a, b| x(a) == x(b))
    }

    /// Groups slices whose elements have equal hashes and are the same.
    fn group_by(
        &self,
        hash_of: impl Fn(usize) -> u64,
        same: impl Fn(usize, usize) -> bool,
    ) -> Result<UniqueGroups> {
        let row = self.n_slices * self.n_inner;
        let elements = |slice: usize| {
            (0..self.n_outer).flat_map(move |outer| {
                let start = outer * row + slice * self.n_inner;
                start..start + self.n_inner
            })
        };
        let hash_slice = |slice: usize| {
            elements(slice).fold(0, |hash: u64, at| hash::of_u64(hash ^ hash_of(at)))
        };
        let mut index = Index::default();
        let mut firsts: BookedVec<usize> = BookedVec::new();
        let mut groups = BookedVec::with_capacity(self.n_slices)?;
        for slice in 0..self.n_slices {
            pace(8 * (1 + self.n_outer * self.n_inner))?;
            let hash = hash_slice(slice);
            let is_like =
                |first: &usize| elements(slice).zip(elements(*first)).all(|(a, b)| same(a, b));
            let group = match index.find(hash, |number| is_like(&firsts[number])) {
                Some(number) => number,
                None => {
                    let number = index.add(hash, |number| hash_slice(firsts[number]))?;
                    firsts.push(slice)?;
                    number
                }
            };
            groups.push(group as u32)?;
        }
        Ok(UniqueGroups { firsts, groups })
    }
}

/// The first slices of each group.
struct UniqueKept<'a> {
    firsts: &'a [usize],
    slices: &'a UniqueSlices,
    row: isize,
}

impl Move for UniqueKept<'_> {
    fn apply<T: bytemuck::Pod + Send + Sync>(
        &self,
        inputs: &[&[T]],
        output: &mut [T],
    ) -> Result<()> {
        let n_inner = self.slices.n_inner;
        if output.is_empty() {
            return Ok(());
        }
        let mut runs = output.chunks_exact_mut(n_inner);
        for outer in 0..self.slices.n_outer {
            for first in self.firsts {
                pace(n_inner)?;
                let start = outer * self.row as usize + first * n_inner;
                if let Some(run) = runs.next() {
                    run.copy_from_slice(&inputs[0][start..start + n_inner]);
                }
            }
        }
        Ok(())
    }
}
