//! `DepthwiseConv2dNative`: a filter of its own for each channel.
//!
//! Follows `depthwise_conv_op.cc`.

use kernels::{Activation, DepthwiseWeights, Epilogue};

use super::depthwise_kernel::DepthwiseConv;
use super::dtypes::{through_f32, wide_bytes};
use super::transpose::{Turn, turned_bytes};
use super::window::{Layout, Slide, Window, per_axis, slides};
use crate::facts::Cost;
use crate::prelude::*;

pub(super) const DEF: OpDef = OpDef::pure("DepthwiseConv2dNative", RowRule::Images, |attrs| {
    Ok(Box::new(Depthwise::read(attrs)?))
})
.costs(Cost::DepthwiseFilter);

pub(super) struct Depthwise {
    pub(super) layout: Layout,
    slides: Vec<Slide>,
}

impl Op for Depthwise {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [image, filter] = arity(inputs)?;
        self.infer_output(image, filter)
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        self.run_with(ctx, Epilogue::default())
    }

    fn scratch_bytes(&self, inputs: &[Spec], outputs: &[Spec]) -> usize {
        let ([image, _, ..], [out]) = (inputs, outputs) else { return 0 };
        wide_bytes(&inputs[..2], outputs) + turned_bytes(self.layout, image, out)
    }
}

impl Depthwise {
    pub(super) fn read(attrs: &Attrs<'_>) -> Result<Self> {
        let layout = Layout::read(attrs, 2)?;
        // TensorFlow has another code for strides than for dilations.
        if let Err(Error::Unimplemented(text)) = per_axis(attrs.ints("strides")?, layout, "strides")
        {
            return Err(Error::InvalidArgument(text));
        }
        Ok(Self { layout, slides: slides(attrs, layout)? })
    }

    /// The output's spec.
    pub(super) fn infer_output(&self, image: &Spec, filter: &Spec) -> Result<Vec<Spec>> {
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

    /// The shape of the output of a call.
    pub(super) fn shape_of(&self, ctx: &Ctx<'_>) -> Result<Shape> {
        self.output_shape(&self.checked(ctx.input(0).shape(), ctx.input(1).shape())?)
    }

    fn output_shape(&self, conv: &DepthwiseConv) -> Result<Shape> {
        let axes = &conv.window.output[1..];
        let dims = self.layout.arrange(conv.batch, axes, conv.channels * conv.multiplier);
        Ok(Shape::checked(dims.into_iter().map(|dim| dim as i64))?)
    }

    /// Runs the convolution and what comes after it, which is for `f32` alone.
    pub(super) fn run_with(&self, ctx: &mut Ctx<'_>, epilogue: Epilogue<'_>) -> Result<()> {
        let (image, filter, pool) = (ctx.input(0), ctx.input(1), ctx.env().pool);
        let conv = self.checked(image.shape(), filter.shape())?;
        let shape = self.output_shape(&conv)?;
        let (scratch, turn) = (ctx.scratch(), self.turn(&conv));
        let mut out = ctx.output(0, image.dtype(), &shape)?;
        match image.dtype() {
            DType::F32 => {
                let Epilogue { bias, residual, activation } = epilogue;
                let first = if residual.is_some() { Activation::None } else { activation };
                let weights = DepthwiseWeights {
                    channels: conv.channels,
                    filter: filter.as_slice(),
                    bias,
                    activation: first,
                };
                let kernel = |image: &[f32], out: &mut [f32]| {
                    conv.run_f32(pool, image, weights, out);
                };
                turn.run((image.as_slice(), out.as_mut_slice()), scratch, kernel)?;
                if let Some(residual) = residual {
                    let out = out.as_mut_slice::<f32>();
                    out.iter_mut().zip(residual).for_each(|(out, x)| *out += x);
                    activation.apply(out);
                }
            }
            DType::F64 => {
                let kernel = |image: &[f64], out: &mut [f64]| {
                    conv.run(image, filter.as_slice(), out);
                };
                turn.run((image.as_slice(), out.as_mut_slice()), scratch, kernel)?;
            }
            _ => through_f32(scratch, &[image, filter], &mut out, |scratch, inputs, out| {
                let weights = DepthwiseWeights {
                    channels: conv.channels,
                    filter: &inputs[1],
                    bias: None,
                    activation: Activation::None,
                };
                let kernel = |image: &[f32], out: &mut [f32]| {
                    conv.run_f32(pool, image, weights, out);
                };
                turn.run((&inputs[0], out), scratch, kernel)
            })?,
        }
        Ok(())
    }

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

    fn turn(&self, conv: &DepthwiseConv) -> Turn {
        let (image, n_outputs) = ((conv.channels, conv.window.n_inputs()), conv.window.n_outputs());
        Turn { layout: self.layout, image, out: (conv.channels * conv.multiplier, n_outputs) }
    }
}
