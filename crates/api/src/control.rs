//! `HandleReloadConfigRequest`: replaces the list of models. The server, which owns
//! that list, says how.

use std::pin::Pin;

use metrics::{Point, Value};
use proto::serving::metric::ValueIncrease;
use proto::serving::model_server_config::Config;
use proto::serving::{
    Metric as MetricProto, ModelConfig, ModelConfigList, ReloadConfigRequest, ReloadConfigResponse,
    StatusProto,
};
use status::{Code, Status};

use crate::stats::Stats;

/// Changes which models are served.
pub trait Control: Send + Sync {
    /// Replaces the list of models, and waits until the new ones are available or have failed.
    fn reload(&self, models: ModelConfigList) -> Changing<'_>;

    /// Adds one model, or gives it another config, and waits until it is available or has failed.
    fn add(&self, model: ModelConfig) -> Changing<'_> {
        drop(model);
        Box::pin(async { Err(not_here()) })
    }

    /// Takes one model away. Does not wait until it is gone.
    fn remove(&self, name: String) -> Changing<'_> {
        drop(name);
        Box::pin(async { Err(not_here()) })
    }
}

fn not_here() -> Status {
    Status::new(Code::PermissionDenied, "models are not added or removed one by one here")
}

/// A change of the models that is under way.
pub type Changing<'a> = Pin<Box<dyn Future<Output = Result<(), Status>> + Send + 'a>>;

/// Adds the model that the body of a request describes, as JSON or text proto. Its name is the one
/// in the path.
pub(crate) async fn add(control: &dyn Control, name: &str, body: &[u8]) -> Result<(), Status> {
    let text = std::str::from_utf8(body).map_err(|_| Status::invalid("the body is no UTF-8"))?;
    let is_json = text.trim_start().starts_with('{');
    let mut model: ModelConfig = if is_json {
        proto::json::parse(text).map_err(|error| Status::invalid(error.to_string()))?
    } else {
        proto::text::parse(text).map_err(|error| Status::invalid(error.to_string()))?
    };
    if model.name.is_empty() {
        name.clone_into(&mut model.name);
    }
    if model.name != name {
        let text = format!("the path names the model {name}, the body {}", model.name);
        return Err(Status::invalid(text));
    }
    control.add(model).await
}

/// Replaces the list of models, and tells by how much the metrics that were named have grown.
pub(crate) async fn reload(
    control: &dyn Control,
    stats: &Stats,
    request: ReloadConfigRequest,
) -> Result<ReloadConfigResponse, Status> {
    let before = values(stats, &request.metric_names);
    let Some(Config::ModelConfigList(models)) = request.config.and_then(|config| config.config)
    else {
        return Err(Status::invalid(
            "ServerModelConfig type not supported by HandleReloadConfigRequest. Only \
             ModelConfigList is currently supported",
        ));
    };
    control.reload(models).await?;
    let after = values(stats, &request.metric_names);
    let grown = request.metric_names.into_iter().zip(before.into_iter().zip(after));
    let metric = grown.map(|(name, (before, after))| MetricProto {
        name,
        value_increase: Some(ValueIncrease::Int64ValueIncrease(after - before)),
    });
    Ok(ReloadConfigResponse { status: Some(StatusProto::default()), metric: metric.collect() })
}

/// The name of a metric, and its points.
type Number = (&'static str, fn(&Stats) -> Vec<Point>);

/// The metrics that can be asked for: those that are numbers.
const NUMBERS: &[Number] = &[
    ("/tensorflow/serving/request_count", Stats::request_count),
    ("/tensorflow/serving/request_example_count_total", Stats::example_count_total),
    ("tensord_run_failures_total", Stats::run_failures),
    ("tensord_in_flight_requests", Stats::in_flight),
];

/// The first point of each metric; 0 if there is none, or none that is a number.
fn values(stats: &Stats, names: &[String]) -> Vec<i64> {
    let value = |name: &String| {
        let (_, points) = NUMBERS.iter().find(|(number, _)| number == name)?;
        match points(stats).first()?.value {
            Value::Count(value) => i64::try_from(value).ok(),
            Value::Signed(value) => Some(value),
            Value::Seconds(_) | Value::Histogram { .. } => None,
        }
    };
    names.iter().map(|name| value(name).unwrap_or(0)).collect()
}
