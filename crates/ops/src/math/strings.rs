//! Binary ops on strings.

use crate::linalg::Stack;
use crate::prelude::*;

/// Concatenates the strings of both inputs, broadcast.
pub(super) fn add(ctx: &mut Ctx<'_>) -> Result<()> {
    let (a, b) = (ctx.input(0), ctx.input(1));
    let pairs = Stack::new(a.shape(), b.shape())?;
    let (x, y) = (a.strings(), b.strings());
    let mut strings = Strings::with_capacity(pairs.len(), 0)?;
    for (i, j) in (0..pairs.len()).map(|element| pairs.pair(element)) {
        pace(32 + x.get(i).len() + y.get(j).len())?;
        strings.extend_last(x.get(i))?;
        strings.push(y.get(j))?;
    }
    ctx.set_output(0, Tensor::from_strings(pairs.dims, strings)?)
}

/// Writes what `compare` says of each pair of strings, broadcast.
pub(super) fn compare(ctx: &mut Ctx<'_>, compare: fn(&[u8], &[u8]) -> bool) -> Result<()> {
    let (a, b) = (ctx.input(0), ctx.input(1));
    let pairs = Stack::new(a.shape(), b.shape())?;
    let (x, y) = (a.strings(), b.strings());
    let mut out = ctx.output(0, DType::Bool, &pairs.dims)?;
    for (element, out) in out.as_mut_slice::<u8>().iter_mut().enumerate() {
        pace(16)?;
        let (i, j) = pairs.pair(element);
        *out = u8::from(compare(x.get(i), y.get(j)));
    }
    Ok(())
}
