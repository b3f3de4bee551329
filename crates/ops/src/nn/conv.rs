//! `Conv2D` and `Conv3D`: filters that slide over an image.
//!
//! Follows `conv_ops.cc` and `conv_ops_3d.cc`.

use ::pool::Pool;

use super::conv_f32::PackedFilter;
use super::conv_kernel::Conv;
use super::dtypes::through_f32;
use super::transpose::swap_last;
use super::window::{Layout, Slide, Window, slides};
use crate::linalg::Scalar;
use crate::op::Packed;
use crate::prelude::*;
use crate::simd::{self, Epilogue, PanelsView};

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
        self.run_with(ctx, Epilogue::default())
    }

    fn pack(&self, input: usize, weight: &Tensor) -> Result<Option<Packed>> {
        let fits = weight.dtype() == DType::F32 && weight.shape().rank() == self.layout.rank();
        if input != 1 || !fits || weight.n_elements() == 0 {
            return Ok(None);
        }
        PackedFilter::pack(weight).map(Some)
    }

    fn scratch_bytes(&self, inputs: &[Spec], _: &[Spec]) -> usize {
        let [image, filter, ..] = inputs else { return 0 };
        let (Some(image_shape), Some(filter_shape)) = (image.shape(), filter.shape()) else {
            return 0;
        };
        match self.checked(&image_shape, &filter_shape) {
            Ok(conv) if image.dtype == DType::F32 => {
                self.scratch_len(&conv, filter.as_constant().is_some()) * size_of::<f32>()
            }
            _ => 0,
        }
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

    /// The shape of the output of a call.
    pub(super) fn shape_of(&self, ctx: &Ctx<'_>) -> Result<Shape> {
        let packed = ctx.packed::<PackedFilter>(1);
        let filter = packed.map_or_else(|| ctx.input(1).shape(), |packed| &packed.shape);
        self.output_shape(&self.checked(ctx.input(0).shape(), filter)?)
    }

    /// Runs the convolution and what comes after it.
    pub(super) fn run_with(&self, ctx: &mut Ctx<'_>, epilogue: Epilogue<'_>) -> Result<()> {
        let (image, filter) = (ctx.input(0), ctx.input(1));
        let (packed, pool) = (ctx.packed::<PackedFilter>(1), ctx.env().pool);
        let filter_shape = packed.map_or(filter.shape(), |packed| &packed.shape);
        let conv = self.checked(image.shape(), filter_shape)?;
        let shape = self.output_shape(&conv)?;
        let scratch = ctx.take_scratch();
        let mut out = ctx.output(0, image.dtype(), &shape)?;
        match image.dtype() {
            DType::F32 => {
                let mut own = Vec::new();
                let n = self.scratch_len(&conv, packed.is_some());
                let (panels, rest) = simd::floats(scratch, n, &mut own)
                    .split_at_mut(if packed.is_some() { 0 } else { conv.scratch_len() });
                let filter = match packed {
                    Some(packed) => packed.view(),
                    None => conv.pack(filter.as_slice(), panels),
                };
                let call = F32 { conv: &conv, pool, filter, epilogue };
                self.run_f32(&call, image.as_slice(), rest, out.as_mut_slice());
                Ok(())
            }
            DType::F64 => {
                self.arranged::<f64>(
                    &conv,
                    image.as_slice(),
                    filter.as_slice(),
                    out.as_mut_slice(),
                );
                Ok(())
            }
            DType::I32 => {
                self.arranged::<i32>(
                    &conv,
                    image.as_slice(),
                    filter.as_slice(),
                    out.as_mut_slice(),
                );
                Ok(())
            }
            _ => through_f32(&[image, filter], &mut out, |inputs, out| {
                self.arranged(&conv, &inputs[0], &inputs[1], out);
            }),
        }
    }

    /// The floats of scratch memory that `run` wants for `f32`.
    fn scratch_len(&self, conv: &Conv, packed: bool) -> usize {
        let filter = if packed { 0 } else { conv.scratch_len() } + conv.group_len();
        let window = &conv.window;
        let turned = window.n_inputs() * conv.in_channels + window.n_outputs() * conv.out_channels;
        filter + if self.layout.channels_first { turned * conv.batch } else { 0 }
    }

    /// Runs `f32` with channels last, whatever the layout.
    fn run_f32(&self, call: &F32<'_>, image: &[f32], scratch: &mut [f32], out: &mut [f32]) {
        let F32 { conv, pool, filter, epilogue } = *call;
        let (group, scratch) = scratch.split_at_mut(conv.group_len());
        if !self.layout.channels_first {
            return conv.run_f32(pool, image, (filter, epilogue), (group, out));
        }
        let (last, out_last) = scratch.split_at_mut(image.len());
        let out_last = &mut out_last[..out.len()];
        swap_last(image, last, conv.in_channels, conv.window.n_inputs());
        let residual = epilogue.residual.map(|residual| {
            let mut last = vec![0.; residual.len()];
            swap_last(residual, &mut last, conv.out_channels, conv.window.n_outputs());
            last
        });
        let epilogue = Epilogue { residual: residual.as_deref(), ..epilogue };
        conv.run_f32(pool, last, (filter, epilogue), (group, out_last));
        swap_last(out_last, out, conv.window.n_outputs(), conv.out_channels);
    }

    /// Runs the kernel of any element with channels last, whatever the layout.
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

/// One call for `f32`.
struct F32<'a> {
    conv: &'a Conv,
    pool: &'a Pool,
    filter: PanelsView<'a>,
    epilogue: Epilogue<'a>,
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
