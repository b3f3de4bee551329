//! From a draft to a plan: drops what is not needed, finds lifetimes, packs offsets.

use device::plan::{Packing, Request, pack};
use device::{ALIGNMENT, Span};
use ops::Kind;
use smallvec::SmallVec;

use super::build::{Draft, DraftStep, Spot};
use super::{Given, Place, Placed, Plan, Step, in_place};

/// Gives every tensor of the workspace its offset.
pub(super) fn place(draft: Draft) -> Plan {
    let mut steps = needed(draft.steps, &draft.outputs);
    let mut outputs = draft.outputs;
    let mut in_place = in_place::merge(&mut steps, &mut outputs, &draft.values);
    let lives = lifetimes(&steps, &outputs, &draft.values);
    let mut requests: Vec<Request> = Vec::new();
    let mut request = |first: usize, last: usize, bytes: usize| {
        let number = |step: usize| u32::try_from(step).expect("a plan is bounded");
        requests.push(Request { first: number(first), last: number(last), bytes: bytes as u64 });
    };
    for (life, bytes) in lives.iter().zip(&draft.values) {
        let (first, last) = life.unwrap_or((0, 0));
        request(first, last, if life.is_some() { *bytes } else { 0 });
    }
    for (number, step) in steps.iter().enumerate() {
        request(number, number, step.scratch_bytes);
    }
    let packing = pack(&requests, ALIGNMENT as u64);
    let n_steps = steps.len();
    let offset = |number: usize| usize::try_from(packing.offsets[number]).expect("it fits memory");
    let closes = closes(&steps, &outputs, draft.open_bytes.len());
    in_place::move_lists(&mut in_place, &steps, &closes, &draft.lists);
    let place = |spot: Spot| match spot {
        Spot::Input(number, shape) => Place::Input(number, shape),
        Spot::Const(number) => Place::Const(number),
        Spot::Open(number) => Place::Open(number),
        Spot::Given(number, dtype, shape) => Place::Given(Given { number, dtype, shape }),
        Spot::Value(value, dtype, shape) => {
            let span = Span { offset: offset(value), len: draft.values[value] };
            Place::Work(Placed { dtype, shape, span })
        }
    };
    let n_values = draft.values.len();
    let finish = |(number, (step, closes)): (usize, (DraftStep, SmallVec<[usize; 2]>))| Step {
        node: step.node,
        op_name: step.op_name,
        op: step.op,
        device: 0,
        inputs: step.inputs.into_iter().map(place).collect(),
        when: step.when,
        outputs: step.outputs.into_iter().map(place).collect(),
        in_place: in_place[number],
        scratch: Span { offset: offset(n_values + number), len: step.scratch_bytes },
        inner_bytes: step.inner_bytes,
        flops: step.flops,
        packed: step.packed,
        closes,
    };
    let Packing { height, lower_bound, .. } = packing;
    Plan {
        steps: steps.into_iter().zip(closes).enumerate().map(finish).collect(),
        consts: draft.consts,
        live: live(&requests, n_steps),
        open_bytes: draft.open_bytes,
        input_bytes: draft.input_bytes,
        is_static: draft.is_static,
        outputs: outputs.into_iter().map(place).collect(),
        handed: draft.handed,
        work_bytes: usize::try_from(height).expect("it fits memory"),
        live_bytes: usize::try_from(lower_bound).expect("it fits memory"),
    }
}

/// The bytes that are alive while each step runs.
fn live(requests: &[Request], n_steps: usize) -> Vec<u64> {
    let mut change = vec![0i128; n_steps + 1];
    for request in requests.iter().filter(|request| request.bytes > 0) {
        change[request.first as usize] += i128::from(request.bytes);
        change[request.last as usize + 1] -= i128::from(request.bytes);
    }
    let mut sum = 0;
    let mut after = |change: &i128| {
        sum += change;
        u64::try_from(sum).expect("no more is freed than was taken")
    };
    change[..n_steps].iter().map(&mut after).collect()
}

/// The steps that an output or an effect depends on.
fn needed(steps: Vec<DraftStep>, outputs: &[Spot]) -> Vec<DraftStep> {
    let mut wanted = rustc_hash::FxHashSet::default();
    let key = |spot: &Spot| match spot {
        Spot::Value(value, ..) => Some((false, *value)),
        Spot::Open(open) => Some((true, *open)),
        Spot::Input(..) | Spot::Const(_) | Spot::Given(..) => None,
    };
    wanted.extend(outputs.iter().filter_map(key));
    let mut kept = Vec::with_capacity(steps.len());
    for step in steps.into_iter().rev() {
        let is_needed = step.outputs.iter().filter_map(key).any(|key| wanted.contains(&key));
        if is_needed || step.kind == Kind::Writes {
            wanted.extend(step.inputs.iter().filter_map(key));
            kept.push(step);
        }
    }
    kept.reverse();
    kept
}

/// For each tensor of the workspace the first and last step that touch it; an output is needed
/// until the last of all.
fn lifetimes(
    steps: &[DraftStep],
    outputs: &[Spot],
    values: &[usize],
) -> Vec<Option<(usize, usize)>> {
    let mut lives = vec![None; values.len()];
    for (number, step) in steps.iter().enumerate() {
        for spot in step.inputs.iter().chain(&step.outputs) {
            if let Spot::Value(value, ..) = spot {
                let life = lives[*value].get_or_insert((number, number));
                life.1 = number;
            }
        }
    }
    for spot in outputs {
        if let Spot::Value(value, ..) = spot
            && let Some(life) = &mut lives[*value]
        {
            life.1 = steps.len() - 1;
        }
    }
    lives
}

/// For each step the open slots that nobody needs after it.
fn closes(steps: &[DraftStep], outputs: &[Spot], n_open: usize) -> Vec<SmallVec<[usize; 2]>> {
    let mut kept = vec![false; n_open];
    for output in outputs {
        if let Spot::Open(open) = output {
            kept[*open] = true;
        }
    }
    let mut closes = vec![SmallVec::new(); steps.len()];
    for (number, step) in steps.iter().enumerate().rev() {
        for spot in step.inputs.iter().chain(&step.outputs) {
            if let Spot::Open(open) = spot
                && !std::mem::replace(&mut kept[*open], true)
            {
                closes[number].push(*open);
            }
        }
    }
    closes
}
