//! The product of a left matrix, as it is or gathered from an image, with packed panels.
//!
//! Blocks of rows stay in the second cache while the panels pass through the first one; the inner
//! dimension is cut so that both fit. How the work is cut changes no digit (see `tile.rs`).

use std::cell::RefCell;
use std::ops::Range;

use pool::Pool;

use super::panels::{PanelsView, WIDTH};
use super::tile::Block;
use super::{Activation, Kernels, kernels};

/// The most rows that a task takes at once; a multiple of the rows of a tile.
const BLOCK_ROWS: usize = 96;

/// The most panels that a task takes at once: the block of the result that they make is taken up
/// again for each piece of the inner dimension, and should still be in the second cache then.
const BLOCK_PANELS: usize = 32;

/// The fewest rows that are worth being gathered as a block of their own.
const LEAST_GATHERED: usize = 24;

/// The most floats of the right matrix that a task of few rows reads, but for a few panels of any
/// depth: a run can stop between tasks.
const TASK_FLOATS: usize = 1 << 22;

/// The multiplications that take as long as one elementary operation of a loop.
const MULTIPLICATIONS_AN_OPERATION: usize = 16;

/// The same for floats that are read.
const FLOATS_AN_OPERATION: usize = 4;

/// The steps of the inner dimension that are taken at once.
const BLOCK_DEPTH: usize = 256;

/// The floating-point operations below which threads are not worth waking.
const PARALLEL_FLOPS: usize = 1 << 20;

/// The floats of the right matrix from which on they are, however few rows it is multiplied with:
/// reading it takes longer then, and two cores have two second caches.
const PARALLEL_FLOATS: usize = 1 << 17;

/// A product to be computed.
#[derive(Clone, Copy)]
pub struct Product<'a> {
    /// The rows of the left matrix and of the result.
    pub rows: usize,
    /// The left matrix.
    pub left: Left<'a>,
    /// The right matrix.
    pub right: PanelsView<'a>,
    /// The operations after the product.
    pub epilogue: Epilogue<'a>,
    /// The distance between the rows of the result.
    pub stride: usize,
}

/// The left matrix of a product.
#[derive(Clone, Copy)]
pub enum Left<'a> {
    /// Rows in memory, this far apart.
    Matrix(&'a [f32], usize),
    /// Rows that are put together when they are needed.
    Gathered(&'a dyn Rows),
}

/// Rows that are put together when they are needed.
pub trait Rows: Sync {
    /// Writes a piece of each of some rows, one after the other.
    fn gather(&self, rows: Range<usize>, piece: Range<usize>, to: &mut [f32]);
}

/// The operations on the elements of a product.
#[derive(Debug, Clone, Copy, Default)]
pub struct Epilogue<'a> {
    /// Added to each row.
    pub bias: Option<&'a [f32]>,
    /// Added to the elements; has the layout of the result.
    pub residual: Option<&'a [f32]>,
    /// The function of each element at last.
    pub activation: Activation,
}

/// Writes the product to `out`.
///
/// # Panics
/// If a slice is too short for the sizes.
pub fn multiply(pool: &Pool, product: &Product<'_>, out: &mut [f32]) {
    multiply_with(kernels(), pool, product, out);
}

/// The same with kernels that this machine can run.
fn multiply_with(kernels: &Kernels, pool: &Pool, product: &Product<'_>, out: &mut [f32]) {
    let Product { rows, right, stride, .. } = *product;
    if rows == 0 || right.columns == 0 {
        return;
    }
    let last = (rows - 1) * stride;
    assert!(right.columns <= stride || rows == 1);
    assert!(out.len() >= last + right.columns);
    // SAFETY: the assertions above are about `out`, which is borrowed until the call returns.
    unsafe { multiply_at(kernels, pool, product, Out(out.as_mut_ptr())) };
}

/// The same to memory that starts at `out`.
///
/// # Safety
/// `out` is good for the rows of the product, and nobody else touches them.
pub(super) unsafe fn multiply_at(kernels: &Kernels, pool: &Pool, product: &Product<'_>, out: Out) {
    let Product { rows, right, stride, epilogue, .. } = *product;
    if rows == 0 || right.columns == 0 {
        return;
    }
    let last = (rows - 1) * stride;
    assert!(epilogue.residual.is_none_or(|residual| residual.len() >= last + right.columns));
    assert!(epilogue.bias.is_none_or(|bias| bias.len() >= right.columns));
    assert!(right.data.len() >= PanelsView::len(right.rows, right.columns));
    if let Left::Matrix(data, stride) = product.left {
        assert!(data.len() >= (rows - 1) * stride + right.rows);
    }
    let flops = rows.saturating_mul(right.rows).saturating_mul(2 * right.columns);
    let is_small = flops < PARALLEL_FLOPS && right.rows * right.columns < PARALLEL_FLOATS;
    let threads = if is_small { 1 } else { pool.n_threads() };
    let work = GemmWork { kernels, product, out, cut: GemmCut::new(threads, kernels, product) };
    match is_small {
        true => (0..work.cut.n_tasks()).for_each(|task| work.run(task)),
        false => pool.run(work.cut.n_tasks(), &|task| work.run(task)),
    }
}

/// The cut of a product into tasks: blocks of rows, and groups of panels.
struct GemmCut {
    block_rows: usize,
    row_blocks: usize,
    group_panels: usize,
    panel_groups: usize,
}

impl GemmCut {
    fn new(threads: usize, kernels: &Kernels, product: &Product<'_>) -> Self {
        let Product { rows, right, left, .. } = product;
        let panels = right.columns.div_ceil(WIDTH);
        let mut row_blocks = rows.div_ceil(BLOCK_ROWS);
        // Enough tasks that no thread waits long for the last one.
        let wanted = match (threads, left) {
            (1, _) => 1,
            (_, Left::Matrix(..)) => 4 * threads,
            // Each group of panels gathers the rows anew: better cut the rows.
            (_, Left::Gathered(_)) => {
                row_blocks = row_blocks.max((2 * threads).min(rows / LEAST_GATHERED)).max(1);
                2 * threads
            }
        };
        let wanted = wanted.div_ceil(row_blocks);
        // Rows of one tile pass through the panels once, whatever their depth.
        let few_rows = TASK_FLOATS / (right.rows * WIDTH).max(1);
        let most = if *rows <= kernels.rows { few_rows.max(1) } else { BLOCK_PANELS };
        let group_panels = panels.div_ceil(wanted.min(panels)).min(most);
        // Tiles take several panels at once.
        let at_once = if *rows <= 3 { 8 } else { 4 };
        let group_panels = group_panels.next_multiple_of(at_once);
        let block_rows = rows.div_ceil(row_blocks);
        Self { block_rows, row_blocks, group_panels, panel_groups: panels.div_ceil(group_panels) }
    }

    fn n_tasks(&self) -> usize {
        self.row_blocks * self.panel_groups
    }
}

thread_local! {
    /// The buffer in which a thread gathers rows: of one size, and kept for the next product.
    static GATHERED: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// One call: what the tasks share.
struct GemmWork<'a> {
    kernels: &'a Kernels,
    product: &'a Product<'a>,
    out: Out,
    cut: GemmCut,
}

/// The result, whose disjoint parts the tasks write.
#[derive(Clone, Copy)]
pub(super) struct Out(pub(super) *mut f32);

impl Out {
    /// The same, this much further.
    ///
    /// # Safety
    /// As for `pointer::add`.
    pub(super) unsafe fn offset(&self, by: usize) -> Self {
        // SAFETY: the caller vouches for it.
        Self(unsafe { self.0.add(by) })
    }
}

// SAFETY: tasks write disjoint blocks of it.
unsafe impl Sync for Out {}

/// Rows of floats that begin `stride` apart.
#[derive(Clone, Copy)]
struct StridedRows<'a> {
    data: &'a [f32],
    stride: usize,
}

impl GemmWork<'_> {
    fn run(&self, task: usize) {
        let Product { rows, left, right, .. } = *self.product;
        let (row_block, group) = (task / self.cut.panel_groups, task % self.cut.panel_groups);
        let first = row_block * self.cut.block_rows;
        let rows = first..rows.min(first + self.cut.block_rows);
        let n_panels = right.columns.div_ceil(WIDTH);
        let panel = group * self.cut.group_panels;
        let panels = panel..n_panels.min(panel + self.cut.group_panels);
        if rows.is_empty() || panels.is_empty() {
            return;
        }
        match left {
            Left::Matrix(data, stride) => {
                let most = if rows.len() <= self.kernels.rows { usize::MAX } else { BLOCK_DEPTH };
                for piece in pieces(right.rows, most) {
                    if is_stopped_before(&piece, &rows, &panels) {
                        return;
                    }
                    let at = rows.start * stride + piece.start;
                    let left = StridedRows { data: &data[at..], stride };
                    self.piece(left, &rows, &panels, &piece);
                }
            }
            Left::Gathered(source) => self.gather(source, &rows, &panels),
        }
        self.activate(&rows, &panels);
    }

    /// Computes some rows, which are put together piece by piece.
    fn gather(&self, source: &dyn Rows, rows: &Range<usize>, panels: &Range<usize>) {
        GATHERED.with_borrow_mut(|buffer| {
            buffer.resize(BLOCK_ROWS * BLOCK_DEPTH, 0.);
            for piece in pieces(self.product.right.rows, BLOCK_DEPTH) {
                if is_stopped_before(&piece, rows, panels) {
                    return;
                }
                let data = &mut buffer[..rows.len() * piece.len()];
                source.gather(rows.clone(), piece.clone(), data);
                let left = StridedRows { data, stride: piece.len() };
                self.piece(left, rows, panels, &piece);
            }
        });
    }

    /// Computes one piece of the inner dimension, `left` being the rows' part of it.
    fn piece(
        &self,
        left: StridedRows<'_>,
        rows: &Range<usize>,
        panels: &Range<usize>,
        piece: &Range<usize>,
    ) {
        let Product { right, epilogue, stride: out_stride, .. } = *self.product;
        let StridedRows { data: left, stride } = left;
        let column = panels.start * WIDTH;
        let columns = right.columns.min(panels.end * WIDTH) - column;
        let panel_stride = right.rows * WIDTH;
        assert!(left.len() >= (rows.len() - 1) * stride + piece.len());
        let at = rows.start * out_stride + column;
        // SAFETY: `multiply_with` has checked that rows and columns lie in the bias, the residual,
        // the panels and the result; those of this task are ranges of them, and the assertion above
        // is about `left`. Tasks have different rows or panels, so nobody else writes these.
        unsafe {
            let block = Block {
                left: left.as_ptr(),
                stride,
                rows: rows.len(),
                right: right.data.as_ptr().add(panels.start * panel_stride + piece.start * WIDTH),
                panel_stride,
                panels: panels.len(),
                columns,
                depth: piece.len(),
                out: self.out.0.add(at),
                out_stride,
                bias: epilogue.bias.map_or(std::ptr::null(), |bias| bias.as_ptr().add(column)),
                residual: epilogue.residual.map_or(std::ptr::null(), |r| r.as_ptr().add(at)),
                clamp: epilogue.activation.clamp(),
                first: piece.start == 0,
                last: piece.end == right.rows,
            };
            (self.kernels.block)(&block);
        }
    }

    /// Applies an activation that the kernel did not.
    fn activate(&self, rows: &Range<usize>, panels: &Range<usize>) {
        let Product { right, epilogue, stride, .. } = *self.product;
        if epilogue.activation == Activation::None || epilogue.activation.clamp().is_some() {
            return;
        }
        let column = panels.start * WIDTH;
        let columns = right.columns.min(panels.end * WIDTH) - column;
        for row in rows.clone() {
            // SAFETY: the same block of the result as in `piece`, which is this task's alone.
            let part = unsafe {
                std::slice::from_raw_parts_mut(self.out.0.add(row * stride + column), columns)
            };
            // SAFETY: the machine can run these kernels.
            unsafe { (self.kernels.activate)(epilogue.activation, part) };
        }
    }
}

/// Takes note of a piece of work. Whether the run should stop.
fn is_stopped_before(piece: &Range<usize>, rows: &Range<usize>, panels: &Range<usize>) -> bool {
    let n_floats = panels.len() * WIDTH * piece.len();
    // Few rows wait for the floats, many for the multiplications.
    let n_operations = n_floats / FLOATS_AN_OPERATION
        + n_floats.saturating_mul(rows.len()) / MULTIPLICATIONS_AN_OPERATION;
    pool::pace(n_operations).is_some()
}

/// The inner dimension in pieces of like size, at most `most`; one empty piece if there is none.
fn pieces(depth: usize, most: usize) -> impl Iterator<Item = Range<usize>> {
    let size = depth.div_ceil(depth.div_ceil(most).max(1)).max(1);
    let n = depth.div_ceil(size).max(1);
    (0..n).map(move |i| (i * size).min(depth)..((i + 1) * size).min(depth))
}

#[cfg(test)]
mod tests;
