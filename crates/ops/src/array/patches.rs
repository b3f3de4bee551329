//! `ExtractImagePatches`: what a convolution would see at each place, as channels.

use crate::prelude::*;

pub(super) const EXTRACT: OpDef = OpDef::pure("ExtractImagePatches", RowRule::Images, |attrs| {
    // The texts are TensorFlow's (`extract_image_patches_op.cc`).
    let pair = |name: &str| match *attrs.ints(name)? {
        [1, rows, columns, 1] if rows > 0 && columns > 0 => Ok((rows as usize, columns as usize)),
        [1, _, _, 1] => Err(Error::OutOfRange(format!("{name} is out of range."))),
        [_, _, _, _] => Err(Error::Unimplemented(format!("Only support {name} across space."))),
        _ => invalid!("Sliding window {name} field must specify 4 dimensions"),
    };
    let same = match attrs.str("padding")? {
        "SAME" => true,
        "VALID" => false,
        other => return invalid!("padding must be SAME or VALID, not {other}"),
    };
    let (size, stride, rate) = (pair("ksizes")?, pair("strides")?, pair("rates")?);
    Ok(Box::new(Extract {
        rows: PatchesWindow { size: size.0, stride: stride.0, rate: rate.0, same },
        columns: PatchesWindow { size: size.1, stride: stride.1, rate: rate.1, same },
    }))
});

struct Extract {
    rows: PatchesWindow,
    columns: PatchesWindow,
}

/// The movement of a patch along one dimension.
struct PatchesWindow {
    size: usize,
    stride: usize,
    rate: usize,
    same: bool,
}

impl PatchesWindow {
    /// Returns the extent of a patch.
    fn reach(&self) -> usize {
        (self.size - 1).saturating_mul(self.rate).saturating_add(1)
    }

    /// Returns how many patches there are, and how far before the first element the first begins.
    fn places(&self, length: usize) -> Result<(usize, usize)> {
        let reach = self.reach();
        if self.same {
            let count = length.div_ceil(self.stride);
            let needed = (count.saturating_sub(1) * self.stride).saturating_add(reach);
            return Ok((count, needed.saturating_sub(length) / 2));
        }
        // Rounded towards zero: less than a stride too little room is none, not a fault.
        match (length + self.stride).checked_sub(reach) {
            Some(room) => Ok((room / self.stride, 0)),
            None if length + 2 * self.stride > reach => Ok((0, 0)),
            None => invalid!("a patch of {reach} does not fit {length}"),
        }
    }
}

impl Op for Extract {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [images] = arity(inputs)?;
        images.require_rank(4)?;
        let Some([batch, rows, columns, channels]) = images.dims() else {
            return Ok(vec![spec_of_rank(images.dtype, Some(4))]);
        };
        let count = |window: &PatchesWindow, dim: &Dim| match dim.size() {
            Some(length) => Ok(Dim::of(window.places(length)?.0)),
            None if window.same && window.stride == 1 => Ok(dim.clone()),
            None => Ok::<_, Error>(Dim::Unknown),
        };
        let depth = channels.times(&Dim::of(self.rows.size * self.columns.size));
        let (rows, columns) = (count(&self.rows, rows)?, count(&self.columns, columns)?);
        Ok(vec![Spec::new(images.dtype, [batch.clone(), rows, columns, depth])])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let images = ctx.input(0);
        let [batch, rows, columns, channels] = images.shape()[..] else {
            return invalid!("input must be 4-dimensional, got {}", images.shape());
        };
        let (down, across) = (self.rows.places(rows)?, self.columns.places(columns)?);
        let area = self.rows.size.saturating_mul(self.columns.size).saturating_mul(channels);
        let depth = i64::try_from(area).unwrap_or(i64::MAX);
        let shape = Shape::checked([batch as i64, down.0 as i64, across.0 as i64, depth])?;
        let patches = Patches { extract: self, image: (rows, columns, channels), down, across };
        rearrange(ctx, 0, &[images], &shape, &patches)
    }
}

struct Patches<'a> {
    extract: &'a Extract,
    image: (usize, usize, usize),
    /// The number of patches, and the distance by which the first stands out.
    down: (usize, usize),
    across: (usize, usize),
}

impl Move for Patches<'_> {
    fn apply<T: bytemuck::Pod + Send + Sync>(
        &self,
        inputs: &[&[T]],
        output: &mut [T],
    ) -> Result<()> {
        let (rows, columns, channels) = self.image;
        if output.is_empty() {
            return Ok(());
        }
        let (down, across) = (&self.extract.rows, &self.extract.columns);
        let mut runs = output.chunks_exact_mut(channels);
        for image in inputs[0].chunks_exact(rows * columns * channels) {
            for y in 0..self.down.0 {
                for x in 0..self.across.0 {
                    for i in 0..down.size {
                        let row = (y * down.stride + i * down.rate).checked_sub(self.down.1);
                        for j in 0..across.size {
                            pace(16)?;
                            let Some(run) = runs.next() else { return Ok(()) };
                            let column =
                                (x * across.stride + j * across.rate).checked_sub(self.across.1);
                            match (row.filter(|r| *r < rows), column.filter(|c| *c < columns)) {
                                (Some(r), Some(c)) => {
                                    let at = (r * columns + c) * channels;
                                    run.copy_from_slice(&image[at..at + channels]);
                                }
                                _ => run.fill(T::zeroed()),
                            }
                        }
                    }
                }
            }
        }
        Ok(())
    }
}
