//! `DecodeRaw` and `DecodePaddedRaw`: the bytes of strings as numbers.
//!
//! Follows `decode_raw_op.cc` and `decode_padded_raw_op.cc` of TensorFlow.

use crate::prelude::*;

/// The most bytes that a string is padded to.
const PADDED_MAX_BYTES: i64 = 1 << 28;

pub(super) const RAW: OpDef = OpDef::pure("DecodeRaw", RowRule::DecodeRaw, |attrs| {
    Ok(Box::new(DecodeRaw(DecodeRawLayout::read(attrs)?)))
});
pub(super) const PADDED: OpDef = OpDef::pure("DecodePaddedRaw", RowRule::Mixed, |attrs| {
    Ok(Box::new(DecodePadded(DecodeRawLayout::read(attrs)?)))
});

/// The dtype and byte order of the bytes.
struct DecodeRawLayout {
    dtype: DType,
    is_big: bool,
}

impl DecodeRawLayout {
    fn read(attrs: &Attrs<'_>) -> Result<Self> {
        let dtype = attrs.dtype("out_type")?;
        if !dtype.is_plain() {
            return invalid!("out_type {dtype} has no bytes");
        }
        Ok(Self { dtype, is_big: !attrs.bool_or("little_endian", true)? })
    }

    /// Turns numbers of the other byte order round; each half of a complex number by itself.
    fn to_native(&self, bytes: &mut [u8]) {
        let size = match self.dtype {
            DType::Complex64 | DType::Complex128 => self.dtype.size() / 2,
            _ => self.dtype.size(),
        };
        if self.is_big && size > 1 {
            bytes.chunks_exact_mut(size).for_each(<[u8]>::reverse);
        }
    }

    /// A bool is zero or one, whatever its byte was.
    fn normalise(&self, bytes: &mut [u8]) {
        if self.dtype == DType::Bool {
            bytes.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
        }
    }
}

struct DecodeRaw(DecodeRawLayout);

impl Op for DecodeRaw {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [input] = arity(inputs)?;
        input.require_dtype(DType::String)?;
        let Some(dims) = input.dims() else { return Ok(vec![Spec::unknown(self.0.dtype)]) };
        Ok(vec![Spec::new(self.0.dtype, dims.iter().cloned().chain([Dim::Unknown]))])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let input = ctx.input(0);
        let strings = input.strings();
        let (dtype, size) = (self.0.dtype, self.0.dtype.size());
        let len = if strings.is_empty() { 0 } else { strings.get(0).len() };
        if let Some((i, other)) = strings.iter().enumerate().find(|(_, s)| s.len() != len) {
            return invalid!(
                "DecodeRaw requires input strings to all be the same size, but element {i} has \
                 size {} != {len}",
                other.len()
            );
        }
        if !len.is_multiple_of(size) {
            return invalid!(
                "Input to DecodeRaw has length {len} that is not a multiple of {size}, the size \
                 of {dtype}"
            );
        }
        let shape = with_width(input.shape(), len / size)?;
        let mut output = ctx.output(0, dtype, &shape)?;
        let bytes = output.bytes();
        if len > 0 {
            for (out, string) in bytes.chunks_exact_mut(len).zip(strings.iter()) {
                pace(8 + string.len())?;
                out.copy_from_slice(string);
            }
        }
        self.0.to_native(bytes);
        self.0.normalise(bytes);
        Ok(())
    }
}

struct DecodePadded(DecodeRawLayout);

impl DecodePadded {
    fn width(&self, length: i64) -> Result<usize> {
        let size = self.0.dtype.size();
        match usize::try_from(length) {
            Ok(bytes) if bytes > 0 && length <= PADDED_MAX_BYTES => {
                if bytes.is_multiple_of(size) {
                    return Ok(bytes / size);
                }
                invalid!(
                    "fixed_length ({length}) must be a multiple of the size of out_type ({size})"
                )
            }
            _ => invalid!("fixed_length ({length}) must be greater than 0, and not too large"),
        }
    }
}

impl Op for DecodePadded {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [input, length] = arity(inputs)?;
        input.require_dtype(DType::String)?;
        length.require_rank(0)?;
        let Some(dims) = input.dims() else { return Ok(vec![Spec::unknown(self.0.dtype)]) };
        let width = match length.ints() {
            Some(length) => Dim::of(self.width(length[0])?),
            None => Dim::Unknown,
        };
        Ok(vec![Spec::new(self.0.dtype, dims.iter().cloned().chain([width]))])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let input = ctx.input(0);
        let width = self.width(int(&ctx.input(1)).unwrap_or(0))?;
        let shape = with_width(input.shape(), width)?;
        super::limit(self.0.dtype, &shape)?;
        let len = width * self.0.dtype.size();
        let mut output = ctx.output(0, self.0.dtype, &shape)?;
        let bytes = output.bytes();
        for (out, string) in bytes.chunks_exact_mut(len).zip(input.strings().iter()) {
            pace(8 + string.len())?;
            let n = string.len().min(len);
            out[..n].copy_from_slice(&string[..n]);
            out[n..].fill(0);
        }
        self.0.to_native(bytes);
        Ok(())
    }
}

fn with_width(shape: &Shape, width: usize) -> Result<Shape> {
    Ok(Shape::checked(shape.to_i64().into_iter().chain([width as i64]))?)
}
