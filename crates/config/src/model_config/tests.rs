use super::*;

/// The options of the only model in a text; `Err` with what is wrong.
fn only(text: &str, persona: Persona) -> Result<(ModelConfig, ModelOptions), String> {
    let config = parse(text, "f").map_err(|mistake| mistake.to_string())?;
    let mut list = models(config).map_err(|error| error.to_string())?;
    assert_eq!(list.len(), 1);
    let config = list.remove(0);
    let rules = Rules { persona, policy: Policy::AvailabilityPreserving };
    let options = options(&config, rules).map_err(|error| error.to_string())?;
    Ok((config, options))
}

#[track_caller]
fn check_refused(text: &str, persona: Persona, expected: &str) {
    let error = only(text, persona).map(|(config, _)| config).unwrap_err();
    assert!(error.starts_with(expected), "{error}");
}

/// The settings that both forms of a text give.
#[track_caller]
fn check(fields: &str, check: impl Fn(&ModelConfig, &ModelOptions)) {
    let text = format!("model_config_list {{ config {{ name: 'm' base_path: '/m' {fields} }} }}");
    let (config, options) = only(&text, Persona::Tensord).unwrap();
    check(&config, &options);
    let json = proto::json::print(&config).unwrap();
    for json in [
        format!("{{\"model_config_list\": {{\"config\": [{json}]}}}}"),
        format!("{{\"model_config_list\": [{json}]}}"),
        format!("{{\"modelConfigList\": [{json}]}}"),
    ] {
        let (config, options) = only(&json, Persona::Tensord).unwrap();
        check(&config, &options);
    }
}

#[test]
fn version_policies_are_taken_from_text_and_json() {
    check("", |_, options| assert_eq!(options.versions, VersionPolicy::Latest(1)));
    let two = "model_version_policy { latest { num_versions: 2 } }";
    check(two, |_, options| assert_eq!(options.versions, VersionPolicy::Latest(2)));
    let none = "model_version_policy { latest { } }";
    check(none, |_, options| assert_eq!(options.versions, VersionPolicy::Latest(1)));
    let all = "model_version_policy: { all: {} }";
    check(all, |_, options| assert_eq!(options.versions, VersionPolicy::All));
    let some = "model_version_policy { specific { versions: 3, versions: 1 } }";
    check(some, |_, options| assert_eq!(options.versions, VersionPolicy::Specific(vec![3, 1])));
}

#[test]
fn labels_and_our_own_fields_are_taken_from_text_and_json() {
    check("version_labels { key: 'stable' value: 4 }", |_, options| {
        assert_eq!(options.labels, [("stable".to_owned(), 4)].into());
    });
    check("aspired_version_policy: RESOURCE_PRESERVING", |_, options| {
        assert_eq!(options.policy, Policy::ResourcePreserving);
    });
    check("config { gpu_options { allow_growth: true } }", |config, _| {
        let gpu = config.config.as_ref().and_then(|config| config.gpu_options.clone()).unwrap();
        assert!(gpu.allow_growth());
    });
}

#[test]
fn the_platform_must_be_tensorflow_and_named_once() {
    let model = |fields: &str| format!("model_config_list {{ config {{ name: 'm' {fields} }} }}");
    let tensorflow = Persona::TensorFlowModelServer;
    for fields in ["model_platform: 'tensorflow'", "model_type: TENSORFLOW"] {
        assert!(only(&model(fields), tensorflow).is_ok(), "{fields}");
    }
    assert!(only(&model(""), Persona::Tensord).is_ok());
    check_refused(&model(""), tensorflow, "Illegal setting neither");
    let both = model("model_platform: 'tensorflow' model_type: TENSORFLOW");
    check_refused(&both, tensorflow, "Illegal setting both");
    let other = model("model_platform: 'onnx'");
    check_refused(&other, tensorflow, "Model m requests unsupported platform onnx");
}

#[test]
fn paths_on_other_machines_are_refused_clearly() {
    for scheme in ["s3", "gs", "https", "http", "az", "hdfs"] {
        let text =
            format!("model_config_list {{ config {{ name: 'm' base_path: '{scheme}://b/m' }} }}");
        let expected = format!("Model m: paths that begin with {scheme}:// are not supported");
        check_refused(&text, Persona::Tensord, &expected);
    }
    let file = "model_config_list { config { name: 'm' base_path: 'file:///m' } }";
    assert!(only(file, Persona::Tensord).is_ok());
}

#[test]
fn a_mistake_is_told_with_its_line_and_column() {
    let tensord = Persona::Tensord;
    let text = "model_config_list {\n  config { nane: 'a' }\n}";
    check_refused(text, tensord, "f:2:12: field 'nane' not found");
    let list = "{\"model_config_list\": [{\"name\": \"a\", \"nane\": 1}]}";
    check_refused(list, tensord, "f:1:4");
    let message = "{\"model_config_list\": {\"config\": [{\"name\": \"a\",\n \"nane\": 1}]}}";
    check_refused(message, tensord, "f:2:");
    let below = "{\"model_config_list\": [\n  {\"name\": \"a\"},\n  {\"nane\": 1}]}";
    check_refused(below, tensord, "f:3:");
    check_refused("{\"model_config_list\": [\n", tensord, "f:");
    check_refused("{\n \"model_config_lists\": []}", tensord, "f:2:");
}

#[test]
fn a_text_that_is_cut_short_lists_nothing_or_is_refused() {
    let model = |name: &str| format!("config {{ name: '{name}' base_path: '/{name}' }}");
    let models = format!("{} {}", model("a"), model("b"));
    let json = r#"{"name": "a", "base_path": "/a"}, {"name": "b", "base_path": "/b"}"#;
    for whole in [
        format!("# ours\nmodel_config_list {{\n{models}\n}}"),
        format!("model_config_list: <{models}>"),
        format!("{{\"model_config_list\": {{\"config\": [{json}]}}}}"),
        format!("{{\"model_config_list\": [{json}]}}"),
    ] {
        assert_eq!(listed(parse(&whole, "f").unwrap()).unwrap().map(|list| list.len()), Some(2));
        for end in 0..whole.len() {
            let cut = &whole[..end];
            let said = parse(cut, "f").ok().and_then(|config| listed(config).ok().flatten());
            assert_eq!(said, None, "{cut}");
        }
    }
}

#[test]
fn only_a_list_that_is_written_out_is_empty() {
    for nothing in ["", "\n \n", "# model_config_list {}", "{}", "{ }\n"] {
        assert_eq!(listed(parse(nothing, "f").unwrap()).unwrap(), None, "{nothing:?}");
    }
    for empty in [
        "model_config_list {}",
        "model_config_list { }\n",
        "{\"model_config_list\": {}}",
        "{\"model_config_list\": []}",
        "{\"modelConfigList\": {\"config\": []}}",
    ] {
        assert_eq!(listed(parse(empty, "f").unwrap()).unwrap(), Some(Vec::new()), "{empty:?}");
    }
}

#[test]
fn an_empty_text_lists_no_models() {
    assert_eq!(models(parse("", "f").unwrap()).unwrap(), []);
    assert_eq!(models(parse("{}", "f").unwrap()).unwrap(), []);
    assert_eq!(models(parse("model_config_list {}", "f").unwrap()).unwrap(), []);
    let custom = "custom_model_config { [type.googleapis.com/tensorflow.serving.ModelConfig] {} }";
    assert!(models(parse(custom, "f").unwrap()).is_err());
}
