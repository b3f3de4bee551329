//! The init op of a graph, by the rules of `tensorflow/cc/saved_model/loader_util.cc`.

use proto::tensorflow as tf;
use proto::tensorflow::collection_def::Kind;
use proto::tensorflow::tensor_info::Encoding;
use storage::Storage;

use crate::error::{Error, Result};

const SIGNATURE: &str = "__saved_model_init_op";
const COLLECTIONS: [&str; 2] = ["saved_model_main_op", "legacy_init_op"];

/// The name of the node that initialises the graph, if there is one.
pub(crate) fn op(dir: &Storage, graph: &tf::MetaGraphDef) -> Result<Option<String>> {
    if let Some(signature) = graph.signature_def.get(SIGNATURE) {
        let name = signature.outputs.get(SIGNATURE).and_then(|info| match &info.encoding {
            Some(Encoding::Name(name)) if !name.is_empty() => Some(name.clone()),
            _ => None,
        });
        let reason = || format!("Could not find output {SIGNATURE}");
        return name.map(Some).ok_or_else(|| Error::InitOp { reason: reason() });
    }
    let Some(collection) = COLLECTIONS.iter().find_map(|name| graph.collection_def.get(*name))
    else {
        return Ok(None);
    };
    match &collection.kind {
        Some(Kind::NodeList(list)) if list.value.len() == 1 => Ok(list.value.first().cloned()),
        _ => Err(Error::InitOp {
            reason: format!("Expected exactly one main op in : {}", dir.path().display()),
        }),
    }
}
