//! Entry point of the fuzz target in `fuzz/`: requests in JSON that may hold anything.

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

use status::Status;
use tensor::{DType, Spec, Tensor};

use crate::predict::read_carefully;
use crate::{Input, Inputs, Request, write_outputs};

/// The dtypes of the signatures, each of which is named after the dtype of its one input.
const DTYPES: [DType; 12] = [
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
];

/// Reads the JSON of a `Predict`, in one pass and carefully. Both give the same. The signature
/// `all` has an input of each dtype.
pub fn json_predict(bytes: &[u8]) {
    let mut specs = DTYPES.map(|dtype| (dtype.short_name(), Spec::unknown(dtype)));
    specs.sort_by_key(|(name, _)| *name);
    let all = || specs.iter().map(|(name, spec)| Input { name, tensor: name, spec });
    let find = |name: &str| -> Result<(String, Inputs<'_>), Status> {
        if name == "all" {
            return Ok((name.to_owned(), Inputs::new(all())));
        }
        let one = all().find(|input| input.name == name).or_else(|| all().next());
        let inputs = Inputs::new(one.map(|input| Input { name: "x", ..input }));
        Ok((name.to_owned(), inputs))
    };
    match (Request::read(bytes, find), read_carefully(bytes, find)) {
        (Ok(usual), Ok(careful)) => {
            assert_eq!((usual.signature, usual.format), (careful.signature, careful.format));
            assert!(usual.inputs.keys().eq(careful.inputs.keys()));
            let pairs = usual.inputs.values().zip(careful.inputs.values());
            pairs.for_each(|(usual, careful)| assert_same(usual, careful));
            let outputs: Vec<(String, Tensor)> = usual.inputs.into_iter().collect();
            drop(write_outputs(&outputs, usual.format));
        }
        (Err(usual), Err(careful)) => assert_eq!(usual, careful),
        (usual, careful) => panic!("{usual:?} in one pass, {careful:?} carefully"),
    }
}

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
    use super::*;

    #[test]
    fn predict_requests_in_json_do_no_harm() {
        replay::replay("json_predict", json_predict);
    }
}
