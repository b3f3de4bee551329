//! Compiles the .proto files with `protox`, so that no `protoc` need be installed.

use std::error::Error;
use std::path::{Path, PathBuf};

use prost::Message as _;

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new("protos");
    println!("cargo:rerun-if-changed=protos");
    println!("cargo:rerun-if-changed=build.rs");
    let mut files = Vec::new();
    for dir in ["tensorflow", "serving", "tensord"] {
        for entry in std::fs::read_dir(root.join(dir))? {
            files.push(entry?.path());
        }
    }
    files.sort();
    let mut descriptors = protox::compile(&files, [root])?;

    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    // The comments are for readers of the sources, not for clients that ask for reflection.
    let mut embedded = descriptors.clone();
    embedded.file.iter_mut().for_each(|file| file.source_code_info = None);
    std::fs::write(out.join("descriptors.bin"), embedded.encode_to_vec())?;

    for file in descriptors.file.iter_mut().filter(|file| file.package() == SERVING) {
        for message in &mut file.message_type {
            let name = message.name().to_owned();
            let any_bytes = |field: &str| ANY_BYTES.contains(&(name.as_str(), field));
            let fields = message.field.iter_mut().filter(|field| any_bytes(field.name()));
            fields.for_each(|field| field.r#type = Some(TYPE_BYTES));
        }
    }
    tonic_prost_build::configure()
        .bytes(".")
        .btree_map(".")
        .build_transport(true)
        .compile_fds_with_config(descriptors, messages())?;
    Ok(())
}

/// The package of TensorFlow Serving's messages.
const SERVING: &str = "tensorflow.serving";

/// Messages and their fields that are declared as text, but that TensorFlow Serving fills with
/// whatever bytes a model gives. Rust's text is always UTF-8, so these are bytes on our side. The
/// wire is the same; reflection shows the declaration as it is.
const ANY_BYTES: [(&str, &str); 1] = [("Class", "label")];

/// The number of `bytes` in `FieldDescriptorProto.Type`.
const TYPE_BYTES: i32 = 12;

/// Values that an attribute of a node seldom has. Every attribute would take the room of the
/// largest, a tensor, and a map has room for eleven.
const SELDOM: [&str; 3] = ["tensor", "list", "func"];

/// Generated messages know their full names, by which their descriptors are found, and attributes
/// are small.
fn messages() -> tonic_prost_build::Config {
    let mut config = tonic_prost_build::Config::new();
    config.enable_type_names();
    for name in SELDOM {
        config.boxed(format!(".tensorflow.AttrValue.value.{name}"));
    }
    config
}
