//! `Band`: where the elements of diagonals stand in a matrix; and `MatrixBandPart`.

use crate::prelude::*;

pub(crate) const BAND_PART: OpDef =
    OpDef::pure("MatrixBandPart", RowRule::Matrices, |_| Ok(Box::new(BandPart)));

/// On which side short diagonals above and below the main one are filled up.
#[derive(Debug, Clone, Copy)]
pub(super) struct Align {
    above_left: bool,
    below_left: bool,
}

impl Align {
    /// All to the left.
    pub(super) const LEFT: Self = Self { above_left: true, below_left: true };

    pub(super) fn parse(text: &str) -> Result<Self> {
        let (above_left, below_left) = match text {
            "LEFT_LEFT" => (true, true),
            "LEFT_RIGHT" => (true, false),
            "RIGHT_LEFT" => (false, true),
            "RIGHT_RIGHT" => (false, false),
            _ => return invalid!("align must be one of LEFT_LEFT and its like, not {text}"),
        };
        Ok(Self { above_left, below_left })
    }
}

/// Diagonals `low..=high` of matrices of `rows` and `columns`.
pub(super) struct Band {
    rows: usize,
    columns: usize,
    low: i64,
    high: i64,
    /// The elements of the longest diagonal.
    length: usize,
    align: Align,
}

impl Band {
    /// The diagonals of matrices of the last two dimensions of `shape`.
    pub(super) fn new(shape: &Shape, (low, high): (i64, i64), align: Align) -> Result<Self> {
        let band = Self::within(shape, (low, high), align)?;
        let (rows, columns) = (band.rows, band.columns);
        let (signed_rows, signed_columns) = (rows as i64, columns as i64);
        let valid = |k: i64| (-signed_rows < k && k < signed_columns) || k == 0;
        if !valid(low) || !valid(high) {
            // The text is TensorFlow's (`matrix_diag_op.cc`).
            return invalid!("diag_index is out of bound: {low} to {high} of {rows} x {columns}");
        }
        Ok(band)
    }

    /// The same of diagonals that may be outside of the matrices: those have no elements.
    pub(super) fn within(shape: &Shape, (low, high): (i64, i64), align: Align) -> Result<Self> {
        let [.., rows, columns] = shape[..] else {
            return invalid!("input must be at least 2-dim, received shape: {shape}");
        };
        let least = |size: usize, less: i64| (size as i64).saturating_add(less);
        let length = least(rows, high.min(0)).min(least(columns, -low.max(0)));
        Ok(Self { rows, columns, low, high, length: length.max(0) as usize, align })
    }

    /// The elements of one matrix.
    fn area(&self) -> usize {
        self.rows * self.columns
    }

    /// The elements of the diagonals of one matrix.
    fn n_slots(&self) -> usize {
        (self.high - self.low + 1) as usize * self.length
    }

    /// Calls `f` with the place in the diagonals and the place in the matrix of each element.
    fn for_each(&self, mut f: impl FnMut(usize, usize)) {
        for (i, k) in (self.low..=self.high).rev().enumerate() {
            let (row, column) = ((-k).max(0) as usize, k.max(0) as usize);
            let length = self.rows.saturating_sub(row).min(self.columns.saturating_sub(column));
            let left = (k >= 0 && self.align.above_left) || (k <= 0 && self.align.below_left);
            let offset = if left { 0 } else { self.length - length };
            for j in 0..length {
                if is_stopped(4) {
                    return;
                }
                f(i * self.length + offset + j, (row + j) * self.columns + column + j);
            }
        }
    }
}

/// Fills memory with an element.
fn fill<T: Copy>(output: &mut [T], element: T) -> Result<()> {
    for output in output.chunks_mut(AT_ONCE) {
        pace(output.len())?;
        output.fill(element);
    }
    Ok(())
}

/// Matrices of the diagonals in the first input, and of the second input or zero elsewhere.
pub(super) struct Fill {
    pub(super) band: Band,
}

impl Move for Fill {
    fn apply<T: bytemuck::Pod + Send + Sync>(
        &self,
        inputs: &[&[T]],
        output: &mut [T],
    ) -> Result<()> {
        fill(output, inputs.get(1).map_or_else(T::zeroed, |padding| padding[0]))?;
        let (area, n_slots) = (self.band.area(), self.band.n_slots());
        if area == 0 || n_slots == 0 {
            return Ok(());
        }
        let matrices = output.chunks_exact_mut(area).zip(inputs[0].chunks_exact(n_slots));
        for (matrix, diagonals) in matrices {
            pace(64)?;
            self.band.for_each(|slot, at| matrix[at] = diagonals[slot]);
        }
        Ok(())
    }
}

/// The diagonals of the matrices in the first input, filled up with the second or zero.
pub(super) struct Pick {
    pub(super) band: Band,
}

impl Move for Pick {
    fn apply<T: bytemuck::Pod + Send + Sync>(
        &self,
        inputs: &[&[T]],
        output: &mut [T],
    ) -> Result<()> {
        fill(output, inputs.get(1).map_or_else(T::zeroed, |padding| padding[0]))?;
        let (area, n_slots) = (self.band.area(), self.band.n_slots());
        if area == 0 || n_slots == 0 {
            return Ok(());
        }
        let matrices = output.chunks_exact_mut(n_slots).zip(inputs[0].chunks_exact(area));
        for (diagonals, matrix) in matrices {
            pace(64)?;
            self.band.for_each(|slot, at| diagonals[slot] = matrix[at]);
        }
        Ok(())
    }
}

/// The matrices in the first input with the diagonals in the second.
pub(super) struct Replace {
    pub(super) band: Band,
}

impl Move for Replace {
    fn apply<T: bytemuck::Pod + Send + Sync>(
        &self,
        inputs: &[&[T]],
        output: &mut [T],
    ) -> Result<()> {
        output.copy_from_slice(inputs[0]);
        let (area, n_slots) = (self.band.area(), self.band.n_slots());
        if area == 0 || n_slots == 0 {
            return Ok(());
        }
        let matrices = output.chunks_exact_mut(area).zip(inputs[1].chunks_exact(n_slots));
        for (matrix, diagonals) in matrices {
            pace(64)?;
            self.band.for_each(|slot, at| matrix[at] = diagonals[slot]);
        }
        Ok(())
    }
}

/// `MatrixBandPart`: zeros outside of some diagonals around the main one.
struct BandPart;

impl Op for BandPart {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [input, lower, upper] = arity(inputs)?;
        input.require_rank_at_least(2)?;
        lower.require_rank(0)?;
        upper.require_rank(0)?;
        Ok(vec![input.with_dtype(input.dtype)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let input = ctx.input(0);
        let [.., rows, columns] = input.shape()[..] else {
            return invalid!("input must be at least 2-dim, received shape: {}", input.shape());
        };
        let (lower, upper) = (int(&ctx.input(1))?, int(&ctx.input(2))?);
        if lower > rows as i64 {
            // The texts are TensorFlow's (`matrix_band_part_op.cc`).
            return invalid!(
                "num_lower must be negative or less or equal to number of rows ({rows}) got: \
                 {lower}"
            );
        }
        if upper > columns as i64 {
            return invalid!(
                "num_upper must be negative or less or equal to number of columns ({columns}) got: \
                 {upper}"
            );
        }
        let kept = BandKept { rows, columns, lower, upper };
        rearrange(ctx, 0, &[input], input.shape(), &kept)
    }
}

struct BandKept {
    rows: usize,
    columns: usize,
    lower: i64,
    upper: i64,
}

impl Move for BandKept {
    fn apply<T: bytemuck::Pod + Send + Sync>(
        &self,
        inputs: &[&[T]],
        output: &mut [T],
    ) -> Result<()> {
        if output.is_empty() {
            return Ok(());
        }
        let pairs = output.chunks_exact_mut(self.columns).zip(inputs[0].chunks_exact(self.columns));
        for (i, (to, from)) in pairs.enumerate() {
            pace(self.columns)?;
            let row = i % self.rows;
            let first = usize::try_from(self.lower).map_or(0, |lower| row.saturating_sub(lower));
            let end = usize::try_from(self.upper)
                .map_or(self.columns, |upper| (row + upper + 1).min(self.columns));
            let first = first.min(end);
            to[..first].fill(T::zeroed());
            to[first..end].copy_from_slice(&from[first..end]);
            to[end..].fill(T::zeroed());
        }
        Ok(())
    }
}
