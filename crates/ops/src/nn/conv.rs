//! `Conv2D` and `Conv3D`: filters that slide over an image.
//!
//! Follows `conv_ops.cc` and `conv_ops_3d.cc`.

use ::pool::Pool;

use kernels::{Epilogue, PanelsView};

use super::conv_f32::{ConvFilter, PackedFilter};
use super::conv_kernel::Conv;
use super::dtypes::{through_f32, wide_bytes};
use super::transpose::{Turn, swap_last, turned_bytes};
use super::window::{Layout, Slide, Window, slides};
use crate::facts::Cost;
use crate::linalg::Scalar;
use crate::op::Packed;
use crate::prelude::*;

pub(super) const CONV_2D: OpDef =
    OpDef::pure("Conv2D", RowRule::Images, |attrs| build(attrs, 2)).costs(Cost::Filter);
pub(super) const CONV_3D: OpDef =
    OpDef::pure("Conv3D", RowRule::Images, |attrs| build(attrs, 3)).costs(Cost::Filter);

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

    fn scratch_bytes(&self, inputs: &[Spec], outputs: &[Spec]) -> usize {
        let ([image, filter, ..], [out]) = (inputs, outputs) else { return 0 };
        let (Some(image_shape), Some(filter_shape)) = (image.shape(), filter.shape()) else {
            return 0;
        };
        let turned = turned_bytes(self.layout, image, out);
        match self.checked(&image_shape, &filter_shape) {
            Ok(conv) if image.dtype == DType::F32 => {
                let panels = if filter.as_constant().is_some() { 0 } else { conv.scratch_len() };
                let bytes = Scratch::bytes_of::<f32>;
                bytes(panels) + bytes(conv.group_len()) + turned
            }
            Ok(_) => wide_bytes(&inputs[..2], outputs) + turned,
            Err(_) => 0,
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
            self.groups(depth, per_group, out_depth.size())?;
        }
        let mut axes = Vec::with_capacity(3);
        for (i, slide) in self.slides.iter().enumerate() {
            axes.push(slide.infer(&image_dims[layout.axis(i)], &filter_dims[i])?);
        }
        let dims = layout.arrange(image_dims[0].clone(), &axes, out_depth.clone());
        Ok(vec![Spec::new(image.dtype, dims)])
    }

    /// Returns the checked computation for these shapes.
    pub(super) fn checked(&self, image: &Shape, filter: &Shape) -> Result<Conv> {
        let layout = self.layout;
        if image.rank() != layout.rank() || filter.rank() != layout.rank() {
            let rank = layout.rank();
            return invalid!("image and filter must have rank {rank}: {image}, {filter}");
        }
        let (depth, per_group) = (image[layout.channel()], filter[layout.n_axes]);
        let out_depth = filter[layout.n_axes + 1];
        let groups = self.groups(depth, per_group, Some(out_depth))?;
        let window = Window::new(layout, &self.slides, |i| image[layout.axis(i)], |i| filter[i])?;
        if window.n_taps() == 0 && image[0] * window.n_outputs() * out_depth > 0 {
            // The text is TensorFlow's (`conv_ops_impl.h`).
            return invalid!(
                "filter must not have zero elements (i.e. all dimensions must be non-zero)"
            );
        }
        Ok(Conv { batch: image[0], window, groups, in_channels: depth, out_channels: out_depth })
    }

    /// The number of groups that the channels are in; those of volumes are in one.
    fn groups(&self, depth: usize, per_group: usize, out_depth: Option<usize>) -> Result<usize> {
        if self.layout.n_axes == 3 && depth != per_group {
            return invalid!("input depth {depth} is not filter depth {per_group}");
        }
        groups(depth, per_group, out_depth)
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
        let mut scratch = ctx.scratch();
        let mut out = ctx.output(0, image.dtype(), &shape)?;
        match image.dtype() {
            DType::F32 => {
                let mut panels =
                    scratch.part(if packed.is_some() { 0 } else { conv.scratch_len() })?;
                let filter = match packed {
                    Some(packed) => packed.view(),
                    None => conv.pack(filter.as_slice(), &mut panels),
                };
                let call = F32 { conv: &conv, pool, filter, epilogue };
                self.run_f32(&call, image.as_slice(), scratch, out.as_mut_slice())
            }
            DType::F64 => self.run_plain::<f64>(&conv, (&image, &filter), &mut out, scratch),
            DType::I32 => self.run_plain::<i32>(&conv, (&image, &filter), &mut out, scratch),
            _ => through_f32(scratch, &[image, filter], &mut out, |scratch, inputs, out| {
                let kernel = |image: &[f32], out: &mut [f32]| conv.run(image, &inputs[1], out);
                self.turn(&conv).run((&inputs[0], out), scratch, kernel)
            }),
        }
    }

    /// Runs `f32` with channels last, whatever the layout.
    fn run_f32(
        &self,
        call: &F32<'_>,
        image: &[f32],
        mut scratch: Scratch<'_>,
        out: &mut [f32],
    ) -> Result<()> {
        let F32 { conv, pool, filter, epilogue } = *call;
        let mut group = scratch.part(conv.group_len())?;
        let turned = match epilogue.residual.filter(|_| self.layout.channels_first) {
            Some(residual) => {
                let mut last = scratch.part(residual.len())?;
                swap_last(residual, &mut last, conv.out_channels, conv.window.n_outputs());
                Some(last)
            }
            None => None,
        };
        let residual = turned.as_deref().or(epilogue.residual);
        let epilogue = Epilogue { residual, ..epilogue };
        self.turn(conv).run((image, out), scratch, |image, out| {
            let filter = ConvFilter { panels: filter, epilogue };
            conv.run_f32(pool, image, filter, (&mut group, out));
        })
    }

    /// Runs the kernel of any element.
    fn run_plain<T: Scalar>(
        &self,
        conv: &Conv,
        (image, filter): (&View<'_>, &View<'_>),
        out: &mut ViewMut<'_>,
        scratch: Scratch<'_>,
    ) -> Result<()> {
        let kernel = |image: &[T], out: &mut [T]| conv.run(image, filter.as_slice(), out);
        self.turn(conv).run((image.as_slice(), out.as_mut_slice()), scratch, kernel)
    }

    fn turn(&self, conv: &Conv) -> Turn {
        let image = (conv.in_channels, conv.window.n_inputs());
        Turn { layout: self.layout, image, out: (conv.out_channels, conv.window.n_outputs()) }
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
