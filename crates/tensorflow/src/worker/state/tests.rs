use session::Priorities;

use super::*;
use crate::wire::Names;

/// A worker that is up, with so many places.
struct Bench {
    state: State,
    now: Instant,
    /// The answers, in order.
    answered: Arc<parking_lot::Mutex<Vec<(u32, String)>>>,
    last: u32,
}

/// The options of a run in a test.
#[derive(Default, Clone, Copy)]
struct Asked {
    level: Option<usize>,
    deadline_millis: Option<u64>,
}

impl Bench {
    /// With these models loaded, whose seats are numbered from 1.
    fn new(n_threads: usize, models: &[&str]) -> Self {
        let now = Instant::now();
        let mut state = State::new(n_threads, 100, now);
        state.phase = Phase::Up;
        for model in models {
            let load = Load { signatures: vec![Names::default()], ..Load::default() };
            let model = (*model).to_owned();
            let passenger = Passenger { model, version: 1, weights_bytes: 0, load };
            let seat = state.sit(passenger, now).unwrap();
            assert!(state.is_loaded(seat, Ok(Vec::new()), now).is_empty());
        }
        Self { state, now, answered: Arc::default(), last: 0 }
    }

    fn pass(&mut self, millis: u64) {
        self.now += Duration::from_millis(millis);
    }

    /// Has a run come; gives its number, and the flag of the one who waits for it.
    fn come(&mut self, seat: u64, asked: Asked) -> (u32, Arc<AtomicBool>) {
        self.last += 1;
        let (number, answered) = (self.last, Arc::clone(&self.answered));
        let is_cancelled = Arc::new(AtomicBool::new(false));
        let run = Run {
            signature: number.to_string(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            level: asked.level,
            deadline: asked.deadline_millis.map(|millis| self.now + Duration::from_millis(millis)),
            is_cancelled: Arc::clone(&is_cancelled),
        };
        let reply: Reply = Box::new(move |answer| {
            let failed = |Status { code, message, retry_after, .. }| {
                format!("{code:?}: {message}; again after {retry_after:?}")
            };
            let text = answer.map_or_else(failed, |_| "ok".to_owned());
            answered.lock().push((number, text));
        });
        let sent = Sent { run, reply, seat, signature: 0 };
        if let Err(unrun) = self.state.push(sent, self.now) {
            let (sent, error) = *unrun;
            (sent.reply)(Err(error));
        }
        (number, is_cancelled)
    }

    /// Sends what can be sent to the process; gives the numbers of the runs and of their flights.
    fn send(&mut self) -> Vec<(u32, u64)> {
        let mut sent = Vec::new();
        while let Some((run, turned)) = self.state.take(self.now) {
            let id = self.state.next_number();
            sent.push((run.run.signature.parse().unwrap(), id));
            let flight = Flight::new(run.seat, &run.run, run.reply);
            self.state.take_off(id, flight, turned);
        }
        sent
    }

    /// A run of a seat that is in the process; gives its flight and its flag.
    fn fly(&mut self, seat: u64) -> (u64, Arc<AtomicBool>) {
        let (number, flag) = self.come(seat, Asked::default());
        let sent = self.send();
        let (_, id) = *sent.iter().find(|(sent, _)| *sent == number).expect("there is a place");
        (id, flag)
    }

    fn end(&mut self, id: u64) {
        let flight = self.state.land(id, Ended::Measured, self.now).unwrap();
        (flight.reply)(Ok(Vec::new()));
    }

    /// Measures that runs of a seat take so long.
    fn measure(&mut self, seat: u64, millis: u64) {
        let (id, _) = self.fly(seat);
        self.pass(millis);
        self.end(id);
    }

    #[track_caller]
    fn check_answer(&self, number: u32, expected: &str) {
        let answered = self.answered.lock();
        let found = answered.iter().find(|(other, _)| *other == number);
        let text = found.map_or("nothing", |(_, text)| text.as_str());
        assert!(text.starts_with(expected), "{number} was answered {text}");
    }

    fn finish_millis(&self, seat: u64) -> u128 {
        let replica = self.state.forecast(seat, 0, self.now).unwrap();
        assert!(replica.forecast.is_measured);
        replica.forecast.finish.as_millis()
    }
}

fn numbers(sent: &[(u32, u64)]) -> Vec<u32> {
    sent.iter().map(|(number, _)| *number).collect()
}

#[test]
fn a_run_that_nobody_waits_for_gives_its_place_up_at_once() {
    let mut bench = Bench::new(2, &["m"]);
    let (_, first) = bench.fly(1);
    bench.fly(1);
    let (third, _) = bench.come(1, Asked::default());
    assert!(bench.send().is_empty());
    first.store(true, Ordering::Relaxed);
    assert_eq!(numbers(&bench.send()), [third]);
    assert_eq!(bench.state.n_runs(), (2, 1));
}

#[test]
fn runs_that_nobody_waits_for_take_no_more_than_their_share() {
    let mut bench = Bench::new(2, &["m"]);
    for _ in 0..places_max(2) {
        bench.fly(1).1.store(true, Ordering::Relaxed);
    }
    assert!(!bench.state.is_stuck(), "nobody waits for one");
    bench.come(1, Asked::default());
    assert!(bench.send().is_empty(), "the process has no thread left");
    assert!(bench.state.is_stuck());
    let some = bench.state.flights.values().next().unwrap();
    some.is_cancelled.store(false, Ordering::Relaxed);
    assert!(!bench.state.is_stuck(), "somebody waits for one that runs");
}

#[test]
fn a_line_is_of_the_one_model_that_it_can_be_of() {
    let speaker = |bench: &Bench| bench.state.speaker().map(|one| one.model.clone());
    assert_eq!(speaker(&Bench::new(4, &[])), None);
    assert_eq!(speaker(&Bench::new(4, &["a"])).as_deref(), Some("a"));
    let mut bench = Bench::new(4, &["a", "b"]);
    assert_eq!(speaker(&bench), None);
    bench.state.seats.get_mut(&2).unwrap().state = SeatState::Loading;
    assert_eq!(speaker(&bench).as_deref(), Some("b"), "the only one that is loaded now");
    bench.fly(1);
    assert_eq!(speaker(&bench), None);
    bench.state.seats.get_mut(&2).unwrap().state = SeatState::Loaded;
    bench.fly(1);
    assert_eq!(speaker(&bench).as_deref(), Some("a"), "the only one that runs");
}

#[test]
fn what_cannot_be_answered_in_time_is_refused_with_when_to_come_again() {
    let mut bench = Bench::new(1, &["m"]);
    bench.measure(1, 100);
    bench.fly(1);
    assert_eq!(bench.finish_millis(1), 200);
    let late = Asked { deadline_millis: Some(150), ..Asked::default() };
    let (number, _) = bench.come(1, late);
    bench.check_answer(number, "Unavailable: the answer would take 200 ms");
    let answered = bench.answered.lock().last().unwrap().1.clone();
    assert!(answered.ends_with("; again after Some(200ms)"), "{answered}");
    let (number, _) = bench.come(1, Asked { deadline_millis: Some(250), ..late });
    bench.check_answer(number, "nothing");
    assert_eq!(bench.finish_millis(1), 300);
}

#[test]
fn what_is_late_is_answered_and_gives_its_place_back() {
    let mut bench = Bench::new(1, &["m"]);
    let soon = Asked { deadline_millis: Some(50), ..Asked::default() };
    bench.come(1, soon);
    assert_eq!(bench.send().len(), 1);
    let (waits, _) = bench.come(1, soon);
    let (next, _) = bench.come(1, Asked::default());
    bench.pass(50);
    let expired = bench.state.places.expire(bench.now);
    expired.into_iter().for_each(|(sent, error)| (sent.reply)(Err(error)));
    bench.check_answer(waits, "DeadlineExceeded");
    assert!(bench.send().is_empty(), "the place is taken");
    let replies = bench.state.take_late(bench.now);
    assert_eq!(replies.len(), 1);
    replies.into_iter().for_each(|reply| reply(Err(late("while it ran"))));
    bench.check_answer(1, "DeadlineExceeded");
    assert_eq!(bench.state.n_runs(), (0, 1));
    assert_eq!(numbers(&bench.send()), [next]);
}

#[test]
fn what_nobody_waits_for_is_never_sent() {
    let mut bench = Bench::new(1, &["m"]);
    let (running, _) = bench.fly(1);
    let waiting = [(); 3].map(|()| bench.come(1, Asked::default()));
    waiting[0].1.store(true, Ordering::Relaxed);
    bench.end(running);
    assert_eq!(numbers(&bench.send()), [waiting[1].0]);
    bench.check_answer(waiting[0].0, "Cancelled");
    waiting[2].1.store(true, Ordering::Relaxed);
    assert!(bench.state.places.remove_moot());
    bench.check_answer(waiting[2].0, "Cancelled");
    assert_eq!(bench.state.places.n_waiting(), 0);
}

fn priorities(weight: u32, level: batch::Level) -> Priorities {
    Priorities { weight, levels: vec![batch::Level::default(), level], ..Priorities::plain() }
}

#[test]
fn the_urgent_go_first_and_each_level_has_its_limits() {
    let mut bench = Bench::new(1, &["m"]);
    let patience = Duration::from_millis(30);
    let level = batch::Level {
        enqueued_batches_max: Some(2),
        wait_max: Some(patience),
        ..batch::Level::default()
    };
    let turns = Turns::single(&priorities(1, level), 100);
    bench.state.set_turns(1, &turns).unwrap();
    let (running, _) = bench.fly(1);
    let at = |level| Asked { level: Some(level), ..Asked::default() };
    let low = [(); 3].map(|()| bench.come(1, at(1)).0);
    bench.check_answer(low[2], "Unavailable");
    let (high, _) = bench.come(1, at(0));
    bench.end(running);
    let sent = bench.send();
    assert_eq!(numbers(&sent), [high]);
    assert_eq!(bench.state.places.next_deadline(), Some(bench.now + patience));
    bench.pass(30);
    let expired = bench.state.places.expire(bench.now);
    let expired: Vec<String> = expired.iter().map(|(sent, _)| sent.run.signature.clone()).collect();
    assert_eq!(expired, low[..2].iter().map(u32::to_string).collect::<Vec<_>>());
}

#[test]
fn models_in_one_worker_share_its_places_by_their_weights() {
    let mut bench = Bench::new(1, &["light", "heavy"]);
    let turns = Turns::single(&priorities(3, batch::Level::default()), 100);
    bench.state.set_turns(2, &turns).unwrap();
    (1..=2).for_each(|seat| bench.measure(seat, 10));
    for _ in 0..12 {
        (1..=2).for_each(|seat| drop(bench.come(seat, Asked::default())));
    }
    let mut n_runs = [0; 2];
    for _ in 0..12 {
        let [(number, id)] = bench.send()[..] else { panic!("one place") };
        n_runs[usize::from(number % 2 == 0)] += 1;
        bench.pass(10);
        bench.end(id);
    }
    assert_eq!(n_runs, [3, 9]);
}

#[test]
fn a_model_that_is_loaded_again_waits_alone() {
    let mut bench = Bench::new(2, &["a", "b"]);
    bench.fly(1);
    bench.pass(1000);
    let lost = bench.state.lose_process("killed", bench.now);
    assert_eq!(lost.len(), 1);
    bench.state.phase = Phase::Starting;
    bench.state.began = bench.now;
    let waiting = [1, 2].map(|seat| bench.come(seat, Asked::default()).0);
    assert!(bench.send().is_empty());
    assert!(bench.state.until_ready(1, bench.now) > Duration::ZERO);
    bench.state.phase = Phase::Up;
    bench.pass(300);
    assert!(bench.state.is_loaded(2, Ok(Vec::new()), bench.now).is_empty());
    assert_eq!(numbers(&bench.send()), waiting[1..]);
    assert_eq!(bench.state.until_ready(2, bench.now), Duration::ZERO);
    let failed = Status::not_found("its folder is gone");
    let lost = bench.state.is_loaded(1, Err(failed.clone()), bench.now);
    assert_eq!(lost.len(), 1);
    assert_eq!(lost[0].1, failed);
    assert_eq!(bench.state.until_ready(1, bench.now), NEVER);
    // The next start is expected to take as long as the last.
    bench.state.lose_process("killed", bench.now);
    bench.state.phase = Phase::Starting;
    bench.state.began = bench.now;
    bench.pass(100);
    assert_eq!(bench.state.until_ready(2, bench.now), Duration::from_millis(200));
    bench.state.phase = Phase::BackingOff {
        why: "killed".to_owned(),
        until: bench.now + Duration::from_millis(50),
    };
    assert_eq!(bench.state.until_ready(2, bench.now), Duration::from_millis(350));
    let (number, _) = bench.come(2, Asked::default());
    bench.check_answer(number, "Unavailable: killed; again after Some(50ms)");
}

#[test]
fn replicas_are_told_apart_by_when_they_would_answer() {
    let mut workers = [Bench::new(1, &["m"]), Bench::new(1, &["m"])];
    workers[0].measure(1, 40);
    workers[1].measure(1, 100);
    let nearest = |workers: &[Bench; 2]| {
        let of = |bench: &Bench| bench.state.forecast(1, 0, bench.now).unwrap();
        schedule::nearest(&workers.each_ref().map(of)).unwrap()
    };
    let mut taken = Vec::new();
    for _ in 0..7 {
        let worker = nearest(&workers);
        workers[worker].come(1, Asked::default());
        workers[worker].send();
        taken.push(worker);
    }
    assert_eq!(taken, [0, 0, 1, 0, 0, 1, 0], "five to two, as fast as they are");
    workers[0].state.lose_process("killed", Instant::now());
    workers[0].state.phase =
        Phase::BackingOff { why: String::new(), until: workers[0].now + Duration::from_secs(30) };
    assert_eq!(nearest(&workers), 1, "whatever waits there");
}

#[test]
fn gpu_memory_of_a_model_that_left_comes_back_once_the_others_are_idle() {
    let mut bench = Bench::new(2, &["stays", "leaves"]);
    let gpu = || Ok(vec!["/device:GPU:0".to_owned()]);
    bench.state.is_loaded(1, gpu(), bench.now);
    assert!(!bench.state.is_to_give_back(Renewal::WhenIdle), "nobody has left");
    let (running, _) = bench.fly(1);
    bench.state.stand(2).unwrap();
    assert!(!bench.state.is_to_give_back(Renewal::WhenIdle), "the others are busy");
    bench.end(running);
    assert!(bench.state.is_to_give_back(Renewal::WhenIdle));
    assert!(!bench.state.is_to_give_back(Renewal::Never));
    bench.state.lose_process("started anew", bench.now);
    assert!(!bench.state.is_to_give_back(Renewal::WhenIdle), "it has come back");
    // On the host it comes back by itself.
    let mut host = Bench::new(2, &["stays", "leaves"]);
    host.state.stand(2).unwrap();
    assert!(!host.state.is_to_give_back(Renewal::WhenIdle));
}
