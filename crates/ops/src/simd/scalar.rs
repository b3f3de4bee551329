//! Any machine: eight floats in an array, which the compiler may or may not put into vectors.

use super::vector::Vector;
use super::{Activation, Block, Kernels, Row, activation, depthwise as rows, tile};

pub(super) static KERNELS: Kernels =
    Kernels { name: "scalar", lanes: <Eight as Vector>::LANES, block, depthwise, activate };

unsafe fn block(block: &Block) {
    // SAFETY: any machine can run it; the caller vouches for the pointers.
    unsafe { tile::block::<Eight>(block) }
}

unsafe fn depthwise(row: &Row) {
    // SAFETY: any machine can run it; the caller vouches for the pointers.
    unsafe { rows::row::<Eight>(row) }
}

unsafe fn activate(activation: Activation, data: &mut [f32]) {
    // SAFETY: any machine can run it.
    unsafe { activation::activate::<Eight>(activation, data) }
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
    unsafe fn minus(self, other: Self) -> Self {
        each(|i| self[i] - other[i])
    }

    #[inline(always)]
    unsafe fn times(self, other: Self) -> Self {
        each(|i| self[i] * other[i])
    }

    #[inline(always)]
    unsafe fn over(self, other: Self) -> Self {
        each(|i| self[i] / other[i])
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

    #[inline(always)]
    unsafe fn round(self) -> Self {
        each(|i| self[i].round())
    }

    #[inline(always)]
    unsafe fn power_of_two(self) -> Self {
        each(|i| f32::from_bits(((self[i] as i32 + 127) as u32) << 23))
    }

    #[inline(always)]
    unsafe fn where_negative(self, test: Self, other: Self) -> Self {
        each(|i| if test[i].is_sign_negative() { self[i] } else { other[i] })
    }
}
