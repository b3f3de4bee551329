//! `LSTMBlockCell`, `BlockLSTM`, `BlockLSTMV2` and `GRUBlockCell`: whole recurrent cells as one op.
//!
//! Follows `lstm_ops.cc` and `gru_ops.cc` of TensorFlow.

use crate::nn::{narrow, widen};
use crate::prelude::*;

pub(super) const LSTM_CELL: OpDef = OpDef::pure("LSTMBlockCell", |attrs| {
    let lstm = Lstm::new(attrs, attrs.float_or("forget_bias", 1.0)?, 3.0, Order::InputCellForget)?;
    Ok(Box::new(LstmCell(lstm)))
});
pub(super) const BLOCK_LSTM: OpDef = OpDef::pure("BlockLSTM", |attrs| {
    let lstm = Lstm::new(attrs, attrs.float_or("forget_bias", 1.0)?, 3.0, Order::InputCellForget)?;
    Ok(Box::new(BlockLstm(lstm)))
});
pub(super) const BLOCK_LSTM_V2: OpDef = OpDef::pure("BlockLSTMV2", |attrs| {
    Ok(Box::new(BlockLstm(Lstm::new(attrs, 0.0, 0.0, Order::InputForgetCell)?)))
});
pub(super) const GRU_CELL: OpDef = OpDef::pure("GRUBlockCell", |_| Ok(Box::new(GruCell)));

/// What an LSTM gives, in the order of its outputs: input gate, state, forget gate, output gate,
/// cell input, cell output, hidden state.
const N_OUTPUTS: usize = 7;

/// How the columns of the weights are ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    InputCellForget,
    InputForgetCell,
}

struct Lstm {
    forget_bias: f32,
    /// The bound of the cell state; none if not positive.
    clip: f32,
    peephole: bool,
    order: Order,
}

/// The weights of a cell.
struct Weights {
    /// A row for each input and each hidden unit.
    w: Vec<f32>,
    /// The diagonal weights from the state to input, forget and output gate.
    peepholes: [Vec<f32>; 3],
    bias: Vec<f32>,
    n_cells: usize,
}

impl Lstm {
    fn new(attrs: &Attrs<'_>, forget_bias: f32, clip: f32, order: Order) -> Result<Self> {
        let clip = attrs.float_or("cell_clip", clip)?;
        let peephole = attrs.bool_or("use_peephole", false)?;
        Ok(Self { forget_bias, clip, peephole, order })
    }

    /// The weights in inputs number `first` on, for inputs of `n_inputs` elements.
    fn weights(&self, ctx: &Ctx<'_>, first: usize, sizes: (usize, usize)) -> Result<Weights> {
        let (n_inputs, n_cells) = sizes;
        let of = |i: usize, shape: &[usize]| floats(ctx, first + i, shape);
        let bias = of(4, &[4 * n_cells])?;
        let w = of(0, &[n_inputs + n_cells, 4 * n_cells])?;
        let peepholes = match self.peephole {
            true => [of(1, &[n_cells])?, of(2, &[n_cells])?, of(3, &[n_cells])?],
            false => [Vec::new(), Vec::new(), Vec::new()],
        };
        Ok(Weights { w, peepholes, bias, n_cells })
    }

    /// One step of one row: `x` and the state before it to the seven outputs.
    fn step(
        &self,
        weights: &Weights,
        x: &[f32],
        (state, hidden): (&[f32], &[f32]),
        out: &mut [Vec<f32>; N_OUTPUTS],
    ) {
        let n = weights.n_cells;
        let mut gates = weights.bias.clone();
        multiply(x, &weights.w, &mut gates);
        multiply(hidden, &weights.w[x.len() * 4 * n..], &mut gates);
        let (cell, forget) = match self.order {
            Order::InputCellForget => (n, 2 * n),
            Order::InputForgetCell => (2 * n, n),
        };
        let [to_input, to_forget, to_output] = &weights.peepholes;
        let peep = |w: &[f32], k: usize, state: f32| if self.peephole { w[k] * state } else { 0.0 };
        for k in 0..n {
            let before = state[k];
            let i = sigmoid(gates[k] + peep(to_input, k, before));
            let f = sigmoid(gates[forget + k] + self.forget_bias + peep(to_forget, k, before));
            let ci = gates[cell + k].tanh();
            let mut cs = ci * i + before * f;
            if self.clip > 0.0 {
                cs = cs.clamp(-self.clip, self.clip);
            }
            let o = sigmoid(gates[3 * n + k] + peep(to_output, k, cs));
            let co = cs.tanh();
            for (out, value) in out.iter_mut().zip([i, cs, f, o, ci, co, o * co]) {
                out.push(value);
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
fn floats(ctx: &Ctx<'_>, i: usize, shape: &[usize]) -> Result<Vec<f32>> {
    let view = ctx.input(i);
    if view.shape().dims() != shape {
        let (got, expected) = (view.shape(), Shape::of(shape));
        return invalid!("input {i} has shape {got}, but {expected} is expected");
    }
    let wide = widen(&view);
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
        let x = floats(ctx, 0, &[n_rows, n_inputs])?;
        let state = floats(ctx, 1, &[n_rows, n_cells])?;
        let hidden = floats(ctx, 2, &[n_rows, n_cells])?;
        let weights = self.0.weights(ctx, 3, (n_inputs, n_cells))?;
        let mut out: [Vec<f32>; N_OUTPUTS] = Default::default();
        for row in 0..n_rows {
            let part = |of: &'_ [f32], n: usize| row * n..row * n + n.min(of.len());
            let before = (&state[part(&state, n_cells)], &hidden[part(&hidden, n_cells)]);
            self.0.step(&weights, &x[part(&x, n_inputs)], before, &mut out);
        }
        let shape = Shape::of(&[n_rows, n_cells]);
        out.iter().enumerate().try_for_each(|(i, values)| write(ctx, i, &shape, values))
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
        let x = floats(ctx, 1, &[n_steps, n_rows, n_inputs])?;
        let mut state = floats(ctx, 2, &[n_rows, n_cells])?;
        let mut hidden = floats(ctx, 3, &[n_rows, n_cells])?;
        for i in 5..8 {
            let shape = ctx.input(i).shape();
            if shape.n_elements() != n_cells {
                return invalid!("a peephole of shape {shape} for {n_cells} cells");
            }
        }
        let weights = self.0.weights(ctx, 4, (n_inputs, n_cells))?;
        let length = size(int(&ctx.input(0))?, "seq_len_max")?.min(n_steps);
        let mut out: [Vec<f32>; N_OUTPUTS] = Default::default();
        for step in 0..length {
            for row in 0..n_rows {
                let at = (step * n_rows + row) * n_inputs;
                let cells = row * n_cells..(row + 1) * n_cells;
                let before = (&state[cells.clone()], &hidden[cells]);
                self.0.step(&weights, &x[at..at + n_inputs], before, &mut out);
            }
            let done = step * n_rows * n_cells;
            state.copy_from_slice(&out[1][done..]);
            hidden.copy_from_slice(&out[6][done..]);
        }
        let shape = Shape::of(&[n_steps, n_rows, n_cells]);
        for (i, values) in out.iter_mut().enumerate() {
            values.resize(shape.n_elements(), 0.0);
            write(ctx, i, &shape, values)?;
        }
        Ok(())
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
        let x = floats(ctx, 0, &[n_rows, n_inputs])?;
        let hidden = floats(ctx, 1, &[n_rows, n_cells])?;
        let w_gates = floats(ctx, 2, &[n_inputs + n_cells, 2 * n_cells])?;
        let w_cell = floats(ctx, 3, &[n_inputs + n_cells, n_cells])?;
        let (b_gates, b_cell) = (floats(ctx, 4, &[2 * n_cells])?, floats(ctx, 5, &[n_cells])?);
        let mut out: [Vec<f32>; 4] = Default::default();
        for row in 0..n_rows {
            let x = &x[row * n_inputs..(row + 1) * n_inputs];
            let hidden = &hidden[row * n_cells..(row + 1) * n_cells];
            let mut gates = b_gates.clone();
            multiply(x, &w_gates, &mut gates);
            multiply(hidden, &w_gates[n_inputs * 2 * n_cells..], &mut gates);
            gates.iter_mut().for_each(|gate| *gate = sigmoid(*gate));
            let (reset, update) = gates.split_at(n_cells);
            let kept: Vec<f32> = reset.iter().zip(hidden).map(|(r, h)| r * h).collect();
            let mut cell = b_cell.clone();
            multiply(x, &w_cell, &mut cell);
            multiply(&kept, &w_cell[n_inputs * n_cells..], &mut cell);
            cell.iter_mut().for_each(|c| *c = c.tanh());
            for k in 0..n_cells {
                out[3].push(update[k] * hidden[k] + (1.0 - update[k]) * cell[k]);
            }
            out[0].extend(reset);
            out[1].extend(update);
            out[2].extend(cell);
        }
        let shape = Shape::of(&[n_rows, n_cells]);
        out.iter().enumerate().try_for_each(|(i, values)| write(ctx, i, &shape, values))
    }
}
