//! The models of the tests: `m` with versions 1 and 2, of which 1 is called `old`, and `broken`,
//! which does not load.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use lifecycle::{
    Attempt, Child, LabelRule, Lifecycle, LoadError, Loader, ModelOptions, Options, Policy, Poll,
    Source, StartWhen, Target, Tree, VersionPolicy,
};
use proto::tensorflow::tensor_info::Encoding;
use proto::tensorflow::tensor_shape_proto::Dim;
use proto::tensorflow::{SignatureDef, TensorInfo, TensorShapeProto};
use session::{Endpoint, Servable, Signature, Weights};
use status::Code;
use tensor::{DType, Spec, Tensor};
use tokio_util::sync::CancellationToken;

use super::engine::{Fake, Gate};

/// Starts a lifecycle with the models, and waits for them.
pub(crate) async fn start(gate: &Gate, token: CancellationToken) -> Lifecycle<Servable> {
    let options = Options {
        poll: Poll::Once,
        settle: Duration::ZERO,
        complete_with: Vec::new(),
        n_looks_max: 4,
        look_timeout: Duration::from_secs(10),
        n_load_threads: 2,
        n_unload_threads: 1,
        load_retries_max: 0,
        load_retry_rule: lifecycle::RetryRule::All,
        load_retry_first: Duration::ZERO,
        load_retry_interval: Duration::ZERO,
        missing: lifecycle::Missing::Fails,
        label_rule: LabelRule::Anywhere,
        start_when: StartWhen::All,
    };
    let lifecycle = Lifecycle::start(options, Folders, Fakes(gate.clone()), token);
    let model = |name: &str, labels: &[(&str, i64)]| ModelOptions {
        name: name.to_owned(),
        base_path: format!("/models/{name}"),
        platform: "tensorflow".to_owned(),
        versions: VersionPolicy::All,
        policy: Policy::AvailabilityPreserving,
        labels: labels.iter().map(|(label, version)| ((*label).to_owned(), *version)).collect(),
    };
    let models = vec![model("m", &[("old", 1)]), model("broken", &[])];
    // The broken one does not become available.
    lifecycle.set_config(models).await.unwrap_err();
    // The others may still be loading: only the first version of each is waited for.
    let mut changes = lifecycle.models().changes();
    let is_there = |version| lifecycle.models().get(&Target::version("m", version)).is_ok();
    while !(is_there(1) && is_there(2)) {
        changes.changed().await.unwrap();
    }
    lifecycle
}

struct Folders;

impl Source for Folders {
    fn list(&self, base_path: &str) -> Result<Vec<Child>, LoadError> {
        let versions: &[&str] = if base_path == "/models/m" { &["1", "2"] } else { &["7"] };
        Ok(versions
            .iter()
            .map(|name| Child { name: (*name).to_owned(), is_folder: true })
            .collect())
    }

    fn tree(&self, _path: &str) -> Result<Tree, LoadError> {
        let modified = SystemTime::UNIX_EPOCH;
        Ok(Tree { fingerprint: 0, modified, names: vec!["saved_model.pb".to_owned()] })
    }

    fn check(&self, _path: &str) -> Result<(), LoadError> {
        Ok(())
    }
}

struct Fakes(Gate);

impl Loader for Fakes {
    type Servable = Servable;

    fn load(
        &self,
        model: &str,
        _version: i64,
        _path: &str,
        _attempt: &Attempt,
    ) -> Result<Servable, LoadError> {
        if model == "broken" {
            return Err(LoadError::new(Code::DataLoss, "the file is damaged"));
        }
        let signatures = signatures();
        Ok(Servable {
            signature_defs: signatures.iter().map(|(name, s)| (name.clone(), def(s))).collect(),
            signatures,
            refused: BTreeMap::from([(
                "refused".to_owned(),
                status::Status::unimplemented("op Odd is not supported"),
            )]),
            weights: Weights::default(),
            engine: Arc::new(Fake { gate: self.0.clone() }),
        })
    }
}

/// Signatures, written as name, method, inputs and outputs.
fn signatures() -> BTreeMap<String, Arc<Signature>> {
    let mut all: BTreeMap<String, Signature> = [
        ("serving_default", "predict", "x:float", "y:float"),
        ("gated", "predict", "x:float", "y:float"),
        ("two", "predict", "a:float b:float", "first:float sum:float"),
        ("bytes", "predict", "s:string", "s:string s_bytes:string"),
        ("counter", "predict", "", "n:float"),
        ("half", "predict", "x:float", "h:half"),
        ("regress", "regress", "inputs:string", "outputs:float"),
        ("wide", "regress", "inputs:string", "outputs:float"),
        ("classify", "classify", "inputs:string", "scores:float"),
        ("labels", "classify", "inputs:string", "classes:string scores:float"),
        ("panics", "predict", "x:float", "y:float"),
        ("full", "predict", "x:float", "y:float"),
        ("wrong", "odd", "x:float", "y:float"),
    ]
    .into_iter()
    .map(|(name, method, inputs, outputs)| {
        let signature = Signature {
            name: name.to_owned(),
            method: format!("tensorflow/serving/{method}"),
            inputs: endpoints(inputs),
            outputs: endpoints(outputs),
            defaults: BTreeMap::new(),
        };
        (name.to_owned(), signature)
    })
    .collect();
    let two = all.get_mut("two").unwrap();
    two.defaults.insert("b".to_owned(), Tensor::vector(&[10f32]).unwrap());
    all.into_iter().map(|(name, signature)| (name, Arc::new(signature))).collect()
}

fn endpoints(text: &str) -> BTreeMap<String, Endpoint> {
    let endpoint = |text: &str| {
        let (name, dtype) = text.split_once(':').unwrap();
        let dtype = DType::all().find(|known| known.name() == dtype).unwrap();
        let endpoint = Endpoint::new(format!("{name}:0"), Spec::unknown(dtype));
        (name.to_owned(), endpoint)
    };
    text.split_whitespace().map(endpoint).collect()
}

/// A signature as it would stand in a SavedModel.
fn def(signature: &Signature) -> SignatureDef {
    let tensor = |endpoint: &Endpoint| TensorInfo {
        encoding: Some(Encoding::Name(endpoint.tensor.clone())),
        dtype: endpoint.spec.dtype.number(),
        tensor_shape: Some(TensorShapeProto {
            dim: vec![Dim { size: -1, name: String::new() }],
            unknown_rank: false,
        }),
    };
    let tensors = |endpoints: &BTreeMap<String, Endpoint>| {
        endpoints.iter().map(|(alias, endpoint)| (alias.clone(), tensor(endpoint))).collect()
    };
    SignatureDef {
        inputs: tensors(&signature.inputs),
        outputs: tensors(&signature.outputs),
        method_name: signature.method.clone(),
        ..SignatureDef::default()
    }
}
