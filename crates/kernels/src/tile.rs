//! The micro-kernel of the matrix product, and the loops next to it.
//!
//! Every element of the product is one accumulator that starts from 0 and takes one fused
//! multiply-add for each step of the inner dimension, in order. Cutting that dimension into pieces
//! stores the accumulator and takes it up again, which changes nothing. So an element does not
//! depend on how many rows there are, on how they are cut, or on who computes it.
//!
//! The bias comes last, as in TensorFlow: an accumulator that starts from a large bias rounds every
//! step to the digits of the bias.

use std::marker::PhantomData;

use super::panels::WIDTH;
use super::vector::Vector;

/// A block of a product: some rows times some panels, over a piece of the inner dimension.
///
/// # Safety
/// `left` is good for `rows` rows of `depth` floats, `stride` apart. `right` is good for `panels`
/// panels of `depth` rows, `panel_stride` apart. `out`, and `residual` unless null, are good for
/// `rows` rows of `columns` floats, `out_stride` apart; `bias`, unless null, for `columns` floats.
/// `columns` lies in the last of the panels.
#[derive(Debug, Clone, Copy)]
pub(super) struct Block {
    pub(super) left: *const f32,
    pub(super) stride: usize,
    pub(super) rows: usize,
    pub(super) right: *const f32,
    pub(super) panel_stride: usize,
    pub(super) panels: usize,
    pub(super) columns: usize,
    pub(super) depth: usize,
    pub(super) out: *mut f32,
    pub(super) out_stride: usize,
    /// Added to each row; null for none. Used in the last piece.
    pub(super) bias: *const f32,
    /// Added to the product; null for none. Used in the last piece.
    pub(super) residual: *const f32,
    /// The limits of the result in the last piece.
    pub(super) clamp: Option<(f32, f32)>,
    /// `true` for the first piece of the inner dimension.
    pub(super) first: bool,
    /// `true` for the last piece.
    pub(super) last: bool,
}

/// The most rows that a tile of any instruction set has.
const MOST_ROWS: usize = 8;

/// The rows and panels of a block that a tile covers: the first of each, and how many.
#[derive(Debug, Clone, Copy)]
pub(super) struct TileExtent {
    row: usize,
    rows: usize,
    panel: usize,
    panels: usize,
}

/// The cut of a block into tiles that fit the registers of an instruction set.
pub(super) trait Tiles {
    /// The most rows of a tile.
    const ROWS: usize;

    /// Into how many tiles `rows` rows are cut.
    fn groups(rows: usize) -> usize;

    /// Returns how many whole panels a tile of `rows` rows takes at once, if `left` are left.
    fn at_once(rows: usize, left: usize) -> usize;

    /// Computes one tile.
    ///
    /// # Safety
    /// The machine has the instruction set, and the tile lies in the block.
    unsafe fn tile(block: &Block, extent: TileExtent);
}

/// For 16 registers, with panels of two vectors.
pub(super) struct In16<V>(PhantomData<V>);

/// For 32 registers, with panels of one vector. `N` is half as wide, for a last panel that is at
/// most half full.
pub(super) struct In32<V, N>(PhantomData<(V, N)>);

impl<V: Vector> Tiles for In16<V> {
    const ROWS: usize = 6;

    #[inline(always)]
    fn groups(rows: usize) -> usize {
        rows.div_ceil(Self::ROWS)
    }

    #[inline(always)]
    fn at_once(rows: usize, left: usize) -> usize {
        let most = match rows {
            1 => 4,
            2 | 3 => 2,
            _ => 1,
        };
        if left < most { 1 } else { most }
    }

    #[inline(always)]
    unsafe fn tile(block: &Block, extent: TileExtent) {
        let TileExtent { row, rows, panel, panels } = extent;
        // SAFETY: the caller vouches for the tile.
        unsafe {
            match (rows, panels) {
                (1, 4) => tile::<V, V, 1, 4, 2>(block, row, panel),
                (1, _) => tile::<V, V, 1, 1, 2>(block, row, panel),
                (2, 2) => tile::<V, V, 2, 2, 2>(block, row, panel),
                (2, _) => tile::<V, V, 2, 1, 2>(block, row, panel),
                (3, 2) => tile::<V, V, 3, 2, 2>(block, row, panel),
                (3, _) => tile::<V, V, 3, 1, 2>(block, row, panel),
                (4, _) => tile::<V, V, 4, 1, 2>(block, row, panel),
                (5, _) => tile::<V, V, 5, 1, 2>(block, row, panel),
                _ => tile::<V, V, 6, 1, 2>(block, row, panel),
            }
        }
    }
}

impl<V: Vector, N: Vector> Tiles for In32<V, N> {
    const ROWS: usize = 8;

    /// Six rows and four panels reuse what they load best; up to eight rows go through the panels
    /// only once.
    #[inline(always)]
    fn groups(rows: usize) -> usize {
        if rows <= Self::ROWS { rows.min(1) } else { rows.div_ceil(6) }
    }

    #[inline(always)]
    fn at_once(rows: usize, left: usize) -> usize {
        let most = match rows {
            1..=3 => 8,
            4..=6 => 4,
            _ => 3,
        };
        match left {
            // Two and two, rather than three and one.
            4 if most == 3 => 2,
            left if left >= most => most,
            4.. => 4,
            2.. => 2,
            _ => 1,
        }
    }

    #[inline(always)]
    unsafe fn tile(block: &Block, extent: TileExtent) {
        let TileExtent { row, rows, panel, panels } = extent;
        macro_rules! tiles {
            ($($rows:literal: $($panels:literal)+;)+) => {
                match (rows, panels) {
                    $($(($rows, $panels) => tile::<V, N, $rows, $panels, 1>(block, row, panel),)+)+
                    _ => unreachable!("no tile of {rows} rows and {panels} panels"),
                }
            };
        }
        // SAFETY: the caller vouches for the tile.
        unsafe {
            tiles! {
                1: 8 4 2 1; 2: 8 4 2 1; 3: 8 4 2 1; 4: 4 3 2 1; 5: 4 3 2 1; 6: 4 3 2 1;
                7: 3 2 1; 8: 3 2 1;
            }
        }
    }
}

/// Computes a block.
///
/// # Safety
/// The machine has the instruction set, and the block is as it says.
#[inline(always)]
pub(super) unsafe fn block<T: Tiles>(block: &Block) {
    let n_groups = T::groups(block.rows);
    if n_groups == 0 {
        return;
    }
    // Groups of like size: eight rows are two tiles of four, not one of six and one of two.
    let (least, longer) = (block.rows / n_groups, block.rows % n_groups);
    let most = least + usize::from(longer > 0);
    let whole = block.columns / WIDTH;
    let mut panel = 0;
    while panel < block.panels {
        let n = T::at_once(most, whole.saturating_sub(panel));
        let mut row = 0;
        for group in 0..n_groups {
            let rows = least + usize::from(group < longer);
            let extent = TileExtent { row, rows, panel, panels: n };
            // SAFETY: the caller vouches for the block, and the tile lies in it.
            unsafe { T::tile(block, extent) };
            row += rows;
        }
        panel += n;
    }
}

/// Computes one tile: `R` rows from `row` times `P` panels of `H` vectors from `panel`, all in
/// registers. `N` is a vector of half a panel.
#[inline(always)]
unsafe fn tile<V: Vector, N: Vector, const R: usize, const P: usize, const H: usize>(
    block: &Block,
    row: usize,
    panel: usize,
) {
    const { assert!(V::LANES * H == WIDTH && N::LANES * 2 == WIDTH && R <= MOST_ROWS) };
    let column = panel * WIDTH;
    // SAFETY: the tile lies in the block, which the caller vouches for; a panel that reaches beyond
    // the columns goes through `partial`.
    unsafe {
        let left = block.left.add(row * block.stride);
        let right = block.right.add(panel * block.panel_stride);
        if column + P * WIDTH <= block.columns {
            let at = row * block.out_stride + column;
            let mut sums = start::<V, R, P, H>(block, block.out.add(at));
            accumulate(&mut sums, (left, block.stride), right, block);
            finish(block, &sums, at, column);
        } else if block.columns - column <= WIDTH / 2 {
            partial::<N, R, 1>(block, (left, right), row, column);
        } else {
            partial::<V, R, H>(block, (left, right), row, column);
        }
    }
}

/// The accumulators of a tile: rows, panels, halves of a panel.
type TileSums<V, const R: usize, const P: usize, const H: usize> = [[[V; H]; P]; R];

/// Returns the values that the accumulators start from.
#[inline(always)]
unsafe fn start<V: Vector, const R: usize, const P: usize, const H: usize>(
    block: &Block,
    out: *const f32,
) -> TileSums<V, R, P, H> {
    // SAFETY: the caller has checked that the tile lies in `out`.
    unsafe {
        let mut sums = [[[V::splat(0.); H]; P]; R];
        if !block.first {
            for r in 0..R {
                let from = out.add(r * block.out_stride);
                for p in 0..P {
                    for h in 0..H {
                        sums[r][p][h] = V::load(from.add(p * WIDTH + h * V::LANES));
                    }
                }
            }
        }
        sums
    }
}

/// One multiply-add for each element and step.
#[inline(always)]
unsafe fn accumulate<V: Vector, const R: usize, const P: usize, const H: usize>(
    sums: &mut TileSums<V, R, P, H>,
    (left, stride): (*const f32, usize),
    right: *const f32,
    block: &Block,
) {
    // SAFETY: `left` has `R` rows and `right` `P` panels of `depth` steps, as the caller checked.
    unsafe {
        let mut acc = *sums;
        for k in 0..block.depth {
            for p in 0..P {
                let at = right.add(p * block.panel_stride + k * WIDTH);
                let mut columns = [V::splat(0.); H];
                for h in 0..H {
                    columns[h] = V::load(at.add(h * V::LANES));
                }
                for r in 0..R {
                    let x = V::splat(*left.add(r * stride + k));
                    for h in 0..H {
                        acc[r][p][h] = x.times_plus(columns[h], acc[r][p][h]);
                    }
                }
            }
        }
        *sums = acc;
    }
}

/// Writes the accumulators, in the last piece after what comes after the product.
#[inline(always)]
unsafe fn finish<V: Vector, const R: usize, const P: usize, const H: usize>(
    block: &Block,
    sums: &TileSums<V, R, P, H>,
    at: usize,
    column: usize,
) {
    // SAFETY: the caller has checked that the tile lies in `out`, and hence in `residual`, and that
    // its columns, which begin at `column`, lie in `bias`.
    unsafe {
        for r in 0..R {
            for p in 0..P {
                for h in 0..H {
                    let at = at + r * block.out_stride + p * WIDTH + h * V::LANES;
                    let mut sum = sums[r][p][h];
                    if block.last {
                        if !block.bias.is_null() {
                            let bias = block.bias.add(column + p * WIDTH + h * V::LANES);
                            sum = sum.plus(V::load(bias));
                        }
                        if !block.residual.is_null() {
                            sum = sum.plus(V::load(block.residual.add(at)));
                        }
                        if let Some((low, high)) = block.clamp {
                            sum = sum.at_least(V::splat(low)).at_most(V::splat(high));
                        }
                    }
                    sum.store(block.out.add(at));
                }
            }
        }
    }
}

/// A tile whose panel reaches beyond the columns: computed in a buffer, in `H` halves of a panel.
#[inline(always)]
unsafe fn partial<V: Vector, const R: usize, const H: usize>(
    block: &Block,
    (left, right): (*const f32, *const f32),
    row: usize,
    column: usize,
) {
    assert!(column < block.columns);
    let n = block.columns - column;
    let mut out = [0f32; MOST_ROWS * WIDTH];
    let mut residual = [0f32; MOST_ROWS * WIDTH];
    let mut bias = [0f32; WIDTH];
    let at = row * block.out_stride + column;
    // SAFETY: `n` columns from `column` lie in the block, for each of its rows; the buffers have
    // `R` rows of a panel's width.
    unsafe {
        if !block.bias.is_null() {
            block.bias.add(column).copy_to_nonoverlapping(bias.as_mut_ptr(), n);
        }
        for r in 0..R {
            let (at, to) = (at + r * block.out_stride, r * WIDTH);
            if !block.first {
                block.out.add(at).copy_to_nonoverlapping(out.as_mut_ptr().add(to), n);
            }
            if block.last && !block.residual.is_null() {
                let to = residual.as_mut_ptr().add(to);
                block.residual.add(at).copy_to_nonoverlapping(to, n);
            }
        }
        let inner = Block {
            out: out.as_mut_ptr(),
            out_stride: WIDTH,
            bias: bias.as_ptr(),
            residual: residual.as_ptr(),
            ..*block
        };
        let mut sums = start::<V, R, 1, H>(&inner, inner.out);
        accumulate(&mut sums, (left, block.stride), right, block);
        finish(&inner, &sums, 0, 0);
        for r in 0..R {
            let to = block.out.add(at + r * block.out_stride);
            out.as_ptr().add(r * WIDTH).copy_to_nonoverlapping(to, n);
        }
    }
}
