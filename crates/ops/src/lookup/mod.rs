//! Tables: hash tables from constants and from files.

mod fill;
mod find;
mod map;
pub(crate) mod table;
mod text_file;

use crate::op::OpDef;

/// The ops of this family.
pub(crate) const OPS: &[OpDef] = &[
    fill::IMPORT,
    fill::IMPORT_V2,
    fill::INITIALIZE,
    fill::INITIALIZE_V2,
    fill::INSERT,
    fill::INSERT_V2,
    find::EXPORT,
    find::EXPORT_V2,
    find::FIND,
    find::FIND_V2,
    find::SIZE,
    find::SIZE_V2,
    table::HASH_TABLE,
    table::HASH_TABLE_V2,
    table::MUTABLE,
    table::MUTABLE_DENSE_V2,
    table::MUTABLE_OF_TENSORS,
    table::MUTABLE_OF_TENSORS_V2,
    table::MUTABLE_V2,
    text_file::FROM_TEXT_FILE,
    text_file::FROM_TEXT_FILE_V2,
];
