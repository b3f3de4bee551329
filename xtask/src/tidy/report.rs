//! Lists for a reader to judge: no rule fails for them.

use std::collections::{BTreeMap, BTreeSet};

use super::tree::Tree;

/// Names that each crate may have for the same thing.
const CONVENTIONAL: &[&str] = &["Error", "Options", "Result", "Stats"];
const SENTENCE_WORDS_MAX: usize = 40;

/// A list: what it is of, and its lines.
pub(super) struct Report {
    pub(super) title: &'static str,
    pub(super) lines: Vec<String>,
}

/// All lists.
pub(super) fn all(tree: &Tree) -> Vec<Report> {
    vec![
        Report { title: "type names that stand in several rooms", lines: shared_names(tree) },
        Report {
            title: "sentences of more than 40 words in docs/ and README",
            lines: long_sentences(tree),
        },
    ]
}

/// Type names that two crates or more define, those of the most crates first.
fn shared_names(tree: &Tree) -> Vec<String> {
    let mut rooms: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (path, source) in tree.sources() {
        let Some((room, inner)) =
            path.strip_prefix("crates/").and_then(|path| path.split_once('/'))
        else {
            continue;
        };
        if !inner.starts_with("src/") {
            continue;
        }
        for name in source.product_lines().filter_map(|(_, line)| defined(&line.code)) {
            rooms.entry(name).or_default().insert(room);
        }
    }
    let mut shared: Vec<(&str, Vec<&str>)> = rooms
        .into_iter()
        .filter(|(name, rooms)| rooms.len() > 1 && !CONVENTIONAL.contains(name))
        .map(|(name, rooms)| (name, rooms.into_iter().collect()))
        .collect();
    shared.sort_by_key(|(name, rooms)| (std::cmp::Reverse(rooms.len()), *name));
    shared
        .into_iter()
        .map(|(name, rooms)| format!("{name} ({}): {}", rooms.len(), rooms.join(", ")))
        .collect()
}

/// The type that a line defines, if it is no associated one.
fn defined(code: &str) -> Option<&str> {
    let is_inner = code.starts_with(char::is_whitespace);
    let mut words = code.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '(' && c != ')');
    let keyword =
        words.find(|word| !matches!(*word, "" | "unsafe" | "pub" | "pub(crate)" | "pub(super)"))?;
    let is_type = matches!(keyword, "struct" | "enum" | "trait" | "union")
        || (keyword == "type" && !is_inner);
    let name = words.next().filter(|_| is_type)?;
    let name = name.split('(').next().unwrap_or(name);
    name.starts_with(char::is_uppercase).then_some(name)
}

/// Sentences of more than 40 words, the longest first.
fn long_sentences(tree: &Tree) -> Vec<String> {
    let is_book =
        |path: &str| path == "README.md" || (path.starts_with("docs/") && path.ends_with(".md"));
    let mut found: Vec<(usize, String)> = Vec::new();
    for (path, text) in tree.texts().filter(|(path, _)| is_book(path)) {
        for (line, sentence) in sentences(text) {
            let n_words = sentence.split_whitespace().count();
            if n_words > SENTENCE_WORDS_MAX {
                let start: String = sentence.chars().take(60).collect();
                found.push((n_words, format!("{path}:{line}: {n_words} words: {start} …")));
            }
        }
    }
    found.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    found.into_iter().map(|(_, text)| text).collect()
}

/// The sentences of a page, with the line that each begins on. Code, tables and headings have none;
/// an item of a list begins a sentence.
fn sentences(page: &str) -> Vec<(usize, String)> {
    let mut sentences: Vec<(usize, String)> = Vec::new();
    let (mut is_code, mut is_open) = (false, false);
    for (index, line) in page.lines().enumerate() {
        let text = line.trim();
        let is_fence = text.starts_with("```");
        is_code ^= is_fence;
        if is_fence || is_code || text.is_empty() || text.starts_with(['|', '#', '<']) {
            is_open = false;
            continue;
        }
        let item = item(text);
        is_open &= item.is_none();
        for word in item.unwrap_or(text).split_whitespace() {
            match sentences.last_mut().filter(|_| is_open) {
                Some((_, sentence)) => {
                    sentence.push(' ');
                    sentence.push_str(word);
                }
                None => sentences.push((index + 1, word.to_owned())),
            }
            is_open = !ends_sentence(word);
        }
    }
    sentences
}

/// The text of an item of a list.
fn item(line: &str) -> Option<&str> {
    let is_number = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
    let numbered = line.split_once(". ").filter(|(number, _)| is_number(number));
    line.strip_prefix("- ").or(numbered.map(|(_, text)| text))
}

fn ends_sentence(word: &str) -> bool {
    word.trim_end_matches([')', '"', '*', '`']).ends_with(['.', '!', '?'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> Tree {
        let own = |(path, text): &(&str, &str)| ((*path).to_owned(), (*text).to_owned());
        Tree::of(files.iter().map(own).collect())
    }

    #[test]
    fn names_that_two_crates_define_are_listed() {
        let tree = tree(&[
            ("crates/a/src/lib.rs", "pub(crate) struct Part;\npub enum Error {}\nstruct One(u8);"),
            ("crates/a/src/b.rs", "struct Part {}\n    type Item = u8;\nlet is = struct_of();"),
            ("crates/b/src/lib.rs", "pub trait Part<T> {}\nenum Error {}\n    type Item = u8;"),
            ("crates/c/tests/it.rs", "struct One;"),
        ]);
        assert_eq!(shared_names(&tree), ["Part (2): a, b"]);
    }

    #[test]
    fn sentences_end_at_points_items_and_blank_lines() {
        let page = "# A title\n\nOne `a.b` two\nthree. Four (five.) Six\n- item\n  more\n- next\n\n\
                    | a | table |\n```sh\ncode\n```\n1. last";
        let found: Vec<String> =
            sentences(page).iter().map(|(line, text)| format!("{line} {text}")).collect();
        let expected = [
            "3 One `a.b` two three.",
            "4 Four (five.)",
            "4 Six",
            "5 item more",
            "7 next",
            "13 last",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn long_sentences_are_counted_in_the_book_alone() {
        let words = |n: usize| format!("{}end.", "word ".repeat(n - 1));
        let page = format!("{} {}\n", words(41), words(40));
        let tree = tree(&[("docs/a.md", &page), ("README.md", &page), ("CHANGELOG.md", &page)]);
        assert_eq!(long_sentences(&tree).len(), 2);
    }
}
