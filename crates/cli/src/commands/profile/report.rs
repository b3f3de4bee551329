//! The printed profile: tables for people, and a trace for Chrome.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use device::Home;
use graph::StepSnapshot;

use super::watch::{Event, Timed};

/// The steps of a plan and of the functions that they call, and how long each took.
pub(super) struct Profiled<'a> {
    pub(super) steps: &'a [Timed],
    /// The number of the first steps that are the plan's own: the memory of the others is theirs.
    pub(super) n_own: usize,
}

/// Ops that compute nothing: what they write is a copy.
const MOVES: &[&str] = &[
    COPY,
    "BroadcastTo",
    "Concat",
    "ConcatV2",
    "ExpandDims",
    "Gather",
    "GatherNd",
    "GatherV2",
    "Identity",
    "MirrorPad",
    "Pack",
    "Pad",
    "PadV2",
    "Reshape",
    "ReverseV2",
    "Slice",
    "Split",
    "SplitV",
    "Squeeze",
    "StridedSlice",
    "Tile",
    "Transpose",
    "Unpack",
];

/// The op of a copy between homes.
const COPY: &str = "_Copy";

/// The figures of an op.
#[derive(Default)]
struct Row {
    count: usize,
    time: Duration,
    read_bytes: usize,
    written_bytes: usize,
    copied_bytes: usize,
}

/// The width and the height of the picture of the memory.
const PICTURE: (usize, usize) = (72, 6);

impl Profiled<'_> {
    /// A table with a row for each op.
    pub(super) fn by_op(&self) -> String {
        let mut rows: BTreeMap<&str, Row> = BTreeMap::new();
        let mut all = Row::default();
        for Timed { step, time, n_calls } in self.steps {
            for row in [rows.entry(step.op).or_default(), &mut all] {
                row.count += n_calls;
                row.time += *time;
                row.read_bytes += n_calls * step.read_bytes;
                row.written_bytes += n_calls * step.written_bytes;
                row.copied_bytes += n_calls * copied_bytes(step);
            }
        }
        let mut rows: Vec<_> = rows.into_iter().collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.1.time));
        let heads = ("op", "calls", "time", "share");
        let bytes = ("read", "written", "copied");
        let mut text = format!(
            "{:<28} {:>6} {:>12} {:>7} {:>10} {:>10} {:>10}\n",
            heads.0, heads.1, heads.2, heads.3, bytes.0, bytes.1, bytes.2
        );
        for (op, row) in rows.iter().map(|(op, row)| (*op, row)).chain([("all", &all)]) {
            let _ = writeln!(
                text,
                "{op:<28} {:>6} {:>9.1} µs {:>6.1}% {:>6.2} MiB {:>6.2} MiB {:>6.2} MiB",
                row.count,
                micros(row.time),
                self.share(row.time),
                mebibytes(row.read_bytes),
                mebibytes(row.written_bytes),
                mebibytes(row.copied_bytes),
            );
        }
        text
    }

    /// A table of the slowest steps.
    pub(super) fn slowest(&self, n: usize) -> String {
        let mut order: Vec<usize> = (0..self.steps.len()).collect();
        order.sort_by_key(|step| std::cmp::Reverse(self.steps[*step].time));
        let mut text = format!(
            "{:<28} {:>12} {:>7} {:>10} {:>10} {:>10}  node\n",
            "slowest steps", "time", "share", "read", "written", "memory"
        );
        for number in order.into_iter().take(n) {
            let Timed { step, time, n_calls } = &self.steps[number];
            let _ = writeln!(
                text,
                "{:<28} {:>9.1} µs {:>6.1}% {:>6.2} MiB {:>6.2} MiB {:>6.2} MiB  {}{}{}",
                step.op,
                micros(*time),
                self.share(*time),
                mebibytes(n_calls * step.read_bytes),
                mebibytes(n_calls * step.written_bytes),
                mebibytes(step.work_bytes),
                step.node,
                if *n_calls == 1 { String::new() } else { format!(" ×{n_calls}") },
                if step.in_place { " (in place)" } else { "" },
            );
        }
        text
    }

    /// All steps in their order, and the planned memory.
    pub(super) fn to_json(&self, (planned, least): (usize, usize)) -> serde_json::Value {
        let step = |Timed { step, time, n_calls }: &Timed| {
            serde_json::json!({
                "op": step.op, "node": step.node, "calls": n_calls, "micros": micros(*time),
                "read_bytes": n_calls * step.read_bytes,
                "written_bytes": n_calls * step.written_bytes,
                "copied_bytes": n_calls * copied_bytes(step),
                "work_bytes": step.work_bytes, "in_place": step.in_place,
                "is_on_device": step.home == Home::Device,
            })
        };
        serde_json::json!({
            "planned_bytes": planned, "least_bytes": least,
            "steps": self.steps.iter().map(step).collect::<Vec<_>>(),
        })
    }

    /// The planned memory, as figures and over the run from left to right.
    pub(super) fn memory(&self, (planned, least): (usize, usize)) -> String {
        let mut text = format!(
            "planned memory {:.2} MiB, the least possible {:.2} MiB; over the run:\n",
            mebibytes(planned),
            mebibytes(least)
        );
        let (width, height) = PICTURE;
        let own = &self.steps[..self.n_own];
        let alive = |steps: &[Timed]| steps.iter().map(|timed| timed.step.live_bytes).max();
        let most = alive(own).unwrap_or(0);
        let columns = width.min(own.len());
        let column = |i: usize| {
            let (from, to) = (i * own.len() / columns, (i + 1) * own.len() / columns);
            alive(&own[from..to]).unwrap_or(0)
        };
        for line in (1..=height as u64).rev() {
            let is_below = |bytes: u64| most > 0 && bytes * height as u64 > most * (line - 1);
            let row: String =
                (0..columns).map(|i| if is_below(column(i)) { '█' } else { ' ' }).collect();
            let _ = writeln!(text, "|{row}");
        }
        text
    }

    /// Returns a text of the steps that run on a GPU and on the host, and of the bytes that are
    /// copied between them.
    pub(super) fn homes(&self, (device, host): (usize, usize)) -> String {
        let on = |home: Home, is_copy: bool| {
            let steps = self.steps.iter();
            steps
                .filter(move |Timed { step, .. }| step.home == home && (step.op == COPY) == is_copy)
        };
        let n = |home: Home| on(home, false).count();
        let copied = |home: Home| -> usize {
            on(home, true).map(|timed| timed.n_calls * timed.step.written_bytes).sum()
        };
        let mut text = String::new();
        for (name, home, planned) in [("gpu", Home::Device, device), ("host", Home::Host, host)] {
            let _ = writeln!(
                text,
                "{name:<5} {:>5} steps, planned memory {:.3} MiB, {:.3} MiB copied to it",
                n(home),
                mebibytes(planned),
                mebibytes(copied(home)),
            );
        }
        text
    }

    /// The steps of one run, and the memory alive in each of the plan's own, in the format of
    /// Chrome's trace viewer. Steps of functions are within those that call them.
    pub(super) fn trace(&self, run: &[Event]) -> String {
        let mut events = Vec::new();
        for Event { step: number, start, time } in run {
            let step = &self.steps[*number].step;
            events.push(serde_json::json!({
                "name": step.op, "cat": "step", "ph": "X", "pid": 1, "tid": tid(step.home),
                "ts": micros(*start), "dur": micros(*time),
                "args": {
                    "node": step.node, "work_bytes": step.work_bytes,
                    "read_bytes": step.read_bytes, "written_bytes": step.written_bytes,
                    "copied_bytes": copied_bytes(step), "in_place": step.in_place,
                },
            }));
            if *number < self.n_own {
                events.push(serde_json::json!({
                    "name": "planned memory", "ph": "C", "pid": 1, "ts": micros(*start),
                    "args": {"live_bytes": step.live_bytes},
                }));
            }
        }
        serde_json::json!({"traceEvents": events}).to_string()
    }

    fn share(&self, time: Duration) -> f64 {
        let total: Duration = self.steps.iter().map(|timed| timed.time).sum();
        100.0 * time.as_secs_f64() / total.as_secs_f64().max(1e-12)
    }
}

/// The number of a home in a trace, as if it were a thread.
fn tid(home: Home) -> u32 {
    match home {
        Home::Host => 0,
        Home::Device => 1,
    }
}

/// The bytes that a step writes without having computed them.
fn copied_bytes(step: &StepSnapshot) -> usize {
    if MOVES.contains(&step.op) { step.written_bytes } else { 0 }
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn mebibytes(bytes: usize) -> f64 {
    bytes as f64 / 1_048_576.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A step that ran once.
    fn step(op: &'static str, bytes: usize, live_bytes: u64, micros: u64) -> Timed {
        let step = StepSnapshot {
            node: format!("a/{op}"),
            op,
            home: Home::Device,
            work_bytes: bytes,
            read_bytes: 2 * bytes,
            written_bytes: bytes,
            in_place: op == "Relu",
            live_bytes,
            flops: 0,
        };
        Timed { step, time: Duration::from_micros(micros), n_calls: 1 }
    }

    fn check(text: &str, expected: &[&str]) {
        for line in expected {
            assert!(text.contains(line), "{line:?} is not in\n{text}");
        }
    }

    #[test]
    fn steps_are_added_up_by_op_and_copies_are_told_apart() {
        let mib = 1 << 20;
        let transpose = step("Transpose", 3 * mib, 40, 5);
        let steps = [step("Relu", mib, 10, 1), transpose, step("Relu", mib, 20, 2)];
        let profiled = Profiled { steps: &steps, n_own: 3 };
        check(
            &profiled.by_op(),
            &[
                "Transpose                         1       5.0 µs   62.5%   6.00 MiB   3.00 MiB   \
                 3.00 MiB",
                "Relu                              2       3.0 µs   37.5%   4.00 MiB   2.00 MiB   \
                 0.00 MiB",
                "all                               3       8.0 µs  100.0%  10.00 MiB   5.00 MiB   \
                 3.00 MiB",
            ],
        );
        check(&profiled.slowest(2), &["a/Transpose\n", "a/Relu (in place)\n"]);
        check(
            &profiled.memory((8 * mib, 7 * mib)),
            &["planned memory 8.00 MiB, the least possible 7.00 MiB", "| █ \n", "|███\n"],
        );
    }

    #[test]
    fn what_runs_within_a_loop_counts_as_often_as_it_ran_and_its_memory_is_the_loops() {
        let mib = 1 << 20;
        let within = Timed { n_calls: 4, ..step("Relu", mib, 99, 3) };
        let steps = [step("While", mib, 10, 1), within];
        let profiled = Profiled { steps: &steps, n_own: 1 };
        let row = "Relu                              4       3.0 µs   75.0%   8.00 MiB   4.00 MiB";
        check(&profiled.by_op(), &[row]);
        check(&profiled.slowest(2), &["a/Relu ×4 (in place)\n", "a/While\n"]);
        check(&profiled.memory((mib, mib)), &["|█\n"]);
        let at = |step, start, time| {
            let (start, time) = (Duration::from_micros(start), Duration::from_micros(time));
            Event { step, start, time }
        };
        let trace = profiled.trace(&[at(1, 1, 3), at(0, 0, 4)]);
        let trace: serde_json::Value = serde_json::from_str(&trace).expect("JSON");
        let kinds: Vec<&str> = trace["traceEvents"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|e| e["ph"].as_str())
            .collect();
        assert_eq!(kinds, ["X", "X", "C"]);
    }

    #[test]
    fn what_is_copied_between_the_host_and_a_gpu_is_told_for_each() {
        let mib = 1 << 20;
        let on = |home, op, bytes| {
            let timed = step(op, bytes, 10, 0);
            Timed { step: StepSnapshot { home, ..timed.step }, ..timed }
        };
        let steps = [
            on(Home::Host, "StringSplitV2", 8),
            on(Home::Device, "_Copy", mib),
            on(Home::Device, "MatMul", mib),
            on(Home::Host, "_Copy", 2 * mib),
        ];
        let profiled = Profiled { steps: &steps, n_own: 4 };
        check(
            &profiled.homes((3 * mib, mib)),
            &[
                "gpu       1 steps, planned memory 3.000 MiB, 1.000 MiB copied to it",
                "host      1 steps, planned memory 1.000 MiB, 2.000 MiB copied to it",
            ],
        );
    }

    #[test]
    fn the_trace_has_steps_and_the_memory_of_each() {
        let steps = [step("Relu", 8, 10, 3)];
        let profiled = Profiled { steps: &steps, n_own: 1 };
        let (start, time) = (Duration::from_micros(2), Duration::from_micros(3));
        let run = [Event { step: 0, start, time }];
        let trace: serde_json::Value = serde_json::from_str(&profiled.trace(&run)).expect("JSON");
        let [event, memory] = &trace["traceEvents"].as_array().expect("a list")[..] else {
            panic!("{trace}");
        };
        assert_eq!((&event["name"], &event["ph"]), (&"Relu".into(), &"X".into()));
        assert_eq!((&event["ts"], &event["dur"]), (&2.0.into(), &3.0.into()));
        assert_eq!(event["args"]["read_bytes"], 16);
        assert_eq!((&memory["ph"], &memory["args"]["live_bytes"]), (&"C".into(), &10.into()));
    }
}
