//! Rules on names: words that say nothing.

use super::Finding;
use super::tree::Tree;

/// Parts of type names that could stand behind any type.
const EMPTY_WORDS: &[&str] =
    &["Manager", "Helper", "Helpers", "Util", "Utils", "Base", "Impl", "Info"];

/// Starts of function names that could stand before any function.
const EMPTY_VERBS: &[&str] = &["handle_", "process_", "do_"];

/// Names of TensorFlow Serving's wire format and of the traits of others.
const GIVEN: &[&str] = &["ConnectInfo", "handle_reload_config_request"];

/// Folders and files that collect what found no place.
const EMPTY_PLACES: &[&str] =
    &["common", "misc", "util", "utils", "helper", "helpers", "manager", "base"];

/// No type named with an empty word, no function with an empty verb.
pub(super) fn types_and_functions(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, source) in tree.sources() {
        for (number, line) in source.lines() {
            for (keyword, name) in definitions(&line.code) {
                let empty = match keyword {
                    _ if GIVEN.contains(&name) => None,
                    "fn" => EMPTY_VERBS.iter().find(|verb| name.starts_with(**verb)),
                    _ => EMPTY_WORDS.iter().find(|word| parts(name).any(|part| part == **word)),
                };
                if let Some(empty) = empty {
                    let message = format!("`{name}`: `{empty}` says nothing; name what it is");
                    findings.push(Finding::new(path, number, message));
                }
            }
        }
    }
    findings
}

/// No file or folder for everything else.
pub(super) fn paths(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, _) in tree.sources() {
        let empty = path
            .split('/')
            .map(|part| part.strip_suffix(".rs").unwrap_or(part))
            .find(|part| EMPTY_PLACES.contains(part));
        if let Some(empty) = empty {
            let message = format!("`{empty}` collects; put each thing where it belongs");
            findings.push(Finding::new(path, 0, message));
        }
    }
    findings
}

/// The types and functions that a line of code defines, each with its keyword.
fn definitions(code: &str) -> impl Iterator<Item = (&str, &str)> {
    let words: Vec<&str> =
        code.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|w| !w.is_empty()).collect();
    let pairs: Vec<(&str, &str)> = words.windows(2).map(|pair| (pair[0], pair[1])).collect();
    pairs
        .into_iter()
        .filter(|(word, _)| matches!(*word, "fn" | "struct" | "enum" | "trait" | "type" | "union"))
}

/// The parts of a name in camel case; digits belong to the part before them.
fn parts(name: &str) -> impl Iterator<Item = &str> {
    let mut starts: Vec<usize> =
        name.char_indices().filter(|(_, c)| c.is_uppercase()).map(|(at, _)| at).collect();
    starts.push(name.len());
    let parts: Vec<&str> = starts.windows(2).map(|pair| &name[pair[0]..pair[1]]).collect();
    parts.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, n_findings: usize) {
        let tree = Tree::of(vec![("crates/x/src/a.rs".to_owned(), text.to_owned())]);
        assert_eq!(types_and_functions(&tree).len(), n_findings, "{text}");
    }

    #[test]
    fn empty_words_are_found_in_type_names() {
        check("struct VersionManager;", 1);
        check("pub(crate) enum OpInfo {}", 1);
        check("struct EncodeBase64; struct Database; struct Information;", 0);
        check("let info = base_manager();", 0);
    }

    #[test]
    fn empty_verbs_are_found_in_function_names() {
        check("async fn handle_request() {}", 1);
        check("fn do_it() {}", 1);
        check("fn handle() {} fn processed() {} fn double() {}", 0);
    }

    #[test]
    fn places_for_everything_else_are_found() {
        let file = |path: &str| (path.to_owned(), String::new());
        let tree = Tree::of(vec![
            file("crates/x/src/common/a.rs"),
            file("crates/x/src/misc.rs"),
            file("crates/x/src/commons.rs"),
        ]);
        assert_eq!(paths(&tree).len(), 2);
    }
}
