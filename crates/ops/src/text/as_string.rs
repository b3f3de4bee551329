//! `AsString`: elements as text.
//!
//! Follows `as_string_op.cc` of TensorFlow.

use half::{bf16, f16};
use num_complex::Complex;

use super::printf::{Format, Notation};
use crate::error::unsupported;
use crate::prelude::*;

/// The most characters of one element that a format may ask for.
const WIDTH_MAX: i64 = 1 << 12;

pub(super) const DEF: OpDef = OpDef::pure("AsString", RowRule::Elementwise, |attrs| {
    let (width, precision) = (attrs.int_or("width", -1)?, attrs.int_or("precision", -1)?);
    let (scientific, shortest) =
        (attrs.bool_or("scientific", false)?, attrs.bool_or("shortest", false)?);
    if scientific && shortest {
        return invalid!("Cannot select both scientific and shortest notation");
    }
    if width > WIDTH_MAX || precision > WIDTH_MAX {
        return invalid!("width and precision must not be above {WIDTH_MAX}");
    }
    let dtype = attrs.dtype("T")?;
    let is_inexact = dtype.is_float() || matches!(dtype, DType::Complex64 | DType::Complex128);
    // Strings are cut and filled up, whatever else is asked for.
    let is_string = dtype == DType::String;
    if !is_inexact && !is_string && (scientific || shortest || precision >= 0) {
        let what = if precision >= 0 { "precision" } else { "scientific and shortest format" };
        return invalid!("{what} not supported for datatype {dtype}");
    }
    let flag = match attrs.str_or("fill", "")? {
        "" => None,
        fill @ (" " | "+" | "-" | "0" | "#") => fill.chars().next(),
        other if other.len() > 1 => {
            return invalid!("Fill string must be one or fewer characters");
        }
        other => return invalid!("Fill argument not supported: \"{other}\""),
    };
    if flag.is_some() && dtype == DType::Bool {
        return invalid!("fill is not supported for datatype {dtype}");
    }
    let notation = match (scientific, shortest) {
        (true, _) => Notation::Scientific,
        (_, true) => Notation::Shortest,
        _ => Notation::Fixed,
    };
    let format = Format {
        flag,
        width: usize::try_from(width).unwrap_or(0),
        precision: usize::try_from(precision).ok(),
        notation,
    };
    Ok(Box::new(AsString(format)))
});

struct AsString(Format);

impl Op for AsString {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [input] = arity(inputs)?;
        Ok(vec![input.with_dtype(DType::String)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let input = ctx.input(0);
        let strings = to_strings(self.0, input)?;
        ctx.set_output(0, Tensor::from_strings(input.shape().clone(), strings)?)
    }
}

fn to_strings(format: Format, input: View<'_>) -> Result<Strings> {
    let signed = |x: i64| format.integer(x < 0, &x.unsigned_abs().to_string());
    let unsigned = |x: u64| format.integer(false, &x.to_string());
    let pair = |re: f64, im: f64| format!("({},{})", format.float(re), format.float(im));
    let strings = match input.dtype() {
        DType::String => {
            // Where there is a width they are formatted, and the precision cuts them.
            let most = format.precision.filter(|_| format.width > 0).unwrap_or(usize::MAX);
            let cut = |text: &'_ [u8]| text.len().min(most);
            Strings::collect(
                paced(input.strings().iter(), TEXT).map(|text| format.padded(&text[..cut(text)])),
            )
        }
        DType::Bool => each(input, |x: u8| if x == 0 { "false" } else { "true" }.to_owned()),
        DType::F32 => each(input, |x: f32| format.float(x.into())),
        DType::F64 => each(input, |x: f64| format.float(x)),
        DType::F16 => each(input, |x: f16| format.float(x.into())),
        DType::BF16 => each(input, |x: bf16| format.float(x.into())),
        DType::Complex64 => each(input, |x: Complex<f32>| pair(x.re.into(), x.im.into())),
        DType::Complex128 => each(input, |x: Complex<f64>| pair(x.re, x.im)),
        DType::I8 => each(input, |x: i8| signed(x.into())),
        DType::I16 => each(input, |x: i16| signed(x.into())),
        DType::I32 => each(input, |x: i32| signed(x.into())),
        DType::I64 => each(input, |x: i64| signed(x)),
        DType::U8 => each(input, |x: u8| unsigned(x.into())),
        DType::U16 => each(input, |x: u16| unsigned(x.into())),
        DType::U32 => each(input, |x: u32| unsigned(x.into())),
        DType::U64 => each(input, |x: u64| unsigned(x)),
        other => return unsupported!("dtype {other} is not supported here"),
    };
    // Fewer strings than elements, if the run was stopped meanwhile.
    pace(TEXT)?;
    Ok(strings?)
}

/// The elementary operations that making a text is worth.
const TEXT: usize = 64;

fn each<T: Element>(input: View<'_>, text: impl Fn(T) -> String) -> tensor::Result<Strings> {
    Strings::collect(paced(input.as_slice::<T>().iter(), TEXT).map(|x| text(*x)))
}
