//! x86 with AVX-512: sixteen floats a vector, and twice as many registers.

use std::arch::x86_64::{
    __m256, __m512, _mm512_add_ps, _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_max_ps, _mm512_min_ps,
    _mm512_set1_ps, _mm512_storeu_ps,
};

use super::normalise::Normalise;
use super::tile::{self, In32, Tiles};
use super::vector::Vector;
use super::{Activation, Block, Fused, Kernels, Row};

pub(super) static KERNELS: Kernels = Kernels {
    name: "avx512",
    rows: <In32<__m512, __m256> as Tiles>::ROWS,
    fused: true,
    block,
    depthwise,
    activate,
    softmax,
    normalise,
};

/// Returns whether this machine can run the kernels of this module: they use the extensions that
/// all processors with AVX-512 have had since the first ones.
pub(super) fn available() -> bool {
    super::avx2::available()
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
}

#[target_feature(enable = "avx2,fma,avx512f,avx512vl,avx512bw,avx512dq")]
unsafe fn block(block: &Block) {
    // SAFETY: the features are enabled here; the caller vouches for the pointers.
    unsafe { tile::block::<In32<__m512, __m256>>(block) }
}

#[target_feature(enable = "avx2,fma,avx512f,avx512vl,avx512bw,avx512dq")]
unsafe fn depthwise(row: &Row) {
    // SAFETY: the features are enabled here; the caller vouches for the pointers, and for at least
    // the floats of the narrower vector.
    unsafe {
        match row.channels {
            ..16 => super::depthwise::row::<__m256>(row),
            _ => super::depthwise::row::<__m512>(row),
        }
    }
}

#[target_feature(enable = "avx2,fma,avx512f,avx512vl,avx512bw,avx512dq")]
unsafe fn activate(activation: Activation, data: &mut [f32]) {
    super::activation::activate::<Fused>(activation, data);
}

#[target_feature(enable = "avx2,fma,avx512f,avx512vl,avx512bw,avx512dq")]
unsafe fn softmax(row: &mut [f32]) {
    super::softmax::softmax::<Fused>(row);
}

#[target_feature(enable = "avx2,fma,avx512f,avx512vl,avx512bw,avx512dq")]
unsafe fn normalise(work: Normalise<'_>) {
    super::normalise::normalise::<Fused>(work);
}

// SAFETY (all blocks below): the trait's callers vouch for the instruction set and the pointers.
#[allow(clippy::undocumented_unsafe_blocks, reason = "one sentence above is for all of them")]
impl Vector for __m512 {
    const LANES: usize = 16;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        unsafe { _mm512_set1_ps(x) }
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        unsafe { _mm512_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        unsafe { _mm512_storeu_ps(to, self) }
    }

    #[inline(always)]
    unsafe fn plus(self, other: Self) -> Self {
        unsafe { _mm512_add_ps(self, other) }
    }

    #[inline(always)]
    unsafe fn times_plus(self, factor: Self, term: Self) -> Self {
        unsafe { _mm512_fmadd_ps(self, factor, term) }
    }

    // The second operand is the result when either is not a number.
    #[inline(always)]
    unsafe fn at_most(self, limit: Self) -> Self {
        unsafe { _mm512_min_ps(limit, self) }
    }

    #[inline(always)]
    unsafe fn at_least(self, limit: Self) -> Self {
        unsafe { _mm512_max_ps(limit, self) }
    }
}
