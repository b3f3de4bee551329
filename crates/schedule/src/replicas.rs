//! Which of a model's replicas a task goes to.

use std::time::Duration;

use crate::agenda::Forecast;

/// What is known of one replica when a task comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replica {
    /// When its device would answer.
    pub forecast: Forecast,
    /// How long it takes until its weights are there: nothing, if they are.
    pub until_ready: Duration,
}

/// The replica that answers first; among equals the one with the least to do, then the first.
/// `None` without replicas.
pub fn nearest(replicas: &[Replica]) -> Option<usize> {
    let key = |replica: &Replica| {
        let forecast = replica.forecast;
        (forecast.finish.max(replica.until_ready + forecast.finish), forecast.n_waiting)
    };
    (0..replicas.len()).min_by_key(|number| key(&replicas[*number]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_goes_where_it_is_answered_first() {
        let replica = |finish, n_waiting, until_ready| Replica {
            forecast: Forecast { finish: Duration::from_millis(finish), n_waiting },
            until_ready: Duration::from_millis(until_ready),
        };
        let check = |replicas: &[Replica], expected| assert_eq!(nearest(replicas), expected);
        check(&[], None);
        check(&[replica(9, 0, 0), replica(5, 3, 0)], Some(1));
        check(&[replica(5, 3, 0), replica(5, 2, 0)], Some(1));
        check(&[replica(9, 0, 0), replica(5, 0, 100)], Some(0));
    }
}
