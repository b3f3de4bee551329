//! `expand`: the elements of a tensor repeated to fill a larger shape.

use device::BookedVec;
use smallvec::SmallVec;
use tensor::Shape;

use crate::error::Result;
use crate::scratch::{Part, Scratch};

/// The elements of a tensor of shape `from` repeated to fill `to`, which it broadcasts to; `None`
/// if they fill it already.
pub(super) fn expand<W: Copy + Default>(
    x: &[W],
    from: &Shape,
    to: &Shape,
) -> Result<Option<BookedVec<W>>> {
    let n = to.n_elements();
    if x.len() == n {
        return Ok(None);
    }
    let mut out = BookedVec::filled(W::default(), n)?;
    if n > 0 {
        let ones = std::iter::repeat_n(1, to.rank() - from.rank());
        let from: SmallVec<[usize; 5]> = ones.chain(from.iter().copied()).collect();
        repeat(x, &from, to, &mut out);
    }
    Ok(Some(out))
}

/// The same in scratch memory.
pub(super) fn expand_part<'a, W: bytemuck::Pod>(
    x: &[W],
    (from, to): (&Shape, &Shape),
    scratch: &mut Scratch<'a>,
) -> Result<Option<Part<'a, W>>> {
    let n = to.n_elements();
    if x.len() == n {
        return Ok(None);
    }
    let mut out = scratch.part(n)?;
    if n > 0 {
        let ones = std::iter::repeat_n(1, to.rank() - from.rank());
        let from: SmallVec<[usize; 5]> = ones.chain(from.iter().copied()).collect();
        repeat(x, &from, to, &mut out);
    }
    Ok(Some(out))
}

/// The same in `scratch` if it has room for them, else in `own`; the elements themselves if they
/// fill the shape already.
pub(super) fn expand_in<'a, W: bytemuck::Pod + Default>(
    x: &'a [W],
    (from, to): (&Shape, &Shape),
    scratch: &mut &'a mut [u8],
    own: &'a mut BookedVec<W>,
) -> Result<&'a [W]> {
    let n = to.n_elements();
    if x.len() == n {
        return Ok(x);
    }
    let len = expanded_bytes(n, size_of::<W>());
    let fits = len <= scratch.len();
    let (memory, rest) = std::mem::take(scratch).split_at_mut(if fits { len } else { 0 });
    *scratch = rest;
    let out = match bytemuck::try_cast_slice_mut::<u8, W>(memory) {
        Ok(memory) if fits => &mut memory[..n],
        _ => {
            own.resize(n, W::default())?;
            &mut own[..]
        }
    };
    if n > 0 {
        let ones = std::iter::repeat_n(1, to.rank() - from.rank());
        let from: SmallVec<[usize; 5]> = ones.chain(from.iter().copied()).collect();
        repeat(x, &from, to, out);
    }
    Ok(out)
}

/// The bytes of scratch memory that `n` expanded elements of so many bytes take.
pub(super) fn expanded_bytes(n: usize, size: usize) -> usize {
    (n * size).next_multiple_of(16)
}

fn repeat<W: Copy>(x: &[W], from: &[usize], to: &[usize], out: &mut [W]) {
    if from == to {
        return out.copy_from_slice(x);
    }
    if x.len() == 1 {
        return out.fill(x[0]);
    }
    let inner = out.len() / to[0];
    if from[0] == to[0] {
        let inner_from = x.len() / to[0];
        for (x, out) in x.chunks(inner_from).zip(out.chunks_mut(inner)) {
            repeat(x, &from[1..], &to[1..], out);
        }
        return;
    }
    repeat(x, &from[1..], &to[1..], &mut out[..inner]);
    for i in 1..to[0] {
        out.copy_within(..inner, i * inner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_repeated_along_every_axis() {
        let check = |x: &[u8], from: &[usize], to: &[usize], expected: &[u8]| {
            let got = expand(x, &Shape::of(from), &Shape::of(to)).unwrap();
            assert_eq!(got.as_deref(), Some(expected));
        };
        check(&[7], &[], &[3], &[7, 7, 7]);
        check(&[1, 2], &[2], &[2, 2], &[1, 2, 1, 2]);
        check(&[1, 2], &[2, 1], &[2, 2], &[1, 1, 2, 2]);
        check(&[1, 2], &[2, 1], &[2, 2, 2], &[1, 1, 2, 2, 1, 1, 2, 2]);
        check(&[1, 2], &[2], &[0, 2], &[]);
        assert_eq!(expand(&[1, 2], &Shape::of(&[2]), &Shape::of(&[1, 2])), Ok(None));
    }
}
