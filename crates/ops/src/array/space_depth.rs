//! `SpaceToDepth` and `DepthToSpace`: blocks of pixels as channels, and back.

use crate::prelude::*;

pub(super) const SPACE_TO_DEPTH: OpDef = OpDef::pure("SpaceToDepth", RowRule::Images, |attrs| {
    Blocks::build(attrs, SpaceDepthWay::ToDepth)
});
pub(super) const DEPTH_TO_SPACE: OpDef = OpDef::pure("DepthToSpace", RowRule::Images, |attrs| {
    Blocks::build(attrs, SpaceDepthWay::ToSpace)
});

struct Blocks {
    block: usize,
    channels_last: bool,
    way: SpaceDepthWay,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SpaceDepthWay {
    ToDepth,
    ToSpace,
}

impl Blocks {
    fn build(attrs: &Attrs<'_>, way: SpaceDepthWay) -> Result<Box<dyn Op>> {
        let block = attrs.size("block_size")?;
        if block < 2 {
            return invalid!("Block size should be > 1, but was: {block}");
        }
        if block.checked_mul(block).is_none_or(|area| i64::try_from(area).is_err()) {
            return invalid!("Block size {block} is too large: no tensor has as many elements");
        }
        let channels_last = match attrs.str_or("data_format", "NHWC")? {
            "NHWC" => true,
            "NCHW" => false,
            other => return crate::error::unsupported!("data_format {other} is not supported"),
        };
        Ok(Box::new(Self { block, channels_last, way }))
    }

    /// The places of height, width and channels.
    fn places(&self) -> [usize; 3] {
        if self.channels_last { [1, 2, 3] } else { [2, 3, 1] }
    }
}

impl Op for Blocks {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [input] = arity(inputs)?;
        input.require_rank(4)?;
        let Some(dims) = input.dims() else {
            return Ok(vec![spec_of_rank(input.dtype, Some(4))]);
        };
        let [height, width, channels] = self.places();
        let (block, area) = (Dim::of(self.block), Dim::of(self.block * self.block));
        let mut output: Dims = dims.iter().cloned().collect();
        let divided = |dim: &Dim, by: &Dim| match (dim.known(), by.known()) {
            (Some(dim), Some(by)) if dim % by != 0 => not_divisible(dim, by),
            _ => Ok(dim.divided_by(by)),
        };
        match self.way {
            SpaceDepthWay::ToDepth => {
                output[height] = divided(&dims[height], &block)?;
                output[width] = divided(&dims[width], &block)?;
                output[channels] = dims[channels].times(&area);
            }
            SpaceDepthWay::ToSpace => {
                output[height] = dims[height].times(&block);
                output[width] = dims[width].times(&block);
                output[channels] = divided(&dims[channels], &area)?;
            }
        }
        Ok(vec![spec_of(input.dtype, Some(output))])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let input = ctx.input(0);
        let shape = self.moved(input.shape())?;
        // The tensor with its blocks as dimensions of their own, and the order they have after.
        let [height, width, channels] = self.places();
        let (space, block) = match self.way {
            SpaceDepthWay::ToDepth => (&shape, self.block),
            SpaceDepthWay::ToSpace => (input.shape(), self.block),
        };
        let n = space[0];
        let (h, w) = (space[height], space[width]);
        let c = match self.way {
            SpaceDepthWay::ToDepth => input.shape()[channels],
            SpaceDepthWay::ToSpace => shape[channels],
        };
        let (split, order): ([usize; 6], [usize; 6]) = match (self.way, self.channels_last) {
            (SpaceDepthWay::ToDepth, true) => ([n, h, block, w, block, c], [0, 1, 3, 2, 4, 5]),
            (SpaceDepthWay::ToSpace, true) => ([n, h, w, block, block, c], [0, 1, 3, 2, 4, 5]),
            (SpaceDepthWay::ToDepth, false) => ([n, c, h, block, w, block], [0, 3, 5, 1, 2, 4]),
            (SpaceDepthWay::ToSpace, false) => ([n, block, block, c, h, w], [0, 3, 4, 1, 5, 2]),
        };
        let stride = |from: usize| split[from + 1..].iter().product::<usize>() as isize;
        let axes = order.map(|from| (split[from], stride(from)));
        let how = Gather { walk: Walk::new(0, axes), pool: ctx.env().pool };
        rearrange(ctx, 0, &[input], &shape, &how)
    }
}

impl Blocks {
    /// The shape after.
    fn moved(&self, shape: &Shape) -> Result<Shape> {
        let [height, width, channels] = self.places();
        if shape.rank() != 4 {
            return invalid!("expected rank 4 but got {shape}");
        }
        let mut dims = shape.to_i64();
        let (block, area) =
            (self.block as i64, (self.block as i64).saturating_mul(self.block as i64));
        for (at, by) in [(height, block), (width, block), (channels, area)] {
            let is_divided = (at == channels) == (self.way == SpaceDepthWay::ToSpace);
            if is_divided && dims[at] % by != 0 {
                return not_divisible(dims[at], by);
            }
            dims[at] = if is_divided { dims[at] / by } else { dims[at].saturating_mul(by) };
        }
        Ok(Shape::checked(dims)?)
    }
}

fn not_divisible<T>(dim: i64, by: i64) -> Result<T> {
    invalid!("Dimension size must be evenly divisible by {by} but is {dim}")
}
