//! `Asset`: a file that a graph reads while it is initialised.

use prost::Message as _;
use proto::tensorflow as tf;
use proto::tensorflow::collection_def::Kind;
use proto::tensorflow::tensor_info::Encoding;
use storage::Storage;

use crate::error::{Error, Result};

/// A file of the model whose path is fed to a tensor of the graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asset {
    /// The tensor that takes the path, such as `Const:0`.
    pub tensor: String,
    /// The path relative to the model's directory, known to lie within it: `assets/vocab.txt`.
    pub path: String,
}

/// Reads the list of assets: from the meta graph (TF2), else from a collection (TF1).
pub(crate) fn read(dir: &Storage, graph: &tf::MetaGraphDef) -> Result<Vec<Asset>> {
    if !graph.asset_file_def.is_empty() {
        return graph.asset_file_def.iter().map(|def| asset(dir, def)).collect();
    }
    let Some(collection) = graph.collection_def.get("saved_model_assets") else {
        return Ok(Vec::new());
    };
    let Some(Kind::AnyList(list)) = &collection.kind else { return Ok(Vec::new()) };
    let defs = list.value.iter().map(|any| {
        tf::AssetFileDef::decode(any.value.as_ref()).map_err(|err| Error::AssetDef {
            file: "saved_model_assets".to_owned(),
            reason: err.to_string(),
        })
    });
    defs.map(|def| asset(dir, &def?)).collect()
}

fn asset(dir: &Storage, def: &tf::AssetFileDef) -> Result<Asset> {
    let unbound =
        || Error::AssetDef { file: def.filename.clone(), reason: "it has no tensor".to_owned() };
    let encoding = def.tensor_info.as_ref().and_then(|info| info.encoding.as_ref());
    let Some(Encoding::Name(tensor)) = encoding else { return Err(unbound()) };
    if tensor.is_empty() {
        return Err(unbound());
    }
    let failed = |source| Error::Asset { tensor: tensor.clone(), source };
    let folder = dir.dir("assets").map_err(failed)?;
    folder.open_file(&def.filename).map_err(failed)?;
    Ok(Asset { tensor: tensor.clone(), path: format!("assets/{}", def.filename) })
}
