//! Values that a case describes instead of listing: `random SEED …` and `range`.

/// The generator that `tools/opsuite/cases.py` uses too.
pub(super) struct Lcg(u64);

impl Lcg {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn step(&mut self) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0
    }

    #[expect(clippy::cast_precision_loss, reason = "24 bits fit")]
    pub(super) fn float(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * ((self.step() >> 40) as f64 / f64::from(1 << 24))
    }

    #[expect(clippy::cast_possible_wrap, reason = "31 bits fit")]
    pub(super) fn int(&mut self, low: i64, high: i64) -> i64 {
        low + ((self.step() >> 33) as i64).rem_euclid(high - low + 1)
    }
}
