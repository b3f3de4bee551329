//! Signatures as texts, in a fixed order: as protobuf prints them for people, and as JSON.
//!
//! The general printer of messages goes through maps without an order. Here each entry is printed
//! by itself, and the entries are put together by name, as protobuf's own printer does.

use std::collections::BTreeMap;

use prost::{Message, Name};
use proto::json::JsonError;
use proto::serving::SignatureDefMap;
use proto::tensorflow::SignatureDef;

/// A signature in the layout of C++'s `DebugString`.
pub(crate) fn text(def: &SignatureDef) -> String {
    let SignatureDef { inputs, outputs, method_name, defaults } = def.clone();
    let entry = |(name, value)| BTreeMap::from([(name, value)]);
    let none = SignatureDef::default();
    let mut parts = Vec::new();
    for input in inputs {
        parts.push(SignatureDef { inputs: entry(input), ..none.clone() });
    }
    for output in outputs {
        parts.push(SignatureDef { outputs: entry(output), ..none.clone() });
    }
    parts.push(SignatureDef { method_name, ..none.clone() });
    for (name, value) in defaults {
        parts.push(SignatureDef { defaults: [(name, value)].into(), ..none.clone() });
    }
    parts.iter().map(|part| without_brackets(&proto::text::print(part))).collect()
}

/// Text with `name: [{ ... }, { ... }]` as `name { ... } name { ... }`.
fn without_brackets(text: &str) -> String {
    let mut out = String::new();
    let mut names = Vec::new();
    for line in text.lines() {
        let (indent, body) = line.split_at(line.len() - line.trim_start().len());
        let mut push = |body: &str| {
            out.push_str(indent);
            out.push_str(body);
            out.push('\n');
        };
        match (body, body.strip_suffix(": [{")) {
            (_, Some(name)) => {
                names.push(name);
                push(&format!("{name} {{"));
            }
            ("}, {", _) => {
                push("}");
                push(&format!("{} {{", names.last().unwrap_or(&"")));
            }
            ("}]", _) => {
                names.pop();
                push("}");
            }
            _ => push(body),
        }
    }
    out
}

/// The signatures of a model in protobuf's JSON.
///
/// # Errors
/// As for [`proto::json::print()`].
pub(crate) fn json(map: &SignatureDefMap) -> Result<String, JsonError> {
    let signatures = object(&map.signature_def, signature)?;
    Ok(format!("{{\n \"signature_def\": {}\n}}\n", indented(&signatures)))
}

fn signature(def: &SignatureDef) -> Result<String, JsonError> {
    let members = [
        ("inputs", object(&def.inputs, message)?),
        ("outputs", object(&def.outputs, message)?),
        ("method_name", quoted(&def.method_name)),
        ("defaults", object(&def.defaults, message)?),
    ];
    let member = |(name, value): &(&str, String)| format!(" \"{name}\": {}", indented(value));
    let members: Vec<String> = members.iter().map(member).collect();
    Ok(format!("{{\n{}\n}}", members.join(",\n")))
}

/// A map as an object.
fn object<T>(
    map: &BTreeMap<String, T>,
    value: impl Fn(&T) -> Result<String, JsonError>,
) -> Result<String, JsonError> {
    if map.is_empty() {
        return Ok("{}".to_owned());
    }
    let mut members = Vec::new();
    for (name, entry) in map {
        members.push(format!(" {}: {}", quoted(name), indented(&value(entry)?)));
    }
    Ok(format!("{{\n{}\n}}", members.join(",\n")))
}

fn message<T: Message + Name>(message: &T) -> Result<String, JsonError> {
    Ok(proto::json::print(message)?.trim_end().to_owned())
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// A value one level deeper than it was written for.
fn indented(value: &str) -> String {
    value.replace('\n', "\n ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"inputs {
  key: "a"
  value {
    name: "a:0"
    dtype: DT_FLOAT
    tensor_shape {
      dim {
        size: -1
      }
      dim {
        size: 2
        name: "n"
      }
    }
  }
}
inputs {
  key: "b"
  value {
    name: "b:0"
  }
}
outputs {
  key: "a \"quoted\" [{"
  value {
    name: "y:0"
    dtype: DT_STRING
    tensor_shape {
      unknown_rank: true
    }
  }
}
outputs {
  key: "z"
  value {
    name: "z:0"
  }
}
method_name: "tensorflow/serving/predict"
defaults {
  key: "a"
  value {
    dtype: DT_INT32
  }
}
"#;

    #[test]
    fn signatures_are_printed_as_protobuf_does_and_always_in_the_same_order() {
        let def: SignatureDef = proto::text::parse(TEXT).unwrap();
        assert_eq!(text(&def), TEXT);
    }

    #[test]
    fn the_json_of_signatures_is_that_of_their_message_in_a_fixed_order() {
        let def: SignatureDef = proto::text::parse(TEXT).unwrap();
        let names = ["serving_default", "b", "a", "c", "with \"marks\""];
        let map = names.map(|name| (name.to_owned(), def.clone()));
        let map = SignatureDefMap { signature_def: map.into() };
        let text = json(&map).unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value, proto::json::to_value(&map).unwrap());
        let place = |name: &str| text.find(&format!("\n  {}: {{", quoted(name))).expect(name);
        let mut sorted = names;
        sorted.sort_unstable();
        assert!(sorted.is_sorted_by_key(|name| place(name)), "{text}");
        // Entries that can be in one order only have the layout of the whole.
        let one = SignatureDefMap { signature_def: [("s".to_owned(), def.clone())].into() };
        let only = |name: &str| def.inputs.get_key_value(name).map(|(k, v)| (k.clone(), v.clone()));
        let def = SignatureDef {
            inputs: only("a").into_iter().collect(),
            ..one.signature_def["s"].clone()
        };
        let def = SignatureDef { outputs: BTreeMap::new(), ..def };
        let one = SignatureDefMap { signature_def: [("s".to_owned(), def)].into() };
        assert_eq!(json(&one).unwrap(), proto::json::print(&one).unwrap());
    }
}
