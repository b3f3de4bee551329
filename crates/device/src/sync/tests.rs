//! Two and three threads on the handles that threads share, in many orders.

use std::sync::Arc;

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner, thread};

use super::modelled::in_model;
use crate::logical::GrowthRule;
use crate::{
    Account, Arena, Buffer, Cache, Category, Driver, Error, Growth, Holder, Host, Kind, Limited,
    Owner, Properties, SharedArena, Space, SpaceOptions,
};

/// The granule of the GPUs here: small, so that an order takes little time.
const PAGE: u64 = 4 << 10;

/// The number of orders of a model that are tried, by chance and by priorities.
const N_ORDERS: usize = 400;

/// Runs a model in many orders, the same ones each time.
fn explore(model: impl Fn() + Send + Sync + 'static) {
    let model = Arc::new(move || in_model(&model));
    let by_chance = RandomScheduler::new_from_seed(7, N_ORDERS);
    let one = Arc::clone(&model);
    Runner::new(by_chance, Config::new()).run(move || one());
    let by_priority = PctScheduler::new_from_seed(7, 3, N_ORDERS);
    Runner::new(by_priority, Config::new()).run(move || model());
}

/// A GPU of so many pages.
fn gpu(n_pages: u64) -> Arc<Host> {
    Arc::new(Host::with(Properties {
        name: "gpu:0".to_owned(),
        kind: Kind::Gpu,
        capacity_bytes: n_pages * PAGE,
        granule_bytes: PAGE,
        alignment_bytes: 256,
        region_bytes_max: 1 << 30,
        grows_in_place: true,
        host_visible: true,
    }))
}

/// A buffer of so many pages.
fn allocate(owner: &Owner, category: Category, n_pages: u64) -> Result<Buffer, Error> {
    Buffer::allocate_for(owner, category, usize::try_from(n_pages * PAGE).unwrap())
}

fn space(driver: Arc<dyn Driver>) -> Arc<Space> {
    let limit = driver.properties().capacity_bytes;
    let physical = Arc::new(Limited::new(driver, "physical", limit));
    let account = Arc::clone(physical.account());
    let driver = Arc::new(Limited::new(physical, "gpu:0", limit));
    let (growth, step_bytes) = (GrowthRule::OnDemand, 1);
    Space::new(SpaceOptions { driver, physical: account, growth, step_bytes, context_bytes: 0 })
        .unwrap()
}

fn owner(space: &Arc<Space>, model: &str, limit: Option<u64>) -> Arc<Owner> {
    let account = limit.map(|limit| Arc::new(Account::new(model, limit)));
    Owner::new(space, Holder::Version { model: Arc::from(model), version: 1 }, account)
}

/// Asserts that everything is booked, and that trimming leaves nothing.
fn finish(space: &Space, driver: &dyn Driver) {
    let snapshot = space.snapshot();
    assert_eq!(snapshot.rows.iter().map(|row| row.bytes).sum::<u64>(), snapshot.held_bytes);
    assert_eq!(snapshot.in_use_bytes, 0);
    space.trim("test").unwrap();
    assert_eq!((space.account().held_bytes(), driver.held_bytes()), (0, 0));
}

#[test]
fn no_order_charges_more_than_a_limit_that_changes() {
    explore(|| {
        let account = Arc::new(Account::new("gpu:0", 100));
        let charge = |bytes: u64| {
            let account = Arc::clone(&account);
            thread::spawn(move || {
                for _ in 0..2 {
                    if account.charge(bytes).is_ok() {
                        account.refund(bytes);
                    }
                }
            })
        };
        let threads = [charge(60), charge(50)];
        if account.set_limit(55).is_ok() {
            assert!(account.held_bytes() <= 60, "one more is charged only to be refused");
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(account.held_bytes(), 0);
        assert!(account.peak_bytes() <= 100);
    });
}

#[test]
fn no_order_of_two_caches_loses_a_chunk() {
    explore(|| {
        let gpu = gpu(64);
        let growth = Growth::OnDemand { step_bytes: 1 };
        let shared = SharedArena::new(Arena::new(gpu.clone(), growth).unwrap());
        let work = |sizes: [u64; 2]| {
            let arena = shared.clone();
            thread::spawn(move || {
                let mut cache = Cache::new(arena.clone(), PAGE);
                for bytes in sizes {
                    let piece = arena.allocate(bytes).unwrap();
                    let chunk = cache.allocate(bytes).unwrap();
                    assert_ne!(piece.address(), chunk.address());
                    cache.free(chunk);
                }
            })
        };
        let threads = [work([1000, PAGE]), work([1000, 5])];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        shared.check();
        assert_eq!(shared.stats().in_use_bytes, 0);
        shared.trim(0).unwrap();
        assert_eq!(gpu.held_bytes(), 0);
    });
}

#[test]
fn no_order_of_two_models_leaves_the_books_wrong() {
    explore(|| {
        let gpu = gpu(8);
        let space = space(gpu.clone());
        let work = |model: &str, category: Category| {
            let owner = owner(&space, model, Some(4 * PAGE));
            thread::spawn(move || {
                for n_pages in [3, 1] {
                    let buffer = allocate(&owner, category, n_pages).unwrap();
                    assert_eq!(owner.account().unwrap().held_bytes(), n_pages * PAGE);
                    assert_eq!(owner.bytes(), n_pages * PAGE);
                    drop(buffer);
                }
                assert_eq!(owner.account().unwrap().held_bytes(), 0);
            })
        };
        let threads = [work("a", Category::Weights), work("b", Category::Requests)];
        let snapshot = space.snapshot();
        assert_eq!(snapshot.rows.iter().map(|row| row.bytes).sum::<u64>(), snapshot.held_bytes);
        space.trim("test").unwrap();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        finish(&space, &*gpu);
    });
}

#[test]
fn no_order_refuses_what_the_other_arena_could_give() {
    explore(|| {
        let gpu = gpu(8);
        let space = space(gpu.clone());
        // Idle memory of both arenas is needed by both, and there is enough for both.
        let warm = owner(&space, "warm", None);
        for category in [Category::Weights, Category::Requests] {
            drop(allocate(&warm, category, 4).unwrap());
        }
        let work = |category: Category| {
            let owner = owner(&space, "a", None);
            thread::spawn(move || drop(allocate(&owner, category, 3).unwrap()))
        };
        let threads = [work(Category::Weights), work(Category::Requests)];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        finish(&space, &*gpu);
    });
}

#[test]
fn no_order_of_sharing_and_unloading_books_weights_twice() {
    explore(|| {
        let gpu = gpu(8);
        let space = space(gpu.clone());
        let work = |model: &str| {
            let (owner, space) = (owner(&space, model, None), Arc::clone(&space));
            thread::spawn(move || {
                let mut buffer = allocate(&owner, Category::Weights, 1).unwrap();
                buffer.bytes_mut().unwrap().fill(1);
                let shared = space.sharing().share(buffer, &owner, Category::Weights);
                assert!(shared.bytes().iter().all(|byte| *byte == 1));
                drop(shared);
                space.sharing().unshare(&owner);
                assert_eq!(owner.bytes(), 0, "what another still holds is booked to it");
            })
        };
        let threads = [work("a"), work("b")];
        let snapshot = space.snapshot();
        assert_eq!(snapshot.rows.iter().map(|row| row.bytes).sum::<u64>(), snapshot.held_bytes);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(space.sharing().saved_bytes(), 0);
        finish(&space, &*gpu);
    });
}

#[test]
fn no_order_gives_memory_that_is_set_aside_to_others() {
    explore(|| {
        let gpu = gpu(8);
        let space = space(gpu.clone());
        let aside = {
            let space = Arc::clone(&space);
            thread::spawn(move || {
                let holder = Holder::Version { model: Arc::from("a"), version: 1 };
                let account = Arc::new(Account::new("a", 6 * PAGE));
                let made = space.set_aside(holder.clone(), &account);
                if let Ok(aside) = &made {
                    let owner = Owner::new(aside, holder, None);
                    drop(allocate(&owner, Category::Weights, 6).unwrap());
                }
                made.is_ok()
            })
        };
        let other = owner(&space, "b", None);
        let taken = allocate(&other, Category::Requests, 4);
        if let Err(error) = &taken {
            assert!(matches!(error, Error::Full { .. }), "{error}");
        }
        let had = aside.join().unwrap();
        assert!(had || taken.is_ok(), "one of them had room");
        drop(taken);
        finish(&space, &*gpu);
    });
}
