//! The field that was meant by one that a message does not have.

use std::collections::BTreeSet;

use prost_reflect::{Kind, MessageDescriptor};

/// The most messages whose fields are looked at.
const MESSAGES_MAX: usize = 200;

/// A message about a field that there is not, with the name of the nearest one that there is.
pub(crate) fn with_meant(message: String, of: &MessageDescriptor) -> String {
    let Some(typed) = unknown_field(&message) else { return message };
    let names = field_names(of);
    match status::nearest(typed, names.iter().map(String::as_str)) {
        Some(name) => format!("{message}; did you mean '{name}'?"),
        None => message,
    }
}

/// The name of the field that the reader of texts or of JSON does not know.
fn unknown_field(message: &str) -> Option<&str> {
    let quoted = |text: &'static str| {
        let rest = message.split_once(text)?.1;
        Some(rest.split_once(['\'', '`'])?.0)
    };
    quoted("unrecognized field name '")
        .or_else(|| message.contains("not found").then(|| quoted("field '")).flatten())
}

/// The names of all fields of a message and of those within it.
fn field_names(of: &MessageDescriptor) -> BTreeSet<String> {
    let (mut names, mut seen) = (BTreeSet::new(), BTreeSet::new());
    let mut waiting = vec![of.clone()];
    while let Some(message) = waiting.pop() {
        if seen.len() == MESSAGES_MAX || !seen.insert(message.full_name().to_owned()) {
            continue;
        }
        for field in message.fields() {
            names.insert(field.name().to_owned());
            if let Kind::Message(inner) = field.kind() {
                waiting.push(inner);
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use crate::serving::ModelServerConfig;

    #[test]
    fn a_mistyped_field_names_the_nearest_one() {
        let text = "model_config_list { config { base_paht: \"/m\" } }";
        let error = crate::text::parse::<ModelServerConfig>(text).unwrap_err();
        assert!(error.message.ends_with("did you mean 'base_path'?"), "{error}");
        let text = r#"{"model_config_list": {"config": [{"nmae": "m"}]}}"#;
        let error = crate::json::parse::<ModelServerConfig>(text).unwrap_err().to_string();
        assert!(error.contains("; did you mean 'name'? at line 1 column "), "{error}");
    }
}
