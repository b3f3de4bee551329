//! Protobuf text format, in which TensorFlow Serving's config files and `saved_model.pbtxt` are
//! written.

use miette::Diagnostic as _;
use prost::{Message, Name};
use prost_reflect::DynamicMessage;
use prost_reflect::text_format::FormatOptions;

use crate::meant::with_meant;
use crate::numbers::Quoted;
use crate::pool::descriptor;

/// The deepest nesting of messages that [`parse`] takes; the same as for the binary form.
pub const DEPTH_MAX: usize = 100;

/// The reason that a text could not be read, and the place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{line}:{column}: {message}")]
pub struct TextError {
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// The error at that place.
    pub message: String,
}

/// Reads a message from its text form.
///
/// Takes what protobuf's own parser takes: `field {` and `field: {`, with or without commas or
/// semicolons between fields, single or double quotes, `#` comments, expanded `Any` values. Sizes
/// and counts of our own configs that are texts may be numbers.
///
/// # Errors
/// Tells the place and the reason if `text` is malformed, names a field that `T` does not have, or
/// nests deeper than [`DEPTH_MAX`].
pub fn parse<T: Message + Name + Default>(text: &str) -> Result<T, TextError> {
    check_depth(text)?;
    let quoted = Quoted::new(text, descriptor::<T>());
    let parsed = DynamicMessage::parse_text_format(descriptor::<T>(), &quoted.text);
    let meant = |message| with_meant(message, &descriptor::<T>());
    let message = parsed.map_err(|err| {
        let place = err.labels().and_then(|mut labels| labels.next());
        let offset = place.map(|place| quoted.original(place.offset()));
        error_at(text, offset.unwrap_or(text.trim_end().len()), meant(err.to_string()))
    })?;
    message.transcode_to().map_err(|err| error_at(text, 0, err.to_string()))
}

/// Writes a message in its text form, one field a line.
pub fn print<T: Message + Name>(message: &T) -> String {
    let mut dynamic = DynamicMessage::new(descriptor::<T>());
    dynamic.transcode_from(message).expect("a message is valid for its own descriptor");
    dynamic.to_text_format_with_options(&FormatOptions::new().pretty(true))
}

/// The parser calls itself for each level, so the depth is bounded before it starts.
fn check_depth(text: &str) -> Result<(), TextError> {
    let mut depth = 0_usize;
    let mut bytes = text.bytes().enumerate();
    while let Some((offset, byte)) = bytes.next() {
        match byte {
            b'{' | b'<' | b'[' => {
                depth += 1;
                if depth > DEPTH_MAX {
                    return Err(error_at(text, offset, format!("nested deeper than {DEPTH_MAX}")));
                }
            }
            b'}' | b'>' | b']' => depth = depth.saturating_sub(1),
            b'#' => while bytes.next().is_some_and(|(_, b)| b != b'\n') {},
            quote @ (b'"' | b'\'') => {
                while let Some((_, byte)) = bytes.next() {
                    match byte {
                        b'\\' => drop(bytes.next()),
                        // A string ends with its line: what follows may nest again.
                        b'\n' => break,
                        _ if byte == quote => break,
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn error_at(text: &str, offset: usize, message: String) -> TextError {
    let before = text.get(..offset).unwrap_or(text);
    let start = before.rfind('\n').map_or(0, |newline| newline + 1);
    TextError {
        line: before.matches('\n').count() + 1,
        column: before[start..].chars().count() + 1,
        message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serving::{BatchingParameters, ModelServerConfig, PlatformConfigMap};
    use crate::serving::{SavedModelBundleSourceAdapterConfig, model_server_config::Config};

    #[track_caller]
    fn check(text: &str, expected: &[(&str, &str)]) {
        let parsed: ModelServerConfig = parse(text).unwrap();
        let Some(Config::ModelConfigList(list)) = parsed.config else { panic!("no list") };
        let names: Vec<_> =
            list.config.iter().map(|m| (m.name.as_str(), m.base_path.as_str())).collect();
        assert_eq!(names, expected);
    }

    #[track_caller]
    fn check_error(text: &str, expected: &str) {
        let error = parse::<ModelServerConfig>(text).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn takes_a_colon_before_a_message_or_none() {
        check("model_config_list: { config: { name: 'a' base_path: '/a' } }", &[("a", "/a")]);
        check("model_config_list { config { name: 'a' base_path: '/a' } }", &[("a", "/a")]);
        check("model_config_list < config < name: 'a' base_path: '/a' > >", &[("a", "/a")]);
    }

    #[test]
    fn takes_commas_semicolons_or_nothing_between_fields() {
        check(
            "model_config_list {\n config { name: \"a\", base_path: \"/a\", },\n\
             config { name: \"b\"; base_path: \"/b\" }\n}",
            &[("a", "/a"), ("b", "/b")],
        );
    }

    #[test]
    fn takes_either_quote_adjacent_strings_and_comments() {
        check(
            "# the models {{{\nmodel_config_list { # of \"us\n config { name: 'a' 'b' \
             base_path: \"/\\\"{\" } }",
            &[("ab", "/\"{")],
        );
    }

    #[test]
    fn takes_versions_and_labels() {
        let text =
            "model_config_list { config { name: 'm' base_path: '/m' model_platform: 'tensorflow'
            model_version_policy { specific { versions: 1 versions: 2 } }
            version_labels { key: 'stable' value: 1 } } }";
        let parsed: ModelServerConfig = parse(text).unwrap();
        let Some(Config::ModelConfigList(list)) = parsed.config else { panic!("no list") };
        assert_eq!(list.config[0].version_labels["stable"], 1);
        assert_eq!(
            parse::<ModelServerConfig>(&print(&ModelServerConfig {
                config: Some(Config::ModelConfigList(list.clone()))
            })),
            Ok(ModelServerConfig { config: Some(Config::ModelConfigList(list)) })
        );
    }

    #[test]
    fn takes_wrapped_values() {
        let parsed: BatchingParameters =
            parse("max_batch_size { value: 128 } allowed_batch_sizes: 1 allowed_batch_sizes: 128")
                .unwrap();
        assert_eq!(parsed.max_batch_size, Some(128));
        assert_eq!(parsed.allowed_batch_sizes, [1, 128]);
    }

    #[test]
    fn takes_an_any_written_out() {
        let parsed: PlatformConfigMap = parse(
            "platform_configs { key: 'tensorflow' value { source_adapter_config {
               [type.googleapis.com/tensorflow.serving.SavedModelBundleSourceAdapterConfig] {
                 legacy_config { enable_model_warmup: true session_config {
                   graph_options { rewrite_options { disable_meta_optimizer: true } } } } } } } }",
        )
        .unwrap();
        let any = parsed.platform_configs["tensorflow"].source_adapter_config.as_ref().unwrap();
        let config: SavedModelBundleSourceAdapterConfig = any.to_msg().unwrap();
        assert!(config.legacy_config.unwrap().enable_model_warmup);
    }

    #[test]
    fn tells_line_and_column_of_a_mistake() {
        check_error(
            "model_config_list {\n  config { nane: 'a' }\n}",
            "2:12: field 'nane' not found for message 'tensorflow.serving.ModelConfig'; did you \
             mean 'name'?",
        );
        check_error(
            "model_config_list {\n  config {",
            "2:11: expected '}' or a field name, but reached end of input",
        );
    }

    #[test]
    fn refuses_to_nest_without_end() {
        check_error(&"model_config_list {".repeat(100_000), "1:1919: nested deeper than 100");
        check_error(&format!("# '\n{}", "a<".repeat(101)), "2:202: nested deeper than 100");
    }
}
