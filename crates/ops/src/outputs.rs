//! `OutputArg`: the names of the outputs of every op. A function body refers to an output as
//! `node:name:index`, where the name is that of an output argument of the op.
//!
//! `outputs.txt` holds TensorFlow's names; `tools/opsuite/outputs.py` makes it.

use std::sync::OnceLock;

use rustc_hash::FxHashMap;

/// An output argument of an op.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputArg<'a> {
    /// The name by which function bodies refer to it.
    pub name: &'a str,
    /// The number of tensors that it stands for.
    pub count: OutputCount<'a>,
}

/// The number of tensors that an output argument stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputCount<'a> {
    /// A single tensor.
    One,
    /// As many as an attribute says: a number, or the length of a list of types.
    Attr {
        /// The name of the attribute.
        name: &'a str,
        /// The number where a node leaves the attribute out. `None`: it must be there.
        default: Option<usize>,
    },
}

/// The output arguments of the op called `op`, in order; `None` if we do not know the op.
pub fn outputs(op: &str) -> Option<&'static [OutputArg<'static>]> {
    static BY_OP: OnceLock<FxHashMap<&'static str, Vec<OutputArg<'static>>>> = OnceLock::new();
    let by_op = BY_OP.get_or_init(|| include_str!("outputs.txt").lines().map(parse_line).collect());
    by_op.get(op).map(Vec::as_slice)
}

/// Reads `Op name name*attribute name*attribute=default`.
fn parse_line(line: &'static str) -> (&'static str, Vec<OutputArg<'static>>) {
    let mut words = line.split(' ');
    let op = words.next().unwrap_or_default();
    (op, words.map(parse_arg).collect())
}

fn parse_arg(word: &str) -> OutputArg<'_> {
    let Some((name, attr)) = word.split_once('*') else {
        return OutputArg { name: word, count: OutputCount::One };
    };
    let (attr, default) = match attr.split_once('=') {
        Some((attr, default)) => (attr, default.parse().ok()),
        None => (attr, None),
    };
    OutputArg { name, count: OutputCount::Attr { name: attr, default } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_op_has_the_names_of_its_outputs() {
        let nameless: Vec<&str> = crate::all()
            .map(|def| def.name)
            // Passes make those with an underscore; no file refers to their outputs by name.
            .filter(|op| !op.starts_with('_') && outputs(op).is_none())
            .collect();
        assert_eq!(nameless, [""; 0], "run tools/opsuite/outputs.py");
    }

    #[test]
    fn arguments_have_names_and_counts() {
        let one = |name| OutputArg { name, count: OutputCount::One };
        let many = |name, attr, default| OutputArg {
            name,
            count: OutputCount::Attr { name: attr, default },
        };
        assert_eq!(outputs("StringSplit").unwrap(), ["indices", "values", "shape"].map(one));
        assert_eq!(outputs("Split").unwrap(), [many("output", "num_split", None)]);
        let lists = outputs("ParseSequenceExample").unwrap();
        assert_eq!(lists[0], many("context_sparse_indices", "Ncontext_sparse", Some(0)));
        assert_eq!(outputs("NoOp").unwrap(), []);
        assert_eq!(outputs("NoSuchOp"), None);
    }
}
