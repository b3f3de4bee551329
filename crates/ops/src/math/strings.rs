//! Binary ops on strings.

use super::broadcast::{Layout, Operands, Share};
use crate::prelude::*;

/// Concatenates the strings of both inputs, broadcast.
pub(super) fn add(ctx: &mut Ctx<'_>) -> Result<()> {
    let (a, b) = (ctx.input(0), ctx.input(1));
    let (shape, pairs) = pairs(ctx)?;
    let (x, y) = (a.strings(), b.strings());
    let mut strings = Strings::with_capacity(pairs.len(), 0);
    let mut joined = Vec::new();
    for [i, j] in pairs {
        joined.clear();
        joined.extend_from_slice(x.get(i));
        joined.extend_from_slice(y.get(j));
        strings.push(&joined);
    }
    ctx.set_output(0, Tensor::from_strings(shape, strings)?)
}

/// Writes what `compare` says of each pair of strings, broadcast.
pub(super) fn compare(ctx: &mut Ctx<'_>, compare: fn(&[u8], &[u8]) -> bool) -> Result<()> {
    let (a, b) = (ctx.input(0), ctx.input(1));
    let (shape, pairs) = pairs(ctx)?;
    let (x, y) = (a.strings(), b.strings());
    let mut out = ctx.output(0, DType::Bool, &shape)?;
    for (out, [i, j]) in out.as_mut_slice::<u8>().iter_mut().zip(pairs) {
        *out = u8::from(compare(x.get(i), y.get(j)));
    }
    Ok(())
}

/// The shape of the output, and the indices of the elements that meet in each of its elements.
fn pairs(ctx: &Ctx<'_>) -> Result<(Shape, Vec<[usize; 2]>)> {
    let (a, b) = (ctx.input(0).shape(), ctx.input(1).shape());
    let shape = broadcast_shapes(a, b)?;
    let range = |shape: &Shape| (0..shape.n_elements()).collect::<Vec<usize>>();
    let (x, y) = (range(a), range(b));
    let mut pairs = vec![[0usize; 2]; shape.n_elements()];
    let layout = Layout::new(a, b, &shape);
    let operands = Operands { a: Some(&x[..]), b: &y[..] };
    let share = Share { pool: ctx.env().pool, grain: usize::MAX };
    layout.walk(share, operands, &mut pairs, |x, y, out| {
        out.iter_mut().zip(x.iter().zip(y)).for_each(|(out, (x, y))| *out = [*x, *y]);
    });
    Ok((shape, pairs))
}
