//! `HandleReloadConfigRequest`: replaces the list of models. The server, which owns
//! that list, says how.

use std::pin::Pin;

use proto::serving::metric::ValueIncrease;
use proto::serving::model_server_config::Config;
use proto::serving::{
    Metric as MetricProto, ModelConfigList, ReloadConfigRequest, ReloadConfigResponse, StatusProto,
};

use crate::stats::{Stats, Value};
use crate::status::Status;

/// Changes which models are served.
pub trait Control: Send + Sync {
    /// Replaces the list of models, and waits until the new ones are available or have failed.
    fn reload(&self, models: ModelConfigList) -> Changing<'_>;
}

/// A change of the models that is under way.
pub type Changing<'a> = Pin<Box<dyn Future<Output = Result<(), Status>> + Send + 'a>>;

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

/// The first point of each metric; 0 if there is none, or none that is a number.
fn values(stats: &Stats, names: &[String]) -> Vec<i64> {
    let metrics = if names.is_empty() { Vec::new() } else { stats.snapshot() };
    let value = |name: &String| {
        let metric = metrics.iter().find(|metric| metric.name == name);
        match &metric?.points.first()?.value {
            Value::Counter(value) => i64::try_from(*value).ok(),
            Value::Gauge(value) => Some(*value),
            Value::Histogram { .. } => None,
        }
    };
    names.iter().map(|name| value(name).unwrap_or(0)).collect()
}
