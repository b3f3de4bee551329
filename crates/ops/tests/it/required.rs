//! Every op that served graphs need is there: `testdata/required_ops.txt` lists them.

use std::collections::HashSet;
use std::path::Path;

fn read(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata").join(file);
    std::fs::read_to_string(path).expect("the file is there")
}

#[test]
fn every_op_that_served_graphs_need_is_there() {
    let references: HashSet<&str> = ops::REF_OPS.iter().map(|(name, _)| *name).collect();
    let mut missing = Vec::new();
    for line in read("required_ops.txt").lines() {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_whitespace();
        let Some(name) = words.next() else { continue };
        let is_there = match words.next() {
            None => ops::find(name).is_some(),
            Some("reference") => references.contains(name),
            Some("graph") => true,
            Some(other) => panic!("unknown word {other} at {name}"),
        };
        if !is_there {
            missing.push(name.to_owned());
        }
    }
    assert!(missing.is_empty(), "missing: {}", missing.join(", "));
}
