//! A model with ops that we do not have, without TensorFlow: complete signatures are served, the
//! others answer with all that is missing, and a model without any complete one is refused so.

use proto::serving::ModelSpec;
use tensor::{Shape, Strings, Tensor};

use crate::engine::renamed;
use crate::support::{Server, copy, root, tensord};
use crate::tensorflow::{predict, spec};

/// A server of the model `checks` in which ops have other names.
fn serve(names: &[(&str, &str)]) -> (Server, tempfile::TempDir) {
    let (model, folder) =
        (renamed("testdata/models/checks/1", names), tempfile::tempdir().unwrap());
    copy(model.path(), &folder.path().join("checks/1"));
    copy(&root().join("models/half_plus_two"), &folder.path().join("half_plus_two"));
    let config = ["checks", "half_plus_two"].map(|name| {
        let base = folder.path().join(name);
        format!("config {{ name: '{name}' base_path: '{}' }}", base.display())
    });
    let file = folder.path().join("models.config");
    std::fs::write(&file, format!("model_config_list {{ {} }}", config.join(" "))).unwrap();
    let file = format!("--model_config_file={}", file.display());
    let args = [file.as_str(), "--engine=native", "--max_num_load_retries=0"];
    (Server::start(tensord(), &args), folder)
}

#[test]
fn complete_signatures_are_served_and_the_others_answer_with_all_that_is_missing() {
    let odd = [("LookupTableSizeV2", "OddSize"), ("LookupTableFindV2", "OddFind")];
    let (server, _folder) = serve(&odd);
    server.rest_until("/v1/models/checks", "AVAILABLE");
    let usage = ops::usage("OddFind");
    let missing = &format!(
        "signature lookup needs ops that we do not have: OddFind (×1, {usage}), \
         OddSize (×1, {usage})"
    );
    let words = Strings::collect(["two"]).unwrap();
    let words = Tensor::from_strings(Shape::of(&[1]), words).unwrap();
    let (code, text) = predict(&server, spec("checks", "lookup"), &[("words", words)]).unwrap_err();
    assert_eq!((code, text.contains(missing)), (tonic::Code::Unimplemented, true), "{text}");
    let path = "/v1/models/checks:predict";
    let (status, body) =
        server.rest("POST", path, r#"{"signature_name": "lookup", "instances": ["two"]}"#);
    assert_eq!((status, body.contains(missing)), (501, true), "{body}");

    let x = Tensor::vector(&[1f32, 2.]).unwrap();
    assert!(predict(&server, spec("checks", "positive"), &[("x", x)]).is_ok());
    let (status, body) =
        server.rest("POST", path, r#"{"signature_name": "positive", "instances": [1.0, 2.0]}"#);
    assert_eq!(status, 200, "{body}");
}

#[test]
fn a_model_without_a_complete_signature_is_refused_with_all_that_is_missing() {
    let (server, _folder) = serve(&[("Const", "OddConst"), ("While", "OddWhile")]);
    let body = server.rest_until("/v1/models/checks", "\"END\"");
    assert!(body.contains("UNIMPLEMENTED"), "{body}");
    for name in ["positive", "nested", "branch", "count_down", "lookup"] {
        let wanted = format!("signature {name} needs ops that we do not have: OddConst (×");
        assert!(body.contains(&wanted), "{wanted} is not in {body}");
    }
    let x = Tensor::vector(&[1f32]).unwrap();
    let spec = ModelSpec { name: "half_plus_two".to_owned(), ..ModelSpec::default() };
    assert!(predict(&server, spec, &[("x", x)]).is_ok(), "the other model is served");
}
