//! `RandomShuffle`: the rows in another order.

use super::philox::Singles;
use super::stateful::Stream;
use crate::prelude::*;

struct Shuffle {
    stream: Stream,
}

pub(super) fn build(attrs: &Attrs<'_>) -> Result<Box<dyn Op>> {
    Ok(Box::new(Shuffle { stream: Stream::new(attrs)? }))
}

impl Op for Shuffle {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [x] = arity(inputs)?;
        Ok(vec![x.with_dtype(x.dtype)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let x = ctx.input(0);
        let n_rows = x.shape().first().copied().unwrap_or(1);
        if n_rows <= 1 || x.n_elements() == 0 {
            return ctx.forward(0, x, x.shape().clone());
        }
        let mut order = ctx.scratch().part(n_rows)?;
        order.iter_mut().enumerate().for_each(|(i, row)| *row = i);
        let mut singles = Singles::new(self.stream.reserve(n_rows));
        for i in 0..n_rows - 1 {
            pace(8)?;
            let rest = n_rows - i;
            order.swap(i, i + singles.next() as usize % rest);
        }
        if x.dtype() == DType::String {
            let (strings, width) = (x.strings(), x.n_elements() / n_rows);
            let rows = order.iter().flat_map(|row| row * width..(row + 1) * width);
            let shuffled = Strings::copied(rows.map(|i| strings.get(i)))?;
            return ctx.set_output(0, Tensor::from_strings(x.shape().clone(), shuffled)?);
        }
        let mut out = ctx.output(0, x.dtype(), x.shape())?;
        let width = x.bytes().len() / n_rows;
        for (row, out) in order.iter().zip(out.bytes().chunks_exact_mut(width)) {
            pace(width)?;
            out.copy_from_slice(&x.bytes()[row * width..(row + 1) * width]);
        }
        Ok(())
    }

    fn scratch_bytes(&self, inputs: &[Spec], _: &[Spec]) -> usize {
        let n_rows = inputs[0].shape().and_then(|shape| shape.first().copied());
        Scratch::bytes_of::<usize>(n_rows.unwrap_or(0))
    }
}
