//! Sequences: recurrent cells of TensorFlow 1 and the decoding of label sequences.

mod beam;
mod block_cell;
mod ctc;

use crate::op::OpDef;

/// The ops of this family.
pub(crate) const OPS: &[OpDef] = &[
    block_cell::BLOCK_LSTM,
    block_cell::BLOCK_LSTM_V2,
    block_cell::GRU_CELL,
    block_cell::LSTM_CELL,
    ctc::BEAM,
    ctc::GREEDY,
];
