//! `History`: the figures of the last looks, for sparklines.

use std::collections::VecDeque;

use super::figures::TopFigures;

/// The number of looks that are kept: more than a wide terminal shows.
const LOOKS_MAX: usize = 300;

/// Three series, the oldest look first.
#[derive(Debug, Clone, Default)]
pub(super) struct History {
    pub(super) answers: VecDeque<u64>,
    pub(super) micros: VecDeque<u64>,
    pub(super) bytes: VecDeque<u64>,
}

impl History {
    /// Adds the figures of a look. The first one has no rates yet.
    pub(super) fn add(&mut self, figures: &TopFigures) {
        let Some(answers) = figures.answers else { return };
        // Hundredths, so that a request in ten seconds is seen.
        push(&mut self.answers, rounded(answers * 100.0));
        push(&mut self.micros, figures.p99_micros.unwrap_or(0));
        push(&mut self.bytes, figures.held_bytes);
    }
}

fn push(series: &mut VecDeque<u64>, value: u64) {
    if series.len() == LOOKS_MAX {
        series.pop_front();
    }
    series.push_back(value);
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a bar of a sparkline")]
fn rounded(value: f64) -> u64 {
    value.max(0.0).round() as u64
}
