//! `Attrs`: the attributes of a node, read by type.
//!
//! Exporters strip attributes that have their default value, so every getter that may meet a
//! default takes it from the op's definition: `attrs.bool_or("transpose_a", false)`.

use std::collections::BTreeMap;

use proto::tensorflow::attr_value::{ListValue, Value};
use proto::tensorflow::{AttrValue, TensorProto, TensorShapeProto};
use tensor::{DType, Tensor};

use crate::error::{Error, Result, invalid};

/// The most bytes that a tensor in an attribute may unfold to: what a `GraphDef` can hold.
const TENSOR_LIMIT_BYTES: usize = 2 << 30;

/// The most inputs or outputs that an attribute may count.
const COUNT_MAX: usize = 1 << 16;

/// The attributes of one node.
#[derive(Debug, Clone, Copy)]
pub struct Attrs<'a>(&'a BTreeMap<String, AttrValue>);

impl<'a> Attrs<'a> {
    /// The attributes of a node.
    pub fn new(attrs: &'a BTreeMap<String, AttrValue>) -> Self {
        Self(attrs)
    }

    /// Returns whether there is an attribute called `name`.
    pub fn has(&self, name: &str) -> bool {
        self.value(name).is_some()
    }

    /// An integer.
    pub fn int(&self, name: &str) -> Result<i64> {
        match self.required(name)? {
            Value::I(value) => Ok(*value),
            _ => wrong(name, "an integer"),
        }
    }

    /// An integer with a default.
    pub fn int_or(&self, name: &str, default: i64) -> Result<i64> {
        if self.has(name) { self.int(name) } else { Ok(default) }
    }

    /// A number that counts something.
    pub fn size(&self, name: &str) -> Result<usize> {
        let value = self.int(name)?;
        usize::try_from(value)
            .map_err(|_| Error::InvalidArgument(format!("attribute {name} is {value}, below 0")))
    }

    /// A float.
    pub fn float(&self, name: &str) -> Result<f32> {
        match self.required(name)? {
            Value::F(value) => Ok(*value),
            _ => wrong(name, "a float"),
        }
    }

    /// A number of inputs or outputs. Fails for more than any node has.
    pub fn count(&self, name: &str) -> Result<usize> {
        match self.size(name)? {
            n if n <= COUNT_MAX => Ok(n),
            n => invalid!("attribute {name} is {n}, above {COUNT_MAX}"),
        }
    }

    /// A float with a default.
    pub fn float_or(&self, name: &str, default: f32) -> Result<f32> {
        if self.has(name) { self.float(name) } else { Ok(default) }
    }

    /// A bool with a default.
    pub fn bool_or(&self, name: &str, default: bool) -> Result<bool> {
        match self.value(name) {
            None => Ok(default),
            Some(Value::B(value)) => Ok(*value),
            Some(_) => wrong(name, "a bool"),
        }
    }

    /// A string, as bytes.
    pub fn bytes(&self, name: &str) -> Result<&'a [u8]> {
        match self.required(name)? {
            Value::S(value) => Ok(value),
            _ => wrong(name, "a string"),
        }
    }

    /// A string.
    pub fn str(&self, name: &str) -> Result<&'a str> {
        std::str::from_utf8(self.bytes(name)?).or_else(|_| wrong(name, "a UTF-8 string"))
    }

    /// A string with a default.
    pub fn str_or(&self, name: &str, default: &'a str) -> Result<&'a str> {
        if self.has(name) { self.str(name) } else { Ok(default) }
    }

    /// A dtype; a reference type gives its value type.
    pub fn dtype(&self, name: &str) -> Result<DType> {
        match self.required(name)? {
            Value::Type(number) => dtype(name, *number),
            _ => wrong(name, "a dtype"),
        }
    }

    /// A dtype with a default.
    pub fn dtype_or(&self, name: &str, default: DType) -> Result<DType> {
        if self.has(name) { self.dtype(name) } else { Ok(default) }
    }

    /// A partial shape: `None` for an unknown rank, a `None` dimension for an unknown size.
    pub fn shape(&self, name: &str) -> Result<Option<Vec<Option<i64>>>> {
        match self.required(name)? {
            Value::Shape(shape) => Ok(tensor::dims_from_proto(shape)),
            _ => wrong(name, "a shape"),
        }
    }

    /// A partial shape that is unknown by default.
    pub fn shape_or_unknown(&self, name: &str) -> Result<Option<Vec<Option<i64>>>> {
        if self.has(name) { self.shape(name) } else { Ok(None) }
    }

    /// A tensor.
    pub fn tensor(&self, name: &str) -> Result<Tensor> {
        match self.required(name)? {
            Value::Tensor(proto) => check_strings(proto)
                .and_then(|()| Ok(Tensor::from_proto(proto, TENSOR_LIMIT_BYTES)?))
                .map_err(|error| error.context(&format!("attribute {name}"))),
            _ => wrong(name, "a tensor"),
        }
    }

    /// The name of a function.
    pub fn function(&self, name: &str) -> Result<&'a str> {
        match self.required(name)? {
            Value::Func(function) => Ok(&function.name),
            _ => wrong(name, "a function"),
        }
    }

    /// The names of functions.
    pub fn functions(&self, name: &str) -> Result<Vec<&'a str>> {
        Ok(self.list(name)?.func.iter().map(|function| function.name.as_str()).collect())
    }

    /// Integers.
    pub fn ints(&self, name: &str) -> Result<&'a [i64]> {
        Ok(&self.list(name)?.i)
    }

    /// Integers with a default.
    pub fn ints_or(&self, name: &str, default: &'a [i64]) -> Result<&'a [i64]> {
        if self.has(name) { self.ints(name) } else { Ok(default) }
    }

    /// Floats.
    pub fn floats(&self, name: &str) -> Result<&'a [f32]> {
        Ok(&self.list(name)?.f)
    }

    /// Bools.
    pub fn bools(&self, name: &str) -> Result<&'a [bool]> {
        Ok(&self.list(name)?.b)
    }

    /// Strings, as bytes. Empty if the attribute is not there.
    pub fn strings(&self, name: &str) -> Result<Vec<&'a [u8]>> {
        if !self.has(name) {
            return Ok(Vec::new());
        }
        Ok(self.list(name)?.s.iter().map(|s| &s[..]).collect())
    }

    /// Dtypes. Empty if the attribute is not there.
    pub fn dtypes(&self, name: &str) -> Result<Vec<DType>> {
        if !self.has(name) {
            return Ok(Vec::new());
        }
        self.list(name)?.r#type.iter().map(|number| dtype(name, *number)).collect()
    }

    /// Partial shapes. Empty if the attribute is not there.
    pub fn shapes(&self, name: &str) -> Result<Vec<Option<Vec<Option<i64>>>>> {
        if !self.has(name) {
            return Ok(Vec::new());
        }
        let shapes: &'a [TensorShapeProto] = &self.list(name)?.shape;
        Ok(shapes.iter().map(tensor::dims_from_proto).collect())
    }

    fn list(&self, name: &str) -> Result<&'a ListValue> {
        match self.required(name)? {
            Value::List(list) => Ok(list),
            _ => wrong(name, "a list"),
        }
    }

    fn value(&self, name: &str) -> Option<&'a Value> {
        self.0.get(name)?.value.as_ref()
    }

    fn required(&self, name: &str) -> Result<&'a Value> {
        self.value(name)
            .ok_or_else(|| Error::InvalidArgument(format!("attribute {name} is missing")))
    }
}

fn dtype(name: &str, number: i32) -> Result<DType> {
    DType::from_number(number).map_or_else(
        || invalid!("attribute {name} is dtype number {number}, which we do not know"),
        Ok,
    )
}

/// Fails if the last string, which stands for all that are missing, makes more bytes than a tensor
/// may have.
fn check_strings(proto: &TensorProto) -> Result<()> {
    let (Some(last), Some(shape)) = (proto.string_val.last(), &proto.tensor_shape) else {
        return Ok(());
    };
    let dims = shape.dim.iter().map(|dim| usize::try_from(dim.size).unwrap_or(0));
    let n_elements = dims.fold(1usize, usize::saturating_mul);
    let n_missing = n_elements.saturating_sub(proto.string_val.len());
    let bytes = n_missing.saturating_mul(last.len() + size_of::<usize>());
    if bytes > TENSOR_LIMIT_BYTES {
        let text = format!(
            "{n_missing} strings of {} bytes take {bytes} bytes, more than {TENSOR_LIMIT_BYTES}",
            last.len()
        );
        return Err(Error::ResourceExhausted(text));
    }
    Ok(())
}

fn wrong<T>(name: &str, expected: &str) -> Result<T> {
    invalid!("attribute {name} is not {expected}")
}
