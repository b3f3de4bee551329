//! Messages encoded by TensorFlow's and TensorFlow Serving's own Python classes (2.21, in
//! deterministic order) decode here to the same content, and survive every form.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fmt::Debug;

use prost::{Message, Name};
use proto::{serving, tensorflow};

/// Decodes `hex`, compares the compact text form, and encodes back.
#[track_caller]
fn check<T: Message + Name + Default + Debug + PartialEq>(hex: &str, text: &str) {
    let bytes: Vec<u8> = (0..hex.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap())
        .collect();
    let message = T::decode(&bytes[..]).unwrap();
    assert_eq!(message, proto::text::parse::<T>(text).unwrap(), "decoded from bytes");
    assert_eq!(T::decode(&message.encode_to_vec()[..]).unwrap(), message, "encoded again");
    assert_eq!(proto::text::parse::<T>(&proto::text::print(&message)).unwrap(), message, "text");
    assert_eq!(
        proto::json::parse::<T>(&proto::json::print(&message).unwrap()).unwrap(),
        message,
        "JSON"
    );
}

#[test]
fn a_predict_request_of_the_python_client_is_understood() {
    check::<serving::PredictRequest>(
        "0a0a0a016d120208031a017312170a01781212080112041202080222080000c03f000020401a01793201633a08\
         220201026a020809",
        r#"model_spec { name: "m" version { value: 3 } signature_name: "s" }
           inputs { key: "x" value { dtype: DT_FLOAT tensor_shape { dim { size: 2 } }
                    tensor_content: "\000\000\300?\000\000 @" } }
           output_filter: "y" client_id: "c"
           request_options { return_stoptokens: [1, 2] handshake { estimated_payload_bytes: 9 } }"#,
    );
}

#[test]
fn a_multi_inference_request_of_the_python_client_is_understood() {
    check::<serving::MultiInferenceRequest>(
        "0a290a0b0a016d220663616e617279121a74656e736f72666c6f772f73657276696e672f72656772657373122c\
         122a0a180a160a140a0161120f1a0d0a0b01ffffffffffffffffff01120e0a0c0a0a0a016212050a030a01ff",
        r#"tasks { model_spec { name: "m" version_label: "canary" }
                   method_name: "tensorflow/serving/regress" }
           input { example_list_with_context {
             examples { features { feature { key: "a" value { int64_list { value: [1, -1] } } } } }
             context { features { feature { key: "b"
                                            value { bytes_list { value: "\377" } } } } } } }"#,
    );
}

#[test]
fn a_model_status_is_written_as_the_python_client_reads_it() {
    check::<serving::GetModelStatusResponse>(
        "0a0e087b101e1a0808051204676f6e65",
        r#"model_version_status { version: 123 state: AVAILABLE
                                  status { error_code: NOT_FOUND error_message: "gone" } }"#,
    );
}

#[test]
fn a_node_with_every_kind_of_attribute_is_understood() {
    check::<tensorflow::NodeDef>(
        "0a016e1205436f6e73741a01611a025e6222062f6370753a302a070a0154120230012a0b0a0166120652040a02\
         666e2a140a016c120f0a0d1a0b01ffffffffffffffffff012a0d0a05736861706512043a0218012a080a017312\
         031201002a150a01761210420e08071204120208024201614201623a020801",
        r#"name: "n" op: "Const" input: "a" input: "^b" device: "/cpu:0"
           attr { key: "T" value { type: DT_FLOAT } }
           attr { key: "f" value { func { name: "fn" } } }
           attr { key: "l" value { list { i: 1 i: -1 } } }
           attr { key: "s" value { s: "\000" } }
           attr { key: "shape" value { shape { unknown_rank: true } } }
           attr { key: "v" value { tensor { dtype: DT_STRING tensor_shape { dim { size: 2 } }
                                            string_val: "a" string_val: "b" } } }
           experimental_type { type_id: TFT_VAR }"#,
    );
}

#[test]
fn a_function_is_understood() {
    check::<tensorflow::FunctionDef>(
        "0a0f0a02666e12090a017818143a020801220f0a0179120a6e3a6f75747075743a3032060a016312016e420408\
         001001",
        r#"signature { name: "fn" input_arg { name: "x" type: DT_RESOURCE
                                              handle_data { dtype: DT_FLOAT } } }
           ret { key: "y" value: "n:output:0" } control_ret { key: "c" value: "n" }
           resource_arg_unique_id { key: 0 value: 1 }"#,
    );
}

#[test]
fn a_signature_with_defaults_and_a_sparse_output_is_understood() {
    check::<tensorflow::SignatureDef>(
        "0a1b0a017812160a03783a3010011a0d120b08ffffffffffffffffff01120c0a0179120722050a03763a301a1a\
         74656e736f72666c6f772f73657276696e672f70726564696374220f0a0178120a080112002a040000803f",
        r#"inputs { key: "x" value { name: "x:0" dtype: DT_FLOAT
                                     tensor_shape { dim { size: -1 } } } }
           outputs { key: "y" value { coo_sparse { values_tensor_name: "v:0" } } }
           method_name: "tensorflow/serving/predict"
           defaults { key: "x" value { dtype: DT_FLOAT tensor_shape {} float_val: 1.0 } }"#,
    );
}

#[test]
fn a_checkpoint_entry_with_slices_is_understood() {
    check::<tensorflow::BundleEntryProto>(
        "080112041202080518012002280335040000003a080a000a0408011002",
        "dtype: DT_FLOAT shape { dim { size: 5 } } shard_id: 1 offset: 2 size: 3 crc32c: 4
         slices { extent {} extent { start: 1 length: 2 } }",
    );
}

#[test]
fn a_session_config_is_understood() {
    check::<tensorflow::ConfigProto>(
        "1002320c20014a080a060a0400000043520452021802",
        "intra_op_parallelism_threads: 2
        gpu_options { allow_growth: true experimental { virtual_devices { memory_limit_mb: 128 } } }
         graph_options { rewrite_options { constant_folding: OFF } }",
    );
}

#[test]
fn a_warm_up_record_is_understood() {
    check::<serving::PredictionLog>(
        "32070a050a030a016d",
        "predict_log { request { model_spec { name: 'm' } } }",
    );
}

#[test]
fn the_value_fields_of_a_tensor_have_tensorflows_numbers() {
    check::<tensorflow::TensorProto>(
        "08131204120208026210000000000000f03f00000000000000406a0580788080018a010a808080808080808080\
         0192010101",
        r#"dtype: DT_HALF tensor_shape { dim { size: 2 } } half_val: [15360, 16384]
           uint64_val: 9223372036854775808 float8_val: "\001" dcomplex_val: [1, 2]"#,
    );
}
