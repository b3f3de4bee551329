//! `SavedModel`: one meta graph of a SavedModel, and what belongs to it.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use prost::Message as _;
use proto::tensorflow as tf;
use storage::Storage;

use crate::assets::{self, Asset};
use crate::checkpoint::Checkpoint;
use crate::error::{Error, Result};
use crate::init;
use crate::restore::{self, Restore};
use crate::signature::{self, Signature};

/// Protobuf's own limit.
const BINARY_LIMIT_BYTES: u64 = i32::MAX as u64;
/// Reading text takes many times its length.
const TEXT_LIMIT_BYTES: u64 = 256 << 20;
/// The path of the checkpoint of a SavedModel.
pub(crate) const VARIABLES: &str = "variables/variables";

/// A meta graph of a SavedModel: its graph, its signatures, and what is to be done before they can
/// be run.
#[derive(Debug)]
pub struct SavedModel {
    /// The tags it was chosen by.
    pub tags: BTreeSet<String>,
    /// The tags of each meta graph in the SavedModel.
    pub tag_sets: Vec<BTreeSet<String>>,
    /// The version of TensorFlow that wrote it.
    pub tensorflow_version: String,
    /// The graph with its function library. Take it out with [`std::mem::take`] to own it; what
    /// restores variables is in it, so call [`SavedModel::restore`] before.
    pub graph: tf::GraphDef,
    /// The signatures that can be run, by name; without those that stand for the init and the train
    /// op.
    pub signatures: BTreeMap<String, Signature>,
    /// All signatures as they are in the file, for clients that ask for metadata.
    pub signature_defs: BTreeMap<String, tf::SignatureDef>,
    /// The definitions of the ops in the graph, as the exporter wrote them beside it.
    pub ops: tf::OpList,
    /// The collections of a graph of TF1.
    pub collections: BTreeMap<String, tf::CollectionDef>,
    /// The files that are fed to the graph while it is initialised.
    pub assets: Vec<Asset>,
    /// The node to be run once, after the variables are restored.
    pub init_op: Option<String>,
    /// The ops by which the variables are saved and restored.
    pub saver: Option<tf::SaverDef>,
    dir: Storage,
}

impl SavedModel {
    /// Reads the SavedModel in a directory, and chooses the meta graph that has exactly these tags.
    ///
    /// # Errors
    /// If there is no SavedModel, or none with these tags; if it is damaged; if a signature or the
    /// init op cannot be understood; if an asset is missing or leads out of the directory.
    pub fn open(dir: &Storage, tags: &[impl AsRef<str>]) -> Result<Self> {
        Self::choose(dir, read(dir)?, tags)
    }

    fn choose(dir: &Storage, model: tf::SavedModel, tags: &[impl AsRef<str>]) -> Result<Self> {
        let tags: BTreeSet<String> = tags.iter().map(|tag| tag.as_ref().to_owned()).collect();
        let tag_sets: Vec<_> = model.meta_graphs.iter().map(tags_of).collect();
        let chosen = tag_sets.iter().position(|set| *set == tags);
        let chosen =
            chosen.and_then(|i| model.meta_graphs.into_iter().nth(i)).ok_or_else(|| {
                let tags: Vec<&str> = tags.iter().map(String::as_str).collect();
                Error::Tags { tags: tags.join(" ") }
            })?;
        let assets = assets::read(dir, &chosen)?;
        let init_op = init::op(dir, &chosen)?;
        let signatures = signature::read(&chosen.signature_def, chosen.graph_def.as_ref())?;
        let info = chosen.meta_info_def.unwrap_or_default();
        Ok(Self {
            tags,
            tag_sets,
            tensorflow_version: info.tensorflow_version,
            graph: chosen.graph_def.unwrap_or_default(),
            signatures,
            signature_defs: chosen.signature_def,
            ops: info.stripped_op_list.unwrap_or_default(),
            collections: chosen.collection_def,
            assets,
            init_op,
            saver: chosen.saver_def,
            dir: dir.clone(),
        })
    }

    /// The directory it was read from.
    pub fn dir(&self) -> &Storage {
        &self.dir
    }

    /// Opens the checkpoint; `None` if the model has no variables.
    ///
    /// # Errors
    /// If the index is damaged.
    pub fn checkpoint(&self) -> Result<Option<Checkpoint>> {
        if !self.dir.exists(&format!("{VARIABLES}.index"))? {
            return Ok(None);
        }
        Checkpoint::open(&self.dir, VARIABLES).map(Some)
    }

    /// Finds which variable takes which tensor of the checkpoint, from the graph.
    ///
    /// # Errors
    /// If the graph does it in a way that we cannot follow.
    pub fn restore(&self) -> Result<Restore> {
        match &self.saver {
            Some(saver) if !saver.restore_op_name.is_empty() => {
                restore::follow(&self.graph, &saver.restore_op_name)
            }
            Some(_) | None => Ok(Restore::default()),
        }
    }
}

fn read(dir: &Storage) -> Result<tf::SavedModel> {
    let binary = "saved_model.pb";
    if dir.exists(binary)? {
        return read_binary(binary, dir.read(binary, BINARY_LIMIT_BYTES)?);
    }
    let text = "saved_model.pbtxt";
    if dir.exists(text)? {
        return read_text(text, dir.read(text, TEXT_LIMIT_BYTES)?);
    }
    if dir.exists("saved_model.cpb")? {
        return Err(Error::Chunked);
    }
    if dir.exists("export.meta")? {
        return Err(Error::SessionBundle);
    }
    Err(Error::NoSavedModel { path: dir.path().display().to_string() })
}

fn read_binary(file: &str, bytes: Vec<u8>) -> Result<tf::SavedModel> {
    let len = bytes.len();
    // Constants of the graph share the buffer of the file.
    tf::SavedModel::decode(Bytes::from(bytes)).map_err(|err| Error::Malformed {
        file: file.to_owned(),
        reason: format!("damaged, or truncated at {len} bytes: {err}"),
    })
}

fn read_text(file: &str, bytes: Vec<u8>) -> Result<tf::SavedModel> {
    let text = String::from_utf8(bytes)
        .map_err(|err| Error::Malformed { file: file.to_owned(), reason: err.to_string() })?;
    proto::text::parse(&text).map_err(|source| Error::Text { file: file.to_owned(), source })
}

fn tags_of(graph: &tf::MetaGraphDef) -> BTreeSet<String> {
    graph.meta_info_def.iter().flat_map(|info| info.tags.iter().cloned()).collect()
}

#[cfg(test)]
mod tests;
