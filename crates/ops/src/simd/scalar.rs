//! Any machine: eight floats in an array, which the compiler may or may not put into vectors.

use super::vector::Vector;
use super::{
    Activation, Block, Kernels, Rounded, Row, activation, depthwise as rows, softmax as softmaxes,
    tile,
};

pub(super) static KERNELS: Kernels = Kernels {
    name: "scalar",
    lanes: <Eight as Vector>::LANES,
    block,
    depthwise,
    activate,
    softmax,
};

unsafe fn block(block: &Block) {
    // SAFETY: any machine can run it; the caller vouches for the pointers.
    unsafe { tile::block::<Eight>(block) }
}

unsafe fn depthwise(row: &Row) {
    // SAFETY: any machine can run it; the caller vouches for the pointers.
    unsafe { rows::row::<Eight>(row) }
}

unsafe fn activate(activation: Activation, data: &mut [f32]) {
    activation::activate::<Rounded>(activation, data);
}

unsafe fn softmax(row: &mut [f32]) {
    softmaxes::softmax::<Rounded>(row);
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
