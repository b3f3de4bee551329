//! Entry points of the fuzz targets in `fuzz/`: requests that may hold anything.
//!
//! A target fails if reading panics, hangs or takes all memory, and where what is written is not
//! what is read again.

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use bytes::Bytes;
use prost::Message as _;
use proto::serving::{
    ClassificationRequest, GetModelMetadataRequest, GetModelStatusRequest, MultiInferenceRequest,
    PredictRequest, RegressionRequest, ReloadConfigRequest,
};
use session::{Endpoint, Signature};
use tensor::{DType, Layout, Shape, Spec, Tensor};

use crate::grpc::expansion;
use crate::rest::target as target_of;
use crate::{examples, predict as predict_of};

/// The most bytes that a tensor of a request may take.
const LIMIT_BYTES: usize = 16 << 20;

/// An error and its text take so much besides what was estimated for a message, and a message that
/// turns out to be wrong some more.
const SPARE_BYTES: usize = 256;
const SPARE_BYTES_OF_WRONG: usize = 2048;

/// Reads a `PredictRequest`. Its tensors are within the limit, and are the same when they are
/// written and read again.
pub fn predict(bytes: &[u8]) {
    let Ok(request) = PredictRequest::decode(Bytes::copy_from_slice(bytes)) else { return };
    for proto in request.inputs.values() {
        let Ok(tensor) = Tensor::from_proto(proto, LIMIT_BYTES) else { continue };
        assert!(tensor.n_bytes() <= LIMIT_BYTES, "{} bytes", tensor.n_bytes());
        for layout in [Layout::Values, Layout::Content] {
            let written = tensor.to_proto(layout).expect("a tensor that came can be sent");
            let again = Tensor::from_proto(&written, LIMIT_BYTES).expect("it was read before");
            assert_same(&tensor, &again);
        }
    }
    let filter = &request.output_filter;
    drop(predict_of::inputs(&SIGNATURE, request.inputs, filter, LIMIT_BYTES));
}

/// Reads the JSON of a `Classify`, and serializes its examples.
pub fn json_examples(bytes: &[u8]) {
    if let Ok((_, input)) = json::examples::read(bytes) {
        drop(examples::serialized(Some(input)));
    }
}

/// Reads the method, which ends at the first blank, and the target of an HTTP request.
pub fn target(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (method, path) = text.split_once(' ').unwrap_or(("GET", &text));
    let parsed = target_of::parse(method, path);
    assert!(parsed.is_err() || target_of::is_api(path), "{path:?} is no path of the API");
    drop(target_of::bare_model(path));
}

/// Reads a request of the method that the first byte chooses. Decoding takes no more memory than
/// was estimated; `measure` gives the bytes that a function took from the heap.
pub fn expansion(bytes: &[u8], measure: &dyn Fn(&mut dyn FnMut()) -> usize) {
    let Some((choice, message)) = bytes.split_first() else { return };
    let (path, decode) = METHODS[usize::from(*choice) % METHODS.len()];
    let shape = expansion::shapes().request(path).expect("the methods are our own");
    let estimated = expansion::expansion(&mut &*message, shape);
    let shared = Bytes::copy_from_slice(message);
    let mut is_decoded = false;
    let taken = measure(&mut || is_decoded = decode(shared.clone()));
    match estimated {
        Ok(bytes) => {
            let spare = if is_decoded { SPARE_BYTES } else { SPARE_BYTES_OF_WRONG };
            assert!(taken <= bytes + spare, "{path}: {taken} bytes, {bytes} were estimated");
        }
        Err(_) => assert!(!is_decoded, "{path}: a message that is refused can be decoded"),
    }
}

/// A method, and whether a message is a request of it.
type Method = (&'static str, fn(Bytes) -> bool);

const METHODS: &[Method] = &[
    ("/tensorflow.serving.PredictionService/Predict", |bytes| {
        PredictRequest::decode(bytes).is_ok()
    }),
    ("/tensorflow.serving.PredictionService/Classify", |bytes| {
        ClassificationRequest::decode(bytes).is_ok()
    }),
    ("/tensorflow.serving.PredictionService/Regress", |bytes| {
        RegressionRequest::decode(bytes).is_ok()
    }),
    ("/tensorflow.serving.PredictionService/MultiInference", |bytes| {
        MultiInferenceRequest::decode(bytes).is_ok()
    }),
    ("/tensorflow.serving.PredictionService/GetModelMetadata", |bytes| {
        GetModelMetadataRequest::decode(bytes).is_ok()
    }),
    ("/tensorflow.serving.ModelService/GetModelStatus", |bytes| {
        GetModelStatusRequest::decode(bytes).is_ok()
    }),
    ("/tensorflow.serving.ModelService/HandleReloadConfigRequest", |bytes| {
        ReloadConfigRequest::decode(bytes).is_ok()
    }),
];

/// The dtypes of the signature's inputs.
const DTYPES: [DType; 13] = [
    DType::F32,
    DType::F64,
    DType::F16,
    DType::BF16,
    DType::I8,
    DType::I32,
    DType::I64,
    DType::U8,
    DType::U32,
    DType::U64,
    DType::Bool,
    DType::String,
    DType::Complex64,
];

/// A signature with an input of each dtype, named after it, that a request may leave out.
static SIGNATURE: LazyLock<Signature> = LazyLock::new(|| {
    let named = |dtype: DType| {
        let name = dtype.short_name().to_owned();
        (name.clone(), Endpoint::new(format!("{name}:0"), Spec::unknown(dtype)))
    };
    let inputs: BTreeMap<String, Endpoint> = DTYPES.into_iter().map(named).collect();
    let zero = |dtype: DType| {
        let zero = Tensor::zeros(dtype, Shape::scalar()).expect("a scalar is small");
        (dtype.short_name().to_owned(), zero)
    };
    Signature {
        name: "all".to_owned(),
        method: String::new(),
        outputs: inputs.clone(),
        defaults: DTYPES.into_iter().map(zero).collect(),
        inputs,
    }
});

/// Asserts that two tensors are the same, bit for bit.
fn assert_same(one: &Tensor, other: &Tensor) {
    assert_eq!((one.dtype(), one.shape()), (other.dtype(), other.shape()));
    if one.dtype() == DType::String {
        assert_eq!(one.strings(), other.strings());
    } else {
        assert_eq!(one.view().bytes(), other.view().bytes());
    }
}

#[cfg(test)]
mod tests {
    use stats_alloc::{INSTRUMENTED_SYSTEM, Region};

    use super::*;

    #[test]
    fn predict_requests_do_no_harm() {
        replay::replay("predict", predict);
    }

    #[test]
    fn examples_in_json_do_no_harm() {
        replay::replay("json_examples", json_examples);
    }

    #[test]
    fn targets_do_no_harm() {
        replay::replay("target", target);
    }

    /// The tests of `expansion` have set the heap that is counted here.
    #[test]
    fn messages_take_no_more_than_was_estimated() {
        let measure = |decode: &mut dyn FnMut()| {
            let region = Region::new(&INSTRUMENTED_SYSTEM);
            decode();
            region.change().bytes_allocated
        };
        replay::replay("expansion", |bytes| expansion(bytes, &measure));
    }
}
