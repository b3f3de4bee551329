//! One array: from and to the bytes of an `.npy` member.

use anyhow::{Context, Result, bail, ensure};
use tensor::{DType, Shape, Strings, Tensor};

use super::header;

/// NumPy's names of our dtypes. `bfloat16` travels as 2-byte void, as ml_dtypes writes it.
const NAMES: &[(&str, DType)] = &[
    ("f4", DType::F32),
    ("f8", DType::F64),
    ("f2", DType::F16),
    ("i1", DType::I8),
    ("i2", DType::I16),
    ("i4", DType::I32),
    ("i8", DType::I64),
    ("u1", DType::U8),
    ("u2", DType::U16),
    ("u4", DType::U32),
    ("u8", DType::U64),
    ("b1", DType::Bool),
    ("c8", DType::Complex64),
    ("c16", DType::Complex128),
    ("V2", DType::BF16),
];

/// Reads an array.
pub(crate) fn decode(bytes: &[u8]) -> Result<Tensor> {
    let (header, elements) = header::parse(bytes)?;
    ensure!(!header.is_fortran || header.shape.len() < 2, "Fortran order is not supported");
    let shape = Shape::checked(header.shape.iter().copied())?;
    ensure!(!header.descr.starts_with('>'), "big-endian arrays are not supported");
    let name = header.descr.trim_start_matches(['<', '|', '=']);
    if let Some(width) = name.strip_prefix('S') {
        return strings(elements, width.parse().context("the width of strings")?, shape);
    }
    if let Some(width) = name.strip_prefix('U') {
        return unicode(elements, width.parse().context("the width of strings")?, shape);
    }
    let Some((_, dtype)) = NAMES.iter().find(|row| row.0 == name) else {
        bail!("arrays of type {} are not supported", header.descr);
    };
    let want = shape.n_elements() * dtype.size();
    ensure!(elements.len() == want, "{} bytes, but the shape needs {want}", elements.len());
    Ok(Tensor::from_bytes(*dtype, shape, elements)?)
}

fn strings(elements: &[u8], width: usize, shape: Shape) -> Result<Tensor> {
    let want = shape.n_elements().checked_mul(width).context("too large")?;
    ensure!(elements.len() == want, "{} bytes, but the shape needs {want}", elements.len());
    let strings = match width {
        0 => Strings::repeated(b"", shape.n_elements())?,
        width => Strings::collect(elements.chunks_exact(width).map(trim))?,
    };
    Ok(Tensor::from_strings(shape, strings)?)
}

/// The bytes in front of the zeros that a string is filled up with.
fn trim(padded: &[u8]) -> &[u8] {
    let end = padded.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    &padded[..end]
}

/// Text arrays are UTF-32; a tensor of them is UTF-8.
fn unicode(elements: &[u8], width: usize, shape: Shape) -> Result<Tensor> {
    let want = shape.n_elements().checked_mul(width).and_then(|n| n.checked_mul(4));
    ensure!(want == Some(elements.len()), "the elements do not fill the shape");
    let decode = |chunk: &[u8]| {
        let code = u32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]);
        char::from_u32(code).filter(|c| *c != '\0')
    };
    let texts = |width: usize| {
        let texts = elements.chunks_exact(width * 4);
        texts.map(|text| text.chunks_exact(4).filter_map(decode).collect::<String>())
    };
    let strings = match width {
        0 => Strings::repeated(b"", shape.n_elements())?,
        width => Strings::collect(texts(width))?,
    };
    Ok(Tensor::from_strings(shape, strings)?)
}

/// Writes an array.
pub(super) fn encode(tensor: &Tensor) -> Result<Vec<u8>> {
    let shape = tensor.shape();
    if tensor.dtype() == DType::String {
        let strings = tensor.strings();
        // NumPy has no strings of width 0.
        let width = strings.iter().map(<[u8]>::len).max().unwrap_or(0).max(1);
        let mut bytes = header::write(&format!("|S{width}"), shape);
        for string in strings.iter() {
            bytes.extend_from_slice(string);
            bytes.resize(bytes.len() + width - string.len(), 0);
        }
        return Ok(bytes);
    }
    let Some((name, _)) = NAMES.iter().find(|row| row.1 == tensor.dtype()) else {
        bail!("a {} tensor cannot be written to a NumPy archive", tensor.dtype());
    };
    let order = if tensor.dtype().size() == 1 || name.starts_with('V') { '|' } else { '<' };
    let mut bytes = header::write(&format!("{order}{name}"), shape);
    bytes.extend_from_slice(tensor.view().bytes());
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_come_back() {
        for (_, dtype) in NAMES {
            let bytes: Vec<u8> = (0..).take(6 * dtype.size()).collect();
            let tensor = Tensor::from_bytes(*dtype, Shape::of(&[2, 3]), &bytes).unwrap();
            let back = decode(&encode(&tensor).unwrap()).unwrap();
            assert_eq!((back.dtype(), back.shape()), (tensor.dtype(), tensor.shape()));
            assert_eq!(back.view().bytes(), bytes);
        }
    }

    #[test]
    fn strings_come_back_without_their_padding() {
        let strings = Strings::collect(["a", "", "long\u{e4}"]).unwrap();
        let tensor = Tensor::from_strings(Shape::of(&[3]), strings).unwrap();
        assert_eq!(decode(&encode(&tensor).unwrap()).unwrap().strings(), tensor.strings());
    }

    #[test]
    fn elements_that_do_not_fill_the_shape_are_refused() {
        let tensor = Tensor::vector(&[1f32, 2.]).unwrap();
        let bytes = encode(&tensor).unwrap();
        assert!(decode(&bytes[..bytes.len() - 1]).is_err());
    }
}
