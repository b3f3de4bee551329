//! The duties of every driver: one suite, called from each driver's tests.

use std::sync::Arc;

use crate::driver::Driver;
use crate::error::Error;
use crate::region::Region;

/// Runs the whole suite on a driver of which nothing is held, and leaves it so.
///
/// Takes a few granules of memory, and once as much as there is.
///
/// # Panics
/// If the driver breaks the contract of [`Driver`].
pub fn check(driver: &Arc<dyn Driver>) {
    driver.properties().check();
    assert_eq!(driver.held_bytes(), 0, "the suite needs a driver of its own");
    let capacity = driver.properties().capacity_bytes;
    assert!(driver.available_bytes() <= capacity - driver.context_bytes(), "a context takes room");
    address_space_costs_nothing(driver);
    regions_are_aligned_and_apart(driver);
    committed_memory_is_zero_and_keeps_what_is_written(driver);
    copies_reach_every_byte(driver);
    if driver.properties().grows_in_place {
        parts_come_and_go(driver);
    }
    capacity_is_hard(driver);
    what_is_too_large_is_refused(driver);
    driver.sync().expect("nothing is under way");
    assert_eq!(driver.held_bytes(), 0, "everything was given back");
}

fn reserved(driver: &Arc<dyn Driver>, n_granules: u64) -> Region {
    let bytes = n_granules * driver.properties().granule_bytes;
    Region::reserve(driver.clone(), bytes).expect("a small region")
}

fn address_space_costs_nothing(driver: &Arc<dyn Driver>) {
    let available = driver.available_bytes();
    let _region = reserved(driver, 4);
    assert_eq!((driver.held_bytes(), driver.available_bytes()), (0, available));
}

fn regions_are_aligned_and_apart(driver: &Arc<dyn Driver>) {
    let regions: Vec<Region> = (1..=4).map(|n| reserved(driver, n)).collect();
    for (i, a) in regions.iter().enumerate() {
        assert_eq!(a.base() % driver.properties().granule_bytes, 0);
        for b in &regions[..i] {
            assert!(a.base() + a.bytes() <= b.base() || b.base() + b.bytes() <= a.base());
        }
    }
}

fn committed_memory_is_zero_and_keeps_what_is_written(driver: &Arc<dyn Driver>) {
    let mut region = reserved(driver, 2);
    region.commit(0..region.bytes()).expect("two granules");
    assert_eq!(driver.held_bytes(), region.bytes());
    let mut bytes = vec![9; 1000];
    region.read(region.bytes() - 1000, &mut bytes).expect("read");
    assert!(bytes.iter().all(|b| *b == 0), "fresh memory is zero");
    region.write(77, b"kept").expect("write");
    region.populate(&(region.base()..region.base() + region.bytes()));
    let mut word = [0; 4];
    region.read(77, &mut word).expect("read");
    assert_eq!(&word, b"kept");
}

fn copies_reach_every_byte(driver: &Arc<dyn Driver>) {
    let mut region = reserved(driver, 2);
    region.commit(0..region.bytes()).expect("two granules");
    let half = driver.properties().granule_bytes;
    let n = usize::try_from(half).expect("a granule fits memory");
    let pattern: Vec<u8> = (0..=250).cycle().take(n).collect();
    region.write(0, &pattern).expect("write");
    region.copy(0, half, half).expect("copy");
    driver.sync().expect("sync");
    let mut copied = vec![0; n];
    region.read(half, &mut copied).expect("read");
    assert!(copied == pattern, "the copy differs");
}

fn parts_come_and_go(driver: &Arc<dyn Driver>) {
    let granule = driver.properties().granule_bytes;
    let mut region = reserved(driver, 4);
    region.commit(0..granule).expect("the first granule");
    region.commit(2 * granule..4 * granule).expect("the last two");
    assert_eq!(driver.held_bytes(), 3 * granule);
    region.write(0, &[1]).expect("write");
    region.write(3 * granule, &[3]).expect("write");
    region.decommit(2 * granule..3 * granule).expect("one in the middle");
    assert_eq!(driver.held_bytes(), 2 * granule);
    region.commit(granule..3 * granule).expect("the gap");
    let mut byte = [7];
    for (offset, expected) in [(0, 1), (granule, 0), (2 * granule, 0), (3 * granule, 3)] {
        region.read(offset, &mut byte).expect("read");
        assert_eq!(byte[0], expected, "at {offset}");
    }
    assert_eq!(region.committed_ranges(), std::slice::from_ref(&(0..4 * granule)));
}

fn capacity_is_hard(driver: &Arc<dyn Driver>) {
    let granule = driver.properties().granule_bytes;
    let all = driver.available_bytes() / granule;
    assert!(all >= 8, "the suite needs eight granules");
    let mut first = reserved(driver, all - 1);
    let mut second = reserved(driver, 2);
    first.commit(0..first.bytes()).expect("all but one granule");
    let error = second.commit(0..2 * granule).expect_err("one granule is missing");
    assert!(matches!(error, Error::Exhausted { .. }), "{error}");
    assert_eq!(driver.held_bytes(), first.bytes(), "a refused commit changes nothing");
    drop(first);
    second.commit(0..2 * granule).expect("there is room again");
}

fn what_is_too_large_is_refused(driver: &Arc<dyn Driver>) {
    let largest = driver.properties().region_bytes_max;
    for bytes in [largest.saturating_add(1), u64::MAX] {
        let error = Region::reserve(driver.clone(), bytes).expect_err("larger than the largest");
        assert!(matches!(error, Error::TooLarge { .. }), "{error}");
    }
}
