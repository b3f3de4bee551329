//! The shapes of matrices and of their diagonals.

use crate::prelude::*;

/// The lowest and the highest diagonal that an input names.
pub(super) fn read_band(k: &View<'_>) -> Result<(i64, i64)> {
    bounds(&ints(k)?)
}

/// The same, if it is known.
pub(super) fn band_of(k: &Spec) -> Result<Option<(i64, i64)>> {
    if k.rank().is_some_and(|rank| rank > 1) {
        return invalid!("diag_index must be a scalar or vector, received {k}");
    }
    known_ints(k).map(|k| bounds(&k)).transpose()
}

fn bounds(k: &[i64]) -> Result<(i64, i64)> {
    match *k {
        [k] => Ok((k, k)),
        [low, high] if low <= high => Ok((low, high)),
        [low, high] => {
            // The texts are TensorFlow's (`matrix_diag_op.cc`).
            invalid!("lower_diag_index must not be larger than upper_diag_index: {low} > {high}")
        }
        _ => invalid!("diag_index must have only one or two elements, received {}", k.len()),
    }
}

/// The dimensions of the diagonals of a matrix.
pub(super) fn diag_dims(dims: &[Dim], (low, high): (i64, i64)) -> Result<Dims> {
    let [outer @ .., rows, columns] = dims else { return invalid!("expected a matrix") };
    let mut output: Dims = outer.iter().cloned().collect();
    if low < high {
        output.push(Dim::Known(high - low + 1));
    }
    output.push(match (rows.known(), columns.known()) {
        (Some(rows), Some(columns)) => {
            let valid = |k: i64| (-rows < k && k < columns) || k == 0;
            if !valid(low) || !valid(high) {
                let bad = if valid(low) { high } else { low };
                let which = if valid(low) { "upper" } else { "lower" };
                return invalid!(
                    "{which}_diag_index is out of bound: {bad}. It must be between {} and {}",
                    -rows,
                    columns
                );
            }
            Dim::Known((rows + high.min(0)).min(columns - low.max(0)))
        }
        _ => Dim::Unknown,
    });
    Ok(output)
}

/// The size of a matrix of diagonals that is asked for; -1 is the smallest that fits.
#[derive(Debug, Clone, Copy)]
pub(super) struct DiagonalSize {
    pub(super) rows: i64,
    pub(super) columns: i64,
}

/// The dimensions of a matrix of diagonals.
pub(super) fn made_dims(dims: &[Dim], (low, high): (i64, i64), size: DiagonalSize) -> Result<Dims> {
    let DiagonalSize { rows, columns } = size;
    let n_diags = high.saturating_sub(low).saturating_add(1);
    let n_inner = if n_diags > 1 { 2 } else { 1 };
    if dims.len() < n_inner {
        return invalid!("diagonal must be at least {n_inner}-dim, received rank {}", dims.len());
    }
    let (outer, inner) = dims.split_at(dims.len() - n_inner);
    if n_diags > 1 && inner[0].differs(&Dim::Known(n_diags)) {
        return invalid!(
            "The number of diagonals provided in the input does not match the lower_diag_index and \
             upper_diag_index range."
        );
    }
    let mut output: Dims = outer.iter().cloned().collect();
    let Some(length) = inner[n_inner - 1].known() else {
        let size = |size: i64| if size < 0 { Dim::Unknown } else { Dim::Known(size) };
        output.extend([size(rows), size(columns)]);
        return Ok(output);
    };
    let least = (length.saturating_sub(high.min(0)), length.saturating_add(low.max(0)));
    let (rows, columns) = match (rows, columns) {
        (-1, -1) => (least.0.max(least.1), least.0.max(least.1)),
        (-1, columns) => (least.0, columns),
        (rows, -1) => (rows, least.1),
        given => given,
    };
    let fits = rows >= least.0 && columns >= least.1 && (rows == least.0 || columns == least.1);
    if !fits {
        return invalid!(
            "The number of rows or columns is not consistent with the specified d_lower, d_upper, \
             and diagonal: {rows} rows and {columns} columns"
        );
    }
    output.extend([Dim::Known(rows), Dim::Known(columns)]);
    Ok(output)
}
