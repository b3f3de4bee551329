//! `cargo xtask tidy`: the house rules that neither rustfmt nor clippy knows.
//!
//! Plain Rust over text. Each rule is a function from the tree to findings, listed in `RULES`.

mod docs;
mod names;
mod ops;
mod rooms;
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
    names::types_and_functions,
    names::paths,
    rooms::graph,
    rooms::unsafety,
    rooms::lookups,
    ops::cases,
    docs::flags,
    docs::faults,
    docs::architecture,
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

/// Checks all rules on the tree below `root`; fails if anything was found.
pub(crate) fn run(root: &Path) -> Result<()> {
    let tree = Tree::open(root)?;
    let mut findings: Vec<Finding> = RULES.iter().flat_map(|rule| rule(&tree)).collect();
    findings.sort();
    for finding in &findings {
        println!("{finding}");
    }
    if !findings.is_empty() {
        bail!("{} findings", findings.len());
    }
    println!("tidy: {} files, {} rules, nothing found", tree.len(), RULES.len());
    Ok(())
}
