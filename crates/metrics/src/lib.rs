//! Counters, gauges and histograms, and the text page of Prometheus that shows them.
//!
//! Any crate may use it. Counters belong to the object that they count; a [`Metric`] is a copy of
//! them with a name, made when somebody asks for the page.
#![forbid(unsafe_code)]

mod counts;
mod headway;
mod histogram;
mod metric;
mod page;

pub use counts::Counts;
pub use headway::{Headway, HeadwaySnapshot};
pub use histogram::{Histogram, LATENCY_LIMITS, Limits, SIZE_LIMITS};
pub use metric::{Kind, Metric, Point, Value};
pub use page::write;
