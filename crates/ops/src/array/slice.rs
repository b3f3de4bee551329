//! `ArraySlice`: a block of a tensor, by begin and size.

use crate::prelude::*;

pub(super) const SLICE: OpDef = OpDef::pure("Slice", RowRule::Slice, |_| Ok(Box::new(ArraySlice)));

struct ArraySlice;

impl Op for ArraySlice {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [input, begin, sizes] = arity(inputs)?;
        begin.require_rank(1)?;
        sizes.require_rank(1)?;
        let length = |spec: &Spec| spec.dims().and_then(|dims| dims[0].size());
        let rank = input.rank().or(length(begin)).or(length(sizes));
        if let Some(rank) = rank {
            let wrong = |spec: &Spec| length(spec).is_some_and(|length| length != rank);
            if wrong(begin) || wrong(sizes) {
                return invalid!("begin and size must have the length of the input's rank, {rank}");
            }
        }
        let Some(rank) = rank else { return Ok(vec![Spec::unknown(input.dtype)]) };
        let unknown = || vec![Dim::Unknown; rank];
        let dims = input.dims().map_or_else(unknown, <[Dim]>::to_vec);
        let (begins, asked) = (sizes_of(begin), sizes_of(sizes));
        let part = part_of_sizes(input, begins.as_deref(), asked.as_deref());
        let begins = begins.unwrap_or_else(unknown);
        let asked = asked.unwrap_or_else(unknown);
        let block: Result<Dims> =
            (0..rank).map(|i| block_dim(i, &dims[i], &begins[i], &asked[i])).collect();
        Ok(vec![with_sizes(spec_of(input.dtype, Some(block?)), part)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let input = ctx.input(0);
        let (begin, sizes) = (ints(&ctx.input(1))?, ints(&ctx.input(2))?);
        let shape = input.shape();
        if begin.len() != shape.rank() || sizes.len() != shape.rank() {
            return invalid!(
                "Expected begin and size arguments to be 1-D tensors of size {}, but got shapes \
                 [{}] and [{}] instead",
                shape.rank(),
                begin.len(),
                sizes.len()
            );
        }
        let mut block = Ints::new();
        let mut start = 0;
        let strides = shape.strides();
        for i in 0..shape.rank() {
            let size = block_size(i, shape[i] as i64, begin[i], sizes[i])?;
            block.push(size);
            start += begin[i] as usize * strides[i];
        }
        let block = Shape::checked(block)?;
        if block == *shape {
            return ctx.forward(0, input, block);
        }
        let axes = block.iter().zip(&strides).map(|(size, stride)| (*size, *stride as isize));
        let how = Gather { walk: Walk::new(start, axes), pool: ctx.env().pool };
        rearrange(ctx, 0, &[input], &block, &how)
    }
}

/// The elements of a slice of a vector of sizes.
fn part_of_sizes(input: &Spec, begin: Option<&[Dim]>, size: Option<&[Dim]>) -> Option<Vec<Dim>> {
    let sizes = sizes_of(input).filter(|_| input.rank() == Some(1))?;
    let begin = begin?.first()?.size()?;
    let rest = sizes.get(begin..)?;
    match size?.first()?.known()? {
        -1 => Some(rest.to_vec()),
        size => Some(rest.get(..usize::try_from(size).ok()?)?.to_vec()),
    }
}

fn block_dim(axis: usize, dim: &Dim, begin: &Dim, size: &Dim) -> Result<Dim> {
    match (dim.known(), begin.known(), size.known()) {
        (Some(dim), Some(begin), Some(size)) => Ok(Dim::Known(block_size(axis, dim, begin, size)?)),
        (_, _, Some(-1)) => Ok(match begin {
            Dim::Known(0) => dim.clone(),
            _ => Dim::Unknown,
        }),
        (_, _, Some(size)) if size < -1 => invalid!("size[{axis}] is {size}"),
        // An unknown size may be -1, a symbol is a size.
        _ => Ok(size.clone()),
    }
}

/// The texts are TensorFlow's (`slice_op.cc`).
fn block_size(axis: usize, dim: i64, begin: i64, size: i64) -> Result<i64> {
    if begin < 0 || begin > dim {
        return invalid!("Expected begin[{axis}] in [0, {dim}], but got {begin}");
    }
    match size {
        -1 => Ok(dim - begin),
        size if size < 0 || size > dim - begin => {
            invalid!("Expected size[{axis}] in [0, {}], but got {size}", dim - begin)
        }
        size => Ok(size),
    }
}
