//! Any machine: eight floats in an array, which the compiler may or may not put into vectors.

use super::normalise::Normalise;
use super::vector::Vector;
use super::{Activation, Block, Kernels, Rounded, Row};

pub(super) static KERNELS: Kernels = Kernels {
    name: "scalar",
    rows: <super::tile::In16<Eight> as super::tile::Tiles>::ROWS,
    fused: false,
    block,
    depthwise,
    activate,
    softmax,
    normalise,
};

unsafe fn block(block: &Block) {
    // SAFETY: any machine can run it; the caller vouches for the pointers.
    unsafe { super::tile::block::<super::tile::In16<Eight>>(block) }
}

unsafe fn depthwise(row: &Row) {
    // SAFETY: any machine can run it; the caller vouches for the pointers.
    unsafe { super::depthwise::row::<Eight>(row) }
}

unsafe fn activate(activation: Activation, data: &mut [f32]) {
    super::activation::activate::<Rounded>(activation, data);
}

unsafe fn softmax(row: &mut [f32]) {
    super::softmax::softmax::<Rounded>(row);
}

unsafe fn normalise(work: Normalise<'_>) {
    super::normalise::normalise::<Rounded>(work);
}

type Eight = [f32; 8];

#[inline(always)]
fn each(f: impl Fn(usize) -> f32) -> Eight {
    std::array::from_fn(f)
}

impl Vector for Eight {
    const LANES: usize = 8;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        [x; 8]
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller vouches for eight floats; arrays of them need no more alignment.
        unsafe { *from.cast() }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller vouches for eight floats.
        unsafe { *to.cast() = self }
    }

    #[inline(always)]
    unsafe fn plus(self, other: Self) -> Self {
        each(|i| self[i] + other[i])
    }

    #[inline(always)]
    unsafe fn times_plus(self, factor: Self, term: Self) -> Self {
        each(|i| self[i] * factor[i] + term[i])
    }

    #[inline(always)]
    unsafe fn at_most(self, limit: Self) -> Self {
        each(|i| if limit[i] < self[i] { limit[i] } else { self[i] })
    }

    #[inline(always)]
    unsafe fn at_least(self, limit: Self) -> Self {
        each(|i| if limit[i] > self[i] { limit[i] } else { self[i] })
    }
}
