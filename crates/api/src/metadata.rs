//! `GetModelMetadata`: the signatures of a model.

use prost::Message as _;
use prost_types::Any;
use proto::serving::{GetModelMetadataRequest, GetModelMetadataResponse, SignatureDefMap};
use status::Status;

use crate::call::{Call, answered};
use crate::context::Context;

const SIGNATURES: &str = "signature_def";

/// The metadata that a request asks for.
pub(crate) fn metadata(
    context: &Context,
    request: GetModelMetadataRequest,
) -> Result<GetModelMetadataResponse, Status> {
    if request.model_spec.is_none() {
        return Err(Status::invalid("Missing ModelSpec"));
    }
    if request.metadata_field.is_empty() {
        let text = "GetModelMetadataRequest must specify at least one metadata_field";
        return Err(Status::invalid(text));
    }
    if let Some(unknown) = request.metadata_field.iter().find(|field| *field != SIGNATURES) {
        return Err(Status::invalid(format!("Metadata field {unknown} is not supported")));
    }
    let call = Call::from_spec(request.model_spec, session::Urgency::default())?;
    let (version, signatures) = signatures(context, &call)?;
    let any = Any {
        type_url: "type.googleapis.com/tensorflow.serving.SignatureDefMap".to_owned(),
        value: signatures.encode_to_vec(),
    };
    Ok(GetModelMetadataResponse {
        model_spec: Some(answered(&call.target.model, version, "")),
        metadata: [(SIGNATURES.to_owned(), any)].into(),
    })
}

/// The version that a call means, and its signatures.
pub(crate) fn signatures(context: &Context, call: &Call) -> Result<(i64, SignatureDefMap), Status> {
    let servable = call.servable(context)?;
    let signature_def = servable.signature_defs.clone();
    Ok((servable.version(), SignatureDefMap { signature_def }))
}
