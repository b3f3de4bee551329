//! x86 with AVX2 and FMA: eight floats a vector.

use std::arch::x86_64::{
    __m256, _mm256_add_ps, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_max_ps, _mm256_min_ps,
    _mm256_set1_ps, _mm256_storeu_ps,
};

use super::normalise::Normalise;
use super::vector::Vector;
use super::{Activation, Block, Fused, Kernels, Row};

pub(super) static KERNELS: Kernels = Kernels {
    name: "avx2",
    rows: <super::tile::In16<__m256> as super::tile::Tiles>::ROWS,
    fused: true,
    block,
    depthwise,
    activate,
    softmax,
    normalise,
};

/// Returns whether this machine can run the kernels of this module.
pub(super) fn available() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")
}

#[target_feature(enable = "avx2,fma")]
unsafe fn block(block: &Block) {
    // SAFETY: the features are enabled here; the caller vouches for the pointers.
    unsafe { super::tile::block::<super::tile::In16<__m256>>(block) }
}

#[target_feature(enable = "avx2,fma")]
unsafe fn depthwise(row: &Row) {
    // SAFETY: the features are enabled here; the caller vouches for the pointers.
    unsafe { super::depthwise::row::<__m256>(row) }
}

#[target_feature(enable = "avx2,fma")]
unsafe fn activate(activation: Activation, data: &mut [f32]) {
    super::activation::activate::<Fused>(activation, data);
}

#[target_feature(enable = "avx2,fma")]
unsafe fn softmax(row: &mut [f32]) {
    super::softmax::softmax::<Fused>(row);
}

#[target_feature(enable = "avx2,fma")]
unsafe fn normalise(work: Normalise<'_>) {
    super::normalise::normalise::<Fused>(work);
}

// SAFETY (all blocks below): the trait's callers vouch for the instruction set and the pointers.
#[allow(clippy::undocumented_unsafe_blocks, reason = "one sentence above is for all of them")]
impl Vector for __m256 {
    const LANES: usize = 8;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        unsafe { _mm256_set1_ps(x) }
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        unsafe { _mm256_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        unsafe { _mm256_storeu_ps(to, self) }
    }

    #[inline(always)]
    unsafe fn plus(self, other: Self) -> Self {
        unsafe { _mm256_add_ps(self, other) }
    }

    #[inline(always)]
    unsafe fn times_plus(self, factor: Self, term: Self) -> Self {
        unsafe { _mm256_fmadd_ps(self, factor, term) }
    }

    // The second operand is the result when either is not a number.
    #[inline(always)]
    unsafe fn at_most(self, limit: Self) -> Self {
        unsafe { _mm256_min_ps(limit, self) }
    }

    #[inline(always)]
    unsafe fn at_least(self, limit: Self) -> Self {
        unsafe { _mm256_max_ps(limit, self) }
    }
}
