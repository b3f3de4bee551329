//! Examples of which only numbers of fixed shapes are wanted: they are parsed straight into the
//! outputs, with what is found on the way in scratch memory.

use super::feature::{Entry, Take, read_feature};
use super::values::{Number, Room};
use crate::prelude::*;

/// The output that is wanted of one feature. Its number is that of its output.
pub(super) struct Wanted<'a> {
    pub(super) key: &'a [u8],
    /// The values of an example that does not have the feature; if empty, it must.
    pub(super) default: View<'a>,
}

/// The dtypes that can be parsed so.
pub(super) fn is_number(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::I64)
}

/// Fills the outputs, which are there, from the strings of input 0, each of which `read` takes
/// apart. `None` if anything is not as it should be; what the outputs hold then is not specified.
pub(super) fn parse<'a, 'w>(
    ctx: &mut Ctx<'a>,
    wanted: impl Fn(&Ctx<'a>, usize) -> Wanted<'w>,
    read: impl Fn(&'a [u8], Take<'_, 'a>) -> Option<()>,
) -> Result<Option<()>> {
    let n_features = ctx.n_outputs();
    let mut scratch = ctx.scratch();
    let mut order = scratch.part::<usize>(n_features)?;
    let mut seen = scratch.part::<usize>(n_features)?;
    Ok(parse_in(ctx, wanted, read, (&mut order, &mut seen)))
}

/// The same with room for two numbers a feature.
fn parse_in<'a, 'w>(
    ctx: &mut Ctx<'a>,
    wanted: impl Fn(&Ctx<'a>, usize) -> Wanted<'w>,
    read: impl Fn(&'a [u8], Take<'_, 'a>) -> Option<()>,
    (order, seen): (&mut [usize], &mut [usize]),
) -> Option<()> {
    order.iter_mut().enumerate().for_each(|(i, feature)| *feature = i);
    order.sort_unstable_by(|a, b| wanted(ctx, *a).key.cmp(wanted(ctx, *b).key));
    if order.windows(2).any(|pair| wanted(ctx, pair[0]).key == wanted(ctx, pair[1]).key) {
        return None;
    }
    seen.fill(0);
    let examples = ctx.input(0).strings();
    for (row, example) in examples.iter().enumerate() {
        if is_stopped(64 + example.len()) {
            return None;
        }
        let place = (row, examples.len());
        read(example, &mut |(key, feature): Entry<'a>| {
            let at = order.binary_search_by(|i| wanted(ctx, *i).key.cmp(key));
            let Ok(at) = at else { return Some(()) };
            // The last of several features with one key counts.
            seen[order[at]] = row + 1;
            take(&mut ctx.output_again(order[at]).ok()?, place, feature)
        })?;
        for (i, _) in seen.iter().enumerate().filter(|(_, seen)| **seen != row + 1) {
            let default = wanted(ctx, i).default;
            copy(&mut ctx.output_again(i).ok()?, place, default)?;
        }
    }
    Some(())
}

/// Writes the values of a feature to a row of an output. `None` unless they fill it.
fn take(output: &mut ViewMut<'_>, place: (usize, usize), feature: &[u8]) -> Option<()> {
    let (dtype, list) = read_feature(feature).ok()??;
    if dtype != output.dtype() {
        return None;
    }
    let is_full = match dtype {
        DType::F32 => fill::<f32>(output, place, list)?,
        DType::I64 => fill::<i64>(output, place, list)?,
        _ => false,
    };
    is_full.then_some(())
}

/// Returns whether a list fills a row of an output, which it is written to. `None` if it is
/// malformed.
fn fill<T: Number>(
    output: &mut ViewMut<'_>,
    (row, n_rows): (usize, usize),
    list: &[u8],
) -> Option<bool> {
    let all = output.as_mut_slice::<T>();
    let width = all.len() / n_rows;
    let mut room = Room::new(&mut all[row * width..][..width]);
    T::append(&mut room, list)?;
    Some(room.is_full())
}

/// Writes a default to a row of an output. `None` if there is none.
fn copy(output: &mut ViewMut<'_>, (row, n_rows): (usize, usize), default: View<'_>) -> Option<()> {
    let bytes = output.bytes();
    let width = bytes.len() / n_rows;
    if default.n_elements() == 0 || default.bytes().len() != width {
        return None;
    }
    bytes[row * width..][..width].copy_from_slice(default.bytes());
    Some(())
}
