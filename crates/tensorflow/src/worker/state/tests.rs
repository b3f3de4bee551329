use session::Run;

use super::*;

/// A state with these models loaded, whose seats are numbered from 1.
fn up(models: &[&str]) -> State {
    let mut state = State { phase: Phase::Up, ..State::default() };
    for model in models {
        let (model, load) = ((*model).to_owned(), Load::default());
        let passenger = Passenger { model, version: 1, weights_bytes: 0, load };
        let seat = state.sit(passenger).unwrap();
        state.seats.get_mut(&seat).unwrap().state = SeatState::Loaded;
    }
    state
}

fn task(seat: u64) -> Task {
    let run = Run {
        signature: String::new(),
        inputs: Vec::new(),
        outputs: Vec::new(),
        level: None,
        deadline: None,
        is_cancelled: Arc::default(),
    };
    Task { sent: Sent { run, reply: Box::new(drop), seat, signature: 0 } }
}

/// Has a run of a seat in the process; gives the flag of the one who waits for it.
fn fly(state: &mut State, seat: u64) -> Arc<AtomicBool> {
    let is_cancelled = Arc::new(AtomicBool::new(false));
    let flight = Flight {
        seat,
        reply: Box::new(drop),
        block: None,
        deadline: None,
        is_cancelled: Arc::clone(&is_cancelled),
    };
    let id = state.next_number();
    state.flights.insert(id, flight);
    is_cancelled
}

#[test]
fn a_run_that_nobody_waits_for_gives_its_place_up_at_once() {
    let mut state = up(&["m"]);
    let waits = [fly(&mut state, 1), fly(&mut state, 1)];
    assert!(!state.can_fly(&task(1), 2));
    waits[0].store(true, Ordering::Relaxed);
    assert!(state.can_fly(&task(1), 2));
    assert_eq!(state.n_runs(), (1, 1));
}

#[test]
fn runs_that_nobody_waits_for_take_no_more_than_their_share() {
    let mut state = up(&["m"]);
    for _ in 0..places_max(2) {
        fly(&mut state, 1).store(true, Ordering::Relaxed);
    }
    assert!(!state.can_fly(&task(1), 2), "the process has no thread left");
    assert!(!state.is_stuck(2), "nobody waits for one");
    state.queue.push_back(task(1));
    assert!(state.is_stuck(2));
    let some = state.flights.values().next().unwrap();
    some.is_cancelled.store(false, Ordering::Relaxed);
    assert!(!state.is_stuck(2), "somebody waits for one that runs");
}

#[test]
fn a_line_is_of_the_one_model_that_it_can_be_of() {
    let speaker = |state: &State| state.speaker().map(|one| one.model.clone());
    assert_eq!(speaker(&up(&[])), None);
    assert_eq!(speaker(&up(&["a"])).as_deref(), Some("a"));
    let mut state = up(&["a", "b"]);
    assert_eq!(speaker(&state), None);
    state.seats.get_mut(&2).unwrap().state = SeatState::Loading;
    assert_eq!(speaker(&state).as_deref(), Some("b"), "the only one that is loaded now");
    fly(&mut state, 1);
    assert_eq!(speaker(&state), None);
    state.seats.get_mut(&2).unwrap().state = SeatState::Loaded;
    fly(&mut state, 1);
    assert_eq!(speaker(&state).as_deref(), Some("a"), "the only one that runs");
}
