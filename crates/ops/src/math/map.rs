//! The engine of unary ops: a kernel on slices, called with blocks of the input.

use std::marker::PhantomData;

use half::{bf16, f16};
use kernels::{Loop, Madd, widest};

use super::table::{BLOCK, Column, Family, Narrow, Table, for_column};
use crate::prelude::*;

/// Elements a thread takes at a time where an element costs little.
pub(super) const CHEAP: usize = 1 << 16;
/// Elements a thread takes at a time where an element costs some ten instructions.
pub(super) const COSTLY: usize = 1 << 13;

/// A function of one element.
pub(super) trait One<T, U> {
    /// Its value; products are added to by `M`.
    fn of<M: Madd>(x: T) -> U;
}

/// Slice to slice of the same length.
pub(super) struct Unary;

impl Family for Unary {
    type Kernel<T: 'static> = fn(&[T], &mut [T]);
}

/// Slice to bools.
pub(super) struct Test;

impl Family for Test {
    type Kernel<T: 'static> = fn(&[T], &mut [u8]);
}

/// A unary op: its row of kernels, and the elements that a thread takes at a time.
pub(super) struct Map {
    pub(super) kernels: &'static Table<Unary>,
    pub(super) grain: usize,
}

/// An op that asks something of each element.
pub(super) struct Ask(pub(super) &'static Table<Test>);

/// Writes `F` of each element of `x` to `y`.
pub(super) fn map<T: Copy, U, F: One<T, U>>(x: &[T], y: &mut [U]) {
    widest(MapRun { x, y, function: PhantomData::<F> });
}

struct MapRun<'a, T, U, F> {
    x: &'a [T],
    y: &'a mut [U],
    function: PhantomData<F>,
}

impl<T: Copy, U, F: One<T, U>> Loop for MapRun<'_, T, U, F> {
    #[inline(always)]
    fn run<M: Madd>(self) {
        for (y, x) in self.y.iter_mut().zip(self.x) {
            *y = F::of::<M>(*x);
        }
    }
}

impl Op for Map {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [x] = arity(inputs)?;
        Ok(vec![x.with_dtype(x.dtype)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let dtype = ctx.input(0).dtype();
        let table = self.kernels;
        match dtype {
            DType::F16 => run::<f16, f16>(ctx, dtype, self.grain, half(table.f32, dtype)?),
            DType::BF16 => run::<bf16, bf16>(ctx, dtype, self.grain, half(table.f32, dtype)?),
            _ => for_column!(dtype, T => {
                let kernel = <T as Column>::of(table).ok_or_else(|| lacking(dtype))?;
                run::<T, T>(ctx, dtype, self.grain, kernel)
            }),
        }
    }

    fn in_place(&self) -> Option<usize> {
        Some(0)
    }
}

impl Op for Ask {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [x] = arity(inputs)?;
        Ok(vec![x.with_dtype(DType::Bool)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let dtype = ctx.input(0).dtype();
        match dtype {
            DType::F16 => run::<f16, u8>(ctx, DType::Bool, CHEAP, ask_half(self.0.f32, dtype)?),
            DType::BF16 => run::<bf16, u8>(ctx, DType::Bool, CHEAP, ask_half(self.0.f32, dtype)?),
            _ => for_column!(dtype, T => {
                let kernel = <T as Column>::of(self.0).ok_or_else(|| lacking(dtype))?;
                run::<T, u8>(ctx, DType::Bool, CHEAP, kernel)
            }),
        }
    }
}

/// Calls `kernel` with the input and the output of `dtype` and the same shape, in pieces. If the
/// input is in the output already, block by block through a copy.
pub(super) fn run<T: Element, U: Element>(
    ctx: &mut Ctx<'_>,
    dtype: DType,
    grain: usize,
    kernel: impl Fn(&[T], &mut [U]) + Sync,
) -> Result<()> {
    let pool = ctx.env().pool;
    if let Some(mut view) = ctx.in_place() {
        let out: &mut [U] = view.as_mut_slice();
        in_pieces(pool, out, grain, |_, piece| {
            let mut copy = [T::zeroed(); BLOCK];
            for block in piece.chunks_mut(BLOCK) {
                let copy = &mut copy[..block.len()];
                copy.copy_from_slice(bytemuck::cast_slice(block));
                kernel(copy, block);
            }
        });
        return Ok(());
    }
    let input = ctx.input(0);
    let x: &[T] = input.as_slice();
    let mut view = ctx.output(0, dtype, input.shape())?;
    in_pieces(pool, view.as_mut_slice(), grain, |at, piece| {
        kernel(&x[at..at + piece.len()], piece);
    });
    Ok(())
}

/// The kernel for 16-bit floats: that of `f32` between conversions.
pub(super) fn half<T: Narrow>(
    kernel: Option<fn(&[f32], &mut [f32])>,
    dtype: DType,
) -> Result<impl Fn(&[T], &mut [T]) + Sync> {
    let kernel = kernel.ok_or_else(|| lacking(dtype))?;
    Ok(move |x: &[T], y: &mut [T]| {
        let (mut wide, mut result) = ([0f32; BLOCK], [0f32; BLOCK]);
        for (x, y) in x.chunks(BLOCK).zip(y.chunks_mut(BLOCK)) {
            let (wide, result) = (&mut wide[..x.len()], &mut result[..x.len()]);
            T::widen(x, wide);
            kernel(wide, result);
            T::round(result, y);
        }
    })
}

fn ask_half<T: Narrow>(
    kernel: Option<fn(&[f32], &mut [u8])>,
    dtype: DType,
) -> Result<impl Fn(&[T], &mut [u8]) + Sync> {
    let kernel = kernel.ok_or_else(|| lacking(dtype))?;
    Ok(move |x: &[T], y: &mut [u8]| {
        let mut wide = [0f32; BLOCK];
        for (x, y) in x.chunks(BLOCK).zip(y.chunks_mut(BLOCK)) {
            let wide = &mut wide[..x.len()];
            T::widen(x, wide);
            kernel(wide, y);
        }
    })
}

/// The refusal of a dtype without a kernel.
pub(super) fn lacking(dtype: DType) -> Error {
    Error::Unimplemented(format!("dtype {dtype} is not supported here"))
}
