//! The rule on the first word of a doc comment.

use super::Finding;
use super::source::Line;
use super::tree::Tree;

/// Words that open a question instead of naming the thing.
const QUESTION_WORDS: &[&str] = &[
    "What", "Whatever", "Whether", "Who", "Whoever", "Whose", "Which", "Why", "How", "Where",
    "When",
];

/// The folders of flags and commands, whose doc comments are help texts for people.
const HELP_TEXTS: &[&str] = &["crates/cli/src/commands/", "crates/config/src/flags.rs"];

/// A doc comment opens with the noun or the verb of its thing.
pub(super) fn nouns_and_verbs(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, source) in tree.sources().filter(|(path, _)| !is_help_text(path)) {
        let mut before = None;
        for (number, line) in source.lines() {
            let doc = doc_comment(line);
            if let Some((marker, text)) = doc
                && before != Some(marker)
                && let Some(words) = question(text)
            {
                let message = format!(
                    "a doc comment opens with `{words}`; open with the noun or verb of the thing"
                );
                findings.push(Finding::new(path, number, message));
            }
            before = doc.map(|(marker, _)| marker);
        }
    }
    findings
}

fn is_help_text(path: &str) -> bool {
    HELP_TEXTS.iter().any(|start| path.starts_with(start))
}

/// The slashes and the text of a line that is a doc comment.
fn doc_comment(line: &Line) -> Option<(&str, &str)> {
    if !line.code.trim().is_empty() {
        return None;
    }
    let (marker, text) = line.comment.trim().split_at_checked(3)?;
    matches!(marker, "///" | "//!").then_some((marker, text.trim_start()))
}

/// The question that a text opens with.
fn question(text: &str) -> Option<&str> {
    let first = text.split(|c: char| !c.is_alphanumeric()).next()?;
    let is_question = QUESTION_WORDS.contains(&first);
    is_question.then_some(first).or(text.starts_with("That which ").then_some("That which"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, text: &str, lines: &[usize]) {
        let tree = Tree::of(vec![(path.to_owned(), text.to_owned())]);
        let found: Vec<usize> = nouns_and_verbs(&tree).iter().map(|finding| finding.line).collect();
        assert_eq!(found, lines, "{text}");
    }

    #[test]
    fn questions_are_found_where_doc_comments_open() {
        let path = "crates/device/src/a.rs";
        check(path, "//! What it is.\n\n/// Whether it is.\nfn a() {}\n", &[1, 3]);
        check(path, "    /// That which stays.\n    a: u8,\n    /// Why.\n", &[1, 3]);
        check(path, "/// The bytes.\n/// What is more: a second line.\n///\n/// How so.\n", &[]);
        check(path, "/// Returns whether it is.\n// What a plain comment says.\n", &[]);
        check(path, "/// Whetstones and `Whether` are words.\na /// What\n", &[]);
    }

    #[test]
    fn crates_to_do_are_left_alone() {
        check(&format!("{}a.rs", HELP_TEXTS[0]), "/// What it is for\n", &[]);
        check("xtask/src/a.rs", "/// What it is.\n", &[1]);
    }
}
