//! Numbers where a field takes a text that may be one: `replicas: 2` for `replicas: "2"`.
//!
//! Sizes and counts of our own config files are texts, since they may be `2GiB`, `0.5` or `all`.
//! Protobuf's readers refuse a plain number there, so it is put in quotes before they see it.

use prost_reflect::{FieldDescriptor, MessageDescriptor};

/// The fields that take a number too.
const FIELDS: [&str; 5] = [
    "tensorflow.serving.ModelMemory.limit",
    "tensorflow.serving.ModelMemory.reservation",
    "tensorflow.serving.ModelMemory.replicas",
    "tensorflow.serving.DeviceRule.memory_limit",
    "tensorflow.serving.LogicalDeviceRule.memory_limit",
];

/// A text with numbers in quotes, and where these were put.
pub(crate) struct Quoted {
    pub(crate) text: String,
    /// The offsets of the quotes in the text, ascending.
    quotes: Vec<usize>,
}

impl Quoted {
    /// Puts the numbers of such fields in quotes: of a message in protobuf's text form or as JSON,
    /// which are alike as far as it matters here.
    pub(crate) fn new(text: &str, message: MessageDescriptor) -> Quoted {
        let mut scan =
            Scan { text, at: 0, levels: Vec::new(), message: Some(message), field: None };
        let mut quoted = Quoted { text: String::with_capacity(text.len()), quotes: Vec::new() };
        let mut done = 0;
        while let Some((start, end)) = scan.next_number() {
            quoted.text.push_str(&text[done..start]);
            quoted.quotes.push(quoted.text.len());
            quoted.text.push('"');
            quoted.text.push_str(&text[start..end]);
            quoted.quotes.push(quoted.text.len());
            quoted.text.push('"');
            done = end;
        }
        quoted.text.push_str(&text[done..]);
        quoted
    }

    /// The offset in the text as it was written.
    pub(crate) fn original(&self, offset: usize) -> usize {
        offset - self.quotes.partition_point(|quote| *quote < offset)
    }

    /// The column from 1 in the text as it was written, in bytes.
    pub(crate) fn original_column(&self, line: usize, column: usize) -> usize {
        let start = match line {
            0 | 1 => 0,
            _ => self.text.match_indices('\n').nth(line - 2).map_or(0, |(at, _)| at + 1),
        };
        let offset = start + column.saturating_sub(1);
        let is_before = |quote: &&usize| (start..offset).contains(*quote);
        column - self.quotes.iter().filter(is_before).count()
    }
}

/// A walk through a text, which knows of what message and field it is at.
struct Scan<'a> {
    text: &'a str,
    at: usize,
    /// The messages around this one, and the fields that it is the value of.
    levels: Vec<(Option<MessageDescriptor>, Option<FieldDescriptor>)>,
    message: Option<MessageDescriptor>,
    field: Option<FieldDescriptor>,
}

impl Scan<'_> {
    /// The next number that is to be a text: from where to where.
    fn next_number(&mut self) -> Option<(usize, usize)> {
        loop {
            let start = self.at;
            match self.peek()? {
                b'"' | b'\'' => self.string(),
                b'#' => self.pass(|byte| byte != b'\n'),
                b'{' | b'<' => self.open(),
                b'}' | b'>' => self.close(),
                b'_' | b'a'..=b'z' | b'A'..=b'Z' => {
                    self.pass(is_word);
                    self.name(start, self.at);
                }
                b'-' | b'+' | b'.' | b'0'..=b'9' => {
                    self.pass(|byte| is_word(byte) || matches!(byte, b'-' | b'+' | b'.'));
                    let takes = |field: &FieldDescriptor| FIELDS.contains(&field.full_name());
                    if self.field.as_ref().is_some_and(takes) {
                        return Some((start, self.at));
                    }
                }
                _ => self.at += 1,
            }
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn pass(&mut self, is_part: impl Fn(u8) -> bool) {
        while self.peek().is_some_and(&is_part) {
            self.at += 1;
        }
    }

    /// A string: the name of a field in JSON if a colon follows it.
    fn string(&mut self) {
        let quote = self.peek();
        let start = self.at + 1;
        self.at = start;
        loop {
            match self.peek() {
                Some(b'\\') => self.at += 2,
                None | Some(b'\n') => return,
                byte if byte == quote => break,
                Some(_) => self.at += 1,
            }
        }
        let end = self.at;
        self.at += 1;
        if quote == Some(b'"') {
            self.name(start, end);
        }
    }

    /// A word that is the name of a field if a value follows it.
    fn name(&mut self, start: usize, end: usize) {
        let rest = self.text.as_bytes().get(self.at..).unwrap_or_default();
        let next = rest.iter().find(|byte| !byte.is_ascii_whitespace());
        if matches!(next, Some(b':' | b'{' | b'<')) {
            let name = &self.text[start..end];
            self.field = self.message.as_ref().and_then(|message| {
                let by_name = message.get_field_by_name(name);
                by_name.or_else(|| message.get_field_by_json_name(name))
            });
        }
    }

    fn open(&mut self) {
        self.at += 1;
        // The outermost braces of JSON are those of the message itself.
        let is_whole = self.levels.is_empty() && self.field.is_none();
        let inner = self.field.as_ref().and_then(|field| field.kind().as_message().cloned());
        let inner = if is_whole { self.message.clone() } else { inner };
        self.levels.push((self.message.take(), self.field.take()));
        self.message = inner;
    }

    fn close(&mut self) {
        self.at += 1;
        if let Some((message, field)) = self.levels.pop() {
            (self.message, self.field) = (message, field);
        }
    }
}

fn is_word(byte: u8) -> bool {
    byte == b'_' || byte.is_ascii_alphanumeric()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::descriptor;
    use crate::serving::{DeviceConfig, ModelServerConfig};
    use crate::{json, text};

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let quoted = Quoted::new(text, descriptor::<ModelServerConfig>());
        assert_eq!(quoted.text, expected);
        for (offset, byte) in quoted.text.bytes().enumerate() {
            if !quoted.quotes.contains(&offset) {
                assert_eq!(text.as_bytes()[quoted.original(offset)], byte, "{offset} in {text}");
            }
        }
    }

    #[test]
    fn numbers_become_texts_where_a_text_may_be_one() {
        check(
            "model_config_list { config { name: 'a' memory { limit: 1048576 replicas: 2 priority: \
             3 devices: 'gpu:0' } } }",
            "model_config_list { config { name: 'a' memory { limit: \"1048576\" replicas: \"2\" \
             priority: 3 devices: 'gpu:0' } } }",
        );
        check(
            "model_config_list: < config: [ { memory: { reservation:0.5 } }, { memory < limit : \
             -1e9, > } ] >",
            "model_config_list: < config: [ { memory: { reservation:\"0.5\" } }, { memory < limit \
             : \"-1e9\", > } ] >",
        );
        check(
            r#"{"model_config_list": {"config": [{"memory": {"replicas": 2, "limit": "1GiB"}},
                {"memory":{"limit":5}, "config": {"gpu_options": {"allow_growth": true}}}]}}"#,
            r#"{"model_config_list": {"config": [{"memory": {"replicas": "2", "limit": "1GiB"}},
                {"memory":{"limit":"5"}, "config": {"gpu_options": {"allow_growth": true}}}]}}"#,
        );
    }

    #[test]
    fn what_is_no_such_field_stays_as_it_is() {
        for text in [
            "",
            "limit: 5 memory { limit: 5 }",
            "model_config_list { config { name: 5 base_path: \"memory { limit: 5 }\" } }",
            "model_config_list { config { # memory { limit: 5\n model_version_policy { latest {\
             num_versions: 5 } } } }",
            "model_config_list { config { version_labels { key: 'limit' value: 5 } } }",
            "{\"model_config_list\": {\"config\": [{\"version_labels\": {\"limit\": 5}}]}}",
            "custom_model_config { [type.googleapis.com/x.Y] { limit: 5 } }",
            "}}}} > limit: 5 '",
            "model_config_list { config { memory { limit: \"5\\",
        ] {
            check(text, text);
        }
    }

    #[test]
    fn readers_take_the_numbers_and_say_where_other_mistakes_are() {
        let config: DeviceConfig =
            text::parse("device { memory_limit: 7 logical_device { memory_limit: 0.5 } }").unwrap();
        assert_eq!(config.device[0].memory_limit, "7");
        assert_eq!(config.device[0].logical_device[0].memory_limit, "0.5");
        let same: DeviceConfig = json::parse(
            r#"{"device": [{"memoryLimit": 7, "logical_device": [{"memory_limit": 0.5}]}]}"#,
        )
        .unwrap();
        assert_eq!(config, same);
        let mistake = |memory: &str| {
            let text = format!("\ndevice {{ memory_limit: {memory} colour: 1 }}");
            let json = format!("{{\n\"device\": [{{\"memory_limit\": {memory}, \"colour\": 1}}]}}");
            let text = text::parse::<DeviceConfig>(&text).unwrap_err();
            let json = json::parse::<DeviceConfig>(&json).unwrap_err();
            (text.to_string(), json.to_string())
        };
        // As long as the text with quotes is.
        assert_eq!(mistake("700"), mistake("\"7\""));
        assert!(mistake("7").1.contains("colour"), "{:?}", mistake("7"));
    }
}
