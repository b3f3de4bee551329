//! A Rust file taken apart into lines of code and lines of comment, tests marked.

/// One Rust file.
pub(super) struct Source {
    text: String,
    lines: Vec<Line>,
}

/// One line of a Rust file.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Line {
    /// The line without comments and without what stands in quotes; the quotes stay.
    pub(super) code: String,
    /// The comments on the line, slashes included.
    pub(super) comment: String,
    /// `true` if the line is only compiled for tests.
    pub(super) is_test: bool,
}

impl Source {
    pub(super) fn new(path: &str, text: String) -> Source {
        let mut lines = split(&text);
        mark_tests(&mut lines, is_test_file(path));
        Source { text, lines }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Returns whether the file says that a program wrote it.
    pub(super) fn is_generated(&self) -> bool {
        self.text.lines().take(3).any(|line| line.contains("@generated"))
    }

    /// All lines, numbered from 1.
    pub(super) fn lines(&self) -> impl Iterator<Item = (usize, &Line)> {
        self.lines.iter().enumerate().map(|(index, line)| (index + 1, line))
    }

    /// The lines that are not test, numbered from 1.
    pub(super) fn product_lines(&self) -> impl Iterator<Item = (usize, &Line)> {
        self.lines().filter(|(_, line)| !line.is_test)
    }
}

/// Returns whether the whole file is test: an integration test, a bench, or `tests.rs` beside its
/// module.
fn is_test_file(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.split('/').any(|part| part == "tests" || part == "benches")
}

/// The kind of text that the reader is in.
#[derive(Clone, Copy)]
enum Within {
    Code,
    LineComment,
    /// Block comments nest.
    BlockComment(usize),
    /// In quotes.
    Text,
    /// In a raw string that ends with so many hashes.
    RawText(usize),
}

fn split(text: &str) -> Vec<Line> {
    let chars: Vec<char> = text.chars().collect();
    let mut lines = vec![Line::default()];
    let mut within = Within::Code;
    let mut at = 0;
    while at < chars.len() {
        let line = lines.last_mut().expect("there is always a line");
        if chars[at] == '\n' {
            if matches!(within, Within::LineComment) {
                within = Within::Code;
            }
            lines.push(Line::default());
            at += 1;
            continue;
        }
        let taken = step(&chars, at, &mut within, line);
        assert!(taken > 0, "the reader must move on");
        at += taken;
    }
    if lines.last().is_some_and(|line| *line == Line::default()) {
        lines.pop();
    }
    lines
}

/// Reads at `at` and says how many characters it took.
fn step(chars: &[char], at: usize, within: &mut Within, line: &mut Line) -> usize {
    let rest = &chars[at..];
    match *within {
        Within::Code => step_code(chars, at, within, line),
        Within::LineComment => {
            line.comment.push(rest[0]);
            1
        }
        Within::BlockComment(depth) => {
            if rest.starts_with(&['*', '/']) {
                *within = if depth == 1 { Within::Code } else { Within::BlockComment(depth - 1) };
                return 2;
            }
            if rest.starts_with(&['/', '*']) {
                *within = Within::BlockComment(depth + 1);
                return 2;
            }
            line.comment.push(rest[0]);
            1
        }
        Within::Text => match rest[0] {
            // A backslash before a line's end stands alone, so that the line is seen to end.
            '\\' if rest.get(1).is_some_and(|next| *next != '\n') => 2,
            '"' => {
                line.code.push('"');
                *within = Within::Code;
                1
            }
            _ => 1,
        },
        Within::RawText(hashes) => {
            let ends = rest[0] == '"'
                && rest.len() > hashes
                && rest[1..=hashes].iter().all(|hash| *hash == '#');
            if ends {
                line.code.push('"');
                *within = Within::Code;
                return 1 + hashes;
            }
            1
        }
    }
}

fn step_code(chars: &[char], at: usize, within: &mut Within, line: &mut Line) -> usize {
    let rest = &chars[at..];
    let after_word = at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_');
    if rest.starts_with(&['/', '/']) {
        *within = Within::LineComment;
        line.comment.push_str("//");
        return 2;
    }
    if rest.starts_with(&['/', '*']) {
        *within = Within::BlockComment(1);
        line.comment.push_str("/*");
        return 2;
    }
    if let Some(hashes) = raw_text_start(rest).filter(|_| !after_word) {
        *within = Within::RawText(hashes);
        line.code.push('"');
        return rest.iter().position(|c| *c == '"').expect("a raw string starts with a quote") + 1;
    }
    match rest[0] {
        '"' => {
            line.code.push('"');
            *within = Within::Text;
            1
        }
        '\'' => {
            line.code.push('\'');
            char_literal(rest)
        }
        other => {
            line.code.push(other);
            1
        }
    }
}

/// The number of hashes, if a raw string starts here.
fn raw_text_start(rest: &[char]) -> Option<usize> {
    let prefix = match rest {
        ['r', ..] => 1,
        ['b' | 'c', 'r', ..] => 2,
        _ => return None,
    };
    let hashes = rest[prefix..].iter().take_while(|c| **c == '#').count();
    (rest.get(prefix + hashes) == Some(&'"')).then_some(hashes)
}

/// The length of the character literal that starts here; 1 for the quote of a lifetime.
fn char_literal(rest: &[char]) -> usize {
    match rest {
        ['\'', '\\', _, tail @ ..] => {
            3 + tail.iter().take(8).position(|c| *c == '\'').map_or(0, |end| end + 1)
        }
        ['\'', _, '\'', ..] => 3,
        _ => 1,
    }
}

/// Marks the items behind `#[cfg(test)]`, up to the end of their braces or their semicolon.
fn mark_tests(lines: &mut [Line], all: bool) {
    let mut depth: usize = 0;
    // The brace depth that ends the test item, once an attribute was seen.
    let mut ends_at: Option<usize> = None;
    for line in lines {
        if ends_at.is_none() && line.code.contains("#[cfg(test)]") {
            ends_at = Some(depth);
        }
        line.is_test = all || ends_at.is_some();
        let mut ended = false;
        for c in line.code.chars() {
            match c {
                '{' => depth += 1,
                '}' => {
                    depth = depth.saturating_sub(1);
                    ended |= ends_at == Some(depth);
                }
                ';' => ended |= ends_at == Some(depth),
                _ => {}
            }
        }
        if ended {
            ends_at = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, code: &[&str]) {
        let source = Source::new("crates/x/src/lib.rs", text.to_owned());
        let found: Vec<&str> = source.lines().map(|(_, line)| line.code.trim()).collect();
        assert_eq!(found, code, "{text}");
    }

    #[test]
    fn comments_and_quoted_text_are_not_code() {
        check("let a = 1; // unwrap()", &["let a = 1;"]);
        check("a /* b /* c */ d */ e", &["a  e"]);
        check("f(\"unwrap() \\\" // no\"); g()", &["f(\"\"); g()"]);
        check("f(r#\"a \" b\"#); g()", &["f(\"\"); g()"]);
        check("f(b'\"', '\\'', '\\u{1F600}'); g::<'a>()", &["f(b', ', '); g::<'a>()"]);
        check("let bar = var\"\";", &["let bar = var\"\";"]);
        check("\"a\nb\"\nc", &["\"", "\"", "c"]);
    }

    #[test]
    fn a_text_that_goes_on_behind_a_backslash_keeps_its_lines() {
        check("let a = \"x \\\n  y\";\nb", &["let a = \"", "\";", "b"]);
    }

    #[track_caller]
    fn check_tests(path: &str, text: &str, product: &[usize]) {
        let source = Source::new(path, text.to_owned());
        let found: Vec<usize> = source.product_lines().map(|(number, _)| number).collect();
        assert_eq!(found, product, "{text}");
    }

    #[test]
    fn items_behind_cfg_test_are_tests() {
        check_tests("crates/x/src/a.rs", "a\n#[cfg(test)]\nmod tests {\n{}\n}\nb\n", &[1, 6]);
        check_tests("crates/x/src/a.rs", "#[cfg(test)]\nmod tests;\nb\n", &[3]);
        check_tests("crates/x/src/a.rs", "mod a {\n#[cfg(test)]\nuse b;\n}\n", &[1, 4]);
    }

    #[test]
    fn files_of_tests_are_tests() {
        check_tests("crates/x/src/a/tests.rs", "a\n", &[]);
        check_tests("crates/x/tests/suite.rs", "a\n", &[]);
        check_tests("crates/testkit/src/lib.rs", "a\n", &[1]);
    }
}
