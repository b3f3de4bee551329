//! Entry points of the fuzz targets in `fuzz/`: strings that may hold anything, given to the ops
//! that parse strings.
//!
//! Every op runs within a limit of memory, as in a server. A target fails if an op panics, hangs or
//! takes memory that it did not book.

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

use std::sync::{Arc, LazyLock};

use device::logical::GrowthRule;
use device::{Category, Driver, Holder, Host, Limited, Owner, Space, SpaceOptions};
use pool::Pool;
use proto::tensorflow::NodeDef;
use tensor::{DType, Shape, Spec, Strings, Tensor};

use crate::{Attrs, Cancel, Ctx, Env, NoFiles, NoFunctions, Output, Resources};

/// The bytes that an op may hold.
const LIMIT_BYTES: u64 = 8 << 20;

/// Reads an `Example`, then a `SequenceExample`.
pub fn example(bytes: &[u8]) {
    parse_example(bytes);
    parse_sequence(bytes);
}

/// Reads an `Example` in a batch of itself twice. Gives whether it was read.
fn parse_example(bytes: &[u8]) -> bool {
    run(
        &PARSE_EXAMPLE,
        &[
            vector(&[bytes, bytes]),
            vector(&[]),
            vector(&[b"id", b"tag"]),
            vector(&[b"x", b"list"]),
            vector(&[b"ragged"]),
            floats(&[0.5, 0.25]),
            string(b""),
        ],
    )
}

/// Reads a `SequenceExample` in a batch of itself twice. Gives whether it was read.
fn parse_sequence(bytes: &[u8]) -> bool {
    run(
        &PARSE_SEQUENCE,
        &[
            vector(&[bytes, bytes]),
            vector(&[]),
            vector(&[b"id", b"tag"]),
            vector(&[b"x"]),
            vector(&[]),
            vector(&[b"d"]),
            vector(&[b"w", b"n"]),
            vector(&[b"r"]),
            Tensor::from_bytes(DType::Bool, Shape::of(&[1]), &[1]).expect("a bool is small"),
            floats(&[0.5, 0.25]),
        ],
    )
}

/// Matches and replaces a pattern, which ends at the first newline, in the text behind it.
pub fn regex(bytes: &[u8]) {
    let (pattern, text) = split(bytes);
    let (pattern, text, rewrite) = (string(pattern), vector(&[text, b"a-b 12"]), string(b"<\\1>"));
    run(&node("RegexFullMatch", ""), &[text.clone(), pattern.clone()]);
    run(&node("RegexReplace", ""), &[text, pattern, rewrite]);
}

/// Decodes a picture of every kind, whole and in part, with and without recovery.
pub fn image(bytes: &[u8]) {
    let picture = string(bytes);
    for (op, attrs) in [
        ("DecodeImage", ""),
        ("DecodeJpeg", RECOVERING),
        ("DecodePng", WIDE),
        ("DecodeBmp", ""),
        ("DecodeGif", ""),
    ] {
        run(&node(op, attrs), std::slice::from_ref(&picture));
    }
    run(&node("DecodeAndCropJpeg", ""), &[picture, window()]);
}

/// Unpacks, decodes and splits a string: what is packed, CSV, base64, a WAV file, a `TensorProto`.
pub fn compressed(bytes: &[u8]) {
    let packed = vector(&[bytes]);
    for kind in ["ZLIB", "GZIP", ""] {
        let attr = format!("attr {{ key: 'compression_type' value {{ s: '{kind}' }} }}");
        run(&node("DecodeCompressed", &attr), std::slice::from_ref(&packed));
    }
    run(&node("DecodeWav", ""), &[string(bytes)]);
    run(&node("DecodeBase64", ""), std::slice::from_ref(&packed));
    let proto = "attr { key: 'out_type' value { type: DT_FLOAT } }";
    run(&node("ParseTensor", proto), &[string(bytes)]);
    run(&node("DecodeCSV", COLUMNS), &[packed, floats(&[0.5]), vector(&[b""]), no_numbers()]);
}

const RECOVERING: &str = "attr { key: 'try_recover_truncated' value { b: true } }
    attr { key: 'acceptable_fraction' value { f: 0.1 } } attr { key: 'ratio' value { i: 2 } }";
const COLUMNS: &str =
    "attr { key: 'OUT_TYPE' value { list { type: [DT_FLOAT, DT_STRING, DT_INT64] } } }";
const WIDE: &str = "attr { key: 'dtype' value { type: DT_UINT16 } }";

/// Dense features of fixed and of variable length, sparse and ragged ones.
static PARSE_EXAMPLE: LazyLock<NodeDef> = LazyLock::new(|| {
    node(
        "ParseExampleV2",
        "attr { key: 'num_sparse' value { i: 2 } }
         attr { key: 'sparse_types' value { list { type: [DT_INT64, DT_STRING] } } }
         attr { key: 'Tdense' value { list { type: [DT_FLOAT, DT_STRING] } } }
         attr { key: 'dense_shapes' value { list { shape { dim { size: 2 } }
             shape { dim { size: -1 } } } } }
         attr { key: 'ragged_value_types' value { list { type: [DT_FLOAT] } } }
         attr { key: 'ragged_split_types' value { list { type: [DT_INT64] } } }",
    )
});

/// Features of the context, and lists of features, of every kind.
static PARSE_SEQUENCE: LazyLock<NodeDef> = LazyLock::new(|| {
    node(
        "ParseSequenceExampleV2",
        "attr { key: 'context_sparse_types' value { list { type: [DT_INT64, DT_STRING] } } }
         attr { key: 'Ncontext_sparse' value { i: 2 } }
         attr { key: 'Tcontext_dense' value { list { type: [DT_FLOAT] } } }
         attr { key: 'context_dense_shapes' value { list { shape { dim { size: 2 } } } } }
         attr { key: 'context_ragged_value_types' value { list { } } }
         attr { key: 'context_ragged_split_types' value { list { } } }
         attr { key: 'feature_list_sparse_types' value { list { type: [DT_STRING, DT_INT64] } } }
         attr { key: 'Nfeature_list_sparse' value { i: 2 } }
         attr { key: 'feature_list_dense_types' value { list { type: [DT_FLOAT] } } }
         attr { key: 'feature_list_dense_shapes' value { list { shape { dim { size: 2 } } } } }
         attr { key: 'Nfeature_list_dense' value { i: 1 } }
         attr { key: 'feature_list_ragged_value_types' value { list { type: [DT_INT64] } } }
         attr { key: 'feature_list_ragged_split_types' value { list { type: [DT_INT32] } } }",
    )
});

/// A node with attributes in text proto.
fn node(op: &str, attrs: &str) -> NodeDef {
    proto::text::parse(&format!("op: '{op}' {attrs}")).expect("the nodes are our own")
}

/// Runs a node within the limit. Gives whether it succeeded.
fn run(node: &NodeDef, inputs: &[Tensor]) -> bool {
    let (pool, resources, cancel) = (&*POOL, Resources::default(), Cancel::default());
    let (functions, files) = (&NoFunctions, &NoFiles);
    let env = Env { pool, functions, files, resources: &resources, cancel: &cancel };
    let _scope = device::booked_to(&OWNER, Category::Requests);
    let call = || -> crate::Result<()> {
        let def = crate::find(&node.op).expect("the ops are our own");
        let op = (def.build)(&Attrs::new(&node.attr))?;
        let specs: Vec<Spec> = inputs.iter().cloned().map(Spec::constant).collect();
        let n_outputs = op.infer_with(&specs, env.functions)?.len();
        let outputs = (0..n_outputs).map(|_| Output::Open(None));
        let mut ctx = Ctx::new(inputs.iter().map(Tensor::view), outputs, &env);
        op.run(&mut ctx)?;
        ctx.finish().map(drop)
    };
    call().is_ok()
}

static POOL: LazyLock<Pool> = LazyLock::new(|| Pool::new(1));

/// The owner of all that the ops hold.
static OWNER: LazyLock<Arc<Owner>> = LazyLock::new(|| {
    let host = Arc::new(Host::new("cpu:0", 2 * LIMIT_BYTES)) as Arc<dyn Driver>;
    let driver = Arc::new(Limited::new(host, "cpu:0", LIMIT_BYTES));
    let physical = Arc::clone(driver.account());
    let growth = GrowthRule::OnDemand;
    let options = SpaceOptions { driver, physical, growth, step_bytes: 1 << 20, context_bytes: 0 };
    let space = Space::new(options).expect("nothing is reserved yet");
    Owner::new(&space, Holder::Version { model: Arc::from("fuzz"), version: 1 }, None)
});

/// The bytes up to the first newline, and those behind it.
fn split(bytes: &[u8]) -> (&[u8], &[u8]) {
    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    (&bytes[..end], bytes.get(end + 1..).unwrap_or_default())
}

fn string(bytes: &[u8]) -> Tensor {
    strings(Shape::scalar(), &[bytes])
}

fn vector(all: &[&[u8]]) -> Tensor {
    strings(Shape::of(&[all.len()]), all)
}

fn strings(shape: Shape, all: &[&[u8]]) -> Tensor {
    let strings = Strings::collect(all).expect("an input is small");
    Tensor::from_strings(shape, strings).expect("there are as many as the shape says")
}

fn floats(values: &[f32]) -> Tensor {
    Tensor::vector(values).expect("an input is small")
}

/// The rows and columns that are cut out of a picture.
fn window() -> Tensor {
    Tensor::vector(&[1i32, 2, 3, 4]).expect("an input is small")
}

fn no_numbers() -> Tensor {
    Tensor::zeros(DType::I64, Shape::of(&[0])).expect("nothing is small")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_do_no_harm() {
        replay::replay("example", example);
    }

    #[test]
    fn patterns_do_no_harm() {
        replay::replay("regex", regex);
    }

    #[test]
    fn pictures_do_no_harm() {
        replay::replay("image", image);
    }

    #[test]
    fn packed_strings_do_no_harm() {
        replay::replay("compressed", compressed);
    }

    /// A target that fails on its own nodes would find nothing.
    #[test]
    fn plain_inputs_are_read() {
        assert!(parse_example(b""));
        assert!(parse_sequence(b""));
        let text = vector(&[b"12"]);
        assert!(run(&node("RegexFullMatch", ""), &[text.clone(), string(b"\\d+")]));
        let rewrite = string(b"<\\1>");
        assert!(run(&node("RegexReplace", ""), &[text, string(b"(1)"), rewrite]));
        let numbers = &[vector(&[b"1,a,2"]), floats(&[0.5]), vector(&[b""]), no_numbers()];
        assert!(run(&node("DecodeCSV", COLUMNS), numbers));
        let file = "../../testdata/fuzz/image/DecodeJpeg_0";
        let picture = std::fs::read(file).expect("an input of the target");
        assert!(run(&node("DecodeJpeg", RECOVERING), &[string(&picture)]));
        assert!(run(&node("DecodeAndCropJpeg", ""), &[string(&picture), window()]));
    }
}
