//! Hints: how to mend a request that was refused. The messages are TensorFlow Serving's and stay
//! as they are; a hint stands behind one, unless the server shows none.

use lifecycle::{Choice, ModelSnapshot, State, Target};
use session::{Servable, Signature};
use status::{Status, nearest};
use tensor::{Dim, Spec, Tensor};

use crate::context::Context;

/// The most names that a hint lists.
const NAMES_MAX: usize = 8;

/// The most models among which a similar name is looked for.
const MODELS_MAX: usize = 1000;

/// The switch of hints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hints {
    /// A hint stands behind each message that has one.
    Shown,
    /// Answers are TensorFlow Serving's, byte for byte.
    Hidden,
}

impl Hints {
    /// A failure as clients are told of it.
    pub(crate) fn told(self, status: Status) -> Status {
        match self {
            Self::Shown => status,
            Self::Hidden => status.without_hint(),
        }
    }
}

/// A failure with a hint about its target: the models, versions and labels that there are.
pub(crate) fn about_target(context: &Context, status: Status, target: &Target) -> Status {
    if context.hints == Hints::Hidden || status.hint.is_some() {
        return status;
    }
    let hint = match context.models.model(&target.model) {
        Some(model) => of_model(&model, &target.choice),
        None => of_unknown_model(context, &target.model),
    };
    status.with_hint(hint)
}

fn of_unknown_model(context: &Context, name: &str) -> String {
    if name.is_empty() {
        return "name the model in the model_spec of the request".to_owned();
    }
    // Other models may be none of the caller's business.
    if context.access.is_some() {
        return "no model has this name; GET /v1/models:list shows those of an API key".to_owned();
    }
    let models = context.models.snapshot();
    let names: Vec<&str> = models.iter().map(|model| &*model.name).take(MODELS_MAX).collect();
    if names.is_empty() {
        return "this server has no models".to_owned();
    }
    format!("{}this server has {}", did_you_mean(name, &names), counted("model", &names))
}

/// The versions or labels of a model.
fn of_model(model: &ModelSnapshot, choice: &Choice) -> String {
    let versions = model.versions.iter().filter(|version| version.state == State::Available);
    let versions: Vec<String> = versions.map(|version| version.version.to_string()).collect();
    let versions: Vec<&str> = versions.iter().map(String::as_str).collect();
    let available = match &*versions {
        [] => "no version is available".to_owned(),
        versions => format!("available is {}", counted("version", versions)),
    };
    let state_of = |wanted: i64| {
        let found = model.versions.iter().find(|version| version.version == wanted);
        found.map_or("is not there", |version| match version.state {
            State::Start | State::Loading => "is still loading",
            State::Available => "is available",
            State::Unloading => "is being unloaded",
            State::End => "is not loaded",
        })
    };
    match choice {
        Choice::Label(label) => match model.labels.get(label) {
            Some(version) => {
                format!(
                    "the label points to version {version}, which {}; {available}",
                    state_of(*version)
                )
            }
            None => of_labels(model, label),
        },
        Choice::Version(version) => {
            format!("version {version} {}; {available}", state_of(*version))
        }
        Choice::Latest => {
            let states = model.versions.iter().take(NAMES_MAX);
            let states =
                states.map(|one| format!("; version {} {}", one.version, state_of(one.version)));
            format!(
                "{available}{}; GET /v1/models/{} says why",
                states.collect::<String>(),
                model.name
            )
        }
    }
}

fn of_labels(model: &ModelSnapshot, label: &str) -> String {
    let labels: Vec<&str> = model.labels.keys().map(String::as_str).collect();
    if labels.is_empty() {
        return "the model has no labels: version_labels of its config would set them".to_owned();
    }
    format!("{}the model has {}", did_you_mean(label, &labels), counted("label", &labels))
}

/// A hint about a signature that a version does not have.
pub(crate) fn of_signature(servable: &Servable, name: &str) -> String {
    let names: Vec<&str> = servable.signatures.keys().map(String::as_str).collect();
    format!("{}the model has {}", did_you_mean(name, &names), counted("signature", &names))
}

/// A hint about the inputs that a signature takes, and those that were given under other names.
pub(crate) fn of_inputs<'a>(
    signature: &Signature,
    given: impl IntoIterator<Item = &'a str>,
) -> String {
    let names: Vec<&str> = signature.inputs.keys().map(String::as_str).collect();
    let extra = given.into_iter().find(|name| !names.contains(name));
    let meant = extra.map(|name| did_you_mean(name, &names)).unwrap_or_default();
    format!("{meant}{}", taken(signature))
}

/// The inputs of a signature with their dtypes and shapes.
pub(crate) fn taken(signature: &Signature) -> String {
    let inputs = signature.inputs.iter().take(NAMES_MAX);
    let inputs: Vec<String> =
        inputs.map(|(name, input)| format!("{name}: {}", input.spec)).collect();
    let more = signature.inputs.len().saturating_sub(NAMES_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("the signature {} takes {}{more}", signature.name, inputs.join(", "))
}

/// The first input whose shape the signature does not have, as a hint tells it.
pub(crate) fn misfit(signature: &Signature, inputs: &[Tensor]) -> Option<String> {
    let mut pairs = signature.inputs.iter().zip(inputs);
    let (name, tensor) = pairs
        .find(|((_, input), tensor)| !fits(&input.spec, tensor.shape().dims()))
        .map(|((name, _), tensor)| (name, tensor))?;
    let given = Spec::concrete(tensor.dtype(), tensor.shape());
    Some(format!("{}; the request gives {name}: {given}", taken(signature)))
}

fn fits(spec: &Spec, dims: &[usize]) -> bool {
    let Some(wanted) = spec.dims() else { return true };
    let is_size = |(wanted, size): (&Dim, &usize)| match wanted {
        Dim::Known(_) => *wanted == Dim::of(*size),
        Dim::Symbolic(_) | Dim::Unknown => true,
    };
    wanted.len() == dims.len() && wanted.iter().zip(dims).all(is_size)
}

/// A hint about a method and path that are no call.
pub(crate) fn of_path(http_method: &str, path: &str) -> String {
    const VERBS: [&str; 3] = ["predict", "classify", "regress"];
    let (target, verb) = path.rsplit_once(':').unwrap_or((path, ""));
    let verb = verb.split('?').next().unwrap_or_default();
    if VERBS.contains(&verb) && http_method != "POST" {
        return format!("send it as POST: {verb} takes a body");
    }
    if VERBS.contains(&verb) && path.contains('?') {
        return "a prediction takes no query: put everything into the body".to_owned();
    }
    if !verb.is_empty() && !verb.contains('/') && path.contains("/models/") {
        let meant = nearest(&verb.to_ascii_lowercase(), VERBS)
            .or_else(|| VERBS.into_iter().find(|known| known.eq_ignore_ascii_case(verb)));
        let meant = meant.map(|verb| format!("did you mean {target}:{verb}? ")).unwrap_or_default();
        return format!("{meant}a model takes :predict, :classify and :regress");
    }
    if let Some((target, verb)) = path.rsplit_once('/')
        && VERBS.contains(&verb)
    {
        return format!("put a colon before the verb: POST {target}:{verb}");
    }
    "POST /v1/models/NAME[/versions/N|/labels/L]:predict runs a model, GET /v1/models/NAME shows \
     its states, GET /v1/models/NAME/metadata its signatures"
        .to_owned()
}

/// A question about the name that may have been meant, if one is near.
fn did_you_mean(typed: &str, names: &[&str]) -> String {
    let nearest = nearest(typed, names.iter().copied());
    nearest.map(|name| format!("did you mean {name}? ")).unwrap_or_default()
}

/// Names behind what they are names of: `models a, b and 3 more`.
fn counted(what: &str, names: &[&str]) -> String {
    let shown = names.iter().take(NAMES_MAX).copied().collect::<Vec<_>>().join(", ");
    match names.len() {
        0 => format!("no {what}s"),
        1 => format!("the {what} {shown}"),
        n if n <= NAMES_MAX => format!("the {what}s {shown}"),
        n => format!("the {what}s {shown} and {} more", n - NAMES_MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_is_no_call_leads_to_the_one_that_was_meant() {
        let check = |method: &str, path: &str, expected: &str| {
            let hint = of_path(method, path);
            assert!(hint.contains(expected), "{method} {path}: {hint}");
        };
        check("GET", "/v1/models/m:predict", "send it as POST");
        check("POST", "/v1/models/m:predcit", "did you mean /v1/models/m:predict?");
        check("POST", "/v1/models/m:PREDICT", "did you mean /v1/models/m:predict?");
        check("POST", "/v1/models/m/predict", "POST /v1/models/m:predict");
        check("POST", "/v1/models/m:predict?x=1", "no query");
        check("POST", "/v1/foo", "POST /v1/models/NAME");
    }

    #[test]
    fn long_lists_are_cut() {
        let names: Vec<String> = (0..20).map(|n| format!("m{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        assert_eq!(counted("model", &names[..2]), "the models m0, m1");
        assert!(counted("model", &names).ends_with("m7 and 12 more"));
        assert_eq!(counted("model", &[]), "no models");
    }
}
