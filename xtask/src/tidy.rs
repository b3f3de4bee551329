//! `cargo xtask tidy`: the house rules that neither rustfmt nor clippy knows.
//!
//! Plain Rust over text. Each rule is a function from the tree to findings, listed in `RULES`.

mod docs;
mod ghosts;
mod names;
mod openings;
mod ops;
mod report;
mod rooms;
mod shape;
mod source;
mod text;
mod tree;

use std::fmt;
use std::path::Path;

use anyhow::{Result, bail};

use tree::Tree;

/// A rule looks at the whole tree and says what is wrong.
type Rule = fn(&Tree) -> Vec<Finding>;

const RULES: &[Rule] = &[
    text::lengths,
    text::banners,
    text::open_ends,
    text::private_places,
    text::escape_hatches,
    openings::nouns_and_verbs,
    names::types_and_functions,
    names::paths,
    rooms::graph,
    rooms::missing,
    rooms::unsafety,
    rooms::lookups,
    ops::cases,
    ops::literals,
    docs::flags,
    docs::faults,
    docs::architecture,
    ghosts::dead_dependencies,
    ghosts::paths,
    shape::methods,
    shape::tuples,
];

/// A broken rule, and where.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    path: String,
    /// From 1; 0 when the whole file is meant.
    line: usize,
    message: String,
}

impl Finding {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Finding { path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.message),
            line => write!(f, "{}:{line}: {}", self.path, self.message),
        }
    }
}

/// The part of the lists for a reader that is printed.
#[derive(Clone, Copy)]
pub(crate) enum Lists {
    /// The length of each.
    Counted,
    /// All their lines.
    Whole,
}

/// Checks all rules on the tree below `root`; fails if anything was found. The lists that a reader
/// judges never fail.
pub(crate) fn run(root: &Path, lists: Lists) -> Result<()> {
    let tree = Tree::open(root)?;
    let mut findings: Vec<Finding> = RULES.iter().flat_map(|rule| rule(&tree)).collect();
    findings.sort();
    for finding in &findings {
        println!("{finding}");
    }
    for report in report::all(&tree) {
        println!("tidy: {} {}", report.lines.len(), report.title);
        if matches!(lists, Lists::Whole) {
            report.lines.iter().for_each(|line| println!("  {line}"));
        }
    }
    if !findings.is_empty() {
        bail!("{} findings", findings.len());
    }
    println!("tidy: {} files, {} rules, nothing found", tree.len(), RULES.len());
    Ok(())
}
