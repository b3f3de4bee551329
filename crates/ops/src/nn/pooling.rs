//! `MaxPool`, `AvgPool` and their kin: one number for each window of each channel.
//!
//! Follows `maxpooling_op.cc`, `avgpooling_op.cc` and `pooling_ops_3d.cc`.

use super::dtypes::{through_f32, wide_bytes};
use super::pooling_kernel::{Pooling, average, maximum};
use super::transpose::{Turn, turned_bytes};
use super::window::{Layout, Padding, PerAxis, Slide, Window, paddings, per_axis};
use crate::error::unsupported;
use crate::prelude::*;

pub(super) const MAX_POOL: OpDef =
    OpDef::pure("MaxPool", RowRule::Images, |attrs| build(attrs, 2, Kind::Max));
pub(super) const MAX_POOL_3D: OpDef =
    OpDef::pure("MaxPool3D", RowRule::Images, |attrs| build(attrs, 3, Kind::Max));
pub(super) const AVG_POOL: OpDef =
    OpDef::pure("AvgPool", RowRule::Images, |attrs| build(attrs, 2, Kind::Average));
pub(super) const AVG_POOL_3D: OpDef =
    OpDef::pure("AvgPool3D", RowRule::Images, |attrs| build(attrs, 3, Kind::Average));

pub(super) const MAX_POOL_V2: OpDef = OpDef::pure("MaxPoolV2", RowRule::Images, |attrs| {
    let layout = Layout::read(attrs, 2)?;
    let slides = paddings(attrs, layout)?;
    let slides = slides.into_iter().map(|padding| Slide { stride: 1, dilation: 1, padding });
    Ok(Box::new(MaxPoolV2 { layout, slides: slides.collect() }))
});

fn build(attrs: &Attrs<'_>, n_axes: usize, kind: Kind) -> Result<Box<dyn Op>> {
    Ok(Box::new(Pool::read(attrs, n_axes, kind)?))
}

/// The number that stands for a window.
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
    /// The number of channels that a window has and that it slides over. One of several has one
    /// place, and slides along no axis.
    depth: (usize, usize),
}

impl Op for Pool {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [image] = arity(inputs)?;
        Ok(vec![self.infer_output(image)?])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let image = ctx.input(0);
        if self.depth.0 > 1 {
            return self.run_depth(ctx);
        }
        let pooling = self.checked(image.shape())?;
        let shape = self.output_shape(&pooling)?;
        let (pool, scratch, turn) = (ctx.env().pool, ctx.scratch(), self.turn(&pooling));
        let mut out = ctx.output(0, image.dtype(), &shape)?;
        match (self.kind, image.dtype()) {
            (Kind::Max, dtype) => for_number!(dtype, T => {
                let run = |image: &[T], out: &mut [T]| maximum(&pooling, pool, image, out);
                turn.run::<T>((image.as_slice(), out.as_mut_slice()), scratch, run)?;
            }),
            (Kind::Average, DType::F32) => {
                let run = |image: &[f32], out: &mut [f32]| average(&pooling, pool, image, out);
                turn.run((image.as_slice(), out.as_mut_slice()), scratch, run)?;
            }
            (Kind::Average, DType::F64) => {
                let run = |image: &[f64], out: &mut [f64]| average(&pooling, pool, image, out);
                turn.run((image.as_slice(), out.as_mut_slice()), scratch, run)?;
            }
            (Kind::Average, _) => {
                through_f32(scratch, &[image], &mut out, |scratch, inputs, out| {
                    let run = |image: &[f32], out: &mut [f32]| average(&pooling, pool, image, out);
                    turn.run((&inputs[0], out), scratch, run)
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
        let (depth, sizes, strides) = depth_of(layout, sizes, strides);
        let sizes = per_axis(&sizes, layout, "ksize")?;
        let strides = per_axis(&strides, layout, "strides")?;
        if sizes.iter().zip(&paddings).any(|(size, padding)| padding.largest() >= *size) {
            // The text is TensorFlow's (`ops_util.cc`).
            return invalid!("Explicit padding must be smaller than the window size");
        }
        let slides = strides.iter().zip(paddings);
        let slides =
            slides.map(|(stride, padding)| Slide { stride: *stride, dilation: 1, padding });
        Ok(Self { layout, slides: slides.collect(), sizes, kind, depth })
    }

    /// Fails unless windows are of one channel each.
    pub(super) fn require_flat(&self) -> Result<()> {
        match self.depth.0 {
            1 => Ok(()),
            _ => unsupported!("windows of several channels are not supported here"),
        }
    }

    /// The largest of each run of `depth` channels.
    fn run_depth(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let image = ctx.input(0);
        let [batch, height, width, channels] = image.shape()[..] else {
            return invalid!("the image must have rank 4: {}", image.shape());
        };
        let shape = Shape::of(&[batch, height, width, self.n_windows(channels)?]);
        let mut out = ctx.output(0, image.dtype(), &shape)?;
        for_number!(image.dtype(), T => {
            let windows = image.as_slice::<T>().chunks_exact(self.depth.0);
            for (out, window) in out.as_mut_slice::<T>().iter_mut().zip(windows) {
                pace(self.depth.0)?;
                let largest = |a: T, b: &T| if *b > a { *b } else { a };
                *out = window.iter().fold(window[0], largest);
            }
        });
        Ok(())
    }

    fn infer_depth(&self, image: &Spec) -> Result<Spec> {
        let mut dims = image.dims().map_or_else(|| vec![Dim::Unknown; 4], <[Dim]>::to_vec);
        let channels = &mut dims[self.layout.channel()];
        *channels = match channels.size() {
            Some(size) => Dim::of(self.n_windows(size)?),
            None => Dim::Unknown,
        };
        Ok(Spec::new(image.dtype, dims))
    }

    /// The windows over so many channels. The texts are TensorFlow's (`pooling_ops_common.cc`).
    fn n_windows(&self, channels: usize) -> Result<usize> {
        let (depth, stride) = self.depth;
        if self.sizes.iter().any(|size| *size > 1) {
            return unsupported!(
                "MaxPooling supports exactly one of pooling across depth or pooling across \
                 width/height."
            );
        }
        if !channels.is_multiple_of(depth) {
            return unsupported!(
                "Depthwise max pooling requires the depth window to evenly divide the input depth"
            );
        }
        if depth != stride {
            return unsupported!(
                "Depthwise max pooling requires the depth window to equal the depth stride"
            );
        }
        if self.kind == Kind::Average {
            return unsupported!("Non-spatial pooling is not yet supported.");
        }
        Ok(channels / depth)
    }

    pub(super) fn infer_output(&self, image: &Spec) -> Result<Spec> {
        let layout = self.layout;
        image.require_rank(layout.rank())?;
        if self.depth.0 > 1 {
            return self.infer_depth(image);
        }
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

/// Returns the number of channels that a window has and that it slides over, and the sizes and
/// strides without them.
fn depth_of(layout: Layout, sizes: &[i64], strides: &[i64]) -> ((usize, usize), Ints, Ints) {
    let (mut sizes, mut strides) = (Ints::from_slice(sizes), Ints::from_slice(strides));
    let at = layout.channel();
    let (Some(size), Some(stride)) = (sizes.get_mut(at), strides.get_mut(at)) else {
        return ((1, 1), sizes, strides);
    };
    let depth = match (usize::try_from(*size), usize::try_from(*stride)) {
        (Ok(1), Ok(1..)) if layout.n_axes == 2 => (1, 1),
        (Ok(size @ 2..), Ok(stride @ 1..)) if layout.n_axes == 2 && !layout.channels_first => {
            (size, stride)
        }
        _ => return ((1, 1), sizes, strides),
    };
    // The stride of windows of one channel is not looked at.
    (*size, *stride) = (1, 1);
    (depth, sizes, strides)
}

/// A pooling whose window comes as inputs.
struct MaxPoolV2 {
    layout: Layout,
    slides: PerAxis<Slide>,
}

impl MaxPoolV2 {
    fn pool(&self, sizes: &[i64], strides: &[i64]) -> Result<Pool> {
        let paddings = self.slides.iter().map(|slide| slide.padding).collect();
        let (channel, mut strides) = (self.layout.channel(), Ints::from_slice(strides));
        // Whatever it is, the stride of windows of one channel is not looked at.
        if let (Some(1), Some(stride)) = (sizes.get(channel), strides.get_mut(channel)) {
            *stride = 1;
        }
        Pool::new(self.layout, Kind::Max, paddings, (sizes, &strides))
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
