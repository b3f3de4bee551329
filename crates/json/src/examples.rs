//! `Classify` and `Regress` requests: examples as objects of features. The rules and texts are
//! those of TensorFlow Serving's `json_tensor.cc`.

use std::collections::BTreeMap;

use proto::serving::input::Kind as InputKind;
use proto::serving::{ExampleList, ExampleListWithContext, Input};
use proto::tensorflow::feature::Kind as FeatureKind;
use proto::tensorflow::{BytesList, Example, Feature, Features, FloatList, Int64List};
use status::{Result, Status};

use super::cursor::{Cursor, Kind};
use super::elements::{Refusal, base64_object, is_base64_object};
use super::number::Number;
use super::scan::{self, CONTEXT, Document, EXAMPLES};

/// Reads the name of the signature, empty for the default one, and the examples.
pub fn read(text: &[u8]) -> Result<(String, Input)> {
    let document = Document::scan(text)?;
    let signature = document.signature_name()?;
    let context = match document.find(CONTEXT) {
        None => None,
        Some(mut value) => Some(example(&mut value)?),
    };
    let Some(mut list) = document.find(EXAMPLES) else {
        let text = "When method is classify, key 'examples' is expected and was not found";
        return Err(document.invalid(text));
    };
    if list.kind() != Kind::Array {
        return Err(document.invalid("Expecting 'examples' value to be an list/array"));
    }
    let n_examples = document.size(&list);
    if n_examples == 0 {
        return Err(document.invalid("'examples' value is an empty array"));
    }
    let mut examples = Vec::with_capacity(n_examples);
    list.at += 1;
    loop {
        list.skip_blanks();
        examples.push(example(&mut list)?);
        if scan::end_of_element(&mut list)? {
            break;
        }
    }
    let kind = match context {
        None => InputKind::ExampleList(ExampleList { examples }),
        Some(context) => InputKind::ExampleListWithContext(ExampleListWithContext {
            examples,
            context: Some(context),
        }),
    };
    Ok((signature, Input { kind: Some(kind) }))
}

fn example(cursor: &mut Cursor<'_>) -> Result<Example> {
    if cursor.kind() != Kind::Object {
        let kind = cursor.kind().name();
        return Err(Status::invalid(format!("Example must be JSON object but got JSON {kind}")));
    }
    let mut feature = BTreeMap::new();
    cursor.at += 1;
    let mut is_end = cursor.skip_blanks() == b'}';
    cursor.at += usize::from(is_end);
    while !is_end {
        let name = scan::key(cursor)?.to_text();
        let values = values(cursor, &name)?;
        feature.insert(name, values);
        is_end = scan::end_of_member(cursor)?;
    }
    Ok(Example { features: Some(Features { feature }) })
}

/// The values of a feature: one, or a list.
fn values(cursor: &mut Cursor<'_>, name: &str) -> Result<Feature> {
    let mut kind = None;
    if cursor.kind() != Kind::Array {
        add(cursor, name, &mut kind)?;
        return Ok(Feature { kind });
    }
    cursor.at += 1;
    let mut is_end = cursor.skip_blanks() == b']';
    cursor.at += usize::from(is_end);
    while !is_end {
        cursor.skip_blanks();
        add(cursor, name, &mut kind)?;
        is_end = scan::end_of_element(cursor)?;
    }
    Ok(Feature { kind })
}

/// Adds a value to a feature, which gets its kind from the first one.
fn add(cursor: &mut Cursor<'_>, name: &str, feature: &mut Option<FeatureKind>) -> Result<()> {
    let kind = cursor.kind();
    match kind {
        Kind::Null | Kind::Array => return Err(unexpected(name, kind)),
        Kind::Object if !is_base64_object(*cursor) => return Err(unexpected(name, kind)),
        Kind::True => {
            cursor.word(b"true")?;
            integers(feature, name)?.push(1);
        }
        Kind::False => {
            cursor.word(b"false")?;
            integers(feature, name)?.push(0);
        }
        Kind::String => {
            let string = cursor.string()?;
            let bytes = string.decode(&mut Vec::new()).to_vec();
            byte_strings(feature, name)?.push(bytes.into());
        }
        Kind::Object => {
            let values = byte_strings(feature, name)?;
            values.push(base64(cursor)?.into());
        }
        Kind::Number => add_number(cursor.number()?, name, feature)?,
    }
    Ok(())
}

#[expect(clippy::cast_possible_truncation, reason = "overflow gives infinity, as upstream")]
fn add_number(number: Number, name: &str, feature: &mut Option<FeatureKind>) -> Result<()> {
    if let Number::Real(value) = number {
        floats(feature, name)?.push(value as f32);
        return Ok(());
    }
    let values = integers(feature, name)?;
    let Some(value) = number.to_integer() else {
        return Err(Status::invalid(format!(
            "Feature: {name} has uint64_t element. Only int64_t is supported."
        )));
    };
    values.push(value);
    Ok(())
}

fn base64(cursor: &mut Cursor<'_>) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    match base64_object(cursor, &mut Vec::new(), &mut bytes) {
        Ok(()) => Ok(bytes),
        Err(Refusal::Syntax(syntax)) => Err(syntax.into()),
        Err(
            Refusal::Type
            | Refusal::NotBase64
            | Refusal::Base64
            | Refusal::Unsupported
            | Refusal::Memory,
        ) => Err(Status::invalid("Unable to base64 decode")),
    }
}

fn unexpected(name: &str, kind: Kind) -> Status {
    let kind = kind.name();
    Status::invalid(format!("Feature: {name} has element with unexpected JSON type: {kind}"))
}

fn integers<'f>(feature: &'f mut Option<FeatureKind>, name: &str) -> Result<&'f mut Vec<i64>> {
    match feature.get_or_insert_with(|| FeatureKind::Int64List(Int64List::default())) {
        FeatureKind::Int64List(list) => Ok(&mut list.value),
        other => Err(mixed(name, other)),
    }
}

fn floats<'f>(feature: &'f mut Option<FeatureKind>, name: &str) -> Result<&'f mut Vec<f32>> {
    match feature.get_or_insert_with(|| FeatureKind::FloatList(FloatList::default())) {
        FeatureKind::FloatList(list) => Ok(&mut list.value),
        other => Err(mixed(name, other)),
    }
}

fn byte_strings<'f>(
    feature: &'f mut Option<FeatureKind>,
    name: &str,
) -> Result<&'f mut Vec<prost::bytes::Bytes>> {
    match feature.get_or_insert_with(|| FeatureKind::BytesList(BytesList::default())) {
        FeatureKind::BytesList(list) => Ok(&mut list.value),
        other => Err(mixed(name, other)),
    }
}

fn mixed(name: &str, expected: &FeatureKind) -> Status {
    let expected = match expected {
        FeatureKind::BytesList(_) => "bytes",
        FeatureKind::FloatList(_) => "float",
        FeatureKind::Int64List(_) => "int64",
    };
    Status::invalid(format!(
        "Unexpected element type in feature: {name} expecting type: {expected}"
    ))
}
