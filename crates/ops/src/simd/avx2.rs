//! x86 with AVX2 and FMA: eight floats a vector.

use std::arch::x86_64::{
    __m256, _MM_FROUND_NO_EXC, _MM_FROUND_TO_NEAREST_INT, _mm256_add_epi32, _mm256_add_ps,
    _mm256_blendv_ps, _mm256_castsi256_ps, _mm256_cvtps_epi32, _mm256_div_ps, _mm256_fmadd_ps,
    _mm256_loadu_ps, _mm256_max_ps, _mm256_min_ps, _mm256_mul_ps, _mm256_round_ps,
    _mm256_set1_epi32, _mm256_set1_ps, _mm256_slli_epi32, _mm256_storeu_ps, _mm256_sub_ps,
};

use super::vector::Vector;
use super::{Activation, Block, Kernels, Row, activation, depthwise as rows, tile};

pub(super) static KERNELS: Kernels =
    Kernels { name: "avx2", lanes: <__m256 as Vector>::LANES, block, depthwise, activate };

/// Whether this machine can run them.
pub(super) fn available() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")
}

#[target_feature(enable = "avx2,fma")]
unsafe fn block(block: &Block) {
    // SAFETY: the features are enabled here; the caller vouches for the pointers.
    unsafe { tile::block::<__m256>(block) }
}

#[target_feature(enable = "avx2,fma")]
unsafe fn depthwise(row: &Row) {
    // SAFETY: the features are enabled here; the caller vouches for the pointers.
    unsafe { rows::row::<__m256>(row) }
}

#[target_feature(enable = "avx2,fma")]
unsafe fn activate(activation: Activation, data: &mut [f32]) {
    // SAFETY: the features are enabled here.
    unsafe { activation::activate::<__m256>(activation, data) }
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
    unsafe fn minus(self, other: Self) -> Self {
        unsafe { _mm256_sub_ps(self, other) }
    }

    #[inline(always)]
    unsafe fn times(self, other: Self) -> Self {
        unsafe { _mm256_mul_ps(self, other) }
    }

    #[inline(always)]
    unsafe fn over(self, other: Self) -> Self {
        unsafe { _mm256_div_ps(self, other) }
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

    #[inline(always)]
    unsafe fn round(self) -> Self {
        unsafe { _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(self) }
    }

    #[inline(always)]
    unsafe fn power_of_two(self) -> Self {
        unsafe {
            let exponent = _mm256_add_epi32(_mm256_cvtps_epi32(self), _mm256_set1_epi32(127));
            _mm256_castsi256_ps(_mm256_slli_epi32::<23>(exponent))
        }
    }

    #[inline(always)]
    unsafe fn where_negative(self, test: Self, other: Self) -> Self {
        // The sign bit selects.
        unsafe { _mm256_blendv_ps(other, self, test) }
    }
}
