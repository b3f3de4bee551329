//! The op suite: cases in `testdata/ops/<Op>.txt`, with values that came from TensorFlow.
//!
//! The format is described in `tools/opsuite/cases.py`, which fills in the values.

mod generate;
mod literal;

use std::collections::BTreeMap;
use std::path::Path;

use proto::tensorflow::AttrValue;
use tensor::Tensor;

/// One case: nodes that run in order, and what comes of them.
#[derive(Debug, Clone, Default)]
pub struct Case {
    /// The file's op and the case's own name.
    pub name: String,
    /// The inputs `in0`, `in1` and so on.
    pub inputs: Vec<Tensor>,
    /// The nodes.
    pub nodes: Vec<Node>,
    /// The outputs that are compared: references to outputs of nodes.
    pub fetches: Vec<String>,
    /// The values expected, in the order of `fetches`; for a case of a single op in the order of
    /// its outputs.
    pub outputs: Vec<Tensor>,
    /// The error expected: its code and a part of its text.
    pub error: Option<(String, String)>,
    /// The largest difference of floats, relative to the largest expected.
    pub tolerance: Option<f64>,
    /// `true` if only dtype and shape count.
    pub only_shape: bool,
}

/// One op of a case.
#[derive(Debug, Clone, Default)]
pub struct Node {
    /// The node's name in the case.
    pub name: String,
    /// TensorFlow's name of the op.
    pub op: String,
    /// References: `in0`, `node`, `node:1`.
    pub inputs: Vec<String>,
    /// The attributes.
    pub attrs: BTreeMap<String, AttrValue>,
}

/// Reads all cases of all files in a folder, sorted by file name. Panics with the place of what is
/// wrong in a file.
pub fn read_all(folder: &Path) -> Vec<Case> {
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.expect("a readable folder").path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "txt"))
        .collect();
    files.sort();
    files.iter().flat_map(|file| read(file)).collect()
}

/// Reads the cases of one file.
pub fn read(file: &Path) -> Vec<Case> {
    let op = file.file_stem().and_then(|stem| stem.to_str()).expect("a file name");
    let text = std::fs::read_to_string(file).expect("a readable file");
    let mut cases: Vec<Case> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let rest = rest.trim();
        let place = || format!("{}:{}: {line}", file.display(), number + 1);
        if word == "case" {
            cases.push(Case { name: format!("{op}: {rest}"), ..Case::default() });
            continue;
        }
        let case = cases.last_mut().unwrap_or_else(|| panic!("{}: outside a case", place()));
        case.take(op, word, rest).unwrap_or_else(|why| panic!("{}: {why}", place()));
    }
    cases.into_iter().map(|case| case.complete(op)).collect()
}

impl Case {
    fn take(&mut self, op: &str, word: &str, rest: &str) -> Result<(), String> {
        match word {
            "attr" => {
                let (name, value) = literal::attr(rest)?;
                self.node_for_attr(op).attrs.insert(name, value);
            }
            "in" => self.inputs.push(literal::tensor(rest)?),
            "out" => self.outputs.push(literal::tensor(rest)?),
            "err" => {
                let (code, text) = rest.split_once(' ').unwrap_or((rest, ""));
                self.error = Some((code.to_owned(), text.to_owned()));
            }
            "tol" => self.tolerance = Some(rest.parse().map_err(|_| "not a number")?),
            "onlyshape" => self.only_shape = true,
            "fetch" => self.fetches.push(rest.to_owned()),
            "node" => {
                let mut words = rest.split_whitespace().map(str::to_owned);
                let name = words.next().ok_or("no name")?;
                let op = words.next().ok_or("no op")?;
                self.nodes.push(Node { name, op, inputs: words.collect(), ..Node::default() });
            }
            _ => return Err("an unknown word".to_owned()),
        }
        Ok(())
    }

    /// Attributes before any `node` line are those of the file's own op.
    fn node_for_attr(&mut self, op: &str) -> &mut Node {
        if self.nodes.is_empty() {
            self.nodes.push(Node { name: op.to_owned(), op: op.to_owned(), ..Node::default() });
        }
        self.nodes.last_mut().expect("one was pushed")
    }

    /// A case without fetches is one of a single op that takes all inputs.
    fn complete(mut self, op: &str) -> Self {
        if self.fetches.is_empty() && self.nodes.len() <= 1 {
            let n_inputs = self.inputs.len();
            let node = self.node_for_attr(op);
            if node.inputs.is_empty() {
                node.inputs = (0..n_inputs).map(|i| format!("in{i}")).collect();
            }
            let name = node.name.clone();
            self.fetches = (0..self.outputs.len()).map(|i| format!("{name}:{i}")).collect();
        }
        self
    }
}

/// Fails with a description if `got` is not what the case expects.
pub fn compare(case: &Case, expected: &Tensor, got: &Tensor) -> Result<(), String> {
    if expected.dtype() != got.dtype() || expected.shape() != got.shape() {
        let like = |t: &Tensor| format!("{}{}", t.dtype().short_name(), t.shape());
        return Err(format!("expected {} but got {}", like(expected), like(got)));
    }
    if case.only_shape {
        return Ok(());
    }
    literal::compare(expected, got, case.tolerance)
}
