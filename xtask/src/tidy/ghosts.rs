//! Rules on names of things that are gone: dependencies that no code uses, paths that a document
//! names and that do not exist.

use super::Finding;
use super::rooms::dependencies;
use super::source::Source;
use super::tree::Tree;

/// Dependencies that only generated code uses, by crate.
const OF_GENERATED_CODE: &[(&str, &[&str])] = &[("crates/proto", &["prost-types", "tonic-prost"])];

/// The root's manifest, which says the version of every dependency.
const ROOT_MANIFEST: &str = "Cargo.toml";

/// Documents about the past may name what was there then.
const HISTORY: &[&str] = &["CHANGELOG.md"];

/// Endings by which a word is the name of a source file, wherever it stands.
const SOURCE_ENDINGS: &[&str] = &[".rs", ".py"];

/// Every dependency in a manifest is used by the crate, and every version in the root by a crate.
pub(super) fn dead_dependencies(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let manifests: Vec<(&str, &str)> =
        tree.texts().filter(|(path, _)| path.ends_with("/Cargo.toml")).collect();
    for (path, text) in &manifests {
        let folder = path.strip_suffix("Cargo.toml").unwrap_or(path);
        let nested: Vec<&str> = manifests
            .iter()
            .filter_map(|(other, _)| other.strip_suffix("Cargo.toml"))
            .filter(|other| other.len() > folder.len() && other.starts_with(folder))
            .collect();
        let own = |path: &str| {
            path.starts_with(folder) && !nested.iter().any(|other| path.starts_with(other))
        };
        let sources: Vec<&Source> =
            tree.sources().filter(|(path, _)| own(path)).map(|(_, source)| source).collect();
        for (line, _, dependency) in dependencies(text) {
            let name = dependency.replace('-', "_");
            let is_used = sources
                .iter()
                .flat_map(|source| source.lines())
                .any(|(_, line)| names_crate(&line.code, &name));
            if !is_used && !is_of_generated_code(folder, dependency) {
                let message = format!("no code of this crate uses `{dependency}`");
                findings.push(Finding::new(path, line, message));
            }
        }
    }
    for (line, _, dependency) in tree.text(ROOT_MANIFEST).map_or(Vec::new(), dependencies) {
        let is_named = |(_, text): &(&str, &str)| {
            dependencies(text).iter().any(|(_, _, name)| *name == dependency)
        };
        if !manifests.iter().any(is_named) {
            let message = format!("no crate depends on `{dependency}`");
            findings.push(Finding::new(ROOT_MANIFEST, line, message));
        }
    }
    findings
}

/// Returns whether a line of code starts a path with a crate.
fn names_crate(code: &str, name: &str) -> bool {
    let is_of_name = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(name).any(|(at, _)| {
        let (before, after) = (&code[..at], &code[at + name.len()..]);
        let is_whole = !before.ends_with(is_of_name) && !after.starts_with(is_of_name);
        is_whole && (after.starts_with("::") || before.trim_end().ends_with("use"))
    })
}

fn is_of_generated_code(folder: &str, dependency: &str) -> bool {
    OF_GENERATED_CODE.iter().any(|(crate_folder, names)| {
        folder.trim_end_matches('/') == *crate_folder && names.contains(&dependency)
    })
}

/// A path of ours that a document names exists. A word is such a path if it ends as our source
/// files do, or starts with a folder of the root or with a crate.
pub(super) fn paths(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let documents = tree
        .texts()
        .filter(|(path, _)| path.ends_with(".md") && !HISTORY.contains(path))
        .filter(|(path, _)| !path.contains('/') || path.starts_with("docs/"));
    for (document, text) in documents {
        for (index, line) in text.lines().enumerate() {
            let words = line.split(|c: char| !is_of_path(c));
            for word in words.filter(|word| names_nothing(tree, document, word)) {
                let message = format!("there is no `{word}`");
                findings.push(Finding::new(document, index + 1, message));
            }
        }
    }
    findings
}

fn is_of_path(c: char) -> bool {
    c.is_ascii_alphanumeric() || "/._-<>*".contains(c)
}

/// Returns whether a word is a path of ours that does not exist.
fn names_nothing(tree: &Tree, document: &str, word: &str) -> bool {
    let word = word.trim_end_matches(['.', '-', '/']);
    // A placeholder stands for any name; the folder around it exists.
    let (whole, is_pattern) = match word.find(['<', '*']) {
        Some(at) => (word[..at].rsplit_once('/').map_or("", |(folder, _)| folder), true),
        None => (word, false),
    };
    let is_source = !is_pattern && SOURCE_ENDINGS.iter().any(|ending| whole.ends_with(ending));
    let starts_at_home = whole
        .split_once('/')
        .is_some_and(|(first, _)| tree.has(first) || tree.has(&format!("crates/{first}")));
    if whole.starts_with(['/', '.']) || !(is_source || starts_at_home) {
        return false;
    }
    let beside =
        document.rsplit_once('/').map_or(String::new(), |(folder, _)| format!("{folder}/"));
    let is_there =
        ["", "crates/", beside.as_str()].iter().any(|folder| tree.has(&format!("{folder}{whole}")))
            || (is_source && tree.has_tail(whole));
    !is_there
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> Tree {
        Tree::of(files.iter().map(|(path, text)| ((*path).into(), (*text).into())).collect())
    }

    /// The messages of a rule about some files.
    fn found(rule: fn(&Tree) -> Vec<Finding>, files: &[(&str, &str)]) -> Vec<String> {
        rule(&tree(files)).into_iter().map(|finding| finding.to_string()).collect()
    }

    #[test]
    fn a_dependency_without_a_user_is_found() {
        let manifest = "[dependencies]\nsome-crate.workspace = true\nother.workspace = true\n";
        let files = [
            (
                "Cargo.toml",
                "[workspace.dependencies]\nother = \"1\"\nsome-crate = \"1\"\nold = \"1\"\n",
            ),
            ("crates/a/Cargo.toml", manifest),
            ("crates/a/src/lib.rs", "use some_crate::Thing; // other::Thing is not used\n"),
            ("crates/a/b/Cargo.toml", "[dependencies]\n"),
            ("crates/a/b/src/lib.rs", "use other::Thing;\n"),
        ];
        let expected = [
            "crates/a/Cargo.toml:3: no code of this crate uses `other`",
            "Cargo.toml:4: no crate depends on `old`",
        ];
        assert_eq!(found(dead_dependencies, &files), expected);
    }

    /// `line` stands in a document of a small tree, and names `missing`.
    #[track_caller]
    fn check(line: &str, missing: &[&str]) {
        let files = [
            ("docs/a.md", line),
            ("docs/images/plot.png", ""),
            ("crates/ops/src/nn/softmax.rs", ""),
            ("models/half/1/saved_model.pb", ""),
            ("tools/fixtures/golden.py", ""),
        ];
        let expected: Vec<String> =
            missing.iter().map(|path| format!("docs/a.md:1: there is no `{path}`")).collect();
        assert_eq!(found(paths, &files), expected, "{line}");
    }

    #[test]
    fn a_path_in_a_document_exists() {
        check("`crates/ops/src/nn/softmax.rs` and `ops/src/nn`, or `nn/softmax.rs`.", &[]);
        check("`ops/src/<family>/<op>.rs`", &[]);
        check("![plot](images/plot.png)", &[]);
        check("See softmax.rs.", &[]);
        check("`ops/nn`, `max.rs`", &["ops/nn", "max.rs"]);
        check("`crates/gpu/src/kernels/<op>.rs`", &["crates/gpu/src/kernels/<op>.rs"]);
        check("python3 tools/gilded.py --x", &["tools/gilded.py"]);
    }

    #[test]
    fn a_path_of_the_users_may_be_any() {
        check("`/models/mine/1`, https://example.org/tools/x.html, `assets/words.txt`", &[]);
        check("`text/html` or `models.config`", &[]);
    }
}
