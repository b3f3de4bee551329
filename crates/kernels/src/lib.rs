//! Kernels that use the vector instructions of the machine they run on: products, convolutions and
//! vector maths, from slices to slices. They know nothing of tensors or ops.
//!
//! Each kernel is written once, generic over a `Vector`; a file per instruction set (`avx512.rs`,
//! `avx2.rs`, `scalar.rs`) implements it and lists the compiled kernels in a `Kernels` table.
//! `kernels()` is the table for this machine. A new instruction set is a new file and a line in
//! `all()`.
//!
//! Callers see slices, and every check that makes the pointers sound is an `assert!` in the
//! function that makes them.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::multiple_unsafe_ops_per_block,
    clippy::inline_always,
    clippy::needless_range_loop,
    reason = "vector intrinsics are unsafe, must be inlined where their features are enabled, \
              keep arrays in registers only if loops over them count, and convert between numbers"
)]

mod activation;
pub mod approx;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod depthwise;
mod gemm;
mod matrix;
mod normalise;
mod panels;
mod scalar;
mod softmax;
mod stack;
mod tile;
mod vector;
mod widest;

use std::sync::OnceLock;

pub use activation::Activation;
pub use depthwise::{Along, DepthwiseWeights, LEAST_CHANNELS, Lines, depthwise_row};
pub use gemm::{Epilogue, Left, Product, Rows, multiply};
pub use matrix::{Form, Matrix};
pub use normalise::normalise_row;
pub use panels::{PanelsView, WIDTH as PANEL};
pub use softmax::softmax_row;
pub use stack::{Stacked, multiply_stack};
pub use widest::{Loop, Madd, Rounded, widest};

use depthwise::Row;
use normalise::Normalise;
use tile::Block;
use widest::Fused;

/// The kernels of one instruction set.
///
/// # Safety
/// Each may be called only on a machine that has the instruction set, and pointers must be as the
/// type that holds them says.
#[derive(Debug)]
pub(crate) struct Kernels {
    /// Its name.
    pub(crate) name: &'static str,
    /// The most rows of a tile of a product.
    rows: usize,
    /// `true` if a multiply-add rounds once.
    fused: bool,
    /// Computes a block of a matrix product.
    block: unsafe fn(&Block),
    /// Computes a row of a depthwise convolution.
    depthwise: unsafe fn(&Row),
    /// Applies an activation to each element.
    activate: unsafe fn(Activation, &mut [f32]),
    /// Replaces a row by its softmax.
    softmax: unsafe fn(&mut [f32]),
    /// Normalises a row.
    normalise: unsafe fn(Normalise<'_>),
}

/// The kernels in use: the best of this machine, unless others were asked for.
static IN_USE: OnceLock<&'static Kernels> = OnceLock::new();

/// The kernels for this machine.
pub(crate) fn kernels() -> &'static Kernels {
    IN_USE.get_or_init(|| all().next().unwrap_or(&scalar::KERNELS))
}

/// The name of the instruction set that kernels use on this machine.
pub fn instruction_set() -> &'static str {
    kernels().name
}

/// The instruction sets that this machine has kernels for, best first.
pub fn instruction_sets() -> Vec<&'static str> {
    all().map(|kernels| kernels.name).collect()
}

/// Makes this process use another instruction set than the best one, to test or to compare. Only
/// before the first kernel runs: returns whether the set is in use now.
pub fn use_instruction_set(name: &str) -> bool {
    let Some(wanted) = all().find(|kernels| kernels.name == name) else { return false };
    IN_USE.get_or_init(|| wanted).name == name
}

/// The kernels that this machine can run, best first.
pub(crate) fn all() -> impl Iterator<Item = &'static Kernels> {
    #[cfg(target_arch = "x86_64")]
    let vectors = [
        avx512::available().then_some(&avx512::KERNELS),
        avx2::available().then_some(&avx2::KERNELS),
    ];
    #[cfg(not(target_arch = "x86_64"))]
    let vectors = [None];
    vectors.into_iter().flatten().chain([&scalar::KERNELS])
}
