//! Every op that served graphs need has cases of an error, of empty and of scalar inputs, and of
//! sizes that are repeated, wherever TensorFlow answers such. The lists come from
//! `tools/opsuite/edges.py`.

#![allow(clippy::unwrap_used, reason = "a test stops at what should not be")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use tensor::Shape;
use testkit::opcases::{self, Case};

fn testdata(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata").join(name)
}

/// The lines of a file that are no comments, without the reasons behind ` : `.
fn places(file: &str) -> BTreeSet<String> {
    let text = std::fs::read_to_string(testdata(file)).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines.map(|line| line.split(" : ").next().unwrap_or_default().to_owned()).collect()
}

/// The edges that a case shows.
fn edges(case: &Case) -> Vec<String> {
    if case.error.is_some() {
        return vec!["error".to_owned()];
    }
    let mut edges = Vec::new();
    for (i, input) in case.inputs.iter().enumerate() {
        if input.n_elements() == 0 {
            edges.push(format!("in{i} empty"));
        }
        if input.shape().rank() == 0 {
            edges.push(format!("in{i} scalar"));
        }
    }
    if let [a, b] = &case.inputs[..]
        && is_repeated(a.shape(), b.shape())
    {
        edges.push("broadcast".to_owned());
    }
    edges
}

/// Returns whether two shapes with elements fit each other though they are not the same.
fn is_repeated(a: &Shape, b: &Shape) -> bool {
    let mut pairs = a.iter().rev().zip(b.iter().rev());
    a != b
        && a.n_elements() > 0
        && b.n_elements() > 0
        && pairs.all(|(a, b)| a == b || *a == 1 || *b == 1)
}

/// Returns the edges that the cases of each op show.
fn shown() -> BTreeMap<String, BTreeSet<String>> {
    let mut shown: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for case in ["ops", "grid"].iter().flat_map(|folder| opcases::read_all(&testdata(folder))) {
        let op = case.name.split(':').next().unwrap_or_default().to_owned();
        shown.entry(op).or_default().extend(edges(&case));
    }
    shown
}

#[test]
fn every_edge_that_tensorflow_answers_has_a_case() {
    let shown = shown();
    let missing: Vec<String> = places("op_edges.txt")
        .into_iter()
        .filter(|place| {
            let (op, edge) = place.split_once(' ').unwrap();
            !shown.get(op).is_some_and(|edges| edges.contains(edge))
        })
        .collect();
    assert!(missing.is_empty(), "no case:\n{}", missing.join("\n"));
}

#[test]
fn every_op_that_served_graphs_need_has_an_error_and_edges_or_a_reason() {
    let (there, left_out) = (places("op_edges.txt"), places("op_edges_left_out.txt"));
    let both: Vec<&String> = there.intersection(&left_out).collect();
    assert!(both.is_empty(), "answered and left out: {both:?}");
    let shown = shown();
    let mut missing = Vec::new();
    for op in places("required_ops.txt") {
        let op = op.split('#').next().unwrap_or_default().trim();
        // What is no kernel has a second word; what has no cases calls functions, which the tests
        // of `ops::control` give it.
        let Some(edges) = shown.get(op) else { continue };
        let has_reason = left_out.contains(&format!("{op} error"));
        if !edges.contains("error") && !has_reason {
            missing.push(op.to_owned());
        }
    }
    assert!(missing.is_empty(), "neither an error nor a reason:\n{}", missing.join("\n"));
}
