//! A request body made from a signature.

use serde_json::{Map, Value, json};
use session::{Endpoint, Signature};
use tensor::DType;

/// The most elements that a sample may have: it is to be pasted into a terminal.
const ELEMENTS_MAX: usize = 128;

/// A JSON body that the signature accepts; `None` if it would be too long, or a dtype has no JSON.
pub(crate) fn body(signature: &Signature) -> Option<String> {
    if signature.inputs.is_empty() {
        return None;
    }
    let rows = signature.inputs.values().all(|input| input.spec.rank().is_none_or(|rank| rank > 0));
    let skipped = usize::from(rows);
    let mut values = Map::new();
    for (alias, endpoint) in &signature.inputs {
        values.insert(alias.clone(), value(endpoint, skipped)?);
    }
    let only = values.len() == 1;
    let one = if only { values.into_iter().next()?.1 } else { Value::Object(values) };
    let body = if rows { json!({"instances": [one]}) } else { json!({"inputs": one}) };
    Some(body.to_string())
}

/// A value of an input, without its first `skipped` dimensions.
fn value(endpoint: &Endpoint, skipped: usize) -> Option<Value> {
    let element = element(endpoint.spec.dtype)?;
    let dims = endpoint.spec.dims().unwrap_or_default();
    let sizes: Vec<usize> = dims.iter().skip(skipped).map(|dim| dim.size().unwrap_or(1)).collect();
    if sizes.iter().product::<usize>() > ELEMENTS_MAX {
        return None;
    }
    let nest = |inner: Value, size: &usize| Value::Array(vec![inner; *size]);
    Some(sizes.iter().rev().fold(element, nest))
}

fn element(dtype: DType) -> Option<Value> {
    match dtype {
        DType::F32 | DType::F64 => Some(json!(1.0)),
        DType::Bool => Some(json!(true)),
        DType::String => Some(json!("a good example")),
        _ if dtype.is_integer() && dtype != DType::U16 => Some(json!(1)),
        _ => None,
    }
}
