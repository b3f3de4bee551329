//! `LSTMBlockCell`, `BlockLSTM`, `BlockLSTMV2` and `GRUBlockCell`: whole recurrent cells as one op.
//!
//! Follows `lstm_ops.cc` and `gru_ops.cc` of TensorFlow.

use crate::nn::{Floats, narrow};
use crate::prelude::*;

pub(super) const LSTM_CELL: OpDef = OpDef::pure("LSTMBlockCell", RowRule::Mixed, |attrs| {
    let lstm = Lstm::new(
        attrs,
        attrs.float_or("forget_bias", 1.0)?,
        3.0,
        BlockCellOrder::InputCellForget,
    )?;
    Ok(Box::new(LstmCell(lstm)))
});
pub(super) const BLOCK_LSTM: OpDef = OpDef::pure("BlockLSTM", RowRule::Mixed, |attrs| {
    let lstm = Lstm::new(
        attrs,
        attrs.float_or("forget_bias", 1.0)?,
        3.0,
        BlockCellOrder::InputCellForget,
    )?;
    Ok(Box::new(BlockLstm(lstm)))
});
pub(super) const BLOCK_LSTM_V2: OpDef = OpDef::pure("BlockLSTMV2", RowRule::Mixed, |attrs| {
    Ok(Box::new(BlockLstm(Lstm::new(attrs, 0.0, 0.0, BlockCellOrder::InputForgetCell)?)))
});
pub(super) const GRU_CELL: OpDef =
    OpDef::pure("GRUBlockCell", RowRule::Mixed, |_| Ok(Box::new(GruCell)));

/// The number of an LSTM's outputs. In order: input gate, state, forget gate, output gate, cell
/// input, cell output, hidden state.
const N_OUTPUTS: usize = 7;

/// The order of the columns of the weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BlockCellOrder {
    InputCellForget,
    InputForgetCell,
}

struct Lstm {
    forget_bias: f32,
    /// The bound of the cell state; none if not positive.
    clip: f32,
    peephole: bool,
    order: BlockCellOrder,
}

/// The weights of a cell.
struct BlockCellWeights<'a> {
    /// A row for each input and each hidden unit.
    w: Floats<'a>,
    /// The diagonal weights from the state to input, forget and output gate.
    peepholes: Option<[Floats<'a>; 3]>,
    bias: Floats<'a>,
    n_cells: usize,
}

/// One row of what a step is given: its input, and the state and output of the step before.
#[derive(Clone, Copy)]
struct BlockCellGiven<'a> {
    x: &'a [f32],
    state: &'a [f32],
    hidden: &'a [f32],
}

/// The memory that a step writes to.
struct BlockCellRoom<'a> {
    /// The sums of the four gates.
    gates: Part<'a, f32>,
    /// The outputs of all steps.
    outputs: [Part<'a, f32>; N_OUTPUTS],
}

impl<'a> BlockCellRoom<'a> {
    /// Room for steps of `n_cells` that give outputs of `n` elements, which are zero at first.
    fn new(scratch: &mut Scratch<'a>, n_cells: usize, n: usize) -> Result<Self> {
        let gates = scratch.part(4 * n_cells)?;
        let mut room = Self { gates, outputs: std::array::from_fn(|_| Part::Given(&mut [])) };
        for output in &mut room.outputs {
            *output = scratch.part(n)?;
            output.fill(0.0);
        }
        Ok(room)
    }

    /// The bytes of it, and of inputs that are widened.
    fn bytes(inputs: &[Spec], outputs: &[Spec]) -> usize {
        wide_bytes(inputs, outputs) + Scratch::bytes_of::<f32>(4 * n_cells_of(outputs))
    }
}

/// The bytes of inputs that are widened, and of all outputs as `f32`.
fn wide_bytes(inputs: &[Spec], outputs: &[Spec]) -> usize {
    let wide: usize = inputs.iter().map(Floats::bytes).sum();
    wide + outputs.iter().map(Scratch::bytes_for::<f32>).sum::<usize>()
}

fn n_cells_of(outputs: &[Spec]) -> usize {
    outputs[0].shape().map_or(0, |shape| shape.last_dim())
}

impl Lstm {
    fn new(attrs: &Attrs<'_>, forget_bias: f32, clip: f32, order: BlockCellOrder) -> Result<Self> {
        let clip = attrs.float_or("cell_clip", clip)?;
        let peephole = attrs.bool_or("use_peephole", false)?;
        Ok(Self { forget_bias, clip, peephole, order })
    }

    /// The weights in inputs number `first` on, for inputs of `n_inputs` elements.
    fn weights<'a>(
        &self,
        ctx: &Ctx<'a>,
        scratch: &mut Scratch<'a>,
        first: usize,
        (n_inputs, n_cells): (usize, usize),
    ) -> Result<BlockCellWeights<'a>> {
        for (i, name) in ["wci", "wcf", "wco"].iter().enumerate() {
            let rank = ctx.input(first + 1 + i).shape().rank();
            if rank != 1 {
                return invalid!("{name} must be rank 1 but is rank {rank}");
            }
        }
        let mut of = |i: usize, shape: &[usize]| floats(ctx, scratch, first + i, shape);
        let bias = of(4, &[4 * n_cells])?;
        let w = of(0, &[n_inputs + n_cells, 4 * n_cells])?;
        let peepholes = match self.peephole {
            true => Some([of(1, &[n_cells])?, of(2, &[n_cells])?, of(3, &[n_cells])?]),
            false => None,
        };
        Ok(BlockCellWeights { w, peepholes, bias, n_cells })
    }

    /// One step, which is row `row` of all steps: what it is given to the seven outputs.
    fn step(
        &self,
        weights: &BlockCellWeights<'_>,
        given: BlockCellGiven<'_>,
        room: &mut BlockCellRoom<'_>,
        row: usize,
    ) {
        let BlockCellGiven { x, state, hidden } = given;
        let n = weights.n_cells;
        let gates = &mut room.gates[..];
        gates.copy_from_slice(&weights.bias);
        multiply(x, &weights.w, gates);
        multiply(hidden, &weights.w[x.len() * 4 * n..], gates);
        let (cell, forget) = match self.order {
            BlockCellOrder::InputCellForget => (n, 2 * n),
            BlockCellOrder::InputForgetCell => (2 * n, n),
        };
        let peep = |gate: usize, k: usize, state: f32| {
            weights.peepholes.as_ref().map_or(0.0, |weights| weights[gate][k] * state)
        };
        for k in 0..n {
            let before = state[k];
            let i = sigmoid(gates[k] + peep(0, k, before));
            let f = sigmoid(gates[forget + k] + self.forget_bias + peep(1, k, before));
            let ci = gates[cell + k].tanh();
            let mut cs = ci * i + before * f;
            if self.clip > 0.0 {
                cs = cs.clamp(-self.clip, self.clip);
            }
            let o = sigmoid(gates[3 * n + k] + peep(2, k, cs));
            let co = cs.tanh();
            for (out, value) in room.outputs.iter_mut().zip([i, cs, f, o, ci, co, o * co]) {
                out[row * n + k] = value;
            }
        }
    }
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// Adds `x · w` to `out`, where `w` has a row for each element of `x`.
fn multiply(x: &[f32], w: &[f32], out: &mut [f32]) {
    for (x, row) in x.iter().zip(w.chunks_exact(out.len().max(1))) {
        out.iter_mut().zip(row).for_each(|(out, w)| *out += x * w);
    }
}

/// Input number `i` as floats, which must have this shape.
fn floats<'a>(
    ctx: &Ctx<'a>,
    scratch: &mut Scratch<'a>,
    i: usize,
    shape: &[usize],
) -> Result<Floats<'a>> {
    let view = ctx.input(i);
    if view.shape().dims() != shape {
        let (got, expected) = (view.shape(), Shape::of(shape));
        return invalid!("input {i} has shape {got}, but {expected} is expected");
    }
    let wide = Floats::of(&view, scratch)?;
    wide.ok_or_else(|| Error::Unimplemented(format!("dtype {} is not supported", view.dtype())))
}

fn write(ctx: &mut Ctx<'_>, i: usize, shape: &Shape, values: &[f32]) -> Result<()> {
    let dtype = ctx.input(ctx.n_inputs() - 1).dtype();
    narrow(values, &mut ctx.output(i, dtype, shape)?)
}

fn dim(spec: &Spec, at: usize) -> Dim {
    spec.dims().map_or(Dim::Unknown, |dims| dims[at].clone())
}

struct LstmCell(Lstm);

impl Op for LstmCell {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [x, state, hidden, ..] = arity::<8>(inputs)?;
        x.require_rank(2)?;
        state.require_rank(2)?;
        hidden.require_rank(2)?;
        let dims = [merge_dim(&dim(x, 0), &dim(state, 0))?, dim(state, 1)];
        Ok(vec![Spec::new(x.dtype, dims); N_OUTPUTS])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (&[n_rows, n_inputs], &[_, n_cells]) =
            (ctx.input(0).shape().dims(), ctx.input(1).shape().dims())
        else {
            return invalid!("x and cs_prev must be matrices");
        };
        let mut scratch = ctx.scratch();
        let x = floats(ctx, &mut scratch, 0, &[n_rows, n_inputs])?;
        let state = floats(ctx, &mut scratch, 1, &[n_rows, n_cells])?;
        let hidden = floats(ctx, &mut scratch, 2, &[n_rows, n_cells])?;
        let weights = self.0.weights(ctx, &mut scratch, 3, (n_inputs, n_cells))?;
        let shape = Shape::of(&[n_rows, n_cells]);
        let mut room = BlockCellRoom::new(&mut scratch, n_cells, shape.n_elements())?;
        for row in 0..n_rows {
            pace(1 << 12)?;
            let (x, cells) = (&x[row * n_inputs..][..n_inputs], row * n_cells..(row + 1) * n_cells);
            let (state, hidden) = (&state[cells.clone()], &hidden[cells]);
            self.0.step(&weights, BlockCellGiven { x, state, hidden }, &mut room, row);
        }
        let outputs = room.outputs.iter().enumerate();
        outputs.into_iter().try_for_each(|(i, values)| write(ctx, i, &shape, values))
    }

    fn scratch_bytes(&self, inputs: &[Spec], outputs: &[Spec]) -> usize {
        BlockCellRoom::bytes(inputs, outputs)
    }
}

struct BlockLstm(Lstm);

impl Op for BlockLstm {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [length, x, state, hidden, ..] = arity::<9>(inputs)?;
        length.require_rank(0)?;
        x.require_rank(3)?;
        state.require_rank(2)?;
        hidden.require_rank(2)?;
        let dims = [dim(x, 0), merge_dim(&dim(x, 1), &dim(state, 0))?, dim(state, 1)];
        Ok(vec![Spec::new(x.dtype, dims); N_OUTPUTS])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (&[n_steps, n_rows, n_inputs], &[_, n_cells]) =
            (ctx.input(1).shape().dims(), ctx.input(2).shape().dims())
        else {
            return invalid!("x must be 3D and cs_prev 2D");
        };
        let mut scratch = ctx.scratch();
        let x = floats(ctx, &mut scratch, 1, &[n_steps, n_rows, n_inputs])?;
        let first_state = floats(ctx, &mut scratch, 2, &[n_rows, n_cells])?;
        let first_hidden = floats(ctx, &mut scratch, 3, &[n_rows, n_cells])?;
        for i in 5..8 {
            let shape = ctx.input(i).shape();
            if shape.n_elements() != n_cells {
                return invalid!("a peephole of shape {shape} for {n_cells} cells");
            }
        }
        let weights = self.0.weights(ctx, &mut scratch, 4, (n_inputs, n_cells))?;
        let length = size(int(&ctx.input(0))?, "seq_len_max")?.min(n_steps);
        let shape = Shape::of(&[n_steps, n_rows, n_cells]);
        let mut room = BlockCellRoom::new(&mut scratch, n_cells, shape.n_elements())?;
        let (mut state, mut hidden) =
            (scratch.part(n_rows * n_cells)?, scratch.part(n_rows * n_cells)?);
        state.copy_from_slice(&first_state);
        hidden.copy_from_slice(&first_hidden);
        for step in 0..length {
            for row in 0..n_rows {
                pace(1 << 12)?;
                let (at, cells) = (step * n_rows + row, row * n_cells..(row + 1) * n_cells);
                let x = &x[at * n_inputs..][..n_inputs];
                let (state, hidden) = (&state[cells.clone()], &hidden[cells]);
                self.0.step(&weights, BlockCellGiven { x, state, hidden }, &mut room, at);
            }
            let done = step * n_rows * n_cells..(step + 1) * n_rows * n_cells;
            state.copy_from_slice(&room.outputs[1][done.clone()]);
            hidden.copy_from_slice(&room.outputs[6][done]);
        }
        let outputs = room.outputs.iter().enumerate();
        outputs.into_iter().try_for_each(|(i, values)| write(ctx, i, &shape, values))
    }

    fn scratch_bytes(&self, inputs: &[Spec], outputs: &[Spec]) -> usize {
        BlockCellRoom::bytes(inputs, outputs) + 2 * Scratch::bytes_for::<f32>(&inputs[2])
    }
}

struct GruCell;

impl Op for GruCell {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [x, hidden, ..] = arity::<6>(inputs)?;
        x.require_rank(2)?;
        hidden.require_rank(2)?;
        let dims = [merge_dim(&dim(x, 0), &dim(hidden, 0))?, dim(hidden, 1)];
        Ok(vec![Spec::new(x.dtype, dims); 4])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (&[n_rows, n_inputs], &[_, n_cells]) =
            (ctx.input(0).shape().dims(), ctx.input(1).shape().dims())
        else {
            return invalid!("x and h_prev must be matrices");
        };
        let mut scratch = ctx.scratch();
        let mut of = |i: usize, shape: &[usize]| floats(ctx, &mut scratch, i, shape);
        let (x, hidden) = (of(0, &[n_rows, n_inputs])?, of(1, &[n_rows, n_cells])?);
        let w_gates = of(2, &[n_inputs + n_cells, 2 * n_cells])?;
        let w_cell = of(3, &[n_inputs + n_cells, n_cells])?;
        let (b_gates, b_cell) = (of(4, &[2 * n_cells])?, of(5, &[n_cells])?);
        let mut gates = scratch.part::<f32>(2 * n_cells)?;
        let mut kept = scratch.part::<f32>(n_cells)?;
        let mut out: [Part<'_, f32>; 4] = std::array::from_fn(|_| Part::Given(&mut []));
        for part in &mut out {
            *part = scratch.part(n_rows * n_cells)?;
        }
        for row in 0..n_rows {
            pace(1 << 12)?;
            let cells = row * n_cells..(row + 1) * n_cells;
            let x = &x[row * n_inputs..(row + 1) * n_inputs];
            let hidden = &hidden[cells.clone()];
            gates.copy_from_slice(&b_gates);
            multiply(x, &w_gates, &mut gates);
            multiply(hidden, &w_gates[n_inputs * 2 * n_cells..], &mut gates);
            gates.iter_mut().for_each(|gate| *gate = sigmoid(*gate));
            let (reset, update) = gates.split_at(n_cells);
            for (kept, (r, h)) in kept.iter_mut().zip(reset.iter().zip(hidden)) {
                *kept = r * h;
            }
            let [out_reset, out_update, out_cell, out_hidden] =
                out.each_mut().map(|out| &mut out[cells.clone()]);
            out_cell.copy_from_slice(&b_cell);
            multiply(x, &w_cell, out_cell);
            multiply(&kept, &w_cell[n_inputs * n_cells..], out_cell);
            out_cell.iter_mut().for_each(|c| *c = c.tanh());
            for k in 0..n_cells {
                out_hidden[k] = update[k] * hidden[k] + (1.0 - update[k]) * out_cell[k];
            }
            out_reset.copy_from_slice(reset);
            out_update.copy_from_slice(update);
        }
        let shape = Shape::of(&[n_rows, n_cells]);
        out.iter().enumerate().try_for_each(|(i, values)| write(ctx, i, &shape, values))
    }

    fn scratch_bytes(&self, inputs: &[Spec], outputs: &[Spec]) -> usize {
        let (n, bytes) = (n_cells_of(outputs), Scratch::bytes_of::<f32>);
        wide_bytes(inputs, outputs) + bytes(2 * n) + bytes(n)
    }
}
