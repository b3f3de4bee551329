//! `Philox`: a generator whose every number is a function of a counter and a key (4x32, 10 rounds),
//! with the conventions of TensorFlow's `philox_random.h`.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

/// The counter and the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Philox {
    counter: u128,
    key: [u32; 2],
}

impl Philox {
    /// The generator of two seeds.
    pub(super) fn seeded(low: u64, high: u64) -> Self {
        Self { counter: u128::from(high) << 64, key: halves(low) }
    }

    /// The generator of an op's two seeds; a random one if both are zero.
    pub(super) fn of_attributes(seed: i64, seed2: i64) -> Self {
        if seed == 0 && seed2 == 0 {
            let random = || RandomState::new().build_hasher().finish();
            return Self::seeded(random(), random());
        }
        Self::seeded(seed.cast_unsigned(), seed2.cast_unsigned())
    }

    /// The generator of a key and a counter as tensors hold them.
    pub(super) fn of_key(key: u64, counter: [u64; 2]) -> Self {
        let counter = u128::from(counter[0]) | u128::from(counter[1]) << 64;
        Self { counter, key: halves(key) }
    }

    /// The generator of a stateless seed, scrambled so that any two differ in all their bits, as in
    /// `stateless_random_ops.cc`.
    pub(super) fn scrambled(seed: [u64; 2]) -> Self {
        let counter = u128::from(seed[0]) | u128::from(seed[1]) << 64;
        let mix = Self { counter, key: [0x3ec8_f720, 0x0246_1e29] }.next();
        let high = u128::from(mix[2]) | u128::from(mix[3]) << 32;
        Self { counter: high << 64, key: [mix[0], mix[1]] }
    }

    /// The key as tensors hold it.
    pub(super) fn key(&self) -> u64 {
        u64::from(self.key[0]) | u64::from(self.key[1]) << 32
    }

    /// The counter as tensors hold it.
    pub(super) fn counter(&self) -> [u64; 2] {
        [self.counter as u64, (self.counter >> 64) as u64]
    }

    /// Four numbers.
    pub(super) fn next(&mut self) -> [u32; 4] {
        let [c0, c1] = halves(self.counter as u64);
        let [c2, c3] = halves((self.counter >> 64) as u64);
        let mut state = [c0, c1, c2, c3];
        let mut key = self.key;
        for _ in 0..10 {
            state = round(state, key);
            key = [key[0].wrapping_add(0x9e37_79b9), key[1].wrapping_add(0xbb67_ae85)];
        }
        self.skip(1);
        state
    }

    /// Leaves out `n` times four numbers.
    pub(super) fn skip(&mut self, n: u64) {
        self.counter = self.counter.wrapping_add(u128::from(n));
    }
}

fn round(state: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let [low_a, high_a] = halves(u64::from(state[0]) * 0xd251_1f53);
    let [low_b, high_b] = halves(u64::from(state[2]) * 0xcd9e_8d57);
    [high_b ^ state[1] ^ key[0], low_b, high_a ^ state[3] ^ key[1], low_a]
}

/// The low and the high half.
fn halves(x: u64) -> [u32; 2] {
    [x as u32, (x >> 32) as u32]
}

/// One number after another.
pub(super) struct Singles {
    philox: Philox,
    four: [u32; 4],
    used: usize,
}

impl Singles {
    /// The numbers of a generator from here on.
    pub(super) fn new(philox: Philox) -> Self {
        Self { philox, four: [0; 4], used: 4 }
    }

    /// The next number.
    pub(super) fn next(&mut self) -> u32 {
        if self.used == 4 {
            self.four = self.philox.next();
            self.used = 0;
        }
        self.used += 1;
        self.four[self.used - 1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answers_come_out() {
        // Of the test vectors that the authors of the generator published.
        let mut zeros = Philox { counter: 0, key: [0, 0] };
        assert_eq!(zeros.next(), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        let mut ones = Philox { counter: u128::MAX, key: [u32::MAX, u32::MAX] };
        assert_eq!(ones.next(), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
    }

    #[test]
    fn skipping_is_drawing() {
        let mut drawn = Philox::seeded(3, 4);
        let mut skipped = drawn;
        (0..5).for_each(|_| _ = drawn.next());
        skipped.skip(5);
        assert_eq!(drawn, skipped);
    }
}
