//! Requests and answers as texts. The texts of errors are TensorFlow Serving's.

mod properties;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use status::Status;
use tensor::{DType, Shape, Spec, Strings, Tensor};

use super::*;

/// The names, tensors and specs of some inputs.
type Known = Vec<(String, String, Spec)>;

/// Inputs such as `x:float y:string`.
fn signature(inputs: &str) -> Known {
    let input = |text: &str| {
        let (name, dtype) = text.split_once(':').unwrap();
        let dtype = DType::all().find(|known| known.name() == dtype).unwrap();
        (name.to_owned(), format!("{name}:0"), Spec::unknown(dtype))
    };
    inputs.split_whitespace().map(input).collect()
}

fn inputs_of(known: &Known) -> Inputs<'_> {
    Inputs::new(known.iter().map(|(name, tensor, spec)| Input { name, tensor, spec }))
}

/// A tensor as a short text, such as `float[2] 1 2`.
fn shown(tensor: &Tensor) -> String {
    fn all<T: std::fmt::Display>(values: impl IntoIterator<Item = T>) -> String {
        values.into_iter().fold(String::new(), |mut all, value| {
            write!(all, " {value}").unwrap();
            all
        })
    }
    let values = match tensor.dtype() {
        DType::F32 => all(tensor.as_slice::<f32>()),
        DType::F64 => all(tensor.as_slice::<f64>()),
        DType::I32 => all(tensor.as_slice::<i32>()),
        DType::I16 => all(tensor.as_slice::<i16>()),
        DType::I8 => all(tensor.as_slice::<i8>()),
        DType::U8 | DType::Bool => all(tensor.as_slice::<u8>()),
        DType::I64 => all(tensor.as_slice::<i64>()),
        DType::U32 => all(tensor.as_slice::<u32>()),
        DType::U64 => all(tensor.as_slice::<u64>()),
        DType::String => {
            all(tensor.strings().iter().map(|s| format!("{:?}", s.escape_ascii().to_string())))
        }
        other => panic!("{other}"),
    };
    format!("{}{}{values}", tensor.dtype(), tensor.shape())
}

/// Reads the inputs of a request in both readings, which must agree.
fn read(inputs: &str, text: &[u8]) -> Result<String, String> {
    let signature = signature(inputs);
    let find = |name: &str| match name {
        "" | "serving_default" => Ok(((), inputs_of(&signature))),
        _ => Err(Status::invalid(format!("no {name}"))),
    };
    let shown = |named: &BTreeMap<String, Tensor>| {
        let all: Vec<String> =
            named.iter().map(|(name, tensor)| format!("{name}={}", shown(tensor))).collect();
        all.join(" ")
    };
    let careful = predict::read_carefully(text, find).map(|request| shown(&request.inputs));
    if let Some((_, _, fast)) = fast::read(text, |name| find(name).ok()) {
        assert_eq!(Ok(shown(&fast)), careful, "{}", text.escape_ascii());
    }
    let request = Request::read(text, find).map(|request| shown(&request.inputs));
    assert_eq!(request, careful);
    request.map_err(|error| error.to_string())
}

#[track_caller]
fn check(inputs: &str, text: &str, expected: &str) {
    assert_eq!(read(inputs, text.as_bytes()).as_deref(), Ok(expected), "{text}");
    assert!(is_fast(inputs, text), "read twice: {text}");
}

/// As `check`, for what is unusual enough to be read twice.
#[track_caller]
fn check_slow(inputs: &str, text: &str, expected: &str) {
    assert_eq!(read(inputs, text.as_bytes()).as_deref(), Ok(expected), "{text}");
    assert!(!is_fast(inputs, text), "read once: {text}");
}

fn is_fast(inputs: &str, text: &str) -> bool {
    let signature = signature(inputs);
    fast::read(text.as_bytes(), |_| Some(((), inputs_of(&signature)))).is_some()
}

#[track_caller]
fn check_error(inputs: &str, text: &str, expected: &str) {
    let error = read(inputs, text.as_bytes()).expect_err(text);
    assert_eq!(error, expected, "{text}");
}

#[test]
fn rows_of_values_become_one_tensor() {
    check("x:float", r#"{"instances": [1, 2.5, -3e0]}"#, "x=float[3] 1 2.5 -3");
    check("x:float", r#"{"instances":[[1,2],[3,4],[5,6]]}"#, "x=float[3,2] 1 2 3 4 5 6");
    check("x:float", r#"{"instances":[[[1]],[[2]]]}"#, "x=float[2,1,1] 1 2");
    check("x:float", r#"{"instances":[[],[]]}"#, "x=float[2,0]");
    check("x:float", "{\n\t\"instances\" : [ 1 ,\r\n 2 ] } ignored", "x=float[2] 1 2");
    check("x:float", "\u{FEFF}{\"instances\":[1]}", "x=float[1] 1");
    check("x:float", r#"{"instances":[{"x":1},{"x":2}]}"#, "x=float[2] 1 2");
    check("x:float", r#"{"a":{"b":[null]},"instances":[1],"signature_name2":3}"#, "x=float[1] 1");
}

#[test]
fn rows_of_objects_have_all_inputs() {
    let text = r#"{"instances":[{"x":1,"y":["a"]},{"y":["b"],"x":2}]}"#;
    check("x:int32 y:string", text, r#"x=int32[2] 1 2 y=string[2,1] "a" "b""#);
    check_slow(
        "x:int32 y:string",
        r#"{"instances":[{"x":1,"y":"a"}],"signature_name":"serving_default"}"#,
        r#"x=int32[1] 1 y=string[1] "a""#,
    );
}

#[test]
fn columns_are_tensors() {
    check("x:float", r#"{"inputs": 7}"#, "x=float[] 7");
    check("x:float", r#"{"inputs": [7]}"#, "x=float[1] 7");
    check("x:float", r#"{"inputs": {"x": [[7]]}}"#, "x=float[1,1] 7");
    check("x:float", r#"{"inputs": []}"#, "x=float[0]");
    check("x:string", r#"{"inputs": {"b64":"aGk="}}"#, r#"x=string[] "hi""#);
    check("x:int64 y:bool", r#"{"inputs":{"y":[true,false],"x":5}}"#, "x=int64[] 5 y=bool[2] 1 0");
    check_slow("x:int64", r#"{"inputs":{"x":5,"z":[6,"a"],"x":7}}"#, "x=int64[] 5");
}

#[test]
fn elements_are_typed_by_the_signature() {
    check(
        "x:float",
        r#"{"inputs":[1e39,-1e39,1e-60,NaN,Infinity,-Infinity,Inf,-0,-0.0]}"#,
        "x=float[9] inf -inf 0 NaN inf -inf inf 0 -0",
    );
    check(
        "x:double",
        r#"{"inputs":[0.1,1e20,18446744073709551616]}"#,
        "x=double[3] 0.1 100000000000000000000 18446744073709552000",
    );
    check("x:int32", r#"{"inputs":[2147483647,-2147483648]}"#, "x=int32[2] 2147483647 -2147483648");
    check("x:int16", r#"{"inputs":[70000]}"#, "x=int16[1] 4464");
    check("x:int8", r#"{"inputs":[300]}"#, "x=int8[1] 44");
    check("x:uint8", r#"{"inputs":[-1]}"#, "x=uint8[1] 255");
    check("x:uint32", r#"{"inputs":[4294967295]}"#, "x=uint32[1] 4294967295");
    check("x:uint64", r#"{"inputs":[18446744073709551615]}"#, "x=uint64[1] 18446744073709551615");
    check("x:int64", r#"{"inputs":[-9223372036854775808]}"#, "x=int64[1] -9223372036854775808");
    check("x:bool", r#"{"inputs":[true,false]}"#, "x=bool[2] 1 0");
    let (escapes, utf8) =
        (r#"a\\\"\\\\/\\x08\\x0c\\n\\r\\t"#, r"\\xc3\\xa4\\xf0\\x9f\\x98\\x80\\x00");
    check(
        "x:string",
        r#"{"inputs":["a\"\\\/\b\f\n\r\tä😀\u0000", {"b64":"AP8"}, ""]}"#,
        &format!(r#"x=string[3] "{escapes}{utf8}" "\\x00\\xff" """#),
    );
}

#[test]
fn values_of_another_type_are_refused() {
    let one = |dtype: &str, value: &str, kind: &str, quoted: &str| {
        let expected = format!(
            "Failed to process element: 0 of 'instances' list. Error: INVALID_ARGUMENT: \
             JSON Value: {quoted} Type: {kind} is not of expected type: {dtype}"
        );
        let text = format!("{{\"instances\":[{value}]}}");
        check_error(&format!("x:{dtype}"), &text, &expected);
    };
    one("float", "true", "True", "true");
    one("float", "null", "Null", "null");
    one("float", r#""1""#, "String", r#""1""#);
    one("float", r#"{"b64":"AA"}"#, "Object", "{\n    \"b64\": \"AA\"\n}");
    one("int32", "2147483648", "Number", "2147483648");
    one("int32", "0.5", "Number", "0.5");
    one("int32", "1.0", "Number", "1.0");
    one("uint8", "4294967295", "Number", "4294967295");
    one("int64", "9223372036854775808", "Number", "9223372036854775808");
    one("uint64", "-1", "Number", "-1");
    one("bool", "1", "Number", "1");
    one("string", "1", "Number", "1");
    one("string", "false", "False", "false");
}

#[test]
fn the_element_that_is_wrong_is_named() {
    check_error(
        "x:float",
        r#"{"instances":[{"x":1},{"x":"a"}]}"#,
        "Failed to process element: 1 key: x of 'instances' list. Error: INVALID_ARGUMENT: \
         JSON Value: \"a\" Type: String is not of expected type: float",
    );
    check_error(
        "x:float",
        r#"{"instances":[{"z":1}]}"#,
        "Failed to process element: 0 key: z of 'instances' list. Error: INVALID_ARGUMENT: \
         JSON object: does not have named input: z",
    );
    check_error(
        "x:float y:float",
        r#"{"instances":[{"x":1}]}"#,
        "Failed to process element: 0 of 'instances' list. JSON object: {\n    \"x\": 1\n} keys \
         must be equal to: x,y",
    );
    check_error(
        "x:float",
        r#"{"instances":[{}]}"#,
        "Failed to process element: 0 of 'instances' list. JSON object: {} keys must be \
         equal to: x",
    );
    check_error(
        "x:half",
        r#"{"instances":[1]}"#,
        "Failed to process element: 0 of 'instances' list. Error: UNIMPLEMENTED: Conversion of \
         JSON Value: 1 to type: half",
    );
    check_error("x:half", r#"{"inputs":[1]}"#, "Conversion of JSON Value: 1 to type: half");
}

#[test]
fn instances_are_alike() {
    let first = "Failed to process element: 1 of 'instances' list. Error: INVALID_ARGUMENT: ";
    let one =
        |text: &str, expected: &str| check_error("x:float", text, &format!("{first}{expected}"));
    one(r#"{"instances":[[1,2],[3]]}"#, "Expecting tensor size: 2 but got: 1");
    one(r#"{"instances":[[1,2],[[3,4]]]}"#, "Expecting shape [2] but got: [1,2]");
    one(r#"{"instances":[1,[2]]}"#, "Expecting shape [] but got: [1]");
    one(r#"{"instances":[[[1,2]],[[3],[4]]]}"#, "Expecting shape [1,2] but got: [2,1]");
    check_error(
        "x:float",
        r#"{"instances":[1,{"x":2}]}"#,
        "Expecting value/list but got object at item 1 of input list",
    );
    check_error(
        "x:float",
        r#"{"instances":[{"x":2},[1]]}"#,
        "Expecting object but got list at item 1 of input list",
    );
    check_error(
        "x:float y:float",
        r#"{"instances":[1]}"#,
        "instances is a plain list, but expecting list of objects as multiple input tensors \
         required as per tensorinfo_map",
    );
}

#[test]
fn ragged_lists_are_refused_with_the_first_mistake_on_the_way() {
    check_error(
        "x:float",
        r#"{"inputs":[[1,2],[3]]}"#,
        "Encountered list at unexpected size: 1 at level: 1 expected size: 2",
    );
    check_error(
        "x:float",
        r#"{"inputs":[[1],[[2]]]}"#,
        "Encountered list at unexpected level: 2 expected < 2",
    );
    check_error(
        "x:float",
        r#"{"inputs":[[1],2]}"#,
        "JSON Value: 2 found at incorrect level: 2 in the JSON DOM. Expected at level: 2",
    );
    check_error(
        "x:float",
        r#"{"inputs":[1,[2]]}"#,
        "Encountered list at unexpected level: 1 expected < 1",
    );
    // A list of the wrong size is noticed before what is wrong inside it.
    check_error(
        "x:float",
        r#"{"inputs":[[1,2],["a"]]}"#,
        "Encountered list at unexpected size: 1 at level: 1 expected size: 2",
    );
    check_error(
        "x:float",
        r#"{"inputs":[[],[1]]}"#,
        "Encountered list at unexpected size: 1 at level: 1 expected size: 0",
    );
    check_error(
        "x:float y:float",
        r#"{"inputs":[1]}"#,
        "inputs is a plain value/list, but expecting an object as multiple input tensors \
         required as per tensorinfo_map",
    );
    check_error(
        "x:float y:float",
        r#"{"inputs":{"x":1}}"#,
        "Missing named input: y in 'inputs' object.",
    );
}

#[test]
fn base64_is_an_object_of_one_string() {
    check(
        "x:string",
        r#"{"instances":[{"b64":""},{"b64":"YQ=="},"b"]}"#,
        r#"x=string[3] "" "a" "b""#,
    );
    let first = "Failed to process element: 0 of 'instances' list. Error: INVALID_ARGUMENT: ";
    check_error(
        "x:string",
        r#"{"instances":[{"b64":"YQ="}]}"#,
        &format!("{first}Unable to base64 decode"),
    );
    check_error(
        "x:string",
        r#"{"instances":[{"b64":"Y-_Q"}]}"#,
        &format!("{first}Unable to base64 decode"),
    );
    check_error(
        "x:string",
        r#"{"inputs":[{"b64":1}]}"#,
        "JSON Value: {\n    \"b64\": 1\n} not formatted correctly for base64 data",
    );
    check_error(
        "x:string",
        r#"{"inputs":[{"b64":"","c":1}]}"#,
        "JSON Value: {\n    \"b64\": \"\",\n    \"c\": 1\n} not formatted correctly for \
         base64 data",
    );
}

#[test]
fn requests_have_instances_or_inputs_and_maybe_a_signature() {
    check_error("x:float", "{}", "Missing 'inputs' or 'instances' key");
    check_error(
        "x:float",
        r#"{"inputs":1,"instances":[1]}"#,
        "JSON Value: {\n    \"inputs\": 1,\n    \"instances\": [1]\n} Not formatted correctly \
         expecting only one of 'inputs' or 'instances' keys to exist ",
    );
    check_error(
        "x:float",
        r#"{"instances":1}"#,
        "JSON Value: {\n    \"instances\": 1\n} Expecting 'instances' to be an list/array",
    );
    check_error(
        "x:float",
        r#"{"instances":[]}"#,
        "JSON Value: {\n    \"instances\": []\n} No values in 'instances' array",
    );
    check_error(
        "x:float",
        r#"{"signature_name":[],"instances":[1]}"#,
        "JSON Value: {\n    \"signature_name\": [],\n    \"instances\": [1]\n} not formatted \
         correctly. 'signature_name' key must be a string value.",
    );
    check_error("x:float", "[1]", "JSON Value: [1] Is not object");
    check_error("x:float", "5 x", "JSON Value: 5 Is not object");
    check_error("x:float", r#"{"instances":[1],"signature_name":"other"}"#, "no other");
    check_error("", r#"{"instances":[1]}"#, "Failed to get input map for signature: DEFAULT");
    check("x:float", r#"{"signature_name":"serving_default","instances":[1]}"#, "x=float[1] 1");
    // The first of two members counts.
    check_slow("x:float", r#"{"instances":[1],"instances":[2]}"#, "x=float[1] 1");
    check_slow(
        "x:float",
        r#"{"signature_name":"","signature_name":5,"instances":[1]}"#,
        "x=float[1] 1",
    );
    check("x:float", r#"{"inst\u0061nces":[1]}"#, "x=float[1] 1");
}

#[test]
fn mistakes_in_the_text_come_first_and_have_an_offset() {
    let one = |text: &str, expected: &str| {
        check_error("x:float", text, &format!("JSON Parse error: {expected}"));
    };
    one("", "The document is empty");
    one("  ", "The document is empty. at offset: 2");
    one("]", "The document is empty. at offset: 0");
    one("{", "Missing a name for object member. at offset: 1");
    one("{1:2}", "Missing a name for object member. at offset: 1");
    one(r#"{"a":1,}"#, "Missing a name for object member. at offset: 7");
    one(r#"{"a" 1}"#, "Missing a colon after a name of object member. at offset: 5");
    one(r#"{"a":1 "b":2}"#, "Missing a comma or } after an object member. at offset: 7");
    one(r#"{"a":1]"#, "Missing a comma or } after an object member. at offset: 6");
    one(r#"{"a":}"#, "Invalid value. at offset: 5");
    one(r#"{"instances":[1 2]}"#, "Missing a comma or ] after an array element. at offset: 16");
    one(r#"{"instances":[1,]}"#, "Invalid value. at offset: 16");
    one(r#"{"instances":[,1]}"#, "Invalid value. at offset: 14");
    one(r#"{"instances":[01]}"#, "Missing a comma or ] after an array element. at offset: 15");
    one(r#"{"instances":[1"#, "Missing a comma or ] after an array element. at offset: 15");
    one(r#"{"instances":[tru]}"#, "Invalid value. at offset: 17");
    one(r#"{"instances":["a]}"#, "Missing a closing quotation mark in string. at offset: 18");
    one("{\"instances\":[\"a\nb\"]}", "Invalid escape character in string. at offset: 16");
    one(r#"{"instances":["\x"]}"#, "Invalid escape character in string. at offset: 15");
    one(
        r#"{"instances":["\u12g4"]}"#,
        "Incorrect hex digit after \\u escape in string. at offset: 15",
    );
    one(r#"{"instances":["\ud800"]}"#, "The surrogate pair in string is invalid. at offset: 15");
    one(r#"{"instances":["\udc00"]}"#, "The surrogate pair in string is invalid. at offset: 15");
    one(
        r#"{"instances":["\ud800\u0041"]}"#,
        "The surrogate pair in string is invalid. at offset: 15",
    );
    one(r#"{"instances":[1e999]}"#, "Number too big to be stored in double. at offset: 14");
    one(r#"{"instances":[1.]}"#, "Miss fraction part in number. at offset: 16");
    one(r#"{"instances":[1e]}"#, "Miss exponent in number. at offset: 16");
    one("{\"instances\":[1\0]}", "Missing a comma or ] after an array element. at offset: 15");
    one("\u{FEFF}x", "Invalid value. at offset: 3");
    // Even where another mistake stands before it.
    one(
        r#"{"signature_name":5,"instances":["a",1"#,
        "Missing a comma or ] after an array element. at offset: 38",
    );
}

#[test]
fn depth_costs_no_stack() {
    let open = "[".repeat(500_000);
    let close = "]".repeat(500_000);
    check("x:int32", &format!("{{\"instances\":[1],\"nested\":{open}{close}}}"), "x=int32[1] 1");
    let text = format!("{{\"signature_name\":{open}{close}}}");
    let error = read("x:int32", text.as_bytes()).unwrap_err();
    assert!(error.ends_with("'signature_name' key must be a string value."));
    let error =
        read("x:int32", format!("{{\"instances\":{open}1{close}}}").as_bytes()).unwrap_err();
    assert!(error.contains("254 dimensions"), "{error}");
    let error = read("x:int32", format!("{{\"inputs\":{open}").as_bytes()).unwrap_err();
    assert_eq!(error, "JSON Parse error: Invalid value. at offset: 500010");
    let objects = "{\"a\":".repeat(200_000);
    let error = read("x:int32", format!("{{\"inputs\":{objects}").as_bytes()).unwrap_err();
    assert_eq!(error, "JSON Parse error: Invalid value. at offset: 1000010");
}

#[test]
fn bytes_that_are_no_utf8_pass_through() {
    let mut text = b"{\"instances\":[\"".to_vec();
    text.extend_from_slice(b"\xff\xfe\"]}");
    assert_eq!(read("x:string", &text).unwrap(), r#"x=string[1] "\\xff\\xfe""#);
}

#[track_caller]
fn check_written(outputs: &[(&str, Tensor)], format: Format, expected: &str) {
    let outputs: Vec<(String, Tensor)> =
        outputs.iter().map(|(name, tensor)| ((*name).to_owned(), tensor.clone())).collect();
    let written = write_outputs(&outputs, format).map_err(|error| error.to_string());
    let written = written.map(|bytes| String::from_utf8(bytes).unwrap());
    assert_eq!(written.unwrap_or_else(|error| format!("error: {error}")), expected);
}

fn floats(dims: &[usize], values: &[f32]) -> Tensor {
    Tensor::from_slice(Shape::of(dims), values).unwrap()
}

#[test]
fn rows_are_written_on_one_line_but_for_the_last_bracket() {
    let rows = |tensor: &Tensor, expected: &str| {
        check_written(&[("y", tensor.clone())], Format::Row, expected);
    };
    rows(&floats(&[2], &[2.5, 3.0]), "{\n    \"predictions\": [2.5, 3.0\n    ]\n}");
    rows(&floats(&[2, 1], &[2.5, 3.0]), "{\n    \"predictions\": [[2.5], [3.0]\n    ]\n}");
    rows(&floats(&[0, 3], &[]), "{\n    \"predictions\": []\n}");
    rows(&floats(&[2, 0], &[]), "{\n    \"predictions\": [[], []\n    ]\n}");
    rows(&floats(&[], &[1.0]), "error: Tensor name: y has no shape information ");
}

#[test]
fn several_outputs_are_objects() {
    let two = [("a", floats(&[2, 2], &[1., 2., 3., 4.])), ("b", floats(&[2], &[5., 6.]))];
    check_written(
        &two,
        Format::Row,
        "{\n    \"predictions\": [\n        {\n            \"a\": [1.0, 2.0],\n            \
         \"b\": 5.0\n        },\n        {\n            \"a\": [3.0, 4.0],\n            \
          \"b\": 6.0\n        }\n    ]\n}",
    );
    check_written(
        &two[1..],
        Format::Columnar,
        "{\n    \"outputs\": [\n        5.0,\n        6.0\n    ]\n}",
    );
    let scalars = [("a", floats(&[], &[1.])), ("b", floats(&[1], &[2.]))];
    check_written(
        &scalars,
        Format::Columnar,
        concat!(
            "{\n    \"outputs\": {\n        \"a\": 1.0,\n",
            "        \"b\": [\n            2.0\n        ]\n    }\n}"
        ),
    );
    let unequal = [("a", floats(&[1], &[1.])), ("b", floats(&[2], &[2., 3.]))];
    check_written(
        &unequal,
        Format::Row,
        "error: Tensor name: b has inconsistent batch size: 2 expecting: 1",
    );
    check_written(&[], Format::Row, "error: Cannot convert empty tensor map to JSON");
}

#[test]
fn strings_are_escaped_and_bytes_are_base64() {
    let strings = Strings::collect([&b"a\"\\/\n\x01"[..], "ä".as_bytes()]).unwrap();
    let strings = Tensor::from_strings(Shape::of(&[2]), strings).unwrap();
    check_written(
        &[("s", strings.clone())],
        Format::Row,
        "{\n    \"predictions\": [\"a\\\"\\\\/\\n\\u0001\", \"ä\"\n    ]\n}",
    );
    check_written(
        &[("s_bytes", strings)],
        Format::Row,
        "{\n    \"predictions\": [{\n            \"b64\": \"YSJcLwoB\"\n        }, {\n            \
         \"b64\": \"w6Q=\"\n        }\n    ]\n}",
    );
}

#[test]
fn types_without_json_are_refused() {
    let half = Tensor::zeros(DType::F16, Shape::of(&[1])).unwrap();
    check_written(
        &[("y", half)],
        Format::Row,
        "error: Failed to write JSON value for tensor type: half",
    );
    let huge = Tensor::zeros(DType::F32, Shape::of(&[1 << 30, 0])).unwrap();
    check_written(
        &[("y", huge)],
        Format::Columnar,
        "error: Tensor name: y is 1073741824 empty lists",
    );
}
