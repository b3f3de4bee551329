//! Properties: a value that is written is read back, and where `serde_json` `serde_json` has an
//! opinion, ours is the same.

use proptest::prelude::*;
use serde_json::Value;
use tensor::{DType, Shape, Spec, Strings, Tensor};

use super::super::{Format, Input, Inputs, Request, Result, predict, write_outputs};

/// The same cases in every run, and enough of them.
fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 400,
        rng_seed: proptest::test_runner::RngSeed::Fixed(7),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// The one input `x`.
fn input(spec: &Spec) -> Result<((), Inputs<'_>)> {
    Ok(((), Inputs::new([Input { name: "x", tensor: "x:0", spec }])))
}

fn dims() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(1usize..4, 0..5)
}

/// Writes a tensor as an output and reads it as an input.
fn there_and_back(tensor: &Tensor, format: Format) -> Tensor {
    let (key, new_key) = match format {
        Format::Row => ("\"predictions\"", "\"instances\""),
        Format::Columnar => ("\"outputs\"", "\"inputs\""),
    };
    // Only base64 keeps all bytes of a string.
    let outputs = [("x_bytes".to_owned(), tensor.clone())];
    let text = write_outputs(&outputs, format).unwrap();
    let text = String::from_utf8(text).unwrap().replacen(key, new_key, 1);
    let spec = Spec::unknown(tensor.dtype());
    let request = Request::read(text.as_bytes(), |_| input(&spec)).unwrap();
    let careful = predict::read_carefully(text.as_bytes(), |_| input(&spec)).unwrap();
    assert_eq!(elements(&request.inputs["x"]), elements(&careful.inputs["x"]));
    request.inputs["x"].clone()
}

/// The bytes of all elements; a NaN is like any other.
fn elements(tensor: &Tensor) -> Vec<Vec<u8>> {
    match tensor.dtype() {
        DType::String => tensor.strings().iter().map(<[u8]>::to_vec).collect(),
        DType::F32 => {
            let bits = |x: &f32| if x.is_nan() { vec![] } else { x.to_le_bytes().to_vec() };
            tensor.as_slice::<f32>().iter().map(bits).collect()
        }
        DType::F64 => {
            let bits = |x: &f64| if x.is_nan() { vec![] } else { x.to_le_bytes().to_vec() };
            tensor.as_slice::<f64>().iter().map(bits).collect()
        }
        _ => vec![tensor.view().bytes().to_vec()],
    }
}

fn check(tensor: &Tensor) {
    let mut formats = vec![Format::Columnar];
    if tensor.shape().rank() > 0 {
        formats.push(Format::Row);
    }
    for format in formats {
        let back = there_and_back(tensor, format);
        assert_eq!(back.shape(), tensor.shape());
        assert_eq!(elements(&back), elements(tensor), "{format:?}");
    }
}

fn n_elements(dims: &[usize]) -> usize {
    dims.iter().product()
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn floats_come_back((dims, bits) in dims().prop_flat_map(|dims| {
        let n = n_elements(&dims);
        (Just(dims), prop::collection::vec(any::<u32>(), n))
    })) {
        let values: Vec<f32> = bits.into_iter().map(f32::from_bits).collect();
        check(&Tensor::from_slice(Shape::of(&dims), &values).unwrap());
    }

    #[test]
    fn doubles_come_back((dims, bits) in dims().prop_flat_map(|dims| {
        let n = n_elements(&dims);
        (Just(dims), prop::collection::vec(any::<u64>(), n))
    })) {
        let values: Vec<f64> = bits.into_iter().map(f64::from_bits).collect();
        check(&Tensor::from_slice(Shape::of(&dims), &values).unwrap());
    }

    #[test]
    fn integers_come_back(values in prop::collection::vec(any::<i64>(), 1..20)) {
        check(&Tensor::vector(&values).unwrap());
        let unsigned: Vec<u64> = values.iter().map(|value| value.cast_unsigned()).collect();
        check(&Tensor::vector(&unsigned).unwrap());
        let bytes: Vec<u8> = values.iter().map(|value| value.to_le_bytes()[0]).collect();
        check(&Tensor::vector(&bytes).unwrap());
    }

    #[test]
    fn strings_come_back(values in prop::collection::vec(any::<Vec<u8>>(), 1..10)) {
        let strings = Strings::collect(&values).unwrap();
        check(&Tensor::from_strings(Shape::of(&[values.len()]), strings).unwrap());
    }

    #[test]
    fn numbers_mean_what_they_mean_to_serde_json(
        text in r"-?(0|[1-9][0-9]{0,22})(\.[0-9]{1,22})?([eE][-+]?[0-9]{1,2})?"
    ) {
        let spec = Spec::unknown(DType::F64);
        let request = format!("{{\"inputs\": {text}}}");
        let request = Request::read(request.as_bytes(), |_| input(&spec)).unwrap();
        // Rust reads numbers as serde_json does with its feature `float_roundtrip`.
        let expected: f64 = text.parse().unwrap();
        let expected = if text == "-0" { 0.0 } else { expected };
        prop_assert_eq!(request.inputs["x"].as_slice::<f64>()[0].to_bits(), expected.to_bits());
    }

    #[test]
    fn documents_are_right_or_wrong_as_for_serde_json(text in document()) {
        let ours = super::scan::Document::scan(text.as_bytes()).map(drop);
        let theirs = serde_json::from_str::<Value>(&text);
        match (&ours, &theirs) {
            (Ok(()), Ok(value)) => prop_assert!(value.is_object()),
            (Err(status), Ok(value)) => {
                prop_assert!(!value.is_object(), "{}", status);
            }
            (Ok(()), Err(error)) => {
                // We stop at the end of the first value.
                let is_trailing = error.to_string().starts_with("trailing characters");
                prop_assert!(is_trailing, "{text}: {error}");
            }
            (Err(_), Err(_)) => {}
        }
    }

    #[test]
    fn nothing_makes_the_reader_panic(text in prop::collection::vec(any::<u8>(), 0..60)) {
        for dtype in [DType::F32, DType::String, DType::Bool, DType::F16] {
            let spec = Spec::unknown(dtype);
            let _ = Request::read(&text, |_| input(&spec));
            let _ = super::examples::read(&text);
        }
    }
}

/// JSON with a mistake here and there. Without numbers that only we know, or deep nesting.
fn document() -> impl Strategy<Value = String> {
    let token = prop::sample::select(vec![
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"a\"",
        "\"\\u00e9\"",
        "\"\\n\"",
        "1",
        "-2.5e3",
        "true",
        "false",
        "null",
        " ",
        "\n",
        "\"instances\"",
        "{\"inputs\":",
        "[1,2]",
        "}",
        "]",
        "01",
        "\"",
    ]);
    prop::collection::vec(token, 0..20).prop_map(|tokens| tokens.concat())
}
