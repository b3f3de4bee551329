//! `Conv2D` and `Conv3D`: filters that slide over an image.
//!
//! Follows `conv_ops.cc` and `conv_ops_3d.cc`.

use super::conv_kernel::Conv;
use super::dtypes::through_f32;
use super::transpose::swap_last;
use super::window::{Layout, Slide, Window, slides};
use crate::linalg::Scalar;
use crate::prelude::*;

pub(super) const CONV_2D: OpDef = OpDef::pure("Conv2D", |attrs| build(attrs, 2));
pub(super) const CONV_3D: OpDef = OpDef::pure("Conv3D", |attrs| build(attrs, 3));

fn build(attrs: &Attrs<'_>, n_axes: usize) -> Result<Box<dyn Op>> {
    let layout = Layout::read(attrs, n_axes)?;
    Ok(Box::new(ConvOp { layout, slides: slides(attrs, layout)? }))
}

pub(super) struct ConvOp {
    pub(super) layout: Layout,
    pub(super) slides: Vec<Slide>,
}

impl Op for ConvOp {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [image, filter] = arity(inputs)?;
        self.infer_output(image, filter)
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (image, filter) = (ctx.input(0), ctx.input(1));
        let conv = self.checked(image.shape(), filter.shape())?;
        let shape = self.output_shape(&conv)?;
        let mut out = ctx.output(0, image.dtype(), &shape)?;
        match image.dtype() {
            DType::F32 => {
                self.arranged::<f32>(&conv, image.as_slice(), filter.as_slice(), out.as_mut_slice())
            }
            DType::F64 => {
                self.arranged::<f64>(&conv, image.as_slice(), filter.as_slice(), out.as_mut_slice())
            }
            DType::I32 => {
                self.arranged::<i32>(&conv, image.as_slice(), filter.as_slice(), out.as_mut_slice())
            }
            _ => through_f32(&[image, filter], &mut out, |inputs, out| {
                self.arranged(&conv, &inputs[0], &inputs[1], out);
            })?,
        }
        Ok(())
    }
}

impl ConvOp {
    /// The output's spec.
    pub(super) fn infer_output(&self, image: &Spec, filter: &Spec) -> Result<Vec<Spec>> {
        let layout = self.layout;
        image.require_rank(layout.rank())?;
        filter.require_rank(layout.rank())?;
        let unknown = vec![Dim::Unknown; layout.rank()];
        let image_dims = image.dims().unwrap_or(&unknown);
        let filter_dims = filter.dims().unwrap_or(&unknown);
        let (depth, per_group) = (&image_dims[layout.channel()], &filter_dims[layout.n_axes]);
        let out_depth = &filter_dims[layout.n_axes + 1];
        if let (Some(depth), Some(per_group)) = (depth.size(), per_group.size()) {
            groups(depth, per_group, out_depth.size())?;
        }
        let mut axes = Vec::with_capacity(3);
        for (i, slide) in self.slides.iter().enumerate() {
            axes.push(slide.infer(&image_dims[layout.axis(i)], &filter_dims[i])?);
        }
        let dims = layout.arrange(image_dims[0].clone(), &axes, out_depth.clone());
        Ok(vec![Spec::new(image.dtype, dims)])
    }

    /// What is to be computed for these shapes.
    pub(super) fn checked(&self, image: &Shape, filter: &Shape) -> Result<Conv> {
        let layout = self.layout;
        if image.rank() != layout.rank() || filter.rank() != layout.rank() {
            let rank = layout.rank();
            return invalid!("image and filter must have rank {rank}: {image}, {filter}");
        }
        let (depth, per_group) = (image[layout.channel()], filter[layout.n_axes]);
        let out_depth = filter[layout.n_axes + 1];
        let groups = groups(depth, per_group, Some(out_depth))?;
        let window = Window::new(layout, &self.slides, |i| image[layout.axis(i)], |i| filter[i])?;
        Ok(Conv { batch: image[0], window, groups, in_channels: depth, out_channels: out_depth })
    }

    pub(super) fn output_shape(&self, conv: &Conv) -> Result<Shape> {
        let axes = &conv.window.output[3 - self.layout.n_axes..];
        let dims = self.layout.arrange(conv.batch, axes, conv.out_channels);
        Ok(Shape::checked(dims.into_iter().map(|dim| dim as i64))?)
    }

    /// Runs the kernel with channels last, whatever the layout.
    fn arranged<T: Scalar>(&self, conv: &Conv, image: &[T], filter: &[T], out: &mut [T]) {
        if !self.layout.channels_first {
            return conv.run(image, filter, out);
        }
        let mut last = vec![T::ZERO; image.len()];
        swap_last(image, &mut last, conv.in_channels, conv.window.n_inputs());
        let mut out_last = vec![T::ZERO; out.len()];
        conv.run(&last, filter, &mut out_last);
        swap_last(&out_last, out, conv.window.n_outputs(), conv.out_channels);
    }
}

/// The number of groups that the channels are in.
fn groups(depth: usize, per_group: usize, out_depth: Option<usize>) -> Result<usize> {
    if per_group == 0 {
        return invalid!("filter depth must be above 0");
    }
    if !depth.is_multiple_of(per_group) {
        return invalid!("input depth {depth} is no multiple of filter depth {per_group}");
    }
    let groups = depth / per_group;
    match out_depth {
        Some(out) if groups > 0 && !out.is_multiple_of(groups) => {
            invalid!("output depth {out} is no multiple of the number of groups {groups}")
        }
        _ => Ok(groups),
    }
}
