//! The descriptors of all messages, for the forms that go through reflection.

use std::sync::LazyLock;

use prost::Name;
use prost_reflect::{DescriptorPool, MessageDescriptor};

/// The encoded `FileDescriptorSet` of every message and service here, imports included.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

/// Finds the descriptor of a generated message.
pub(crate) fn descriptor<T: Name>() -> MessageDescriptor {
    POOL.get_message_by_name(&T::full_name()).expect("every generated message is in the pool")
}

static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
    DescriptorPool::decode(FILE_DESCRIPTOR_SET).expect("build.rs wrote a valid descriptor set")
});
