//! The literals of the op suite: tensors and attributes as text.

use half::{bf16, f16};
use num_complex::Complex;
use proto::tensorflow::attr_value::{ListValue, Value};
use proto::tensorflow::tensor_shape_proto::Dim;
use proto::tensorflow::{AttrValue, TensorShapeProto};
use tensor::{DType, Element, Layout, Shape, Strings, Tensor};

use super::generate::Lcg;

type Result<T> = std::result::Result<T, String>;

/// Reads `dtype[d0,d1] v v v`.
pub(super) fn tensor(text: &str) -> Result<Tensor> {
    let (dtype, rest) = text.split_once('[').ok_or("no [ after the dtype")?;
    let (dims, values) = rest.split_once(']').ok_or("no ] after the dimensions")?;
    let dtype = DType::from_short_name(dtype.trim()).ok_or(format!("no dtype {dtype}"))?;
    let dims = dims.split(',').map(str::trim).filter(|dim| !dim.is_empty());
    let dims: Vec<i64> = dims
        .map(|d| d.parse().map_err(|_| "a dimension"))
        .collect::<std::result::Result<_, _>>()?;
    let shape = Shape::checked(dims).map_err(|error| error.to_string())?;
    let words = words(values.trim())?;
    match dtype {
        DType::String => strings(&words, shape),
        DType::F32 => plain(dtype, shape, &words, |x| x as f32),
        DType::F64 => plain(dtype, shape, &words, |x| x),
        DType::F16 => plain(dtype, shape, &words, f16::from_f64),
        DType::BF16 => plain(dtype, shape, &words, bf16::from_f64),
        DType::Complex64 => complex(shape, &words, |re, im| Complex::new(re as f32, im as f32)),
        DType::Complex128 => complex(shape, &words, Complex::new),
        DType::I8 | DType::QI8 => integers(dtype, shape, &words, |x| x as i8),
        DType::I16 | DType::QI16 => integers(dtype, shape, &words, |x| x as i16),
        DType::I32 | DType::QI32 => integers(dtype, shape, &words, |x| x as i32),
        DType::I64 => integers(dtype, shape, &words, |x| x as i64),
        DType::U8 | DType::QU8 | DType::Bool => integers(dtype, shape, &words, |x| x as u8),
        DType::U16 | DType::QU16 => integers(dtype, shape, &words, |x| x as u16),
        DType::U32 => integers(dtype, shape, &words, |x| x as u32),
        DType::U64 => integers(dtype, shape, &words, |x| x as u64),
        other => Err(format!("no literals of {other}")),
    }
}

/// Splits at blanks, but not inside double quotes; unescapes what stands in quotes.
fn words(text: &str) -> Result<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        if first.is_ascii_whitespace() {
            rest = after;
        } else if *first == b'"' {
            let (word, left) = quoted(after)?;
            words.push(word);
            rest = left;
        } else {
            let end = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
            words.push(rest[..end].to_vec());
            rest = &rest[end..];
        }
    }
    Ok(words)
}

fn quoted(mut rest: &[u8]) -> Result<(Vec<u8>, &[u8])> {
    let mut word = Vec::new();
    loop {
        match rest {
            [] => return Err("a string does not end".to_owned()),
            [b'"', left @ ..] => return Ok((word, left)),
            [b'\\', b'x', a, b, left @ ..] => {
                let hex = String::from_utf8_lossy(&[*a, *b]).into_owned();
                word.push(u8::from_str_radix(&hex, 16).map_err(|_| "a bad \\x escape")?);
                rest = left;
            }
            [b'\\', escaped, left @ ..] => {
                word.push(match escaped {
                    b'n' => b'\n',
                    b't' => b'\t',
                    b'r' => b'\r',
                    other => *other,
                });
                rest = left;
            }
            [byte, left @ ..] => {
                word.push(*byte);
                rest = left;
            }
        }
    }
}

fn strings(words: &[Vec<u8>], shape: Shape) -> Result<Tensor> {
    let count = shape.n_elements();
    let strings = match words {
        [one] if count != 1 => Strings::repeated(one, count),
        all => Strings::collect(all),
    };
    let tensor = strings.and_then(|strings| Tensor::from_strings(shape, strings));
    tensor.map_err(|error| error.to_string())
}

fn plain<T: Element>(
    dtype: DType,
    shape: Shape,
    words: &[Vec<u8>],
    cast: impl Fn(f64) -> T,
) -> Result<Tensor> {
    let words = as_text(words)?;
    let count = shape.n_elements();
    let values: Vec<f64> = match &words[..] {
        ["random", seed, range @ ..] => {
            let (low, high) = match range {
                [low, high] => (float(low)?, float(high)?),
                _ => (-1.0, 1.0),
            };
            let mut lcg = Lcg::new(seed.parse().map_err(|_| "a seed")?);
            (0..count).map(|_| lcg.float(low, high)).collect()
        }
        ["range"] => (0..u32::try_from(count).map_err(|_| "too many")?).map(f64::from).collect(),
        [one] => vec![float(one)?; count],
        all => all.iter().map(|word| float(word)).collect::<Result<_>>()?,
    };
    let values: Vec<T> = values.into_iter().map(cast).collect();
    finish(dtype, shape, &values)
}

fn integers<T: Element>(
    dtype: DType,
    shape: Shape,
    words: &[Vec<u8>],
    cast: impl Fn(i128) -> T,
) -> Result<Tensor> {
    let words = as_text(words)?;
    let count = shape.n_elements();
    let values: Vec<i128> = match &words[..] {
        ["random", seed, low, high] => {
            let mut lcg = Lcg::new(seed.parse().map_err(|_| "a seed")?);
            let low = low.parse().map_err(|_| "a bound")?;
            let high = high.parse().map_err(|_| "a bound")?;
            (0..count).map(|_| i128::from(lcg.int(low, high))).collect()
        }
        ["range"] => (0..count).map(|i| i as i128).collect(),
        [one] => vec![integer(one)?; count],
        all => all.iter().map(|word| integer(word)).collect::<Result<_>>()?,
    };
    let values: Vec<T> = values.into_iter().map(cast).collect();
    finish(dtype, shape, &values)
}

fn complex<T: Element>(
    shape: Shape,
    words: &[Vec<u8>],
    cast: impl Fn(f64, f64) -> T,
) -> Result<Tensor> {
    let words = as_text(words)?;
    let count = shape.n_elements();
    let parse = |word: &str| {
        let (re, im) = word.split_once(',').unwrap_or((word, "0"));
        Ok(cast(float(re)?, float(im)?))
    };
    let values: Vec<T> = match &words[..] {
        [one] => vec![parse(one)?; count],
        all => all.iter().map(|word| parse(word)).collect::<Result<_>>()?,
    };
    finish(T::DTYPE, shape, &values)
}

fn finish<T: Element>(dtype: DType, shape: Shape, values: &[T]) -> Result<Tensor> {
    let bytes = bytemuck::cast_slice(values);
    Tensor::from_bytes(dtype, shape, bytes).map_err(|error| error.to_string())
}

fn as_text(words: &[Vec<u8>]) -> Result<Vec<&str>> {
    words.iter().map(|word| std::str::from_utf8(word).map_err(|_| "not UTF-8".to_owned())).collect()
}

fn float(word: &str) -> Result<f64> {
    word.parse().map_err(|_| format!("{word} is not a number"))
}

fn integer(word: &str) -> Result<i128> {
    match word {
        "true" => Ok(1),
        "false" => Ok(0),
        _ => word.parse().map_err(|_| format!("{word} is not an integer")),
    }
}

/// Reads `NAME KIND VALUE…`.
pub(super) fn attr(text: &str) -> Result<(String, AttrValue)> {
    let (name, rest) = text.split_once(char::is_whitespace).ok_or("no kind")?;
    let rest = rest.trim();
    let (kind, rest) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let rest = rest.trim();
    let value = match kind {
        "int" => Value::I(rest.parse().map_err(|_| "an int")?),
        "float" => Value::F(float(rest)? as f32),
        "bool" => Value::B(rest == "true"),
        "str" => Value::S(words(rest)?.pop().unwrap_or_default().into()),
        "type" => Value::Type(dtype_number(rest)?),
        "shape" => Value::Shape(shape(rest.split_whitespace())?),
        "tensor" => {
            let proto = tensor(rest)?.to_proto(Layout::Values);
            Value::Tensor(Box::new(proto.map_err(|error| error.to_string())?))
        }
        _ => Value::List(Box::new(list(kind, rest)?)),
    };
    Ok((name.to_owned(), AttrValue { value: Some(value) }))
}

fn list(kind: &str, rest: &str) -> Result<ListValue> {
    let words = words(rest)?;
    let mut list = ListValue::default();
    if kind == "strs" {
        list.s = words.into_iter().map(Into::into).collect();
        return Ok(list);
    }
    let words = as_text(&words)?;
    match kind {
        "ints" => {
            list.i = words
                .iter()
                .map(|w| w.parse().map_err(|_| "ints"))
                .collect::<std::result::Result<_, _>>()?
        }
        "floats" => list.f = words.iter().map(|w| Ok(float(w)? as f32)).collect::<Result<_>>()?,
        "bools" => list.b = words.iter().map(|w| *w == "true").collect(),
        "types" => list.r#type = words.iter().map(|w| dtype_number(w)).collect::<Result<_>>()?,
        "shapes" => {
            let parse = |word: &&str| {
                let inner = word.trim_start_matches('[').trim_end_matches(']');
                shape(inner.split(',').filter(|dim| !dim.is_empty()))
            };
            list.shape = words.iter().map(parse).collect::<Result<_>>()?;
        }
        _ => return Err(format!("no kind {kind}")),
    }
    Ok(list)
}

fn shape<'a>(words: impl Iterator<Item = &'a str>) -> Result<TensorShapeProto> {
    let mut shape = TensorShapeProto::default();
    for word in words {
        if word == "unknown" {
            return Ok(TensorShapeProto { unknown_rank: true, ..TensorShapeProto::default() });
        }
        let size = if word == "?" { -1 } else { word.parse().map_err(|_| "a dimension")? };
        shape.dim.push(Dim { size, name: String::new() });
    }
    Ok(shape)
}

fn dtype_number(name: &str) -> Result<i32> {
    Ok(DType::from_short_name(name).ok_or(format!("no dtype {name}"))?.number())
}

/// Fails with a description if the elements differ by more than the tolerance.
pub(super) fn compare(expected: &Tensor, got: &Tensor, tolerance: Option<f64>) -> Result<()> {
    let dtype = expected.dtype();
    if dtype == DType::String {
        let same = expected.strings() == got.strings();
        return if same {
            Ok(())
        } else {
            Err(format!("expected {:?} but got {:?}", text(expected), text(got)))
        };
    }
    if !dtype.is_plain() {
        return Ok(());
    }
    let (a, b) = (numbers(expected), numbers(got));
    let default = match dtype {
        DType::F16 => 2e-3,
        DType::BF16 => 1.6e-2,
        DType::F32 | DType::F64 | DType::Complex64 | DType::Complex128 => 1e-5,
        _ => 0.0,
    };
    let largest = a.iter().filter(|x| x.is_finite()).fold(1.0f64, |m, x| m.max(x.abs()));
    let allowed = tolerance.unwrap_or(default) * largest;
    for (i, (x, y)) in a.iter().zip(&b).enumerate() {
        let same = x == y || (x.is_nan() && y.is_nan()) || (x - y).abs() <= allowed;
        if !same {
            return Err(format!("element {i}: expected {x} but got {y}"));
        }
    }
    Ok(())
}

fn text(tensor: &Tensor) -> Vec<String> {
    tensor.strings().iter().map(|s| String::from_utf8_lossy(s).into_owned()).collect()
}

#[expect(clippy::cast_precision_loss, reason = "large integers are compared in tests only")]
fn numbers(tensor: &Tensor) -> Vec<f64> {
    let view = tensor.view();
    match tensor.dtype() {
        DType::F32 => view.as_slice::<f32>().iter().map(|x| f64::from(*x)).collect(),
        DType::F64 => view.as_slice::<f64>().to_vec(),
        DType::F16 => view.as_slice::<f16>().iter().map(|x| x.to_f64()).collect(),
        DType::BF16 => view.as_slice::<bf16>().iter().map(|x| x.to_f64()).collect(),
        DType::Complex64 => {
            view.as_wide::<[f32; 2]>().iter().flatten().map(|x| f64::from(*x)).collect()
        }
        DType::Complex128 => view.as_wide::<[f64; 2]>().iter().flatten().copied().collect(),
        DType::I64 => view.as_slice::<i64>().iter().map(|x| *x as f64).collect(),
        DType::U64 => view.as_slice::<u64>().iter().map(|x| *x as f64).collect(),
        DType::U32 => view.as_slice::<u32>().iter().map(|x| f64::from(*x)).collect(),
        DType::I32 | DType::QI32 => view.as_slice::<i32>().iter().map(|x| f64::from(*x)).collect(),
        DType::I16 | DType::QI16 => view.as_slice::<i16>().iter().map(|x| f64::from(*x)).collect(),
        DType::U16 | DType::QU16 => view.as_slice::<u16>().iter().map(|x| f64::from(*x)).collect(),
        DType::I8 | DType::QI8 => view.as_slice::<i8>().iter().map(|x| f64::from(*x)).collect(),
        _ => view.as_wide::<u8>().iter().map(|x| f64::from(*x)).collect(),
    }
}
