//! `DepthwiseConv2dNative`: a filter of its own for each channel.
//!
//! Follows `depthwise_conv_op.cc`.

use super::dtypes::through_f32;
use super::transpose::swap_last;
use super::window::{Layout, Slide, Window, slides};
use crate::linalg::Scalar;
use crate::prelude::*;

pub(super) const DEF: OpDef = OpDef::pure("DepthwiseConv2dNative", |attrs| {
    let layout = Layout::read(attrs, 2)?;
    Ok(Box::new(Depthwise { layout, slides: slides(attrs, layout)? }))
});

struct Depthwise {
    layout: Layout,
    slides: Vec<Slide>,
}

impl Op for Depthwise {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [image, filter] = arity(inputs)?;
        image.require_rank(4)?;
        filter.require_rank(4)?;
        let layout = self.layout;
        let unknown = [const { Dim::Unknown }; 4];
        let image_dims = image.dims().unwrap_or(&unknown);
        let filter_dims = filter.dims().unwrap_or(&unknown);
        let (depth, filter_depth) = (&image_dims[layout.channel()], &filter_dims[2]);
        if depth.differs(filter_depth) {
            return invalid!("input depth {depth} differs from filter depth {filter_depth}");
        }
        let mut axes = Vec::with_capacity(2);
        for (i, slide) in self.slides.iter().enumerate() {
            axes.push(slide.infer(&image_dims[layout.axis(i)], &filter_dims[i])?);
        }
        let out_depth = filter_depth.times(&filter_dims[3]);
        let dims = layout.arrange(image_dims[0].clone(), &axes, out_depth);
        Ok(vec![Spec::new(image.dtype, dims)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (image, filter) = (ctx.input(0), ctx.input(1));
        let conv = self.checked(image.shape(), filter.shape())?;
        let layout = self.layout;
        let axes = &conv.window.output[1..];
        let dims = layout.arrange(conv.batch, axes, conv.channels * conv.multiplier);
        let shape = Shape::checked(dims.into_iter().map(|dim| dim as i64))?;
        let mut out = ctx.output(0, image.dtype(), &shape)?;
        match image.dtype() {
            DType::F32 => {
                self.arranged::<f32>(&conv, image.as_slice(), filter.as_slice(), out.as_mut_slice())
            }
            DType::F64 => {
                self.arranged::<f64>(&conv, image.as_slice(), filter.as_slice(), out.as_mut_slice())
            }
            _ => through_f32(&[image, filter], &mut out, |inputs, out| {
                self.arranged(&conv, &inputs[0], &inputs[1], out);
            })?,
        }
        Ok(())
    }
}

impl Depthwise {
    fn checked(&self, image: &Shape, filter: &Shape) -> Result<DepthwiseConv> {
        if image.rank() != 4 || filter.rank() != 4 {
            return invalid!("image and filter must have rank 4: {image}, {filter}");
        }
        let layout = self.layout;
        let channels = image[layout.channel()];
        if channels != filter[2] {
            return invalid!("input depth {channels} differs from filter depth {}", filter[2]);
        }
        let window = Window::new(layout, &self.slides, |i| image[layout.axis(i)], |i| filter[i])?;
        Ok(DepthwiseConv { batch: image[0], window, channels, multiplier: filter[3] })
    }

    fn arranged<T: Scalar>(&self, conv: &DepthwiseConv, image: &[T], filter: &[T], out: &mut [T]) {
        if !self.layout.channels_first {
            return conv.run(image, filter, out);
        }
        let mut last = vec![T::ZERO; image.len()];
        swap_last(image, &mut last, conv.channels, conv.window.n_inputs());
        let mut out_last = vec![T::ZERO; out.len()];
        conv.run(&last, filter, &mut out_last);
        swap_last(&out_last, out, conv.window.n_outputs(), conv.channels * conv.multiplier);
    }
}

/// A depthwise convolution with all sizes known.
#[derive(Debug, Clone, Copy)]
struct DepthwiseConv {
    batch: usize,
    window: Window,
    channels: usize,
    multiplier: usize,
}

impl DepthwiseConv {
    /// Writes the convolution of `image` with `filter` (`[taps, channels, multiplier]`).
    fn run<T: Scalar>(&self, image: &[T], filter: &[T], out: &mut [T]) {
        let window = &self.window;
        out.fill(T::ZERO);
        let mut pixels = out.chunks_exact_mut((self.channels * self.multiplier).max(1));
        for image in image.chunks_exact((window.n_inputs() * self.channels).max(1)) {
            for place in 0..window.n_outputs() {
                let Some(out) = pixels.next() else { return };
                self.pixel(image, filter, place, out);
            }
        }
    }

    fn pixel<T: Scalar>(&self, image: &[T], filter: &[T], place: usize, out: &mut [T]) {
        let window = &self.window;
        let (y, x) = (place / window.output[2], place % window.output[2]);
        for (tap, filter) in filter.chunks_exact(out.len()).enumerate() {
            let (tap_y, tap_x) = (tap / window.size[2], tap % window.size[2]);
            let (Some(y), Some(x)) = (window.at(1, y, tap_y), window.at(2, x, tap_x)) else {
                continue;
            };
            let pixel = &image[(y * window.input[2] + x) * self.channels..][..self.channels];
            let outs = out.chunks_exact_mut(self.multiplier);
            let filters = filter.chunks_exact(self.multiplier);
            for ((out, filter), x) in outs.zip(filters).zip(pixel) {
                out.iter_mut().zip(filter).for_each(|(out, f)| *out = out.plus_product(*x, *f));
            }
        }
    }
}
