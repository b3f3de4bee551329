//! The suite shows every dtype that TensorFlow's CPU kernels take, but for those that are left out
//! with a reason. The lists come from `tools/opsuite/dtypes.py`.

#![allow(clippy::unwrap_used, reason = "a test stops at what should not be")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use proto::tensorflow::attr_value::Value;
use tensor::DType;
use testkit::opcases;

/// An op, one of its attributes and a dtype.
type Place = (String, String, String);

fn testdata(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata").join(name)
}

/// The words before a colon of the lines of a file that are no comments: op, attribute, dtypes.
fn places(file: &str) -> Vec<Place> {
    let text = std::fs::read_to_string(testdata(file)).unwrap();
    let mut places = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split(':').next().unwrap_or_default().split_whitespace();
        let (Some(op), Some(attr)) = (words.next(), words.next()) else { continue };
        places.extend(words.map(|dtype| (op.to_owned(), attr.to_owned(), dtype.to_owned())));
    }
    places
}

/// Returns the attributes of the nodes of cases with answers.
fn seen() -> BTreeSet<Place> {
    let mut seen = BTreeSet::new();
    for case in opcases::read_all(&testdata("ops")) {
        let nodes = case.nodes.iter().filter(|_| case.error.is_none());
        for (op, attr, value) in nodes.flat_map(|node| {
            node.attrs.iter().map(|(attr, value)| (&node.op, attr, value.value.as_ref()))
        }) {
            let dtypes = match value {
                Some(Value::Type(dtype)) => vec![*dtype],
                Some(Value::List(list)) => list.r#type.clone(),
                _ => continue,
            };
            for dtype in dtypes.into_iter().filter_map(DType::from_number) {
                seen.insert((op.clone(), attr.clone(), dtype.short_name().to_owned()));
            }
        }
    }
    seen
}

/// All that is left out, as one pattern: `*` stands for anything, `[ab]` for one of some letters.
fn left_out() -> regex::RegexSet {
    let places = places("op_dtypes_left_out.txt").into_iter();
    let patterns = places.map(|(op, attr, dtype)| format!("^{op} {attr} {dtype}$"));
    regex::RegexSet::new(patterns.map(|pattern| pattern.replace('*', r"\S*"))).unwrap()
}

#[test]
fn every_dtype_of_tensorflow_has_a_case_or_a_reason() {
    let (seen, left_out) = (seen(), left_out());
    let mut missing = Vec::new();
    for place in places("op_dtypes.txt") {
        let (op, attr, dtype) = &place;
        let text = format!("{op} {attr} {dtype}");
        if !seen.contains(&place) && !left_out.is_match(&text) {
            missing.push(text);
        }
    }
    assert!(missing.is_empty(), "neither case nor reason:\n{}", missing.join("\n"));
}
