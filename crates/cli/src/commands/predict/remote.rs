//! The same on a running server, over gRPC.

use std::collections::BTreeMap;

use anyhow::{Context, Result, anyhow};
use proto::serving::model_spec::VersionChoice;
use proto::serving::{ModelSpec, PredictRequest};
use tensor::{Layout, Tensor};

use super::given::{Given, Wanted, gather};
use super::{Answer, Predict};
use crate::commands::drive::client;

/// The most bytes that an answer's tensor may unfold to.
const ANSWER_BYTES_MAX: usize = 4 << 30;

/// Asks the server once.
pub(super) async fn predict(args: &Predict, target: &str) -> Result<Answer> {
    let mut server = client::connect(target).await?;
    let name = args.model.clone().context("--model is needed")?;
    let version_choice = args.model_version.map(VersionChoice::Version);
    let spec = ModelSpec { name, version_choice, signature_name: String::new() };
    let signatures = client::signatures(&mut server, &spec).await?;
    let signature = signatures.get(&args.signature).with_context(|| {
        let known = signatures.keys().cloned().collect::<Vec<_>>().join(", ");
        format!("no signature is called {}; there are {known}", args.signature)
    })?;
    let endpoints = signature
        .inputs
        .iter()
        .map(|(name, input)| client::endpoint(input).map(|endpoint| (name.clone(), endpoint)));
    let endpoints: BTreeMap<_, _> = endpoints.collect::<Result<_>>()?;
    let (wanted, none) = (&endpoints, BTreeMap::new());
    let Given { format, inputs } = gather(args, &Wanted { inputs: wanted, defaults: &none })?;
    let proto = |(name, tensor): (&String, &Tensor)| {
        Ok::<_, tensor::Error>((name.clone(), tensor.to_proto(Layout::Content)?))
    };
    let request = PredictRequest {
        model_spec: Some(ModelSpec { signature_name: args.signature.clone(), ..spec }),
        inputs: inputs.iter().map(proto).collect::<Result<_, _>>()?,
        ..PredictRequest::default()
    };
    let answer = server.predict(request).await;
    let answer = answer.map_err(|status| anyhow!("{:?}: {}", status.code(), status.message()))?;
    let outputs = answer.into_inner().outputs.into_iter().map(|(name, proto)| {
        Ok::<_, tensor::Error>((name, Tensor::from_proto(&proto, ANSWER_BYTES_MAX)?))
    });
    Ok((format, outputs.collect::<Result<_, _>>()?))
}
