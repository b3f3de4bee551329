//! The book's page of ops is what the registry has. `UPDATE_OPS=1` writes it anew.

use std::fmt::Write as _;
use std::path::Path;

/// The page, without its tables.
const HEAD: &str = "\
# Ops

The native engine has the ops below. `tensord inspect DIR` says whether it has all ops of a model.
It names those that it lacks, with how many public graphs use them. Models with other ops run in
workers of your own TensorFlow ([engines](engines.md)).

";

/// The ops that public graphs use most and the registry lacks are shown up to this number.
const N_LACKING: usize = 20;

/// The page as the registry and the survey of public graphs have it.
fn page() -> String {
    // Those that the graph's passes make have names of ours.
    let n_ops = ops::all().filter(|def| !def.name.starts_with('_')).count();
    let mut text = format!("{HEAD}{n_ops} ops, on the CPU:\n\n| kind | ops |\n|---|---|\n");
    for family in ops::FAMILIES {
        let mut names: Vec<&str> = family.ops.iter().map(|def| def.name).collect();
        names.retain(|name| !name.starts_with('_'));
        names.sort_unstable();
        let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        let _ = writeln!(text, "| {} ({}) | {} |", family.title, names.len(), names.join(" "));
    }
    let survey = include_str!("../../src/usage.txt");
    let counts = survey.lines().filter_map(|line| {
        let (name, count) = line.split_once(' ')?;
        Some((name, count.parse::<usize>().ok()?))
    });
    let is_lacking = |name: &str| {
        let is_reference = ops::REF_OPS.iter().any(|(known, _)| *known == name);
        name != "graphs" && ops::find(name).is_none() && !is_reference
    };
    let mut lacking: Vec<(&str, usize)> = counts.filter(|(name, _)| is_lacking(name)).collect();
    lacking.retain(|(name, _)| !OF_GRAPHS.contains(name));
    lacking.sort_by_key(|(name, count)| (std::cmp::Reverse(*count), *name));
    let n_surveyed = ops::usage("MatMul").n_surveyed;
    let _ = write!(
        text,
        "\nOps that public graphs use and tensord lacks, of {n_surveyed} graphs that were looked \
         at:\n\n| op | graphs |\n|---|---|\n"
    );
    for (name, count) in lacking.iter().take(N_LACKING) {
        let _ = writeln!(text, "| `{name}` | {count} |");
    }
    text
}

/// Ops that the graph takes away before it runs.
const OF_GRAPHS: &[&str] = &[
    "Enter",
    "Exit",
    "LoopCond",
    "Merge",
    "NextIteration",
    "RefEnter",
    "RefExit",
    "RefMerge",
    "RefNextIteration",
    "RefSwitch",
    "Switch",
];

#[test]
fn the_book_lists_the_ops_of_the_registry() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/ops.md");
    if std::env::var_os("UPDATE_OPS").is_some() {
        std::fs::write(&path, page()).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), page());
}
