//! `Dilation2D`: the largest sum of image and filter in each window of each channel.
//!
//! Follows `dilation_ops.cc`.

use num_traits::Bounded;

use super::dtypes::{through_f32, wide_bytes};
use super::window::{Layout, Slide, Window, paddings, per_axis};
use crate::prelude::*;

pub(super) const DEF: OpDef = OpDef::pure("Dilation2D", RowRule::Images, |attrs| {
    let layout = Layout { n_axes: 2, channels_first: false };
    let strides = per_axis(attrs.ints("strides")?, layout, "strides")?;
    let rates = per_axis(attrs.ints("rates")?, layout, "rates")?;
    let slides = strides.iter().zip(rates).zip(paddings(attrs, layout)?);
    let slide = |((stride, dilation), padding): ((&usize, usize), _)| Slide {
        stride: *stride,
        dilation,
        padding,
    };
    Ok(Box::new(Dilation { layout, slides: slides.map(slide).collect() }))
});

struct Dilation {
    layout: Layout,
    slides: Vec<Slide>,
}

impl Op for Dilation {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [image, filter] = arity(inputs)?;
        image.require_rank(4)?;
        filter.require_rank(3)?;
        let unknown = [const { Dim::Unknown }; 4];
        let image_dims = image.dims().unwrap_or(&unknown);
        let filter_dims = filter.dims().unwrap_or(&unknown);
        if image_dims[3].differs(&filter_dims[2]) {
            return invalid!("image {image} and filter {filter} have different depths");
        }
        let mut axes = Vec::with_capacity(2);
        for (i, slide) in self.slides.iter().enumerate() {
            axes.push(slide.infer(&image_dims[i + 1], &filter_dims[i])?);
        }
        let dims = self.layout.arrange(image_dims[0].clone(), &axes, image_dims[3].clone());
        Ok(vec![Spec::new(image.dtype, dims)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (image, filter) = (ctx.input(0), ctx.input(1));
        let (shape, filter_shape) = (image.shape(), filter.shape());
        if shape.rank() != 4 || filter_shape.rank() != 3 || shape[3] != filter_shape[2] {
            return invalid!("an image {shape} and a filter {filter_shape}");
        }
        let window = Window::new(self.layout, &self.slides, |i| shape[i + 1], |i| filter_shape[i])?;
        let dims = [shape[0], window.output[1], window.output[2], shape[3]];
        let out_shape = Shape::checked(dims.map(|dim| dim as i64))?;
        let scratch = ctx.scratch();
        let mut out = ctx.output(0, image.dtype(), &out_shape)?;
        if filter_shape.n_elements() == 0 {
            return lowest(&mut out);
        }
        match image.dtype() {
            DType::F32 => {
                let sum = |x: f32, f: f32| x + f;
                dilate(&window, image.as_slice(), filter.as_slice(), out.as_mut_slice(), sum);
            }
            DType::F64 => {
                let sum = |x: f64, f: f64| x + f;
                dilate(&window, image.as_slice(), filter.as_slice(), out.as_mut_slice(), sum);
            }
            DType::F16 | DType::BF16 => {
                through_f32(scratch, &[image, filter], &mut out, |_, inputs, out| {
                    dilate(&window, &inputs[0], &inputs[1], out, |x, f| x + f);
                    Ok(())
                })?;
            }
            dtype => for_integer!(dtype, T => {
                let (image, filter) = (image.as_slice::<T>(), filter.as_slice::<T>());
                dilate(&window, image, filter, out.as_mut_slice(), T::wrapping_add);
            }),
        }
        Ok(())
    }

    fn scratch_bytes(&self, inputs: &[Spec], outputs: &[Spec]) -> usize {
        wide_bytes(inputs, outputs)
    }
}

/// The largest of no sums.
fn lowest(out: &mut ViewMut<'_>) -> Result<()> {
    match out.dtype() {
        dtype if dtype.is_float() => for_float!(dtype, T => {
            out.as_mut_slice::<T>().fill(<T as Bounded>::min_value());
        }),
        dtype => for_integer!(dtype, T => out.as_mut_slice::<T>().fill(T::MIN)),
    }
    Ok(())
}

fn dilate<T: Copy + PartialOrd + Bounded>(
    window: &Window,
    image: &[T],
    filter: &[T],
    out: &mut [T],
    sum: impl Fn(T, T) -> T,
) {
    let taps = window.n_taps();
    let Some(channels) = filter.len().checked_div(taps).filter(|n| *n > 0) else { return };
    for (number, out) in out.chunks_exact_mut(channels).enumerate() {
        let (batch, place) = (number / window.n_outputs(), number % window.n_outputs());
        let (y, x) = (place / window.output[2], place % window.output[2]);
        out.fill(T::min_value());
        if is_stopped(filter.len()) {
            return;
        }
        for (tap, filter) in filter.chunks_exact(channels).enumerate() {
            let (tap_y, tap_x) = (tap / window.size[2], tap % window.size[2]);
            let (Some(y), Some(x)) = (window.at(1, y, tap_y), window.at(2, x, tap_x)) else {
                continue;
            };
            let at = ((batch * window.input[1] + y) * window.input[2] + x) * channels;
            for ((out, x), f) in out.iter_mut().zip(&image[at..]).zip(filter) {
                let value = sum(*x, *f);
                if value > *out {
                    *out = value;
                }
            }
        }
    }
}
