//! The index entry of one tensor.

use prost::Message as _;
use proto::tensorflow::BundleEntryProto;
use tensor::{DType, Shape};

use super::slice::Slice;
use crate::error::Fault;

/// TensorFlow's own limit.
const RANK_MAX: usize = 254;
/// More than any partitioner makes; slices are compared with one another.
const N_SLICES_MAX: usize = 4096;

/// A tensor of a checkpoint: its dtype and shape, and where its bytes are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    dtype: DType,
    shape: Shape,
    pub(super) shard: i32,
    pub(super) offset: u64,
    pub(super) size: u64,
    pub(super) crc: u32,
    pub(super) slices: Vec<Slice>,
}

impl Entry {
    /// Reads an entry and checks all that can be checked without the data.
    pub(super) fn decode(bytes: &[u8], n_shards: i32) -> Result<Self, Fault> {
        let proto = BundleEntryProto::decode(bytes).map_err(|err| Fault::Entry(err.to_string()))?;
        let dtype = DType::from_number(proto.dtype)
            .filter(|dtype| dtype.number() == proto.dtype)
            .ok_or_else(|| Fault::Dtype(format!("unknown dtype {}", proto.dtype)))?;
        let shape = proto.shape.unwrap_or_default();
        if shape.dim.len() > RANK_MAX {
            return Err(Fault::Shape(format!("{} dimensions are too many", shape.dim.len())));
        }
        let shape = Shape::checked(shape.dim.iter().map(|dim| dim.size))
            .map_err(|err| Fault::Shape(err.to_string()))?;
        let (Ok(offset), Ok(size)) = (u64::try_from(proto.offset), u64::try_from(proto.size))
        else {
            return Err(Fault::Offset(proto.offset.min(proto.size)));
        };
        if proto.slices.len() > N_SLICES_MAX {
            return Err(Fault::Slices(format!("{} slices are too many", proto.slices.len())));
        }
        let slices = proto.slices.iter().map(Slice::from_proto).collect();
        let entry =
            Self { dtype, shape, shard: proto.shard_id, offset, size, crc: proto.crc32c, slices };
        entry.check(n_shards)?;
        Ok(entry)
    }

    /// The checksum of its bytes; that of a tensor stored in slices says nothing.
    pub fn checksum(&self) -> Option<u32> {
        self.slices.is_empty().then_some(self.crc)
    }

    /// Returns the tensor's dtype.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the tensor's shape, whole even if the tensor is stored in slices.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The bytes it takes: for strings as they are stored, else as they are in memory.
    pub fn n_bytes(&self) -> u64 {
        if self.dtype.is_plain() { self.n_plain_bytes() } else { self.size }
    }

    /// Returns whether the tensor is stored in slices, as partitioned variables are.
    pub fn is_sliced(&self) -> bool {
        !self.slices.is_empty()
    }

    fn n_plain_bytes(&self) -> u64 {
        // A shape has few enough elements for the widest dtype.
        (self.shape.n_elements() * self.dtype.size()) as u64
    }

    fn check(&self, n_shards: i32) -> Result<(), Fault> {
        if self.is_sliced() {
            return Ok(());
        }
        if self.shard < 0 || self.shard >= n_shards {
            return Err(Fault::ShardNumber { shard: self.shard, n_shards });
        }
        if self.dtype.is_plain() && self.n_plain_bytes() != self.size {
            return Err(Fault::Size { expected: self.n_plain_bytes(), got: self.size });
        }
        // Each string has a length of at least one byte.
        let n_strings = self.shape.n_elements() as u64;
        if self.dtype == DType::String && n_strings > self.size {
            return Err(Fault::Size { expected: n_strings, got: self.size });
        }
        Ok(())
    }
}
