//! `RaggedCross`: all combinations of the features of a row, from ragged, sparse and dense columns.
//!
//! Follows `ragged_cross_op.cc` of TensorFlow.

use super::coo::Coo;
use super::cross::{Column, Crosses, Joiner, Values, Way};
use super::ragged::{check_splits, splits_tensor};
use crate::prelude::*;

pub(super) const DEF: OpDef = OpDef::pure("RaggedCross", RowRule::Mixed, |attrs| {
    let values = attrs.dtype("out_values_type")?;
    // TensorFlow picks its kernel by dtype, whatever `hashed_output` says.
    let way = match values {
        DType::I64 => Way::Hash {
            n_buckets: size(attrs.int("num_buckets")?, "num_buckets")? as u64,
            hash_key: Some(attrs.int("hash_key")?.cast_unsigned()),
        },
        _ => Way::Join,
    };
    let order: Vec<u8> = attrs.str("input_order")?.bytes().collect();
    let n_ragged = attrs.dtypes("ragged_values_types")?.len();
    let n_sparse = attrs.count("Nsparse")?;
    let n_dense = attrs.dtypes("dense_types")?.len();
    let count = |letter: u8| order.iter().filter(|other| **other == letter).count();
    if (count(b'R'), count(b'S'), count(b'D')) != (n_ragged, n_sparse, n_dense) {
        return invalid!("input_order does not name {n_ragged} R, {n_sparse} S and {n_dense} D");
    }
    let splits = attrs.dtype("out_row_splits_type")?;
    Ok(Box::new(RaggedCross { way, order, n_ragged, n_sparse, n_dense, values, splits }))
});

struct RaggedCross {
    way: Way,
    /// A letter for each column: `R`, `S` or `D`.
    order: Vec<u8>,
    n_ragged: usize,
    n_sparse: usize,
    n_dense: usize,
    values: DType,
    splits: DType,
}

impl Op for RaggedCross {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let n_inputs = 2 * self.n_ragged + 3 * self.n_sparse + self.n_dense;
        if inputs.len() != n_inputs {
            return invalid!("expected {n_inputs} inputs but got {}", inputs.len());
        }
        for i in 0..self.n_sparse {
            inputs[2 * self.n_ragged + i].require_dtype(DType::I64)?;
            inputs[2 * self.n_ragged + 2 * self.n_sparse + i].require_dtype(DType::I64)?;
        }
        let values = |start: usize, n: usize| inputs[start..start + n].iter();
        let features = values(0, self.n_ragged)
            .chain(values(2 * self.n_ragged + self.n_sparse, self.n_sparse))
            .chain(values(2 * self.n_ragged + 3 * self.n_sparse, self.n_dense));
        for spec in features {
            if !matches!(spec.dtype, DType::I64 | DType::String) {
                return invalid!("features must be int64 or string, but are {spec}");
            }
        }
        Ok(vec![Spec::new(self.values, [Dim::Unknown]), Spec::new(self.splits, [Dim::Unknown])])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let columns = self.columns(ctx)?;
        let n_rows = columns.first().map_or(0, Column::n_rows);
        if columns.iter().any(|column| column.n_rows() != n_rows) {
            return invalid!("all columns must have {n_rows} rows, as the first has");
        }
        let joiner = Joiner { way: self.way, separator: b"_X_", key: None };
        let mut crosses = Crosses::new(matches!(self.way, Way::Hash { .. }));
        let mut splits = BookedVec::with_capacity(n_rows + 1)?;
        splits.push(0)?;
        for row in 0..n_rows {
            pace(32)?;
            let n = crosses.add_row(&columns, row, &joiner)?;
            splits.push(splits[row] + n)?;
        }
        let n = crosses.indices.len() / 2;
        let values = match crosses.values {
            Values::Hashes(hashes) => Tensor::vector(&hashes)?,
            Values::Strings(strings) => Tensor::from_strings(Shape::of(&[n]), strings)?,
        };
        ctx.set_output(0, values)?;
        ctx.set_output(1, splits_tensor(self.splits, &splits)?)
    }
}

impl RaggedCross {
    fn columns<'a>(&self, ctx: &Ctx<'a>) -> Result<Vec<Column<'a>>> {
        let (n, sparse) = (self.n_sparse, 2 * self.n_ragged);
        let mut next = [0; 3];
        let mut columns = Vec::with_capacity(self.order.len());
        for letter in &self.order {
            let kind = match letter {
                b'R' => 0,
                b'S' => 1,
                _ => 2,
            };
            let i = next[kind];
            next[kind] += 1;
            columns.push(match kind {
                0 => {
                    let values = ctx.input(i);
                    let starts = check_splits(ctx.input(self.n_ragged + i), values.n_elements())?;
                    if values.shape().rank() != 1 {
                        return invalid!("ragged values must be a vector, not {}", values.shape());
                    }
                    Column { values, starts, is_sparse: false }
                }
                1 => {
                    let [indices, values, shape] =
                        [0, n, 2 * n].map(|part| ctx.input(sparse + part + i));
                    Column::sparse(&Coo::new(indices, values, shape)?)?
                }
                _ => Column::dense(ctx.input(sparse + 3 * n + i))?,
            });
        }
        Ok(columns)
    }
}
