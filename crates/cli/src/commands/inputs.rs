//! Inputs made from a signature, for measuring.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use native::Loaded;
use session::{Endpoint, Run};
use tensor::{DType, Shape, Strings, Tensor};

/// A run of a signature: on the tensors of an archive (.npz) where it has them, else on made-up
/// inputs of `batch` rows.
pub(super) fn run(
    loaded: &Loaded,
    signature: &str,
    batch: usize,
    archive: Option<&Path>,
) -> Result<Run> {
    let names = || loaded.servable.signatures.keys().map(String::as_str).collect::<Vec<_>>();
    let none = || format!("no signature {signature}; there are {}", names().join(", "));
    let signature = loaded.servable.signature(signature).with_context(none)??;
    let mut given = archive.map(crate::npz::read).transpose()?.unwrap_or_default();
    let inputs = signature.inputs.iter().map(|(alias, endpoint)| match given.remove(alias) {
        Some(tensor) => Ok(tensor),
        None => input(endpoint, batch),
    });
    let inputs = inputs.collect::<Result<_>>()?;
    if let Some(other) = given.keys().next() {
        let (name, known) = (&signature.name, signature.inputs.keys().cloned());
        let known = known.collect::<Vec<_>>().join(", ");
        bail!("the archive has {other}, but signature {name} has the inputs {known}");
    }
    Ok(Run {
        signature: signature.name.clone(),
        inputs,
        outputs: (0..signature.outputs.len()).collect(),
        deadline: None,
        level: None,
        is_cancelled: Arc::default(),
    })
}

/// A tensor that an input accepts: the first dimension is the batch if it is unknown, others that
/// are unknown are 1.
pub(super) fn input(endpoint: &Endpoint, batch: usize) -> Result<Tensor> {
    let spec = &endpoint.spec;
    let dims = spec.dims().with_context(|| {
        let tensor = &endpoint.tensor;
        format!("input {tensor} has no shape to make a tensor of: give --inputs FILE.npz")
    })?;
    let size =
        |(i, dim): (usize, &tensor::Dim)| dim.size().unwrap_or(if i == 0 { batch } else { 1 });
    let shape = Shape::of(&dims.iter().enumerate().map(size).collect::<Vec<_>>());
    let n = shape.n_elements();
    let tensor = match spec.dtype {
        // An empty string is a valid `Example` too.
        DType::String => Tensor::from_strings(shape, Strings::repeated(b"", n)?),
        DType::F32 => Tensor::from_slice(shape, &floats(n)),
        DType::I32 => Tensor::from_slice(shape, &vec![1i32; n]),
        DType::I64 => Tensor::from_slice(shape, &vec![1i64; n]),
        dtype if dtype.is_plain() => Tensor::zeros(dtype, shape),
        dtype => bail!("inputs of dtype {dtype} cannot be made up"),
    };
    Ok(tensor?)
}

/// Numbers between -1 and 1, the same each time.
#[expect(clippy::cast_precision_loss, reason = "24 bits fit")]
fn floats(n: usize) -> Vec<f32> {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..n).map(|_| next()).collect()
}
