//! Batching of a servable's signatures, and the state of their queues.

use std::time::Duration;

use batch::Order;
use schedule::{Failure, QueueSnapshot};
use status::Status;

/// The rule by which the signatures of a servable are batched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Batching {
    /// Not at all.
    Off,
    /// Batches signatures whose rows are proved to be independent. A task that does not fit in a
    /// batch runs alone.
    Proved(batch::Options),
    /// Wherever running a signature leaves nothing behind, as TensorFlow Serving does when it is
    /// asked to; with its refusals and codes.
    Asked(batch::Options),
}

impl Batching {
    /// The settings of the queues.
    pub fn options(&self) -> Option<&batch::Options> {
        match self {
            Self::Off => None,
            Self::Proved(options) | Self::Asked(options) => Some(options),
        }
    }
}

/// The rank of a servable among others, and of its requests among each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Priorities {
    /// Its weight against other models on the same lanes: twice the weight, twice the time.
    pub weight: u32,
    /// The level of requests that name none.
    pub default_level: usize,
    /// The limits of its levels, the most urgent first.
    pub levels: Vec<batch::Level>,
    /// The part that requests of lower levels take in the batches of higher ones.
    pub mixed: batch::MixedPriority,
    /// The wait that weighs as much as one level, if it is set.
    pub ageing: Option<Duration>,
}

impl Priorities {
    /// Those of a model of which nothing is said.
    pub fn plain() -> Self {
        Self {
            weight: 1,
            default_level: 0,
            levels: Vec::new(),
            mixed: batch::MixedPriority::Merge,
            ageing: None,
        }
    }

    /// Returns whether requests of different levels are told apart.
    pub fn has_levels(&self) -> bool {
        !self.levels.is_empty() || self.default_level > 0 || self.ageing.is_some()
    }

    /// The settings of a queue with these priorities. Where levels are told apart, the most urgent
    /// task goes first.
    #[must_use]
    pub fn applied_to(&self, options: &batch::Options) -> batch::Options {
        let mut options = options.clone();
        options.levels.clone_from(&self.levels);
        options.mixed_priority = self.mixed;
        if self.has_levels() {
            let ageing = match (self.ageing, options.order) {
                (Some(ageing), _) | (None, Order::Deadline { ageing }) => ageing,
                (None, Order::Arrival) => AGEING,
            };
            options.order = Order::Deadline { ageing };
        }
        options
    }
}

/// The wait that weighs as much as one level, if nothing is said.
const AGEING: Duration = Duration::from_secs(1);

/// A copy of what is known of a queue.
#[derive(Debug, Clone)]
pub struct QueueState {
    /// The signature whose tasks it takes.
    pub signature: String,
    /// The device whose lanes run them.
    pub device: String,
    /// The reason that tasks run one by one, if they do.
    pub why_single: Option<String>,
    /// The level of requests that name none.
    pub default_level: usize,
    /// The state.
    pub snapshot: QueueSnapshot,
}

/// The status that a failure on the lanes has for a client. `is_asked` selects TensorFlow Serving's
/// code for tasks that expire in a queue.
pub fn failure(failure: &Failure, is_asked: bool) -> Status {
    let refusal = match failure {
        Failure::Refused(refusal) => refusal,
        Failure::Failed(fault) => {
            let own = fault.error.downcast_ref::<Status>().cloned();
            return own.unwrap_or_else(|| Status::internal(fault.error.to_string()));
        }
    };
    let text = refusal.to_string();
    let busy = |text| Status::unavailable(text).with_retry_after(refusal.retry_after);
    match &refusal.error {
        schedule::Error::Batch(error) => match error {
            batch::Error::QueueFull { .. } | batch::Error::NoCapacity { .. } => busy(text),
            batch::Error::Expired | batch::Error::Tensor(_) => Status::exhausted(text),
            batch::Error::ScalarOutput | batch::Error::OutputRows => {
                Status::failed_precondition(text)
            }
            batch::Error::NoInputs
            | batch::Error::ScalarInput
            | batch::Error::UnequalRows
            | batch::Error::TaskTooLarge { .. }
            | batch::Error::PaddedRank
            | batch::Error::Handles(_)
            | batch::Error::LastAllowedSize { .. }
            | batch::Error::AllowedOrder
            | batch::Error::NotPositive { .. } => Status::invalid(text),
        },
        schedule::Error::TooLate { left, .. } if left.is_zero() => Status::deadline_exceeded(text),
        schedule::Error::TooLate { .. } | schedule::Error::Overrun { .. } => busy(text),
        // TensorFlow Serving's code and text, where its batching was asked for.
        schedule::Error::Expired { .. } if is_asked => {
            Status::exhausted(batch::Error::Expired.to_string())
        }
        schedule::Error::Expired { .. } | schedule::Error::RanTooLong { .. } => {
            Status::deadline_exceeded(text)
        }
        schedule::Error::Cancelled => Status::cancelled(text),
        schedule::Error::Closed => Status::unavailable(text),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use schedule::{Blame, Fault, Refusal};
    use status::Code;

    use super::*;

    fn refused(error: schedule::Error) -> Failure {
        Failure::Refused(Refusal { error, retry_after: Some(Duration::from_millis(3)) })
    }

    #[test]
    fn what_expires_has_the_code_that_was_asked_for() {
        let expired = refused(schedule::Error::Expired { waited: Duration::from_millis(7) });
        let text = "Run() timeout exceeded while waiting in batching queue";
        assert_eq!(super::failure(&expired, true), Status::exhausted(text));
        let text = "the deadline passed after 7 ms in the queue";
        assert_eq!(super::failure(&expired, false), Status::deadline_exceeded(text));
    }

    #[test]
    fn a_model_with_too_many_endless_runs_is_unavailable() {
        let refused = Failure::Refused(Refusal {
            error: schedule::Error::Overrun { n_runs: 2 },
            retry_after: None,
        });
        let text = "2 runs of this model have gone on for far longer than expected: it gets no new \
                    ones until one of them ends";
        let expected = Status::unavailable(text);
        assert_eq!(super::failure(&refused, false), expected);
    }

    #[test]
    fn a_full_queue_says_when_to_try_again() {
        let full = refused(batch::Error::QueueFull { n_batches: 2, max: 2 }.into());
        let busy = super::failure(&full, true);
        assert_eq!(busy.code, Code::Unavailable);
        let text = "currently 2 batches enqueued and max_enqueued_batches is 2";
        assert!(busy.message.ends_with(text), "{busy}");
        assert_eq!(busy.retry_after, Some(Duration::from_millis(3)));
    }

    #[test]
    fn an_engines_own_error_stays_as_it_is() {
        let own = Status::new(Code::OutOfRange, "index 7");
        let fault = Fault { error: Arc::new(own.clone()), blame: Blame::Rows };
        assert_eq!(super::failure(&Failure::Failed(fault), false), own);
    }
}
