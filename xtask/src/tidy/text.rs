//! Rules on lines: lengths, banners, open ends, places that only exist on one machine.

use super::Finding;
use super::tree::Tree;

const LINE_CHARS_MAX: usize = 100;
const PRODUCT_LINES_MAX: usize = 600;

/// Lines of at most 100 characters; files of at most 600 lines without their tests.
pub(super) fn lengths(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, source) in tree.sources() {
        for (index, line) in source.text().lines().enumerate() {
            let n_chars = line.chars().count();
            if n_chars > LINE_CHARS_MAX && !line.contains("://") {
                let message = format!("{n_chars} characters; at most {LINE_CHARS_MAX}");
                findings.push(Finding::new(path, index + 1, message));
            }
        }
        let n_lines = source.product_lines().count();
        if n_lines > PRODUCT_LINES_MAX {
            let message = format!("{n_lines} lines without tests; split it at {PRODUCT_LINES_MAX}");
            findings.push(Finding::new(path, 0, message));
        }
    }
    findings
}

/// No comment that draws a line.
pub(super) fn banners(tree: &Tree) -> Vec<Finding> {
    comments(tree, |comment| {
        let text = comment.trim_start_matches(['/', '!']).trim();
        let is_drawn = |c: char| {
            text.chars().take_while(|found| *found == c).count() >= 4
                || text.chars().rev().take_while(|found| *found == c).count() >= 4
        };
        let drawn = "=-*#~_─═".chars().any(is_drawn) || comment.starts_with("/////");
        drawn.then(|| "a banner; let the order of the items speak".to_owned())
    })
}

/// No open end without an issue that will close it.
pub(super) fn open_ends(tree: &Tree) -> Vec<Finding> {
    let words = [["TO", "DO"].concat(), ["FIX", "ME"].concat()];
    comments(tree, |comment| {
        let word = words.iter().find(|word| comment.contains(word.as_str()))?;
        let has_issue = comment
            .split('#')
            .skip(1)
            .any(|tail| tail.starts_with(|first: char| first.is_ascii_digit()));
        (!has_issue).then(|| format!("{word} without an issue number (#N)"))
    })
}

/// No path of one person's machine and no host of one company's package mirror.
pub(super) fn private_places(tree: &Tree) -> Vec<Finding> {
    // In pieces, so that this file does not find itself.
    let folders = ["work", "root", "Users"].map(|name| ["/", name, "/"].concat());
    let mirrors = [
        ["index", "-url"],
        ["replace", "-with"],
        ["artifact", "ory"],
        ["jf", "rog"],
        [".intern", "al/"],
        ["pypi", ".org"],
        ["index.crates", ".io"],
    ]
    .map(|pieces| pieces.concat());
    let mut findings = Vec::new();
    for (path, text) in tree.texts() {
        for (index, line) in text.lines().enumerate() {
            let folder = folders.iter().find(|folder| names_root_folder(line, folder));
            if let Some(folder) = folder {
                let message = format!("a path of one machine: {folder}");
                findings.push(Finding::new(path, index + 1, message));
            }
            if let Some(mirror) = mirrors.iter().find(|mirror| line.contains(mirror.as_str())) {
                let message = format!("where packages come from is the machine's: {mirror}");
                findings.push(Finding::new(path, index + 1, message));
            }
        }
    }
    findings
}

/// Returns whether `folder` stands in `line` as the start of a path, not in its middle.
fn names_root_folder(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "._-/}$".contains(c))
    })
}

/// No `unwrap` outside tests; no test that is skipped or expected to panic.
pub(super) fn escape_hatches(tree: &Tree) -> Vec<Finding> {
    let unwrap = [".unwrap", "()"].concat();
    let attributes = [["#[ign", "ore"].concat(), ["#[should_", "panic"].concat()];
    let mut findings = Vec::new();
    for (path, source) in tree.sources() {
        for (number, line) in source.lines() {
            if !line.is_test && line.code.contains(&unwrap) {
                let message = "unwrap outside tests: return an error or say `expect(why)`";
                findings.push(Finding::new(path, number, message));
            }
            if let Some(found) = attributes.iter().find(|found| line.code.contains(*found)) {
                let message = format!("{found}]: assert what happens instead");
                findings.push(Finding::new(path, number, message));
            }
        }
    }
    findings
}

fn comments(tree: &Tree, rule: impl Fn(&str) -> Option<String>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, source) in tree.sources() {
        for (number, line) in source.lines().filter(|(_, line)| !line.comment.is_empty()) {
            findings.extend(
                rule(line.comment.trim()).map(|message| Finding::new(path, number, message)),
            );
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::Rule;
    use super::*;

    #[track_caller]
    fn check(rule: Rule, text: &str, lines: &[usize]) {
        let tree = Tree::of(vec![("crates/x/src/a.rs".to_owned(), text.to_owned())]);
        let found: Vec<usize> = rule(&tree).iter().map(|finding| finding.line).collect();
        assert_eq!(found, lines, "{text}");
    }

    #[test]
    fn long_lines_and_long_files_are_found() {
        let long = "x".repeat(101);
        check(lengths, &format!("a\n{long}\n"), &[2]);
        check(lengths, &format!("// see https://{long}\n"), &[]);
        check(lengths, &"a\n".repeat(601), &[0]);
        check(lengths, &"a\n".repeat(600), &[]);
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "a\n".repeat(601));
        check(lengths, &tests, &[]);
    }

    #[test]
    fn banners_are_found_and_tables_are_not() {
        check(banners, "// ======\na // ---- parts ----\n/////////\n", &[1, 2, 3]);
        check(banners, "/// |---|---|\n/// a - b\n//! # Title\n", &[]);
    }

    #[test]
    fn an_open_end_needs_an_issue() {
        let word = ["TO", "DO"].concat();
        check(open_ends, &format!("// {word}: later\n"), &[1]);
        check(open_ends, &format!("// {word}(#12): later\n"), &[]);
    }

    #[test]
    fn places_of_one_machine_are_found() {
        let folder = ["/wo", "rk/"].concat();
        check(private_places, &format!("\"{folder}x\"\n"), &[1]);
        check(private_places, &format!("\"some{folder}x\" \"{{root}}{folder}\"\n"), &[]);
        check(private_places, &["pip --ind", "ex-u", "rl x\n"].concat(), &[1]);
    }

    #[test]
    fn unwrap_is_for_tests() {
        let unwrap = ["a.unw", "rap();\n"].concat();
        check(escape_hatches, &unwrap, &[1]);
        check(escape_hatches, &format!("// {unwrap}"), &[]);
        check(escape_hatches, &format!("#[cfg(test)]\nmod tests {{\n{unwrap}}}\n"), &[]);
    }
}
