//! `_WrapIndices`: adds the size to indices below zero, which so count from the end. Graph passes
//! make it of the three ops that Keras's embeddings export.

use crate::prelude::*;

pub(super) const DEF: OpDef = OpDef::pure("_WrapIndices", RowRule::Elementwise, |attrs| {
    Ok(Box::new(WrapIndices { size: attrs.int("size")? }))
});

struct WrapIndices {
    size: i64,
}

impl Op for WrapIndices {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [x] = arity(inputs)?;
        Ok(vec![x.with_dtype(x.dtype)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let pool = ctx.env().pool;
        let (x, mut out) = ctx.unary()?;
        match x.dtype() {
            DType::I32 => {
                // As the sum of two `int32` would wrap around.
                let size = self.size as i32;
                in_pieces(pool, out.as_mut_slice::<i32>(), PIECE, |at, out| {
                    let pairs = out.iter_mut().zip(&x.as_slice::<i32>()[at..]);
                    pairs.for_each(|(y, x)| *y = if *x < 0 { x.wrapping_add(size) } else { *x });
                });
            }
            DType::I64 => {
                let size = self.size;
                in_pieces(pool, out.as_mut_slice::<i64>(), PIECE, |at, out| {
                    let pairs = out.iter_mut().zip(&x.as_slice::<i64>()[at..]);
                    pairs.for_each(|(y, x)| *y = if *x < 0 { x.wrapping_add(size) } else { *x });
                });
            }
            other => return invalid!("indices must be int32 or int64, not {other}"),
        }
        Ok(())
    }
}

/// The elements that a thread takes at a time.
const PIECE: usize = 1 << 16;
