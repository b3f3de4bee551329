//! Every op has cases, every case file has an op, and an op is named in its own file alone.

use std::collections::BTreeMap;

use super::Finding;
use super::tree::Tree;

const CASES: &str = "testdata/ops/";

/// Ops that call functions, of which the format of cases has none: `control/tests.rs` tests them.
const WITHOUT_CASES: &[&str] = &[
    "BatchFunction",
    "Case",
    "If",
    "PartitionedCall",
    "StatefulPartitionedCall",
    "StatelessCase",
    "StatelessIf",
    "StatelessWhile",
    "While",
];

/// The crate that arranges ops by their facts.
const ARRANGES: &str = "crates/graph/src/";

/// The file that is there if the crate is.
const ARRANGES_ROOT: &str = "crates/graph/src/lib.rs";

/// The files there that may name ops, since they recognise or make several together.
const PATTERNS: &[&str] = &[
    // Fusions, and rewritings of one op to another.
    "passes/collapse/activation.rs",
    "passes/collapse/layer_norm.rs",
    "passes/collapse/terms.rs",
    "passes/collapse/wrap.rs",
    "passes/constants.rs",
    "passes/fuse.rs",
    "passes/fuse/chain.rs",
    "passes/linear.rs",
    "passes/pad.rs",
    // Products that pack their weights alike.
    "pack.rs",
    // Control flow and variables of TensorFlow 1, whose meaning is how they are traced.
    "trace.rs",
    "trace/frames.rs",
    "trace/loops.rs",
    // Constants are no ops there.
    "graph.rs",
];

/// An op without `testdata/ops/<Op>.txt`, or such a file without an op.
pub(super) fn cases(tree: &Tree) -> Vec<Finding> {
    let ops = defined(tree);
    let files: BTreeMap<&str, &str> = tree
        .texts()
        .filter_map(|(path, _)| Some((path.strip_prefix(CASES)?.strip_suffix(".txt")?, path)))
        .collect();
    let without_case = ops
        .iter()
        .filter(|(op, _)| !files.contains_key(**op) && !WITHOUT_CASES.contains(op))
        .map(|(op, (path, line))| Finding::new(path, *line, format!("no {CASES}{op}.txt")));
    let without_op = files
        .iter()
        .filter(|(op, _)| !ops.is_empty() && !ops.contains_key(**op))
        .map(|(op, path)| Finding::new(path, 0, format!("no op is called `{op}`")));
    without_case.chain(without_op).collect()
}

/// An op that is named where its facts should be asked, and a file that may name ops but does not.
pub(super) fn literals(tree: &Tree) -> Vec<Finding> {
    let ops = defined(tree);
    let mut findings = Vec::new();
    for (path, source) in tree.sources() {
        let Some(file) = path.strip_prefix(ARRANGES) else { continue };
        let text: Vec<&str> = source.text().lines().collect();
        let lines = source.product_lines().map(|(number, _)| (number, text[number - 1]));
        let named: Vec<(usize, &str)> = lines
            .flat_map(|(number, line)| quoted(line).map(move |name| (number, name)))
            .filter(|(_, name)| ops.contains_key(name))
            .collect();
        if !PATTERNS.contains(&file) {
            findings.extend(named.iter().map(|(number, op)| {
                let message = format!("`{op}`: ask the op's facts, which stand in its own file");
                Finding::new(path, *number, message)
            }));
        } else if named.is_empty() {
            findings.push(Finding::new(path, 0, "names no op, and need not be in the list"));
        }
    }
    let is_there = |file: &&&str| tree.has(&format!("{ARRANGES}{file}"));
    let gone = PATTERNS.iter().filter(|file| tree.has(ARRANGES_ROOT) && !is_there(file));
    findings.extend(gone.map(|file| {
        Finding::new("xtask/src/tidy/ops.rs", 0, format!("there is no `{ARRANGES}{file}`"))
    }));
    findings
}

/// The texts in a line of code.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    let code = line.split("//").next().unwrap_or_default();
    code.split('"').skip(1).step_by(2)
}

/// All ops, and where they are defined.
fn defined(tree: &Tree) -> BTreeMap<&str, (&str, usize)> {
    let mut ops = BTreeMap::new();
    for (path, source) in tree.sources().filter(|(path, _)| path.starts_with("crates/ops/src/")) {
        let text: Vec<&str> = source.text().lines().collect();
        let product = source.product_lines().map(|(number, _)| (number, text[number - 1]));
        for (number, op) in names(product) {
            ops.entry(op).or_insert((path, number));
        }
    }
    ops
}

/// The ops that lines of Rust define: the first text behind `OpDef {` or `OpDef::`, and the
/// texts at the start of the rows of a table called `OPS`.
fn names<'a>(lines: impl Iterator<Item = (usize, &'a str)>) -> Vec<(usize, &'a str)> {
    let mut found = Vec::new();
    let mut in_table = false;
    let mut awaits_name = false;
    for (number, line) in lines {
        let line = line.split("//").next().unwrap_or_default();
        if line.contains(" OPS:") {
            in_table = true;
        }
        awaits_name |= line.contains("= OpDef {")
            || line.contains("= OpDef::")
            || line.trim_start().starts_with("OpDef::");
        let quoted = line.split('"').nth(1).filter(|name| is_op(name));
        if let Some(name) = quoted.filter(|_| in_table || awaits_name) {
            found.push((number, name));
            awaits_name = false;
        }
        if in_table && line.trim_end().ends_with("];") {
            in_table = false;
        }
    }
    found
}

fn is_op(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_uppercase() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(source: &str, files: &[&str], expected: &[&str]) {
        let mut texts = vec![("crates/ops/src/math/x.rs".to_owned(), source.to_owned())];
        texts.extend(files.iter().map(|op| (format!("{CASES}{op}.txt"), String::new())));
        let found: Vec<String> =
            cases(&Tree::of(texts)).into_iter().map(|finding| finding.message).collect();
        assert_eq!(found, expected, "{source}");
    }

    #[test]
    fn an_op_needs_cases_and_cases_need_an_op() {
        let softmax = "const DEF: OpDef = OpDef { name: \"Softmax\", build };\n";
        check(softmax, &["Softmax"], &[]);
        check(softmax, &[], &["no testdata/ops/Softmax.txt"]);
        check(softmax, &["Softmax", "Soft"], &["no op is called `Soft`"]);
    }

    #[test]
    fn rows_of_a_table_are_ops() {
        let table =
            "pub const OPS: &[Row] = &[\n    row(\"Abs\", abs),\n    // (\"No\")\n];\n\"X\"\n";
        check(table, &["Abs"], &[]);
        check(table, &[], &["no testdata/ops/Abs.txt"]);
    }

    #[test]
    fn a_definition_may_span_lines() {
        let text = "const DEF: OpDef = OpDef {\n    name: \"Relu\",\n    build,\n};\n";
        check(text, &[], &["no testdata/ops/Relu.txt"]);
    }

    #[test]
    fn an_op_is_named_in_its_file_and_in_patterns_alone() {
        let check = |file: &str, text: &str, expected: &[&str]| {
            let op = "const DEF: OpDef = OpDef::pure(\"Relu\", RowRule::Elementwise, build);\n";
            let op = ("crates/ops/src/nn/relu.rs".to_owned(), op.to_owned());
            let tree = Tree::of(vec![op, (format!("{ARRANGES}{file}"), text.to_owned())]);
            let found: Vec<String> =
                literals(&tree).into_iter().map(|finding| finding.message).collect();
            assert_eq!(found, expected, "{file}: {text}");
        };
        let relu = "let is = name == \"Relu\";\n";
        check("run.rs", relu, &["`Relu`: ask the op's facts, which stand in its own file"]);
        check("run.rs", "let is = name == \"relu\"; // \"Relu\"\n", &[]);
        check("run.rs", &format!("#[cfg(test)]\nmod tests {{\n{relu}}}\n"), &[]);
        check(PATTERNS[0], relu, &[]);
        check(PATTERNS[0], "", &["names no op, and need not be in the list"]);
    }
}
