//! Labels that are no UTF-8 text, over both faces.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use proto::serving::input::Kind as InputKind;
use proto::serving::{ClassificationRequest, Input};
use proto::tensorflow::BytesList;
use proto::tensorflow::feature::Kind as FeatureKind;

use crate::grpc::request;
use crate::support::Server;

#[tokio::test]
async fn labels_come_back_byte_for_byte_whatever_they_hold() {
    const LABEL: &[u8] = b"\xff\0\xc3n";
    let server = Server::start().await;
    let mut input: Input = proto::text::parse(
        "example_list { examples { features {
           feature { key: 'x' value { float_list { value: 1 } } }
           feature { key: 'label' value { bytes_list { value: '' } } } } } }",
    )
    .unwrap();
    let Some(InputKind::ExampleList(list)) = &mut input.kind else { panic!("a list was sent") };
    let features = list.examples[0].features.as_mut().unwrap();
    let label = BytesList { value: vec![LABEL.into()] };
    features.feature.get_mut("label").unwrap().kind = Some(FeatureKind::BytesList(label));
    let model_spec = request("labels", 1.0).model_spec;
    let request = ClassificationRequest { model_spec, input: Some(input) };
    let answer = server.predictions().await.classify(request).await.unwrap().into_inner();
    assert_eq!(answer.result.unwrap().classifications[0].classes[0].label, LABEL);

    let body = format!(
        r#"{{"signature_name": "labels", "examples": [{{"x": 1.0, "label": {{"b64": "{}"}}}}]}}"#,
        BASE64_STANDARD.encode(LABEL),
    );
    let answer = server.ask("POST", "/v1/models/m:classify", body.as_bytes()).await;
    assert_eq!(answer.code, 200);
    // A control character is escaped, as everywhere in JSON; other bytes are as they are.
    let label = b"\"\xff\\u0000\xc3n\"";
    assert!(answer.body.windows(label.len()).any(|found| found == label), "{}", answer.text());
}
