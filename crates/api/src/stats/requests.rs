//! The requests of a model, as the list of models shows them.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use pages::{RequestCounts, RequestLatency};

use super::snapshot::code_name;
use super::{APIS, Api, ENTRYPOINTS, ModelStats, Stats};

impl Stats {
    /// The requests of a model so far.
    pub(crate) fn requests(&self, model: &str) -> RequestCounts {
        let models = self.models.load();
        models.get(model).map(|stats| stats.requests()).unwrap_or_default()
    }
}

impl ModelStats {
    fn requests(&self) -> RequestCounts {
        let counts = self.by_code.iter().map(|count| count.load(Ordering::Relaxed));
        let counts = (0..).zip(counts).filter(|(_, count)| *count > 0);
        RequestCounts {
            in_flight: self.in_flight.load(Ordering::Relaxed),
            by_code: counts.map(|(code, count)| (code_name(code), count)).collect(),
            latency_micros: self.inference_latency(),
        }
    }

    /// The time of all calls that run a model.
    fn inference_latency(&self) -> RequestLatency {
        let apis = APIS.iter().flat_map(|api| ENTRYPOINTS.iter().map(move |_| *api));
        let histograms = apis.zip(&self.latency).filter(|(api, _)| *api != Api::Look);
        let mut by_limit: BTreeMap<usize, (f64, u64)> = BTreeMap::new();
        let mut sum = 0.0;
        for (_, histogram) in histograms {
            sum += histogram.sum();
            let limits = histogram.limits();
            for (at, count) in histogram.counts().into_iter().enumerate() {
                // Nothing stands above the last limit: it is the most that is told.
                let at = at.min(limits.len() - 1);
                by_limit.entry(at).or_insert((limits[at], 0)).1 += count;
            }
        }
        let counts: Vec<(f64, u64)> = by_limit.into_values().collect();
        let count = counts.iter().map(|(_, count)| count).sum();
        RequestLatency {
            count,
            mean: if count > 0 { sum / count as f64 } else { 0.0 },
            p50: quantile(&counts, count, 50),
            p90: quantile(&counts, count, 90),
            p99: quantile(&counts, count, 99),
        }
    }
}

/// The first limit that `percent` per cent of `total` values do not exceed; 0 without values.
fn quantile(counts: &[(f64, u64)], total: u64, percent: u64) -> f64 {
    let wanted = (total * percent).div_ceil(100);
    let mut seen = 0;
    let is_reached = |(_, count): &&(f64, u64)| {
        seen += count;
        seen > 0 && seen >= wanted
    };
    counts.iter().find(is_reached).map_or(0.0, |(limit, _)| *limit)
}

#[cfg(test)]
mod tests {
    use super::super::Entrypoint;
    use super::*;

    #[test]
    fn requests_are_counted_by_code_and_timed() {
        let stats = Stats::new();
        assert_eq!(stats.requests("m"), RequestCounts::default());
        let model = stats.model("m", || true);
        model.by_code[0].fetch_add(100, Ordering::Relaxed);
        model.by_code[3].fetch_add(2, Ordering::Relaxed);
        model.in_flight.fetch_add(1, Ordering::Relaxed);
        let cell = |api: Api, door: Entrypoint| {
            &model.latency[api as usize * ENTRYPOINTS.len() + door as usize]
        };
        (0..89).for_each(|_| cell(Api::Predict, Entrypoint::Grpc).add(5.0));
        (0..10).for_each(|_| cell(Api::Classify, Entrypoint::Rest).add(15.0));
        cell(Api::Predict, Entrypoint::Rest).add(f64::from(u32::MAX));
        cell(Api::Look, Entrypoint::Rest).add(1e6);
        let requests = stats.requests("m");
        assert_eq!(requests.in_flight, 1);
        let by_code = [("INVALID_ARGUMENT".to_owned(), 2), ("OK".to_owned(), 100)];
        assert_eq!(requests.by_code, BTreeMap::from(by_code));
        let latency = requests.latency_micros;
        assert_eq!((latency.count, latency.p50, latency.p90), (100, 10.0, 18.0));
        assert!((latency.p99 - 18.0).abs() < 1e-9, "{latency:?}");
        assert!(latency.mean > 4e7, "{latency:?}");
    }

    #[test]
    fn a_quantile_is_the_limit_that_so_many_do_not_exceed() {
        let counts = [(10.0, 98), (18.0, 1), (32.0, 1)];
        let check = |percent, expected: f64| {
            assert!((quantile(&counts, 100, percent) - expected).abs() < 1e-9, "{percent}");
        };
        check(50, 10.0);
        check(98, 10.0);
        check(99, 18.0);
        check(100, 32.0);
        assert!(quantile(&[(10.0, 0)], 0, 50).abs() < 1e-9, "there are none");
    }
}
