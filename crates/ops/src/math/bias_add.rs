//! `BiasAdd`: a vector added along the channels.

use half::{bf16, f16};

use super::binary::SUM;
use super::broadcast::{Layout, Operands, Share};
use super::map::{CHEAP, lacking};
use super::table::{Column, for_column};
use super::zip;
use crate::prelude::*;

pub(super) const BIAS_ADD: OpDef = OpDef::pure("BiasAdd", RowRule::Bias, |attrs| {
    let channels_first = match attrs.str_or("data_format", "NHWC")? {
        "NHWC" => false,
        "NCHW" => true,
        other => return invalid!("data_format {other} is not NHWC or NCHW"),
    };
    Ok(Box::new(BiasAdd { channels_first }))
});
pub(super) const BIAS_ADD_V1: OpDef =
    OpDef::pure("BiasAddV1", RowRule::Bias, |_| Ok(Box::new(BiasAdd { channels_first: false })));

struct BiasAdd {
    channels_first: bool,
}

impl BiasAdd {
    /// The axis of the channels. Fails if there are too few axes.
    fn axis(&self, rank: usize) -> Result<usize> {
        if rank < 2 {
            return invalid!("Input tensor must be at least 2D: {rank}D");
        }
        Ok(if self.channels_first { 1 } else { rank - 1 })
    }
}

impl Op for BiasAdd {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [value, bias] = arity(inputs)?;
        bias.require_rank(1)?;
        if let Some(dims) = value.dims() {
            let channels = &dims[self.axis(dims.len())?];
            if bias.dims().is_some_and(|bias| bias[0].differs(channels)) {
                return invalid!(
                    "Must provide as many biases as the last dimension of the input tensor: \
                     {bias} vs. {value}"
                );
            }
        }
        Ok(vec![value.with_dtype(value.dtype)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let dtype = ctx.input(1).dtype();
        match dtype {
            DType::F16 => self.add::<f16>(ctx, zip::half(SUM.f32, dtype)?),
            DType::BF16 => self.add::<bf16>(ctx, zip::half(SUM.f32, dtype)?),
            _ => for_column!(dtype, T => {
                let kernel = <T as Column>::of(&SUM).ok_or_else(|| lacking(dtype))?;
                self.add::<T>(ctx, kernel)
            }),
        }
    }

    fn in_place(&self) -> Option<usize> {
        Some(0)
    }
}

impl BiasAdd {
    fn add<T: Element>(
        &self,
        ctx: &mut Ctx<'_>,
        kernel: impl Fn(&[T], &[T], &mut [T]) + Sync,
    ) -> Result<()> {
        let pool = ctx.env().pool;
        let (value, bias) = (ctx.input(0), ctx.input(1));
        let (a, mut out) = match ctx.is_in_place() {
            true => (None, ctx.in_place().ok_or_else(|| Error::Internal("no output".to_owned()))?),
            false => (Some(value.as_slice::<T>()), ctx.output(0, value.dtype(), value.shape())?),
        };
        let shape = out.shape().clone();
        let axis = self.axis(shape.rank())?;
        if bias.shape().rank() != 1 || bias.n_elements() != shape[axis] {
            return invalid!("a bias of shape {} does not fit {shape}", bias.shape());
        }
        let along: Shape =
            (axis..shape.rank()).map(|i| if i == axis { shape[i] } else { 1 }).collect();
        let operands = Operands { a, b: bias.as_slice() };
        let layout = Layout::new(&shape, &along, &shape);
        layout.walk(Share { pool, grain: CHEAP }, operands, out.as_mut_slice::<T>(), kernel);
        Ok(())
    }
}
