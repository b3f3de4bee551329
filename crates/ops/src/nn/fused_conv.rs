//! `_FusedConv2D` and `_FusedDepthwiseConv2dNative`: a convolution and what comes after it.
//!
//! Graph passes make them.

use super::conv::ConvOp;
use super::depthwise::Depthwise;
use super::fused::Steps;
use super::window::{Layout, slides};
use crate::facts::Cost;
use crate::op::Packed;
use crate::prelude::*;

pub(super) const CONV_2D: OpDef = OpDef::pure("_FusedConv2D", RowRule::FusedImages, |attrs| {
    let layout = Layout::read(attrs, 2)?;
    let conv = ConvOp { layout, slides: slides(attrs, layout)? };
    Ok(Box::new(FusedConv { conv, steps: Steps::read(attrs)? }))
})
.costs(Cost::Filter);

pub(super) const DEPTHWISE: OpDef =
    OpDef::pure("_FusedDepthwiseConv2dNative", RowRule::FusedImages, |attrs| {
        let conv = Depthwise::read(attrs)?;
        Ok(Box::new(FusedDepthwise { conv, steps: Steps::read(attrs)? }))
    })
    .costs(Cost::DepthwiseFilter);

struct FusedConv {
    conv: ConvOp,
    steps: Steps,
}

impl Op for FusedConv {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        arity_at_least(inputs, 2)?;
        let outputs = self.conv.infer_output(&inputs[0], &inputs[1])?;
        self.steps.check(inputs, &outputs[0], self.conv.layout.channel())?;
        Ok(outputs)
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let shape = self.conv.shape_of(ctx)?;
        let epilogue = self.steps.epilogue(ctx, &shape, self.conv.layout.channel())?;
        self.conv.run_with(ctx, epilogue)
    }

    fn pack(&self, input: usize, weight: &Tensor) -> Result<Option<Packed>> {
        self.conv.pack(input, weight)
    }

    fn scratch_bytes(&self, inputs: &[Spec], outputs: &[Spec]) -> usize {
        let out = outputs[0].shape().map_or(0, |shape| shape.n_elements());
        let is_turned = self.conv.layout.channels_first && self.steps.residual;
        let residual = if is_turned { Scratch::bytes_of::<f32>(out) } else { 0 };
        self.conv.scratch_bytes(inputs, outputs) + residual
    }
}

struct FusedDepthwise {
    conv: Depthwise,
    steps: Steps,
}

impl Op for FusedDepthwise {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        arity_at_least(inputs, 2)?;
        let outputs = self.conv.infer_output(&inputs[0], &inputs[1])?;
        self.steps.check(inputs, &outputs[0], self.conv.layout.channel())?;
        Ok(outputs)
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let shape = self.conv.shape_of(ctx)?;
        let epilogue = self.steps.epilogue(ctx, &shape, self.conv.layout.channel())?;
        self.conv.run_with(ctx, epilogue)
    }

    fn scratch_bytes(&self, inputs: &[Spec], outputs: &[Spec]) -> usize {
        self.conv.scratch_bytes(inputs, outputs)
    }
}
