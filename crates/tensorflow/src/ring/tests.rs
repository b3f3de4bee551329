use super::*;
use crate::wire::{Load, Order, RunOrder, ToWorker};

fn rings() -> (Writer, Reader) {
    let ours = Arc::new(Area::create(c"test", RINGS_BYTES).unwrap());
    let file = ours.file().try_clone_to_owned().unwrap();
    let theirs = Arc::new(Area::map(file, RINGS_BYTES).unwrap());
    (Writer::new(&ours, Direction::Orders), Reader::new(&theirs, Direction::Orders))
}

fn run(id: u64) -> ToWorker {
    let order = RunOrder { id, outputs: vec![0, 1], ..RunOrder::default() };
    ToWorker { order: Some(Order::Run(order)) }
}

/// A message of about so many bytes.
fn long(bytes: usize) -> ToWorker {
    let dir = "x".repeat(bytes);
    ToWorker { order: Some(Order::Load(Load { dir, ..Load::default() })) }
}

#[test]
fn messages_arrive_in_order_all_around_the_ring() {
    let (mut writer, mut reader) = rings();
    for round in 0..20_000 {
        (0..3).for_each(|id| writer.push(&run(3 * round + id)).unwrap());
        for id in 0..3 {
            assert_eq!(reader.next::<ToWorker>().unwrap(), Some(run(3 * round + id)));
        }
        assert_eq!(reader.next::<ToWorker>().unwrap(), None);
    }
}

#[test]
fn a_message_longer_than_the_ring_arrives_in_pieces() {
    let (mut writer, mut reader) = rings();
    let message = long(1 << 20);
    writer.push(&message).unwrap();
    writer.push(&run(7)).unwrap();
    let mut got = Vec::new();
    while got.len() < 2 {
        if let Some(message) = reader.next::<ToWorker>().unwrap() {
            got.push(message);
        } else {
            writer.flush().unwrap();
        }
    }
    assert!(writer.flush().unwrap());
    assert_eq!(got, [message, run(7)]);
    assert!(matches!(writer.push(&long(MESSAGE_BYTES_MAX)), Err(Error::TooLong(_))));
}

#[test]
fn what_a_hostile_writer_says_is_a_malformed_message_at_worst() {
    let refused = |spoil: &dyn Fn(&Ring)| {
        let (mut writer, mut reader) = rings();
        writer.push(&run(1)).unwrap();
        spoil(&writer.ring);
        matches!(reader.next::<ToWorker>(), Err(Error::Malformed(_)))
    };
    // Places that cannot be.
    assert!(refused(&|ring| ring.written().store(WORDS + 1, Ordering::SeqCst)));
    assert!(refused(&|ring| ring.written().store(u32::MAX, Ordering::SeqCst)));
    // Lengths that are too long, and bytes that are no message.
    assert!(refused(&|ring| ring.words()[0].store(u64::MAX, Ordering::SeqCst)));
    assert!(refused(&|ring| ring.words()[0].store(1 << 27, Ordering::SeqCst)));
    assert!(refused(&|ring| ring.words()[1].store(u64::MAX, Ordering::SeqCst)));
    // The length of a message that never ends costs no more memory than a ring.
    let (mut writer, mut reader) = rings();
    writer.push(&run(1)).unwrap();
    writer.ring.words()[0].store(MESSAGE_BYTES_MAX as u64, Ordering::SeqCst);
    assert_eq!(reader.next::<ToWorker>().unwrap(), None);
    assert!(reader.begun.unwrap().1.capacity() <= RING_BYTES);
}

#[test]
fn any_places_and_words_at_all_are_survived() {
    let mut state = 7u64;
    let mut random = move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 16
    };
    let (writer, mut reader) = rings();
    for _ in 0..3000 {
        let place = u32::try_from(random() & 0xffff_ffff).unwrap();
        let place = if place % 4 == 0 { place } else { reader.read.wrapping_add(place % 64) };
        for offset in 0..64 {
            let word = (reader.read.wrapping_add(offset) % WORDS) as usize;
            let value = if random() % 3 == 0 { random() % 40 } else { random() };
            writer.ring.words()[word].store(value, Ordering::SeqCst);
        }
        writer.ring.written().store(place, Ordering::SeqCst);
        // Whatever it is, it is a message, none, or refused; a supervisor ends at a refusal.
        if reader.next::<ToWorker>().is_err() {
            reader.begun = None;
        }
    }
}

#[test]
fn what_a_hostile_reader_says_is_refused() {
    let (mut writer, reader) = rings();
    writer.push(&run(1)).unwrap();
    reader.ring.read().store(1000, Ordering::SeqCst);
    assert!(matches!(writer.push(&run(2)), Err(Error::Malformed(_))));
}

#[test]
fn a_reader_that_sleeps_is_woken_by_each_message_early_or_not() {
    let (mut writer, mut reader) = rings();
    const N: u64 = 2000;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for id in 0..N {
                loop {
                    if let Some(message) = reader.next::<ToWorker>().unwrap() {
                        assert_eq!(message, run(id));
                        break;
                    }
                    reader.sleep();
                    reader.look_out();
                }
            }
        });
        for id in 0..N {
            if id % 3 == 0 && writer.has_sleeper() {
                writer.wake();
            }
            writer.push(&run(id)).unwrap();
            if writer.has_sleeper() {
                writer.wake();
            }
            if id % 7 == 0 {
                std::thread::yield_now();
            }
        }
    });
}
