//! `MaxPool`, `AvgPool` and their kin: one number for each window of each channel.
//!
//! Follows `maxpooling_op.cc`, `avgpooling_op.cc` and `pooling_ops_3d.cc`.

use super::dtypes::{through_f32, wide_bytes};
use super::pooling_kernel::{Pooling, average, maximum};
use super::transpose::{Turn, turned_bytes};
use super::window::{Layout, Padding, PerAxis, Slide, Window, paddings, per_axis};
use crate::prelude::*;

pub(super) const MAX_POOL: OpDef = OpDef::pure("MaxPool", |attrs| build(attrs, 2, Kind::Max));
pub(super) const MAX_POOL_3D: OpDef = OpDef::pure("MaxPool3D", |attrs| build(attrs, 3, Kind::Max));
pub(super) const AVG_POOL: OpDef = OpDef::pure("AvgPool", |attrs| build(attrs, 2, Kind::Average));
pub(super) const AVG_POOL_3D: OpDef =
    OpDef::pure("AvgPool3D", |attrs| build(attrs, 3, Kind::Average));

pub(super) const MAX_POOL_V2: OpDef = OpDef::pure("MaxPoolV2", |attrs| {
    let layout = Layout::read(attrs, 2)?;
    let slides = paddings(attrs, layout)?;
    let slides = slides.into_iter().map(|padding| Slide { stride: 1, dilation: 1, padding });
    Ok(Box::new(MaxPoolV2 { layout, slides: slides.collect() }))
});

fn build(attrs: &Attrs<'_>, n_axes: usize, kind: Kind) -> Result<Box<dyn Op>> {
    Ok(Box::new(Pool::read(attrs, n_axes, kind)?))
}

/// Which number stands for a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Max,
    Average,
}

/// A pooling whose window is known from attributes.
pub(super) struct Pool {
    layout: Layout,
    slides: PerAxis<Slide>,
    sizes: PerAxis<usize>,
    kind: Kind,
}

impl Op for Pool {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [image] = arity(inputs)?;
        Ok(vec![self.infer_output(image)?])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let image = ctx.input(0);
        let pooling = self.checked(image.shape())?;
        let shape = self.output_shape(&pooling)?;
        let (pool, scratch, turn) = (ctx.env().pool, ctx.scratch(), self.turn(&pooling));
        let mut out = ctx.output(0, image.dtype(), &shape)?;
        match (self.kind, image.dtype()) {
            (Kind::Max, dtype) => for_number!(dtype, T => {
                let run = |image: &[T], out: &mut [T]| maximum(&pooling, pool, image, out);
                turn.run::<T>((image.as_slice(), out.as_mut_slice()), scratch, run);
            }),
            (Kind::Average, DType::F32) => {
                let run = |image: &[f32], out: &mut [f32]| average(&pooling, pool, image, out);
                turn.run((image.as_slice(), out.as_mut_slice()), scratch, run);
            }
            (Kind::Average, DType::F64) => {
                let run = |image: &[f64], out: &mut [f64]| average(&pooling, pool, image, out);
                turn.run((image.as_slice(), out.as_mut_slice()), scratch, run);
            }
            (Kind::Average, _) => {
                through_f32(scratch, &[image], &mut out, |scratch, inputs, out| {
                    let run = |image: &[f32], out: &mut [f32]| average(&pooling, pool, image, out);
                    turn.run((&inputs[0], out), scratch, run);
                })?
            }
        }
        Ok(())
    }

    fn scratch_bytes(&self, inputs: &[Spec], outputs: &[Spec]) -> usize {
        let ([image, ..], [out]) = (inputs, outputs) else { return 0 };
        let wide = if self.kind == Kind::Average { wide_bytes(&inputs[..1], outputs) } else { 0 };
        wide + turned_bytes(self.layout, image, out)
    }
}

impl Pool {
    pub(super) fn read(attrs: &Attrs<'_>, n_axes: usize, kind: Kind) -> Result<Self> {
        let layout = Layout::read(attrs, n_axes)?;
        let (sizes, strides) = (attrs.ints("ksize")?, attrs.ints("strides")?);
        Self::new(layout, kind, paddings(attrs, layout)?, (sizes, strides))
    }

    fn new(
        layout: Layout,
        kind: Kind,
        paddings: PerAxis<Padding>,
        (sizes, strides): (&[i64], &[i64]),
    ) -> Result<Self> {
        let sizes = per_axis(sizes, layout, "ksize")?;
        let strides = per_axis(strides, layout, "strides")?;
        if sizes.iter().zip(&paddings).any(|(size, padding)| padding.largest() >= *size) {
            // The text is TensorFlow's (`ops_util.cc`).
            return invalid!("Explicit padding must be smaller than the window size");
        }
        let slides = strides.iter().zip(paddings);
        let slides =
            slides.map(|(stride, padding)| Slide { stride: *stride, dilation: 1, padding });
        Ok(Self { layout, slides: slides.collect(), sizes, kind })
    }

    pub(super) fn infer_output(&self, image: &Spec) -> Result<Spec> {
        let layout = self.layout;
        image.require_rank(layout.rank())?;
        let unknown = vec![Dim::Unknown; layout.rank()];
        let dims = image.dims().unwrap_or(&unknown);
        let mut axes = Vec::with_capacity(3);
        for (i, slide) in self.slides.iter().enumerate() {
            axes.push(slide.infer(&dims[layout.axis(i)], &Dim::of(self.sizes[i]))?);
        }
        let dims = layout.arrange(dims[0].clone(), &axes, dims[layout.channel()].clone());
        Ok(Spec::new(image.dtype, dims))
    }

    pub(super) fn checked(&self, image: &Shape) -> Result<Pooling> {
        let layout = self.layout;
        if image.rank() != layout.rank() {
            return invalid!("the image must have rank {}: {image}", layout.rank());
        }
        let size = |i: usize| self.sizes[i];
        let window = Window::new(layout, &self.slides, |i| image[layout.axis(i)], size)?;
        Ok(Pooling { batch: image[0], window, channels: image[layout.channel()] })
    }

    pub(super) fn output_shape(&self, pooling: &Pooling) -> Result<Shape> {
        let axes = &pooling.window.output[3 - self.layout.n_axes..];
        let dims = self.layout.arrange(pooling.batch, axes, pooling.channels);
        Ok(Shape::checked(dims.into_iter().map(|dim| dim as i64))?)
    }

    fn turn(&self, pooling: &Pooling) -> Turn {
        let Pooling { window, channels, .. } = pooling;
        let (image, out) = ((*channels, window.n_inputs()), (*channels, window.n_outputs()));
        Turn { layout: self.layout, image, out }
    }
}

/// A pooling whose window comes as inputs.
struct MaxPoolV2 {
    layout: Layout,
    slides: PerAxis<Slide>,
}

impl MaxPoolV2 {
    fn pool(&self, sizes: &[i64], strides: &[i64]) -> Result<Pool> {
        let paddings = self.slides.iter().map(|slide| slide.padding).collect();
        Pool::new(self.layout, Kind::Max, paddings, (sizes, strides))
    }
}

impl Op for MaxPoolV2 {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [image, sizes, strides] = arity(inputs)?;
        image.require_rank(4)?;
        match (sizes.ints(), strides.ints()) {
            (Some(sizes), Some(strides)) => {
                Ok(vec![self.pool(&sizes, &strides)?.infer_output(image)?])
            }
            _ => Ok(vec![Spec::new(image.dtype, vec![Dim::Unknown; 4])]),
        }
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (sizes, strides) = (ints(&ctx.input(1))?, ints(&ctx.input(2))?);
        self.pool(&sizes, &strides)?.run(ctx)
    }

    fn scratch_bytes(&self, inputs: &[Spec], outputs: &[Spec]) -> usize {
        turned_bytes(self.layout, &inputs[0], &outputs[0])
    }
}
