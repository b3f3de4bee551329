//! Protobuf's mapping to JSON: how TensorFlow Serving's REST interface shows states and metadata.

use prost::{Message, Name};
use prost_reflect::{DeserializeOptions, DynamicMessage, SerializeOptions};
use serde_json::ser::PrettyFormatter;
use serde_json::{Serializer, Value};

use crate::meant::with_meant;
use crate::numbers::Quoted;
use crate::pool::descriptor;

/// The reason that a JSON text is not a message of the wanted type.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct JsonError(String);

impl From<serde_json::Error> for JsonError {
    fn from(error: serde_json::Error) -> Self {
        Self(error.to_string())
    }
}

/// Reads a message from JSON; field names may be snake_case or camelCase. Sizes and counts of our
/// own configs that are texts may be numbers.
///
/// # Errors
/// Says what is wrong, and where, if `text` is no JSON, or does not fit the message.
pub fn parse<T: Message + Name + Default>(text: &str) -> Result<T, JsonError> {
    let quoted = Quoted::new(text, descriptor::<T>());
    let mut deserializer = serde_json::Deserializer::from_str(&quoted.text);
    let options = DeserializeOptions::new();
    let message =
        DynamicMessage::deserialize_with_options(descriptor::<T>(), &mut deserializer, &options);
    let message = message.and_then(|message| deserializer.end().map(|()| message));
    let message = message.map_err(|error| placed::<T>(&error, &quoted))?;
    message.transcode_to().map_err(|err| JsonError(err.to_string()))
}

/// A mistake with its place in the text as it was written.
fn placed<T: Name>(error: &serde_json::Error, quoted: &Quoted) -> JsonError {
    let (text, line, column) = (error.to_string(), error.line(), error.column());
    match text.strip_suffix(&format!(" at line {line} column {column}")) {
        None => JsonError(text),
        Some(what) => {
            let column = quoted.original_column(line, column);
            let what = with_meant(what.to_owned(), &descriptor::<T>());
            JsonError(format!("{what} at line {line} column {column}"))
        }
    }
}

/// Writes a message as JSON in TensorFlow Serving's layout: names as in the .proto file, fields at
/// their default included, 64-bit integers as strings, indented by one blank.
///
/// # Errors
/// Fails if the message holds an `Any` of a type unknown here.
pub fn print<T: Message + Name>(message: &T) -> Result<String, JsonError> {
    let mut out = Vec::new();
    let mut serializer = Serializer::with_formatter(&mut out, PrettyFormatter::with_indent(b" "));
    dynamic(message).serialize_with_options(&mut serializer, &options())?;
    out.push(b'\n');
    Ok(String::from_utf8(out).expect("serde_json writes UTF-8"))
}

/// Gives what [`print()`] writes as a value, to be made part of a larger one.
///
/// # Errors
/// As for [`print()`].
pub fn to_value<T: Message + Name>(message: &T) -> Result<Value, JsonError> {
    Ok(dynamic(message).serialize_with_options(serde_json::value::Serializer, &options())?)
}

fn options() -> SerializeOptions {
    SerializeOptions::new()
        .use_proto_field_name(true)
        .skip_default_fields(false)
        .stringify_64_bit_integers(true)
}

fn dynamic<T: Message + Name>(message: &T) -> DynamicMessage {
    let mut dynamic = DynamicMessage::new(descriptor::<T>());
    dynamic.transcode_from(message).expect("a message is valid for its own descriptor");
    dynamic
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serving::model_version_status::State;
    use crate::serving::{
        GetModelStatusResponse, ModelVersionStatus, SignatureDefMap, StatusProto,
    };
    use crate::text;

    #[test]
    fn prints_a_status_as_tensorflow_serving_does() {
        let status = ModelVersionStatus {
            version: 123,
            state: State::Available.into(),
            status: Some(StatusProto::default()),
        };
        let response = GetModelStatusResponse { model_version_status: vec![status] };
        assert_eq!(
            print(&response).unwrap(),
            r#"{
 "model_version_status": [
  {
   "version": "123",
   "state": "AVAILABLE",
   "status": {
    "error_code": "OK",
    "error_message": ""
   }
  }
 ]
}
"#
        );
        assert_eq!(parse::<GetModelStatusResponse>(&print(&response).unwrap()).unwrap(), response);
    }

    #[test]
    fn prints_signatures_with_their_defaults() {
        let map: SignatureDefMap = text::parse(
            "signature_def { key: 's' value { inputs { key: 'x' value { name: 'x:0' dtype: DT_FLOAT
               tensor_shape { dim { size: -1 } } } } method_name: 'm' } }",
        )
        .unwrap();
        assert_eq!(
            to_value(&map).unwrap(),
            serde_json::json!({"signature_def": {"s": {
                "inputs": {"x": {
                    "name": "x:0",
                    "dtype": "DT_FLOAT",
                    "tensor_shape": {"dim": [{"size": "-1", "name": ""}], "unknown_rank": false},
                }},
                "outputs": {},
                "method_name": "m",
                "defaults": {},
            }}})
        );
    }

    #[test]
    fn refuses_what_is_no_message_of_the_type() {
        assert!(parse::<StatusProto>(r#"{"error_code": "NO_SUCH"}"#).is_err());
        assert!(parse::<StatusProto>(r#"{"error_message": ""} x"#).is_err());
        assert!(parse::<StatusProto>(r#"{"nane": ""}"#).is_err());
    }
}
