//! From a draft to a plan: drops what is not needed, finds lifetimes, packs offsets.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};

use device::{ALIGNMENT, Home, Span};
use offsets::{Packing, Request, Verdict, lower_bound, pack, pack_within};
use ops::{Env, Kind};
use smallvec::SmallVec;

use super::build::{Draft, DraftStep, Size, Spot};
use super::room::{Capacities, Missed};
use super::{Given, Place, Placed, Plan, Step, in_place};

/// Gives every tensor of the workspace its offset.
pub(super) fn place(draft: Draft) -> Plan {
    let greedy = |requests: &[Request], _: Home| Some(pack(requests, ALIGNMENT as u64));
    place_with(draft, |_, _| Some(()), greedy).expect("there is always a greedy packing")
}

/// The same below these heights; `None` if no such offsets are found before `should_stop`. With an
/// environment, offsets are first searched for in functions that steps call, where those alone take
/// too much.
pub(super) fn place_within(
    draft: Draft,
    capacities: &Capacities,
    env: Option<&Env<'_>>,
    should_stop: &mut dyn FnMut() -> bool,
) -> Option<Plan> {
    let stop = RefCell::new(should_stop);
    let mut should_stop = || (*stop.borrow_mut())();
    let mut should_stop_too = should_stop;
    let lower = |steps: &mut [DraftStep], requests: &mut [(Home, Request)]| match env {
        Some(env) => lower(steps, requests, capacities, (env, &mut should_stop)),
        None => Some(()),
    };
    place_with(draft, lower, |requests, home| {
        let capacity = capacities.bytes_in(home);
        let (packing, verdict) =
            pack_within(requests, ALIGNMENT as u64, capacity, &mut should_stop_too);
        (verdict == Verdict::Fits).then_some(packing)
    })
}

/// Lets steps whose functions alone make the memory at that step too much have functions with
/// other offsets; `None` if there is no such step, or none are found.
fn lower(
    steps: &mut [DraftStep],
    requests: &mut [(Home, Request)],
    capacities: &Capacities,
    (env, should_stop): (&Env<'_>, &mut dyn FnMut() -> bool),
) -> Option<()> {
    let n_values = requests.len() - steps.len();
    let mut is_any = false;
    for (number, step) in steps.iter_mut().enumerate().filter(|(_, step)| step.can_be_lowered()) {
        let scratch = n_values + number;
        let is_alive = |(at, (home, request)): &(usize, &(Home, Request))| {
            let steps = request.first as usize..=request.last as usize;
            *home == step.home && *at != scratch && steps.contains(&number)
        };
        let aligned = |bytes: u64| bytes.next_multiple_of(ALIGNMENT as u64);
        let others = requests.iter().enumerate().filter(is_alive);
        let others: u64 = others.map(|(_, (_, request))| aligned(request.bytes)).sum();
        let most = capacities.bytes_in(step.home).checked_sub(others)?;
        if step.scratch_bytes as u64 <= most {
            continue;
        }
        let most = usize::try_from(most).ok()?;
        step.op = step.op.lowered(most, env, should_stop)?;
        // It was made for given specs, and asks for no others.
        step.scratch_bytes = step.op.scratch_bytes(&[], &[]);
        requests[scratch].1.bytes = step.scratch_bytes as u64;
        is_any = true;
    }
    is_any.then_some(())
}

fn place_with(
    draft: Draft,
    prepare: impl FnOnce(&mut [DraftStep], &mut [(Home, Request)]) -> Option<()>,
    mut pack: impl FnMut(&[Request], Home) -> Option<Packing>,
) -> Option<Plan> {
    let mut steps = needed(draft.steps, &draft.outputs);
    let mut outputs = draft.outputs;
    let mut in_place = in_place::merge(&mut steps, &mut outputs, &draft.values);
    let mut requests = requests(&steps, &outputs, &draft.values);
    prepare(&mut steps, &mut requests)?;
    let device = pack_home(&requests, Home::Device, &mut pack)?;
    let host = pack_home(&requests, Home::Host, &mut pack)?;
    let [device_least, host_least] = least(&steps, &requests, [&device, &host]);
    let n_steps = steps.len();
    let span = |number: usize| {
        let (home, request) = &requests[number];
        let packing = if *home == Home::Device { &device } else { &host };
        let offset = usize::try_from(packing.offsets[number]).expect("it fits memory");
        Span { home: *home, offset, len: usize::try_from(request.bytes).expect("it fits memory") }
    };
    let closes = closes(&steps, &outputs, draft.open.len());
    in_place::move_lists(&mut in_place, &steps, &closes, &draft.lists);
    let place = |spot: Spot| match spot {
        Spot::Input(number, shape) => Place::Input(number, shape),
        Spot::Const(number) => Place::Const(number),
        Spot::Open(number) => Place::Open(number),
        Spot::Given(number, dtype, shape) => Place::Given(Given { number, dtype, shape }),
        Spot::Value(value, dtype, shape) => {
            let span = Span { len: draft.values[value].bytes, ..span(value) };
            Place::Work(Placed { dtype, shape, span })
        }
    };
    let n_values = draft.values.len();
    let finish = |(number, (step, closes)): (usize, (DraftStep, SmallVec<[usize; 2]>))| Step {
        node: step.node,
        op_name: step.op_name,
        op: step.op,
        home: step.home,
        inputs: step.inputs.into_iter().map(place).collect(),
        when: step.when,
        outputs: step.outputs.into_iter().map(place).collect(),
        in_place: in_place[number],
        scratch: span(n_values + number),
        inner_bytes: step.inner_bytes,
        flops: step.flops,
        packed: step.packed,
        closes,
    };
    let kernel_bytes = |home: Home| {
        let own = steps.iter().filter(|step| step.home == home);
        own.map(|step| step.kernel_bytes).max().unwrap_or(0)
    };
    let kernel_bytes = [kernel_bytes(Home::Device), kernel_bytes(Home::Host)];
    let size = |bytes: u64| usize::try_from(bytes).expect("it fits memory");
    static N_PLANS: AtomicU64 = AtomicU64::new(0);
    Some(Plan {
        id: N_PLANS.fetch_add(1, Ordering::Relaxed),
        steps: steps.into_iter().zip(closes).enumerate().map(finish).collect(),
        consts: draft.consts.into(),
        live: live(&requests, n_steps).into(),
        open: draft.open.into(),
        input_bytes: draft.input_bytes.into(),
        is_static: draft.is_static,
        outputs: outputs.into_iter().map(place).collect(),
        handed: draft.handed.into(),
        work_bytes: size(device.height),
        host_work_bytes: size(host.height),
        live_bytes: size(device_least),
        host_live_bytes: size(host_least),
        kernel_bytes,
        missed: Missed::default(),
        booked: None,
    })
}

/// The memory that steps want: for each tensor of the workspace, and then for each step's scratch.
fn requests(steps: &[DraftStep], outputs: &[Spot], values: &[Size]) -> Vec<(Home, Request)> {
    let request = |first: usize, last: usize, bytes: usize| {
        let number = |step: usize| u32::try_from(step).expect("a plan is bounded");
        Request { first: number(first), last: number(last), bytes: bytes as u64 }
    };
    let mut requests = Vec::with_capacity(values.len() + steps.len());
    for (life, value) in lifetimes(steps, outputs, values).iter().zip(values) {
        let (first, last) = life.unwrap_or((0, 0));
        let bytes = if life.is_some() { value.bytes } else { 0 };
        requests.push((value.home, request(first, last, bytes)));
    }
    for (number, step) in steps.iter().enumerate() {
        requests.push((step.home, request(number, number, step.scratch_bytes)));
    }
    requests
}

/// The offsets of what is in one home; what is in another takes no room there.
fn pack_home(
    requests: &[(Home, Request)],
    home: Home,
    pack: &mut impl FnMut(&[Request], Home) -> Option<Packing>,
) -> Option<Packing> {
    if requests.iter().all(|(of, request)| *of != home || request.bytes == 0) {
        return Some(Packing { offsets: vec![0; requests.len()], height: 0, lower_bound: 0 });
    }
    let own = |(of, request): &(Home, Request)| {
        let bytes = if *of == home { request.bytes } else { 0 };
        Request { bytes, ..*request }
    };
    let own: Vec<Request> = requests.iter().map(own).collect();
    pack(&own, home)
}

/// The least that any offsets take in each home, those in functions that steps call included.
fn least(steps: &[DraftStep], requests: &[(Home, Request)], packings: [&Packing; 2]) -> [u64; 2] {
    if !steps.iter().any(DraftStep::can_be_lowered) {
        return packings.map(|packing| packing.lower_bound);
    }
    let mut least = requests.to_vec();
    let n_values = least.len() - steps.len();
    for (step, (_, request)) in steps.iter().zip(&mut least[n_values..]) {
        request.bytes = step.least_scratch_bytes as u64;
    }
    let of = |home: Home| {
        let own = least.iter().filter(|(of, _)| *of == home).map(|(_, request)| *request);
        lower_bound(&own.collect::<Vec<_>>(), ALIGNMENT as u64)
    };
    [of(Home::Device), of(Home::Host)]
}

/// The bytes that are alive while each step runs.
fn live(requests: &[(Home, Request)], n_steps: usize) -> Vec<u64> {
    let mut change = vec![0i128; n_steps + 1];
    let requests = requests.iter().map(|(_, request)| request);
    for request in requests.filter(|request| request.bytes > 0) {
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
    values: &[Size],
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
