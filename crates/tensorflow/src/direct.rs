//! `Direct`: a model in this very process, to compare a worker with. Nothing is served this way.

use std::collections::BTreeMap;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;

use prost::Message as _;
use session::Servable;
use tensor::{DType, Shape, Tensor};

use crate::capi::{Api, Endpoints, Loading, Session, SessionRun, TfTensor};
use crate::error::{Error, Result};
use crate::options::Options;

/// A model in this process.
pub struct Direct {
    api: &'static Api,
    session: Session<'static>,
    signatures: BTreeMap<String, (Endpoints, Endpoints)>,
}

impl Direct {
    /// Loads the library for good, and a model with the signatures of one that a worker loaded.
    ///
    /// # Errors
    /// If the library or the model cannot be loaded.
    pub fn load(library: &Path, dir: &Path, like: &Servable, options: &Options) -> Result<Self> {
        let api: &'static Api = Box::leak(Box::new(Api::load(library)?));
        let config = options.session.encode_to_vec();
        let dir = dir.to_string_lossy();
        let loading = Loading { dir: &dir, tags: &options.tags, config: &config };
        let session = Session::load(api, &loading)?;
        let mut signatures = BTreeMap::new();
        for (name, signature) in &like.signatures {
            let names = |all: &BTreeMap<String, session::Endpoint>| {
                let names: Vec<String> = all.values().map(|one| one.tensor.clone()).collect();
                session.endpoints(&names)
            };
            let endpoints = (names(&signature.inputs)?, names(&signature.outputs)?);
            signatures.insert(name.clone(), endpoints);
        }
        Ok(Self { api, session, signatures })
    }

    /// Runs a signature on plain inputs where they lie, and copies its first output.
    ///
    /// # Errors
    /// If there is no such signature, an input is not plain, or TensorFlow refuses.
    pub fn run(&self, signature: &str, inputs: &[Tensor]) -> Result<Tensor> {
        let unknown = || Error::Malformed(format!("no signature is called {signature}"));
        let (feeds, fetches) = self.signatures.get(signature).ok_or_else(unknown)?;
        let wrapped = inputs.iter().map(|input| {
            if !input.dtype().is_plain() {
                return Err(Error::Malformed(format!("a {} is not plain", input.dtype())));
            }
            let bytes = NonNull::from(input.view().bytes());
            let keep = Arc::new(input.clone());
            // SAFETY: the bytes are those of the tensor that is kept. The library does not write to
            // what is fed, since it is not the only one that refers to it.
            unsafe { TfTensor::wrap(self.api, input.dtype(), &input.shape().to_i64(), bytes, keep) }
        });
        let wrapped: Vec<TfTensor<'_>> = wrapped.collect::<Result<_>>()?;
        let run = SessionRun { feeds, inputs: &wrapped, fetches, outputs: &[0], options: &[] };
        let outputs = self.session.run(&run)?;
        let malformed = || Error::Malformed("an output that is not plain".to_owned());
        let output = outputs.first().ok_or_else(malformed)?;
        let dtype = DType::from_number(output.dtype()).ok_or_else(malformed)?;
        let shape = Shape::checked(output.dims()).map_err(|_| malformed())?;
        Tensor::from_bytes(dtype, shape, output.bytes()).map_err(|_| malformed())
    }
}
