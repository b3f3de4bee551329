//! Choice of the replica of a model that a task goes to.

use std::time::Duration;

use crate::agenda::Forecast;

/// The known state of one replica when a task comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replica {
    /// The forecast of the replica's device.
    pub forecast: Forecast,
    /// The time until its weights are there: zero if they are.
    pub until_ready: Duration,
}

/// The replica that answers first; among equals the one with the least to do, then the first. As
/// long as one of them has not been measured there is no comparing, and the one with the least to
/// do is taken. `None` without replicas.
pub fn nearest(replicas: &[Replica]) -> Option<usize> {
    let is_measured = replicas.iter().all(|replica| replica.forecast.is_measured);
    let key = |replica: &Replica| {
        let Forecast { finish, n_waiting, n_busy, .. } = replica.forecast;
        let finish = if is_measured { finish } else { Duration::ZERO };
        (replica.until_ready + finish, n_waiting + n_busy)
    };
    (0..replicas.len()).min_by_key(|number| key(&replicas[*number]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_goes_where_it_is_answered_first() {
        let replica = |finish, n_waiting, until_ready| Replica {
            forecast: Forecast {
                finish: Duration::from_millis(finish),
                n_waiting,
                n_busy: 1,
                is_measured: finish > 0,
            },
            until_ready: Duration::from_millis(until_ready),
        };
        let check = |replicas: &[Replica], expected| assert_eq!(nearest(replicas), expected);
        check(&[], None);
        check(&[replica(9, 0, 0), replica(5, 3, 0)], Some(1));
        check(&[replica(5, 3, 0), replica(5, 2, 0)], Some(1));
        check(&[replica(9, 0, 0), replica(5, 0, 100)], Some(0));
        // What is not measured yet is neither flooded nor left out.
        check(&[replica(9, 2, 0), replica(0, 3, 0)], Some(0));
        check(&[replica(9, 2, 0), replica(0, 1, 0)], Some(1));
    }
}
