//! `widest`: plain loops, compiled once for every machine and once more for those with AVX2 and
//! FMA. There is no third form for AVX-512: most of these loops wait for memory, and there are too
//! many of them.

/// A loop that the compiler turns into vector instructions.
///
/// `run` must be `#[inline(always)]`, and so must be all that it calls: only then is it compiled
/// anew for the wider vectors.
pub trait Loop {
    /// Runs the loop; products are added to by `M`.
    fn run<M: Madd>(self);
}

/// The rounding of a multiply-add: `mul_add` is fast where the machine has an instruction for it,
/// and a slow call where not.
pub trait Madd {
    /// `a * b + c`.
    fn madd(a: f32, b: f32, c: f32) -> f32;
}

/// Rounds the product, then the sum.
pub struct Rounded;

/// Rounds once.
pub(crate) struct Fused;

impl Madd for Rounded {
    #[inline(always)]
    fn madd(a: f32, b: f32, c: f32) -> f32 {
        a * b + c
    }
}

impl Madd for Fused {
    #[inline(always)]
    fn madd(a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }
}

/// Runs a loop in the widest vectors that the machine has.
#[inline]
pub fn widest(code: impl Loop) {
    #[cfg(target_arch = "x86_64")]
    if super::kernels().fused {
        // SAFETY: both kinds of fused kernels, AVX2 and AVX-512, need AVX2 and FMA.
        return unsafe { with_avx2(code) };
    }
    if cfg!(target_arch = "aarch64") {
        return code.run::<Fused>();
    }
    code.run::<Rounded>();
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn with_avx2(code: impl Loop) {
    code.run::<Fused>();
}
