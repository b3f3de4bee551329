//! `StringToNumber`: the numbers that strings spell.

use super::number::{parse_float, parse_float32, parse_int};
use crate::prelude::*;

pub(super) const DEF: OpDef = OpDef::pure("StringToNumber", RowRule::Elementwise, |attrs| {
    Ok(Box::new(StringToNumber(attrs.dtype_or("out_type", DType::F32)?)))
});

struct StringToNumber(DType);

impl Op for StringToNumber {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [input] = arity(inputs)?;
        input.require_dtype(DType::String)?;
        Ok(vec![input.with_dtype(self.0)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        match self.0 {
            DType::F32 => convert::<f32>(ctx, parse_float32),
            DType::F64 => convert::<f64>(ctx, parse_float),
            DType::I32 => convert::<i32>(ctx, parse_int),
            DType::I64 => convert::<i64>(ctx, parse_int),
            DType::U32 => convert::<u32>(ctx, parse_int),
            DType::U64 => convert::<u64>(ctx, parse_int),
            other => invalid!("out_type {other} is not supported"),
        }
    }
}

fn convert<T: Element>(ctx: &mut Ctx<'_>, parse: fn(&[u8]) -> Option<T>) -> Result<()> {
    let input = ctx.input(0);
    let mut output = ctx.output(0, T::DTYPE, input.shape())?;
    for (out, string) in output.as_mut_slice::<T>().iter_mut().zip(input.strings().iter()) {
        pace(32 + string.len())?;
        let Some(number) = parse(string) else {
            let text = String::from_utf8_lossy(string);
            return invalid!("StringToNumberOp could not correctly convert string: {text}");
        };
        *out = number;
    }
    Ok(())
}
