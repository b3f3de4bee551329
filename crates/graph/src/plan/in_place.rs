//! Outputs that take over the memory of an input that nobody needs any more.

use rustc_hash::FxHashSet;
use smallvec::SmallVec;

use super::build::{DraftStep, Size, Spot};

/// Gives such outputs the number of their input's value; for each step the input, if there is one.
/// What the plan gives is needed to its end.
pub(super) fn merge(
    steps: &mut [DraftStep],
    outputs: &mut [Spot],
    values: &[Size],
) -> Vec<Option<usize>> {
    let mut last = last_uses(steps, outputs, values.len());
    let mut owner: Vec<usize> = (0..values.len()).collect();
    let mut merged = vec![None; steps.len()];
    for (number, step) in steps.iter_mut().enumerate() {
        for spot in step.inputs.iter_mut().chain(&mut step.outputs) {
            if let Spot::Value(value, ..) = spot {
                *value = owner[*value];
            }
        }
        let Some(input) = candidate(step, number, values, &last) else { continue };
        let (Spot::Value(from, ..), Spot::Value(to, ..)) = (&step.inputs[input], &step.outputs[0])
        else {
            continue;
        };
        let (from, to) = (*from, *to);
        last[from] = last[to];
        owner[to] = from;
        if let Spot::Value(value, ..) = &mut step.outputs[0] {
            *value = from;
        }
        merged[number] = Some(input);
    }
    for spot in outputs {
        if let Spot::Value(value, ..) = spot {
            *value = owner[*value];
        }
    }
    merged
}

/// Adds the steps that change a list which nobody needs any more: its slot is emptied, and the list
/// becomes their output.
pub(super) fn move_lists(
    in_place: &mut [Option<usize>],
    steps: &[DraftStep],
    closes: &[SmallVec<[usize; 2]>],
    lists: &FxHashSet<usize>,
) {
    for (number, step) in steps.iter().enumerate() {
        let Some(input) = step.op.in_place() else { continue };
        let (Some(Spot::Open(from)), Some(Spot::Open(to))) =
            (step.inputs.get(input), step.outputs.first())
        else {
            continue;
        };
        let readers = step.inputs.iter().filter(|spot| matches!(spot, Spot::Open(v) if v == from));
        let are_lists = lists.contains(from) && lists.contains(to);
        if are_lists && closes[number].contains(from) && readers.count() == 1 {
            in_place[number] = Some(input);
        }
    }
}

/// The input whose memory the first output of a step may take over.
fn candidate(step: &DraftStep, number: usize, values: &[Size], last: &[usize]) -> Option<usize> {
    let input = step.op.in_place()?;
    let Spot::Value(from, from_type, _) = step.inputs.get(input)? else { return None };
    let Spot::Value(to, to_type, _) = step.outputs.first()? else { return None };
    let readers = step.inputs.iter().filter(|spot| matches!(spot, Spot::Value(v, ..) if v == from));
    let fits = from_type == to_type
        && values[*from] == values[*to]
        && last[*from] == number
        && readers.count() == 1
        && step.outputs.len() == 1;
    fits.then_some(input)
}

/// The last step that touches each value; one after the last for outputs.
fn last_uses(steps: &[DraftStep], outputs: &[Spot], n_values: usize) -> Vec<usize> {
    let mut last = vec![0; n_values];
    for (number, step) in steps.iter().enumerate() {
        for spot in step.inputs.iter().chain(&step.outputs) {
            if let Spot::Value(value, ..) = spot {
                last[*value] = number;
            }
        }
    }
    for spot in outputs {
        if let Spot::Value(value, ..) = spot {
            last[*value] = steps.len();
        }
    }
    last
}
