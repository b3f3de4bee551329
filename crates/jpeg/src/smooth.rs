//! Coefficients that a progressive file does not give, guessed from the levels of the blocks
//! around.
//!
//! libjpeg-turbo does so by default, for files that are cut off and for such as leave out passes.
//! Its guess is a smooth surface through five by five blocks. The weights below, and what becomes
//! of the edges, were found by asking TensorFlow for files of one pass.

use super::header::{Component, Frame, Known, N_KNOWN};
use super::scan::{ORDER, Planes};
use crate::error::{Result, ask};

/// The weights of five by five levels, in parts of 256.
type Weights = [[i32; 5]; 5];

/// A coefficient that is guessed: its number in the file's order, and the weights.
type Guess = (usize, Weights);

/// Guesses for a block of which nothing but its level is known, the level included.
const FROM_LEVELS: [Guess; 10] = {
    let level = [
        [-2, -6, -8, -6, -2],
        [-6, 6, 42, 6, -6],
        [-8, 42, 152, 42, -8],
        [-6, 6, 42, 6, -6],
        [-2, -6, -8, -6, -2],
    ];
    let slope = [
        [-1, -1, 0, 1, 1],
        [-3, 13, 0, -13, 3],
        [-3, 38, 0, -38, 3],
        [-3, 13, 0, -13, 3],
        [-1, -1, 0, 1, 1],
    ];
    let bend = [[0; 5], [0, 2, -5, 2, 0], [1, 7, -14, 7, 1], [0, 2, -5, 2, 0], [0; 5]];
    let twist = [[-1, 0, 0, 0, 1], [0, 9, 0, -9, 0], [0; 5], [0, -9, 0, 9, 0], [1, 0, 0, 0, -1]];
    let third = [[0; 5], [0, 1, 0, -1, 0], [0, 2, 0, -2, 0], [0, 1, 0, -1, 0], [0; 5]];
    let mixed = [[0; 5], [0, 1, 0, -1, 0], [0, -3, 0, 3, 0], [0, 1, 0, -1, 0], [0; 5]];
    [
        (0, level),
        (1, slope),
        (2, turned(slope)),
        (3, turned(bend)),
        (4, twist),
        (5, bend),
        (6, third),
        (7, turned(mixed)),
        (8, mixed),
        (9, turned(third)),
    ]
};

/// Guesses for a block of which more is known.
const FROM_MORE: [Guess; 5] = {
    let slope = [[0; 5], [0; 5], [-7, 50, 0, -50, 7], [0; 5], [0; 5]];
    let bend = [[0; 5], [0; 5], [-1, 13, -24, 13, -1], [0; 5], [0; 5]];
    let twist =
        [[0, -1, 0, 1, 0], [-1, 10, 0, -10, 1], [0; 5], [1, -10, 0, 10, -1], [0, 1, 0, -1, 0]];
    [(1, slope), (2, turned(slope)), (3, turned(bend)), (4, twist), (5, bend)]
};

/// The same weights with rows for columns.
const fn turned(weights: Weights) -> Weights {
    let mut out = [[0; 5]; 5];
    let mut i = 0;
    while i < 25 {
        out[i % 5][i / 5] = weights[i / 5][i % 5];
        i += 1;
    }
    out
}

/// Returns whether a frame lacks coefficients, and has what a guess of them takes.
pub(super) fn is_open(frame: &Frame) -> bool {
    let has_basis = |c: &Component| {
        let steps = c.quantization.is_some_and(|table| table[..N_KNOWN].iter().all(|q| *q > 0));
        steps && c.known.now[0].is_some()
    };
    let lacks = |c: &Component| c.known.now[1..].iter().any(|low| *low != Some(0));
    let mut all = frame.components.iter();
    frame.progressive && all.all(has_basis) && frame.components.iter().any(lacks)
}

/// Fills in what is not known of a component from its block column `first` on; what is to the left
/// of that does not count.
pub(super) fn fill(
    planes: &mut Planes,
    frame: &Frame,
    number: usize,
    first: usize,
    go_on: &mut dyn FnMut(usize) -> bool,
) -> Result<()> {
    let component = &frame.components[number];
    let Some(table) = component.quantization else { return Ok(()) };
    let last_good = planes.last_good;
    let blocks = planes.coefficients_mut(number);
    let levels: Vec<i16> = blocks.iter().map(|block| block[0]).collect();
    for y in 0..component.blocks_down {
        let Known { now, before } = &component.known;
        let known = if y / component.v > last_good { before } else { now };
        if known[1..].iter().all(|low| *low == Some(0)) {
            continue;
        }
        ask(go_on, 128 * component.blocks_across)?;
        let guesses: &[Guess] =
            if known[1..].iter().all(Option::is_none) { &FROM_LEVELS } else { &FROM_MORE };
        let rows = rows_around(component, y);
        for x in first..component.blocks_across {
            let columns = columns_around((first, component.blocks_across - 1), x);
            let around = rows.map(|y| columns.map(|x| levels[y * component.stride + x]));
            let block = &mut blocks[y * component.stride + x];
            guess(block, &around, guesses, (known, &table));
        }
    }
    Ok(())
}

/// Guesses coefficients of a block that are zero and not known to the last bit.
fn guess(
    block: &mut [i16; 64],
    around: &[[i16; 5]; 5],
    guesses: &[Guess],
    (known, table): (&[Option<u8>; N_KNOWN], &[u16; 64]),
) {
    for (number, weights) in guesses {
        let place = &mut block[usize::from(ORDER[*number])];
        let low = known[*number];
        if *number > 0 && (low == Some(0) || *place != 0) {
            continue;
        }
        let pairs = weights.as_flattened().iter().zip(around.as_flattened());
        let sum: i64 = pairs.map(|(weight, level)| i64::from(*weight) * i64::from(*level)).sum();
        let (sum, step) = (sum * i64::from(table[0]), i64::from(table[*number]));
        let mut value = (sum.abs() + step * 128) / (step * 256);
        // Had it been as large as the bits that are known say, it would not be zero.
        if let Some(low) = low.filter(|low| *number > 0 && *low > 0) {
            value = value.min((1 << low) - 1);
        }
        *place = (value * sum.signum()) as i16;
    }
}

/// The rows of blocks around row `y`, which begin and end with the picture; libjpeg-turbo goes two
/// rows up or down only where two rows of units are there.
fn rows_around(component: &Component, y: usize) -> [usize; 5] {
    let n_rows = component.blocks_down;
    let (unit, row) = (y / component.v, y % component.v);
    let last_unit = (n_rows - 1) / component.v;
    let above = y.saturating_sub(1);
    let above_that = if row > 1 || unit > 1 { y - 2 } else { above };
    let below = (y + 1).min(n_rows - 1);
    let n_own = if unit < last_unit { component.v } else { n_rows - unit * component.v };
    let below_that = if row + 2 < n_own || unit + 1 < last_unit { y + 2 } else { below };
    [above_that, above, y, below, below_that]
}

/// The columns of blocks around column `x`, from `first` to `last`. Where these are two, the ones
/// to the right of the second are taken for the first.
fn columns_around((first, last): (usize, usize), x: usize) -> [usize; 5] {
    let left = |n: usize| x.saturating_sub(n).max(first);
    let right =
        |n: usize| if last == first + 1 && x + n > last { first } else { (x + n).min(last) };
    [left(2), left(1), x, right(1), right(2)]
}
