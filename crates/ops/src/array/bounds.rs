//! `LowerBound` and `UpperBound`: where values would go into rows that are sorted.

use crate::prelude::*;

pub(super) const LOWER: OpDef = OpDef::pure("LowerBound", RowRule::Mixed, |attrs| {
    Ok(Box::new(Bound { out: attrs.dtype_or("out_type", DType::I32)?, side: BoundsSide::Lower }))
});
pub(super) const UPPER: OpDef = OpDef::pure("UpperBound", RowRule::Mixed, |attrs| {
    Ok(Box::new(Bound { out: attrs.dtype_or("out_type", DType::I32)?, side: BoundsSide::Upper }))
});

struct Bound {
    out: DType,
    side: BoundsSide,
}

/// On which side of equal elements a value goes.
#[derive(Clone, Copy)]
enum BoundsSide {
    Lower,
    Upper,
}

impl Op for Bound {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [sorted, values] = arity(inputs)?;
        sorted.require_rank(2)?;
        values.require_rank(2)?;
        Ok(vec![values.with_dtype(self.out)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (sorted, values) = (ctx.input(0), ctx.input(1));
        let ([rows, n_sorted], [value_rows, n_values]) = (&sorted.shape()[..], &values.shape()[..])
        else {
            return invalid!("sorted inputs and values must be matrices");
        };
        if rows != value_rows || sorted.dtype() != values.dtype() {
            // The text is TensorFlow's (`searchsorted_op.cc`).
            return invalid!("Leading dim_size of both tensors must match.");
        }
        let side = self.side;
        let mut places = ctx.scratch().part(values.n_elements())?;
        for_number!(sorted.dtype(), T => {
            let (sorted, values) = (sorted.as_slice::<T>(), values.as_slice::<T>());
            let place = |(row, value): (usize, &T)| {
                let row = &sorted[row * n_sorted..(row + 1) * n_sorted];
                match side {
                    BoundsSide::Lower => row.partition_point(|x| x < value),
                    BoundsSide::Upper => row.partition_point(|x| x <= value),
                }
            };
            let row_of = |(i, value)| (i / n_values.max(&1), value);
            let found = values.iter().enumerate().map(row_of).map(place);
            for (to, place) in places.iter_mut().zip(found) {
                pace(16)?;
                *to = place;
            }
        });
        let output = ctx.output(0, self.out, values.shape())?;
        super::write_sizes(output, &places)
    }

    fn scratch_bytes(&self, inputs: &[Spec], _: &[Spec]) -> usize {
        Scratch::bytes_for::<usize>(&inputs[1])
    }
}
