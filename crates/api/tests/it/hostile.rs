//! gRPC messages that are made to hurt: each is refused, and the next request is answered.

use api::Budget;
use bytes::{Buf, BufMut, Bytes};
use prost::Message as _;
use proto::serving::{PredictRequest, PredictResponse};
use proto::tensorflow::tensor_shape_proto::Dim;
use proto::tensorflow::{TensorProto, TensorShapeProto};
use tonic::client::Grpc;
use tonic::codec::{Codec, CompressionEncoding, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::{Code, Request, Status};

use crate::grpc::request;
use crate::support::{Server, Setup};

/// Sends bytes as a message, whatever they are.
#[derive(Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = PredictResponse;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buf: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buf.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = PredictResponse;
    type Error = Status;

    fn decode(&mut self, buf: &mut DecodeBuf<'_>) -> Result<Option<PredictResponse>, Status> {
        let bytes = buf.copy_to_bytes(buf.remaining());
        PredictResponse::decode(bytes)
            .map(Some)
            .map_err(|error| Status::internal(error.to_string()))
    }
}

/// Predicts with a request of any bytes.
async fn predict(server: &Server, bytes: Vec<u8>) -> Result<PredictResponse, Status> {
    predict_packed(server, bytes, None).await
}

async fn predict_packed(
    server: &Server,
    bytes: Vec<u8>,
    encoding: Option<CompressionEncoding>,
) -> Result<PredictResponse, Status> {
    let mut client = Grpc::new(server.channel().await).max_decoding_message_size(usize::MAX);
    if let Some(encoding) = encoding {
        client = client.send_compressed(encoding);
    }
    client.ready().await.unwrap();
    let path = "/tensorflow.serving.PredictionService/Predict".parse().unwrap();
    let answer = client.unary(Request::new(Bytes::from(bytes)), path, Raw).await;
    answer.map(tonic::Response::into_inner)
}

/// The server still answers, and holds no bytes for what it refused.
async fn check_well(server: &Server) {
    let answer = server.predictions().await.predict(request("serving_default", 2.0)).await.unwrap();
    assert_eq!(answer.get_ref().outputs["y"].float_val, [3.0]);
    while server.context.budget.used() > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn every_truncation_of_a_request_is_answered() {
    let server = Server::start().await;
    let whole = request("serving_default", 2.0).encode_to_vec();
    for length in 0..whole.len() {
        let status = predict(&server, whole[..length].to_vec()).await.unwrap_err();
        assert!(
            matches!(
                status.code(),
                Code::Internal | Code::InvalidArgument | Code::FailedPrecondition | Code::NotFound
            ),
            "{length}: {status}"
        );
    }
    check_well(&server).await;
}

#[tokio::test]
async fn random_bytes_are_answered() {
    let server = Server::start().await;
    let mut state: u32 = 1;
    for _ in 0..200 {
        let mut byte = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state.to_le_bytes()[3]
        };
        let length = usize::from(byte());
        let bytes = std::iter::repeat_with(byte).take(length).collect();
        assert!(predict(&server, bytes).await.is_err());
    }
    check_well(&server).await;
}

#[tokio::test]
async fn messages_beyond_the_limit_are_refused() {
    let server = Setup { message_bytes_max: 100_000, ..Setup::new() }.start().await;
    let status = predict(&server, vec![0; 100_001]).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    assert_eq!(status.message(), "Received message larger than max (100001 vs. 100000)");
    check_well(&server).await;
}

/// Entries, dimensions and strings that take many times as much memory as on the wire.
#[tokio::test]
async fn what_would_unfold_to_too_much_is_refused_before_it_is_decoded() {
    let server = Setup { budget: Budget::of_bytes(16 << 20), ..Setup::new() }.start().await;
    let tensor = TensorProto {
        dtype: 7,
        string_val: vec![Bytes::new(); 1_000_000],
        tensor_shape: Some(TensorShapeProto {
            dim: vec![Dim { size: 1_000_000, name: String::new() }],
            unknown_rank: false,
        }),
        ..TensorProto::default()
    };
    let mut strings = request("bytes", 1.0);
    strings.inputs = [("s".to_owned(), tensor)].into();
    let mut dims = request("serving_default", 1.0);
    dims.inputs.get_mut("x").unwrap().tensor_shape = Some(TensorShapeProto {
        dim: vec![Dim { size: 1, name: String::new() }; 1_000_000],
        unknown_rank: false,
    });
    let mut entries = request("serving_default", 1.0);
    entries.inputs = (0..100_000).map(|n: u32| (n.to_string(), TensorProto::default())).collect();
    // Fields, groups and numbers that nobody knows must not hide what comes behind them.
    let unknown = [&[][..], &[0xAB, 0x06, 0xAC, 0x06], &[0xA0, 0x86, 0x80, 0x00, 0x81, 0x00]];
    for request in [&strings, &dims, &entries] {
        for unknown in unknown {
            let bytes = [unknown, &request.encode_to_vec()].concat();
            let status = predict(&server, bytes).await.unwrap_err();
            assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
        }
        let packed = Some(CompressionEncoding::Gzip);
        let status = predict_packed(&server, request.encode_to_vec(), packed).await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    }
    check_well(&server).await;
}

/// A kilobyte that stands for as many bytes as there are.
#[tokio::test]
async fn one_string_for_a_billion_is_refused_before_it_is_repeated() {
    let server = Server::start().await;
    let value = vec![Bytes::from(vec![b'x'; 1000])];
    let repeated = TensorProto { string_val: value, ..TensorProto::default() };
    for n_strings in [50_000_000, 1 << 40] {
        let mut wrong = strings(repeated.clone(), n_strings);
        let status = predict(&server, wrong.encode_to_vec()).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
        assert!(status.message().contains("larger than the limit"), "{status}");
        // On an input of another dtype it is refused for that, whatever its size.
        let tensor = wrong.inputs.remove("s").unwrap();
        wrong.inputs = [("x".to_owned(), tensor)].into();
        wrong.output_filter.clear();
        wrong.model_spec = request("serving_default", 1.0).model_spec;
        let status = predict(&server, wrong.encode_to_vec()).await.unwrap_err();
        assert_eq!(status.message(), "Expects arg[0] to be float but string is provided");
    }
    check_well(&server).await;
}

#[tokio::test]
async fn a_million_empty_strings_come_back_where_there_is_room() {
    let server = Server::start().await;
    let mut strings = request("bytes", 1.0);
    let tensor = TensorProto {
        dtype: 7,
        string_val: vec![Bytes::new(); 1_000_000],
        tensor_shape: Some(TensorShapeProto {
            dim: vec![Dim { size: 1_000_000, name: String::new() }],
            unknown_rank: false,
        }),
        ..TensorProto::default()
    };
    strings.inputs = [("s".to_owned(), tensor)].into();
    strings.output_filter = vec!["s".to_owned()];
    let answer = predict(&server, strings.encode_to_vec()).await.unwrap();
    assert_eq!(answer.outputs["s"].string_val.len(), 1_000_000);
    check_well(&server).await;
}

#[tokio::test]
async fn a_million_dimensions_are_too_many() {
    let server = Server::start().await;
    let mut request = request("serving_default", 1.0);
    request.inputs.get_mut("x").unwrap().tensor_shape = Some(TensorShapeProto {
        dim: vec![Dim { size: 1, name: String::new() }; 1_000_000],
        unknown_rank: false,
    });
    let status = predict(&server, request.encode_to_vec()).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    check_well(&server).await;
}

#[tokio::test]
async fn what_is_packed_too_well_is_refused() {
    let server = Setup { message_bytes_max: 1 << 20, ..Setup::new() }.start().await;
    let bomb = vec![0; 2 << 20];
    let status = predict_packed(&server, bomb, Some(CompressionEncoding::Gzip)).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    check_well(&server).await;
}

#[tokio::test]
async fn large_messages_pass_in_pieces_and_whole() {
    let server = Server::start().await;
    let mut large = request("serving_default", 1.0);
    let n_values: usize = 500_000;
    let x = large.inputs.get_mut("x").unwrap();
    x.float_val = vec![2.0; n_values];
    x.tensor_shape = Some(TensorShapeProto {
        dim: vec![Dim { size: 500_000, name: String::new() }],
        unknown_rank: false,
    });
    let answer = predict(&server, large.encode_to_vec()).await.unwrap();
    assert_eq!(answer.outputs["y"].float_val, vec![3.0; n_values]);
    let requests = tokio_stream::iter(vec![large.clone(), request("serving_default", 2.0), large]);
    let answers = server.predictions().await.predict_streamed(requests).await.unwrap();
    let answers: Vec<_> = tokio_stream::StreamExt::collect(answers.into_inner()).await;
    let sizes: Vec<usize> =
        answers.iter().map(|a| a.as_ref().unwrap().outputs["y"].float_val.len()).collect();
    assert_eq!(sizes, [n_values, 1, n_values]);
    check_well(&server).await;
}

#[tokio::test]
async fn a_hundred_thousand_filters_are_too_many() {
    let server = Server::start().await;
    let mut request = request("serving_default", 1.0);
    request.output_filter = vec!["y".to_owned(); 100_000];
    let status = predict(&server, request.encode_to_vec()).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    check_well(&server).await;
}

#[tokio::test]
async fn unknown_fields_and_groups_do_no_harm() {
    let server = Server::start().await;
    // Field 100 as a varint, and field 101 as a thousand nested groups.
    let mut bytes = request("serving_default", 2.0).encode_to_vec();
    bytes.extend_from_slice(&[0xA0, 0x06, 0x01]);
    assert!(predict(&server, bytes.clone()).await.is_ok());
    for _ in 0..100_000 {
        bytes.extend_from_slice(&[0xAB, 0x06]);
    }
    let status = predict(&server, bytes).await.unwrap_err();
    assert_eq!(status.code(), Code::Internal, "{status}");
    let empty = PredictRequest::default().encode_to_vec();
    assert_eq!(predict(&server, empty).await.unwrap_err().code(), Code::InvalidArgument);
    check_well(&server).await;
}

/// A request of strings, with their contents or in the field for values.
fn strings(tensor: TensorProto, n_strings: i64) -> PredictRequest {
    let dim = vec![Dim { size: n_strings, name: String::new() }];
    let tensor_shape = Some(TensorShapeProto { dim, unknown_rank: false });
    let mut strings = request("bytes", 1.0);
    strings.inputs = [("s".to_owned(), TensorProto { dtype: 7, tensor_shape, ..tensor })].into();
    strings.output_filter = vec!["s".to_owned()];
    strings
}

#[tokio::test]
async fn strings_come_back_byte_for_byte_whatever_they_hold() {
    let server = Server::start().await;
    let large = Bytes::from(vec![0xF0; 8 << 20]);
    let values: [Bytes; 5] =
        ["".into(), "a\0b".into(), Bytes::from_static(b"\xff\xfe\x80"), "\u{7}\n".into(), large];
    let mut content = Vec::new();
    for value in &values {
        prost::encoding::encode_varint(value.len() as u64, &mut content);
    }
    values.iter().for_each(|value| content.extend_from_slice(value));
    let as_values = TensorProto { string_val: values.to_vec(), ..TensorProto::default() };
    let as_content = TensorProto { tensor_content: content.into(), ..TensorProto::default() };
    for tensor in [as_values, as_content] {
        let answer = predict(&server, strings(tensor, 5).encode_to_vec()).await.unwrap();
        assert!(answer.outputs["s"].string_val == values);
    }
    check_well(&server).await;
}

#[tokio::test]
async fn lengths_of_strings_beyond_the_content_are_refused() {
    let server = Server::start().await;
    for content in [&b"\x05abc"[..], b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f", b"\x80"] {
        let content = Bytes::from_static(content);
        let tensor = TensorProto { tensor_content: content, ..TensorProto::default() };
        let status = predict(&server, strings(tensor, 1).encode_to_vec()).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
        assert!(status.message().starts_with("tensor parsing error: s"), "{status}");
    }
    check_well(&server).await;
}

#[tokio::test]
async fn examples_of_a_hundred_thousand_features_are_answered() {
    let server = Server::start().await;
    let feature = |number: u32| (number.to_string(), proto::tensorflow::Feature::default());
    let features = proto::tensorflow::Features { feature: (0..100_000).map(feature).collect() };
    let example = proto::tensorflow::Example { features: Some(features) };
    let list = proto::serving::ExampleList { examples: vec![example] };
    let request = proto::serving::ClassificationRequest {
        model_spec: request("classify", 1.0).model_spec,
        input: Some(proto::serving::Input {
            kind: Some(proto::serving::input::Kind::ExampleList(list)),
        }),
    };
    // Whether the model makes sense of it is its own affair.
    if let Err(status) = server.predictions().await.classify(request).await {
        assert!(!matches!(status.code(), Code::Internal | Code::Unknown), "{status}");
    }
    check_well(&server).await;
}
