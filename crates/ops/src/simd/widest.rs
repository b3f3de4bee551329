//! `widest`: plain loops, compiled once for every machine and once more for those with AVX2.

/// A loop that the compiler turns into vector instructions.
///
/// `run` must be `#[inline(always)]`, and so must be all that it calls: only then is it compiled
/// anew for the wider vectors. It must not use `mul_add`, which is slow where there is no FMA, and
/// without which results are the same on all machines.
pub(crate) trait Loop {
    /// Runs the loop.
    fn run(self);
}

/// Runs a loop in the widest vectors that the machine has.
#[inline]
pub(crate) fn widest(code: impl Loop) {
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("avx2") {
        // SAFETY: AVX2 is there.
        return unsafe { with_avx2(code) };
    }
    code.run();
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn with_avx2(code: impl Loop) {
    code.run();
}
