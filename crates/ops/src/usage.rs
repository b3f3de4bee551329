//! The number of public graphs that use an op, so that the next ops are chosen by evidence.
//!
//! `tools/zoo/op_survey.py` counts them and writes `usage.txt`, which is built in.

use std::fmt;

/// One line `graphs N`, then lines `Op N`; `#` starts a comment.
const SURVEY: &str = include_str!("usage.txt");

/// The graphs of the survey, and those among them that use an op.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// The graphs that use the op.
    pub n_graphs: usize,
    /// All graphs that were looked at.
    pub n_surveyed: usize,
}

/// The usage of the op called `name`, whether we have that op or not. Reads the whole survey:
/// it is for messages.
pub fn usage(name: &str) -> Usage {
    let count = |key: &str| {
        let line = SURVEY.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
        line.and_then(|number| number.parse().ok()).unwrap_or(0)
    };
    Usage { n_graphs: count(name), n_surveyed: count("graphs") }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "used by {} of {} surveyed public graphs", self.n_graphs, self.n_surveyed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_survey_is_an_op_and_a_count_within_the_number_of_graphs() {
        let n_surveyed = usage("MatMul").n_surveyed;
        assert!(n_surveyed >= 100, "{n_surveyed} graphs");
        for line in SURVEY.lines().filter(|line| !line.starts_with('#')) {
            let (name, count) = line.split_once(' ').unwrap();
            let count: usize = count.parse().unwrap();
            assert!((1..=n_surveyed).contains(&count), "{line}");
            if name != "graphs" {
                assert_eq!(usage(name), Usage { n_graphs: count, n_surveyed }, "{line}");
            }
        }
    }

    #[test]
    fn an_op_that_no_graph_uses_has_a_count_of_zero() {
        let Usage { n_graphs, n_surveyed } = usage("MatMu");
        assert_eq!(n_graphs, 0);
        let expected = format!("used by 0 of {n_surveyed} surveyed public graphs");
        assert_eq!(usage("OddFind").to_string(), expected);
    }
}
