use super::*;

use std::alloc::System;

use prost::Message;
use proto::serving::{
    ClassificationRequest, Input, ModelSpec, MultiInferenceRequest, PredictRequest, input,
};
use proto::tensorflow::tensor_shape_proto::Dim;
use proto::tensorflow::{TensorProto, TensorShapeProto};

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

/// Counts what decoding takes. It counts all threads: each test has a process of its own.
#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const PREDICT: &str = "/tensorflow.serving.PredictionService/Predict";

fn estimate(path: &str, bytes: &[u8]) -> Result<usize, Malformed> {
    expansion(&mut &*bytes, shapes().request(path).expect("the method is known"))
}

/// Checks the bytes that one more of something adds.
#[track_caller]
fn check_each(add: impl Fn(&mut PredictRequest, usize), least: usize, most: usize) {
    let cost = |count| {
        let mut request = PredictRequest::default();
        request.inputs.insert("x".to_owned(), TensorProto::default());
        add(&mut request, count);
        estimate(PREDICT, &request.encode_to_vec()).unwrap()
    };
    let each = (cost(1200) - cost(200)) / 1000;
    assert!((least..=most).contains(&each), "{each}");
}

fn x(request: &mut PredictRequest) -> &mut TensorProto {
    request.inputs.get_mut("x").unwrap()
}

#[test]
fn parts_that_grow_are_counted_wherever_they_are() {
    let tensor = size_of::<TensorProto>();
    check_each(|r, n| x(r).string_val = vec![Default::default(); n], 96, 192);
    check_each(|r, n| r.output_filter = vec!["".to_owned(); n], 72, 128);
    check_each(
        |r, n| {
            let named = |n| (format!("{n:04}"), TensorProto::default());
            r.inputs.extend((0..n).map(named));
        },
        2 * tensor,
        8 * tensor,
    );
    check_each(
        |r, n| {
            let dim = vec![Dim { size: 1, name: String::new() }; n];
            x(r).tensor_shape = Some(TensorShapeProto { dim, unknown_rank: false });
        },
        3 * size_of::<Dim>(),
        8 * size_of::<Dim>(),
    );
    check_each(|r, n| x(r).float_val = vec![1.0; n], 12, 12);
    check_each(|r, n| x(r).int64_val = vec![1; n], 24, 24);
    check_each(|r, n| x(r).int64_val = vec![-1; n], 24, 24);
    check_each(|r, n| x(r).bool_val = vec![true; n], 3, 3);
    check_each(|r, n| x(r).tensor_content = vec![1; n].into(), 0, 0);
}

#[test]
fn every_method_of_ours_is_known() {
    for path in [
        PREDICT,
        "/tensorflow.serving.PredictionService/PredictStreamed",
        "/tensorflow.serving.PredictionService/Classify",
        "/tensorflow.serving.PredictionService/Regress",
        "/tensorflow.serving.PredictionService/MultiInference",
        "/tensorflow.serving.PredictionService/GetModelMetadata",
        "/tensorflow.serving.ModelService/GetModelStatus",
        "/tensorflow.serving.ModelService/HandleReloadConfigRequest",
    ] {
        assert_eq!(estimate(path, &[]), Ok(0), "{path}");
    }
}

/// A request with a tensor of many strings, behind some bytes.
fn behind(prefix: &[u8]) -> Result<usize, Malformed> {
    let mut request = PredictRequest::default();
    let strings = TensorProto { string_val: vec![Default::default(); 1000], ..Default::default() };
    request.inputs.insert("x".to_owned(), strings);
    let bytes = [prefix, &request.encode_to_vec()].concat();
    let decoded = PredictRequest::decode(&*bytes);
    let estimate = estimate(PREDICT, &bytes);
    assert_eq!(decoded.is_ok(), estimate.is_ok(), "{prefix:?}: {decoded:?}");
    estimate
}

#[test]
fn unknown_fields_and_groups_hide_nothing() {
    let plain = behind(&[]).unwrap();
    assert!(plain > 100_000);
    let nested = |n: usize| [[0xAB, 0x06].repeat(n), [0xAC, 0x06].repeat(n)].concat();
    for prefix in [
        &[0xAB, 0x06, 0xAC, 0x06][..],            // An empty group.
        &[0x1B, 0x08, 0x01, 0x1C],                // A group with the number of a string field 3.
        &[0xAB, 0x06, 0x12, 0x02, 1, 2, 0xAC, 6], // A group with a field in it.
        &[0xA0, 0x86, 0x80, 0x80, 0x00, 0x01],    // A key in more bytes than it needs.
        &[0xA0, 0x06, 0x81, 0x80, 0x80, 0x80, 0], // A number likewise.
        &[0xA1, 0x06, 1, 2, 3, 4, 5, 6, 7, 8],    // Eight bytes.
        &[0xA5, 0x06, 1, 2, 3, 4],                // Four bytes.
        &nested(3),
        &nested(50),
    ] {
        match behind(prefix) {
            Ok(cost) => assert!(cost >= plain, "{prefix:?}: {cost} of {plain}"),
            Err(Malformed) => assert_eq!(prefix[0], 0x1B, "{prefix:?}"),
        }
    }
}

#[test]
fn malformed_messages_are_refused() {
    let nested = |n: usize| [[0xAB, 0x06].repeat(n), [0xAC, 0x06].repeat(n)].concat();
    for prefix in [
        &[0xFF; 20][..],
        &[0x0B],
        &[0x0C],
        &[0x00, 0x00],
        &[0x12, 0xFF, 0xFF, 0xFF, 0x7F],
        &[0xAB, 0x06, 0xB4, 0x06],
        &[0x12, 0x02, 0x12, 0x05, 0x12],
        &[0x06],
        &nested(200),
        &nested(100_000)[..1000],
    ] {
        assert_eq!(behind(prefix), Err(Malformed), "{prefix:?}");
    }
}

/// A fixed sequence of numbers that look random.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % n
    }
}

/// Requests that have something of everything.
fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let mut tensor = TensorProto { dtype: 1, ..TensorProto::default() };
    tensor.string_val = vec![vec![7; 3].into(); 4];
    tensor.int64_val = vec![1, -1, 300];
    tensor.float_val = vec![0.5; 5];
    tensor.variant_val = vec![Default::default(); 2];
    tensor.variant_val[0].tensors = vec![TensorProto::default(); 2];
    let dim = vec![Dim { size: 4, name: "rows".to_owned() }; 2];
    tensor.tensor_shape = Some(TensorShapeProto { dim, unknown_rank: false });
    let spec = ModelSpec { name: "m".to_owned(), ..ModelSpec::default() };
    let predict = PredictRequest {
        model_spec: Some(spec.clone()),
        inputs: [("x".to_owned(), tensor.clone()), ("y".to_owned(), tensor)].into(),
        output_filter: vec!["z".to_owned(); 3],
        ..PredictRequest::default()
    };
    let feature = proto::tensorflow::Feature {
        kind: Some(proto::tensorflow::feature::Kind::BytesList(proto::tensorflow::BytesList {
            value: vec![vec![1; 2].into(); 3],
        })),
    };
    let features = proto::tensorflow::Features {
        feature: [("a".to_owned(), feature.clone()), ("b".to_owned(), feature)].into(),
    };
    let example = proto::tensorflow::Example { features: Some(features) };
    let list = proto::serving::ExampleList { examples: vec![example; 3] };
    let input = Some(Input { kind: Some(input::Kind::ExampleList(list)) });
    let classify = ClassificationRequest { model_spec: Some(spec.clone()), input: input.clone() };
    let task =
        proto::serving::InferenceTask { model_spec: Some(spec), method_name: "c".to_owned() };
    let multi = MultiInferenceRequest { tasks: vec![task; 2], input };
    vec![
        (PREDICT, predict.encode_to_vec()),
        ("/tensorflow.serving.PredictionService/Classify", classify.encode_to_vec()),
        ("/tensorflow.serving.PredictionService/MultiInference", multi.encode_to_vec()),
    ]
}

/// Changes bytes, repeats stretches of them, cuts some out.
fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len().max(1));
        match random.below(4) {
            0 if !bytes.is_empty() => bytes[at] = u8::try_from(random.below(256)).unwrap(),
            1 => bytes.insert(at, u8::try_from(random.below(256)).unwrap()),
            2 => {
                let end = (at + 1 + random.below(8)).min(bytes.len());
                bytes.drain(at.min(end)..end);
            }
            _ => {
                let end = (at + 1 + random.below(16)).min(bytes.len());
                let stretch = bytes[at.min(end)..end].repeat(1 + random.below(300));
                bytes.splice(at..at, stretch);
            }
        }
    }
}

/// A field that has a length.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    prost::encoding::encode_varint(bytes.len() as u64, &mut out);
    out.extend_from_slice(bytes);
    out
}

/// Some of these in any order, each a number of times.
fn some(random: &mut Random, times_max: usize, parts: &[Vec<u8>]) -> Vec<u8> {
    let mut all = Vec::new();
    for _ in 0..random.below(6) {
        let times = 1 + random.below(times_max);
        all.extend(parts[random.below(parts.len())].repeat(times));
    }
    all
}

/// A `PredictRequest` of anything that may be in one, and that prost decodes.
fn random_request(random: &mut Random) -> Vec<u8> {
    let group = vec![0xAB, 0x06, 0x12, 0x02, 1, 2, 0xAC, 0x06];
    let unpacked = vec![10 << 3, 0x81, 0x80, 0x00];
    let mut entries = Vec::new();
    for number in 0..1 + random.below(4) {
        let dims = some(random, 40, &[field(2, b""), field(2, &field(2, b"rows")), group.clone()]);
        let variant =
            some(random, 9, &[field(1, b"type"), field(3, &field(8, b"")), field(3, b"")]);
        let parts = [
            field(8, b""),
            field(8, b"a string"),
            field(10, &[1, 0x80, 0x01, 0]),
            unpacked.clone(),
            field(5, &[0; 16]),
            field(11, &[1; 9]),
            field(2, &dims),
            field(15, &variant),
            group.clone(),
        ];
        let tensor = some(random, 20, &parts);
        let key = [b'k', u8::try_from(random.below(200)).unwrap() % 128];
        let twice = if number % 2 == 0 { Vec::new() } else { field(2, b"") };
        entries.push([field(2, &[field(1, &key), field(2, &tensor), twice].concat())].concat());
    }
    entries.extend([field(3, b"filter"), field(2, b""), group]);
    some(random, 4, &entries)
}

#[test]
fn requests_of_any_parts_take_no_more_than_was_estimated() {
    let mut random = Random(7);
    let mut n_bytes = 0;
    for _ in 0..500 {
        let bytes = bytes::Bytes::from(random_request(&mut random));
        let estimated = estimate(PREDICT, &bytes).expect("it can be decoded");
        let region = Region::new(HEAP);
        let decoded = PredictRequest::decode(bytes.clone());
        let peak = region.change().bytes_allocated;
        assert!(decoded.is_ok(), "{decoded:?}");
        assert!(peak <= estimated + 256, "{peak} > {estimated}: {bytes:?}");
        n_bytes += peak;
    }
    assert!(n_bytes > 1_000_000, "{n_bytes} bytes were decoded");
}

#[test]
fn messages_that_are_decoded_take_no_more_than_was_estimated() {
    let mut random = Random(1);
    let mut n_decoded = 0;
    for (path, seed) in seeds() {
        for _ in 0..4000 {
            let mut bytes = seed.clone();
            mutate(&mut bytes, &mut random);
            let estimated = estimate(path, &bytes);
            let shared = bytes::Bytes::from(bytes.clone());
            let region = Region::new(HEAP);
            let is_decoded = match path.rsplit('/').next() {
                Some("Predict") => PredictRequest::decode(shared).is_ok(),
                Some("Classify") => ClassificationRequest::decode(shared).is_ok(),
                _ => MultiInferenceRequest::decode(shared).is_ok(),
            };
            // All that was ever taken, which is no less than was held at once.
            let peak = region.change().bytes_allocated;
            if is_decoded {
                n_decoded += 1;
                let estimated = estimated.expect("what prost decodes is followed");
                // The error that a message may end with takes something too.
                assert!(peak <= estimated + 256, "{path} {peak} > {estimated}: {bytes:?}");
                // An entry of a map may be two bytes, and the same key again and again.
                assert!(estimated <= 2048 * bytes.len() + 16384, "{estimated} for {peak}");
            } else if let Ok(estimated) = estimated {
                assert!(peak <= estimated + 2048, "{path} {peak} > {estimated}: {bytes:?}");
            }
        }
    }
    assert!(n_decoded > 200, "{n_decoded} were decoded");
}
