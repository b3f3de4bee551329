//! Rules on what is written for people.

use super::Finding;
use super::tree::Tree;

const FLAGS: &str = "crates/config/src/flags.rs";
const FAULTS: &str = "docs/faults.md";
const ARCHITECTURE: &str = "ARCHITECTURE.md";
const ARCHITECTURE_LINES_MAX: usize = 300;

/// Every flag is mentioned in the user's book.
pub(super) fn flags(tree: &Tree) -> Vec<Finding> {
    let Some(text) = tree.text(FLAGS) else { return Vec::new() };
    let book: Vec<&str> = tree
        .texts()
        .filter(|(path, _)| path.starts_with("docs/") && path.ends_with(".md"))
        .map(|(_, text)| text)
        .collect();
    names(text)
        .into_iter()
        .filter(|(_, flag)| !book.iter().any(|page| mentions(page, flag)))
        .map(|(line, flag)| Finding::new(FLAGS, line, format!("docs/ does not mention --{flag}")))
        .collect()
}

/// Every row of the page of faults names tests in a comment, and every test is there.
pub(super) fn faults(tree: &Tree) -> Vec<Finding> {
    let Some(page) = tree.text(FAULTS) else { return Vec::new() };
    let sources: Vec<&str> =
        tree.texts().filter(|(path, _)| path.ends_with(".rs")).map(|(_, text)| text).collect();
    let mut findings = Vec::new();
    let mut find = |line, message| findings.push(Finding::new(FAULTS, line, message));
    let lines: Vec<&str> = page.lines().collect();
    for (index, line) in lines.iter().enumerate() {
        let is_heading = lines.get(index + 1).is_some_and(|next| next.starts_with("|---"));
        if !line.starts_with("| ") || is_heading {
            continue;
        }
        let tests = line.split_once("<!-- ").and_then(|(_, tail)| tail.split_once(" -->"));
        let Some((tests, _)) = tests else {
            find(index + 1, "a row without the tests that show it, in a comment".to_owned());
            continue;
        };
        for test in tests.split_whitespace() {
            let wanted = format!("fn {test}(");
            if !sources.iter().any(|source| source.contains(&wanted)) {
                find(index + 1, format!("there is no test called {test}"));
            }
        }
    }
    findings
}

/// The page that explains the whole stays short enough to be read.
pub(super) fn architecture(tree: &Tree) -> Vec<Finding> {
    let n_lines = tree.text(ARCHITECTURE).map_or(0, |text| text.lines().count());
    if n_lines <= ARCHITECTURE_LINES_MAX {
        return Vec::new();
    }
    let message = format!("{n_lines} lines; at most {ARCHITECTURE_LINES_MAX}");
    vec![Finding::new(ARCHITECTURE, 0, message)]
}

/// Returns whether `--flag` stands on the page as a whole word.
fn mentions(page: &str, flag: &str) -> bool {
    let wanted = format!("--{flag}");
    page.match_indices(&wanted).any(|(at, _)| {
        let after = page[at + wanted.len()..].chars().next();
        !after.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '-')
    })
}

/// The fields with a `long` argument, by line: `#[arg(long)] name: T` or `#[arg(long = "name")]`.
fn names(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    // Whether the field to come has a long name, and which if it is spelt out.
    let mut long: Option<Option<&str>> = None;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.starts_with("//") {
            continue;
        }
        if let Some(at) = line.find("long").filter(|_| line.contains("arg(") || !line.contains(':'))
        {
            let spelt =
                line[at..].strip_prefix("long = \"").and_then(|tail| tail.split('"').next());
            long = Some(spelt);
        }
        let field = line.strip_prefix("pub(crate) ").or(line.strip_prefix("pub ")).unwrap_or(line);
        let Some((name, _)) = field.split_once(": ") else { continue };
        if name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
            && let Some(spelt) = long.take()
        {
            found.push((index + 1, spelt.unwrap_or(name)));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(source: &str, page: &str, lines: &[usize]) {
        let tree = Tree::of(vec![
            (FLAGS.to_owned(), source.to_owned()),
            ("docs/flags.md".to_owned(), page.to_owned()),
        ]);
        let found: Vec<usize> = flags(&tree).iter().map(|finding| finding.line).collect();
        assert_eq!(found, lines, "{source}");
    }

    #[test]
    fn the_tests_of_a_fault_are_there() {
        let page = "| fault | outcome |\n|---|---|\n| 1 | `not a test` <!-- one two --> |\n\
                    | 2 | none <!-- gone --> |\n| 3 | without a test |\n";
        let source = "#[test]\nfn one() {}\nasync fn two() {}\nfn gone_too() {}\n";
        let tree = Tree::of(vec![
            (FAULTS.to_owned(), page.to_owned()),
            ("crates/x/src/lib.rs".to_owned(), source.to_owned()),
        ]);
        let found: Vec<usize> = faults(&tree).iter().map(|finding| finding.line).collect();
        assert_eq!(found, [4, 5]);
    }

    #[test]
    fn a_flag_stands_in_the_book() {
        let source = "/// The port.\n#[arg(long, default_value_t = 8500)]\npub(crate) port: u16,\n";
        check(source, "`--port`: the port", &[]);
        check(source, "`--port_number`", &[3]);
        check("#[arg(long = \"grpc\")]\npub port: u16,\n", "--grpc", &[]);
        check("/// Positional.\npub folders: Vec<PathBuf>,\n", "", &[]);
    }
}
