//! `Conv2DBackpropInput` and `Conv3DBackpropInputV2`: convolution turned round, from a small image
//! to a large one.
//!
//! Follows `conv_grad_input_ops.cc` and `conv_grad_ops_3d.cc`.

use super::conv_transpose_kernel::{PackedTurned, Turned};
use super::dtypes::{through_f32, wide_bytes};
use super::transpose::{Turn, turned_bytes};
use super::window::{Layout, Slide, Window, slides};
use crate::facts::Cost;
use crate::linalg::Scalar;
use crate::op::Packed;
use crate::prelude::*;

pub(super) const CONV_2D: OpDef =
    OpDef::pure("Conv2DBackpropInput", RowRule::ConvTranspose, |attrs| build(attrs, 2))
        .costs(Cost::Filter);
pub(super) const CONV_3D: OpDef =
    OpDef::pure("Conv3DBackpropInputV2", RowRule::ConvTranspose, |attrs| build(attrs, 3));

fn build(attrs: &Attrs<'_>, n_axes: usize) -> Result<Box<dyn Op>> {
    let layout = Layout::read(attrs, n_axes)?;
    Ok(Box::new(ConvTranspose { layout, slides: slides(attrs, layout)? }))
}

struct ConvTranspose {
    layout: Layout,
    slides: Vec<Slide>,
}

impl Op for ConvTranspose {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [sizes, filter, small] = arity(inputs)?;
        let layout = self.layout;
        sizes.require_rank(1)?;
        filter.require_rank(layout.rank())?;
        small.require_rank(layout.rank())?;
        let unknown = vec![Dim::Unknown; layout.rank()];
        let mut dims = match sizes.sizes() {
            Some(sizes) if sizes.len() == layout.rank() => sizes,
            Some(sizes) if sizes.len() == layout.n_axes => {
                let small = small.dims().unwrap_or(&unknown);
                let filter = filter.dims().unwrap_or(&unknown);
                layout.arrange(small[0].clone(), &sizes, filter[layout.n_axes].clone()).into_vec()
            }
            Some(sizes) => return invalid!("{} sizes for an image of {layout:?}", sizes.len()),
            None => unknown.clone(),
        };
        // The batch is known from the other input even where the sizes are not.
        if dims[0].known().is_none()
            && let Some(small) = small.dims()
        {
            dims[0] = small[0].clone();
        }
        Ok(vec![Spec::new(small.dtype, dims)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (sizes, filter, small) = (ctx.input(0), ctx.input(1), ctx.input(2));
        let (packed, pool) = (ctx.packed::<PackedTurned>(1), ctx.env().pool);
        let filter_shape = packed.map_or(filter.shape(), |packed| &packed.shape);
        let Ok(sizes) = ints(&sizes) else {
            return invalid!("input_sizes must be integers");
        };
        let (shape, conv) = self.checked(&sizes, filter_shape, small.shape())?;
        let mut scratch = ctx.scratch();
        let mut out = ctx.output(0, small.dtype(), &shape)?;
        if small.n_elements() == 0 || filter_shape.n_elements() == 0 {
            out.bytes().fill(0);
            return Ok(());
        }
        match small.dtype() {
            DType::F32 => {
                let mut windows = scratch.part(conv.strip_len(shape[0]))?;
                let mut panels =
                    scratch.part(if packed.is_some() { 0 } else { conv.panels_len() })?;
                let panels = match packed {
                    Some(packed) => packed.view(),
                    None => conv.pack(filter.as_slice(), &mut panels),
                };
                let kernel = |small: &[f32], out: &mut [f32]| {
                    conv.run_f32(pool, small, panels, (&mut windows, out));
                };
                self.turn(&conv).run((small.as_slice(), out.as_mut_slice()), scratch, kernel)
            }
            DType::F64 => self.run_plain::<f64>(&conv, (&small, &filter), &mut out, scratch),
            DType::I32 => self.run_plain::<i32>(&conv, (&small, &filter), &mut out, scratch),
            _ => through_f32(scratch, &[small, filter], &mut out, |mut scratch, inputs, out| {
                let mut window = scratch.part(conv.columns())?;
                let kernel = |small: &[f32], out: &mut [f32]| {
                    conv.run(small, &inputs[1], (&mut window, out));
                };
                self.turn(&conv).run((&inputs[0], out), scratch, kernel)
            }),
        }
    }

    fn scratch_bytes(&self, inputs: &[Spec], outputs: &[Spec]) -> usize {
        let ([_, filter, small], [out]) = (inputs, outputs) else { return 0 };
        let shapes = (out.shape(), filter.shape(), small.shape());
        let (Some(out_shape), Some(filter_shape), Some(small_shape)) = shapes else { return 0 };
        let Ok((_, conv)) = self.checked(&out_shape.to_i64(), &filter_shape, &small_shape) else {
            return 0;
        };
        let turned = turned_bytes(self.layout, small, out);
        match small.dtype {
            DType::F32 => {
                let is_packed = filter.as_constant().is_some();
                let panels = if is_packed { 0 } else { conv.panels_len() };
                let windows = conv.strip_len(out_shape[0]);
                Scratch::bytes_of::<f32>(windows) + Scratch::bytes_of::<f32>(panels) + turned
            }
            DType::F64 => Scratch::bytes_of::<f64>(conv.columns()) + turned,
            _ => {
                let window = Scratch::bytes_of::<f32>(conv.columns());
                wide_bytes(&inputs[1..], outputs) + window + turned
            }
        }
    }

    fn pack(&self, input: usize, weight: &Tensor) -> Result<Option<Packed>> {
        let fits = weight.dtype() == DType::F32 && weight.shape().rank() == self.layout.rank();
        if input != 1 || !fits || weight.n_elements() == 0 {
            return Ok(None);
        }
        PackedTurned::pack(weight).map(Some)
    }
}

impl ConvTranspose {
    /// The shape of the large image, and what is to be computed.
    fn checked(&self, sizes: &[i64], filter: &Shape, small: &Shape) -> Result<(Shape, Turned)> {
        let layout = self.layout;
        if filter.rank() != layout.rank() || small.rank() != layout.rank() {
            return invalid!("filter {filter} and image {small} must have rank {}", layout.rank());
        }
        let dims = if sizes.len() == layout.n_axes {
            layout.arrange(small[0] as i64, sizes, filter[layout.n_axes] as i64)
        } else {
            sizes.iter().copied().collect()
        };
        if dims.len() != layout.rank() {
            return invalid!("{} sizes for an image of rank {}", sizes.len(), layout.rank());
        }
        let shape = Shape::checked(dims)?;
        let window = Window::new(layout, &self.slides, |i| shape[layout.axis(i)], |i| filter[i])?;
        let (large_channels, small_channels) = (filter[layout.n_axes], filter[layout.n_axes + 1]);
        let same =
            layout.three(true, |i| small[layout.axis(i)] == window.output[i + 3 - layout.n_axes]);
        let fits = shape[0] == small[0]
            && shape[layout.channel()] == large_channels
            && small[layout.channel()] == small_channels
            && same == [true; 3];
        if !fits {
            return invalid!("sizes {shape}, filter {filter} and image {small} do not fit");
        }
        Ok((shape, Turned { window, large_channels, small_channels }))
    }

    /// Runs the kernel of any element.
    fn run_plain<T: Scalar>(
        &self,
        conv: &Turned,
        (small, filter): (&View<'_>, &View<'_>),
        out: &mut ViewMut<'_>,
        mut scratch: Scratch<'_>,
    ) -> Result<()> {
        let mut window = scratch.part(conv.columns())?;
        let kernel = |small: &[T], out: &mut [T]| {
            conv.run(small, filter.as_slice(), (&mut window, out));
        };
        self.turn(conv).run((small.as_slice(), out.as_mut_slice()), scratch, kernel)
    }

    fn turn(&self, conv: &Turned) -> Turn {
        let image = (conv.small_channels, conv.window.n_outputs());
        Turn { layout: self.layout, image, out: (conv.large_channels, conv.window.n_inputs()) }
    }
}
