//! `RaggedTensorToTensor`: ragged rows, cut or padded to a common shape.
//!
//! Follows `ragged_tensor_to_tensor_op.cc` of TensorFlow.

use smallvec::SmallVec;

use super::coo::{checked_rows, checked_shape};
use crate::prelude::*;

pub(super) const DEF: OpDef = OpDef::pure("RaggedTensorToTensor", RowRule::Mixed, |attrs| {
    let names = attrs.strings("row_partition_types")?;
    let kinds: Vec<RaggedToTensorKind> =
        names.iter().map(|name| RaggedToTensorKind::parse(name)).collect::<Result<_>>()?;
    let starts_well = match kinds.first() {
        Some(RaggedToTensorKind::FirstDimSize) => {
            kinds.get(1) == Some(&RaggedToTensorKind::ValueRowIds)
        }
        Some(RaggedToTensorKind::RowSplits) => true,
        _ => false,
    };
    if !starts_well || kinds[1..].contains(&RaggedToTensorKind::FirstDimSize) {
        return invalid!(
            "row_partition_types must start with ROW_SPLITS or FIRST_DIM_SIZE, VALUE_ROWIDS"
        );
    }
    Ok(Box::new(RaggedToTensor { kinds }))
});

#[derive(Clone, Copy, PartialEq, Eq)]
enum RaggedToTensorKind {
    FirstDimSize,
    ValueRowIds,
    RowSplits,
}

impl RaggedToTensorKind {
    fn parse(name: &[u8]) -> Result<Self> {
        match name {
            b"FIRST_DIM_SIZE" => Ok(Self::FirstDimSize),
            b"VALUE_ROWIDS" => Ok(Self::ValueRowIds),
            b"ROW_SPLITS" => Ok(Self::RowSplits),
            other => invalid!("Unsupported partition type: {}", String::from_utf8_lossy(other)),
        }
    }
}

struct RaggedToTensor {
    kinds: Vec<RaggedToTensorKind>,
}

impl RaggedToTensor {
    /// The number of ragged dimensions behind the first.
    fn ragged_rank(&self) -> usize {
        self.kinds.len() - usize::from(self.kinds[0] == RaggedToTensorKind::FirstDimSize)
    }

    fn n_rows_dim(&self, partition: &Spec) -> Dim {
        match self.kinds[0] {
            RaggedToTensorKind::FirstDimSize => {
                let sizes = partition.sizes();
                sizes.and_then(|sizes| sizes.first().cloned()).unwrap_or(Dim::Unknown)
            }
            _ => {
                let first = partition.dims().and_then(|dims| dims.first());
                first.map_or(Dim::Unknown, |dim| dim.minus(&Dim::Known(1)))
            }
        }
    }
}

impl Op for RaggedToTensor {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let (got, expected) = (inputs.len(), 3 + self.kinds.len());
        if got != expected {
            return invalid!("expected {expected} inputs but got {got}");
        }
        let (shape, values) = (&inputs[0], &inputs[1]);
        values.require_rank_at_least(1)?;
        inputs[2].require_dtype(values.dtype)?;
        let Some(inner) = values.dims().map(|dims| &dims[1..]) else {
            return Ok(vec![Spec::unknown(values.dtype)]);
        };
        let rank = 1 + self.ragged_rank() + inner.len();
        // A scalar asks for no shape in particular.
        let mut wanted = vec![Dim::Unknown; rank];
        if shape.rank() == Some(1) {
            if let Some(sizes) = shape.sizes().filter(|sizes| sizes.len() == rank) {
                wanted = sizes;
            }
        } else if shape.rank() != Some(0) {
            return Ok(vec![Spec::new(values.dtype, wanted)]);
        }
        let n_rows = self.n_rows_dim(&inputs[3]);
        let known = |at: usize| match at {
            0 => n_rows.clone(),
            at if at > self.ragged_rank() => inner[at - 1 - self.ragged_rank()].clone(),
            _ => Dim::Unknown,
        };
        let dims = wanted.into_iter().enumerate().map(|(at, dim)| match dim {
            Dim::Known(size) if size < 0 => known(at),
            Dim::Unknown if shape.rank() == Some(0) => known(at),
            other => other,
        });
        Ok(vec![Spec::new(values.dtype, dims)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (shape, values, default) = (ctx.input(0), ctx.input(1), ctx.input(2));
        if values.shape().rank() == 0 {
            return invalid!("values must have at least rank 1");
        }
        let mut scratch = ctx.scratch();
        let levels = self.levels(ctx, &mut scratch)?;
        let dims = self.dims(shape, values.shape(), &levels)?;
        let out_shape = checked_shape(values.dtype(), dims.iter().map(|dim| *dim as i64))?;
        let n_outer = 1 + self.ragged_rank();
        let n_values = levels.last().map_or(0, |level| level.lengths.iter().sum::<usize>());
        // Values behind those of the last row are left out.
        if n_values > values.shape()[0] {
            return invalid!(
                "the row partition is of {n_values} values, but there are {}",
                values.shape()[0]
            );
        }
        let places = places(&levels, &dims[..n_outer], &mut scratch)?;

        let element: Shape = values.shape()[1..].iter().copied().collect();
        let mut pattern = scratch.part(element.n_elements())?;
        broadcast_default(default.shape(), &element, &mut pattern)?;
        write(ctx, &places, &pattern, &out_shape)
    }

    fn scratch_bytes(&self, inputs: &[Spec], _: &[Spec]) -> usize {
        let Some(values) = inputs[1].shape() else { return 0 };
        let n = |spec: &Spec| spec.shape().map_or(0, |shape| shape.n_elements());
        let mut n_rows = 0;
        let mut bytes = 0;
        for (kind, partition) in self.kinds.iter().zip(&inputs[3..]) {
            let numbers = Scratch::bytes_of::<usize>;
            match kind {
                RaggedToTensorKind::FirstDimSize => {
                    n_rows =
                        known_int(partition).and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
                }
                // How many values the rows have together depends on the splits, and is known if
                // they are the last.
                RaggedToTensorKind::RowSplits => {
                    bytes += 2 * numbers(n(partition).saturating_sub(1));
                    n_rows = 0;
                }
                RaggedToTensorKind::ValueRowIds => {
                    bytes += 2 * numbers(n_rows);
                    n_rows = n(partition);
                }
            }
        }
        let (n_values, element) = values.split_first().map_or((0, &[][..]), |(n, rest)| (*n, rest));
        let pattern = element.iter().product();
        bytes + Scratch::bytes_of::<usize>(n_values) + Scratch::bytes_of::<usize>(pattern)
    }
}

/// The rows of one ragged dimension: how many there are, and the row of each element.
struct RaggedToTensorLevel<'a> {
    n_rows: usize,
    /// The number of elements of each row, in order.
    lengths: Part<'a, usize>,
}

/// The mark that stands for the place of a value that is cut off.
const CUT_OFF: usize = usize::MAX;

impl RaggedToTensor {
    fn levels<'a>(&self, ctx: &Ctx<'_>, scratch: &mut Scratch<'a>) -> Result<Levels<'a>> {
        let mut levels = Levels::new();
        let mut n_rows = None;
        for (i, kind) in self.kinds.iter().enumerate() {
            let partition = ctx.input(3 + i);
            if !matches!(partition.dtype(), DType::I32 | DType::I64) {
                return invalid!("expected int32 or int64 but got {}", partition.dtype());
            }
            let level = match kind {
                RaggedToTensorKind::FirstDimSize => {
                    let is_there = partition.n_elements() > 0;
                    n_rows = is_there.then(|| int_at(&partition, 0)).transpose()?;
                    continue;
                }
                RaggedToTensorKind::RowSplits => from_splits(&partition, scratch)?,
                RaggedToTensorKind::ValueRowIds => {
                    from_row_ids(&partition, n_rows.unwrap_or(0), scratch)?
                }
            };
            // Rows that are missing are empty.
            if let Some(expected) = n_rows.filter(|expected| *expected < level.n_rows as i64) {
                return invalid!("a row partition has {} rows, not {expected}", level.n_rows);
            }
            n_rows = Some(level.lengths.iter().sum::<usize>() as i64);
            levels.push(level);
        }
        Ok(levels)
    }

    /// The output's dimensions: those asked for, else those that the rows and values have.
    fn dims(
        &self,
        shape: View<'_>,
        values: &Shape,
        levels: &[RaggedToTensorLevel<'_>],
    ) -> Result<SmallVec<[usize; 5]>> {
        let inner = &values[1..];
        let rank = 1 + self.ragged_rank() + inner.len();
        let mut wanted = ints(&shape)?;
        if shape.shape().rank() == 0 {
            if wanted[..] != [-1] {
                return invalid!(
                    "the only valid scalar shape tensor is the fully unknown shape -1"
                );
            }
            wanted = Ints::from_elem(-1, rank);
        }
        if wanted.len() != rank {
            return invalid!(
                "shape has {} dimensions, but the ragged tensor has {rank}",
                wanted.len()
            );
        }
        let natural = |at: usize| match at {
            0 => levels.first().map_or(0, |level| level.n_rows),
            at if at <= levels.len() => levels[at - 1].lengths.iter().copied().max().unwrap_or(0),
            at => inner[at - 1 - levels.len()],
        };
        wanted
            .iter()
            .enumerate()
            .map(|(at, dim)| match usize::try_from(*dim) {
                Err(_) => Ok(natural(at)),
                Ok(dim) if at > levels.len() && dim != natural(at) => {
                    invalid!(
                        "dimension {at} of shape is {dim}, but the values have {}",
                        natural(at)
                    )
                }
                Ok(dim) => Ok(dim),
            })
            .collect()
    }
}

/// The rows of each ragged dimension.
type Levels<'a> = SmallVec<[RaggedToTensorLevel<'a>; 2]>;

fn from_splits<'a>(
    splits: &View<'_>,
    scratch: &mut Scratch<'a>,
) -> Result<RaggedToTensorLevel<'a>> {
    let n_splits = splits.n_elements();
    let starts_well = n_splits > 0 && int_at(splits, 0)? == 0;
    let mut lengths = scratch.part(n_splits.saturating_sub(1))?;
    for (row, length) in lengths.iter_mut().enumerate() {
        pace(4)?;
        let length_now = int_at(splits, row + 1)?.checked_sub(int_at(splits, row)?);
        match length_now.map(usize::try_from) {
            Some(Ok(between)) if starts_well => *length = between,
            _ => return invalid!("Invalid row split: it must start with 0 and not decrease"),
        }
    }
    if !starts_well {
        return invalid!("Invalid row split: it must start with 0 and not decrease");
    }
    Ok(RaggedToTensorLevel { n_rows: lengths.len(), lengths })
}

fn from_row_ids<'a>(
    ids: &View<'_>,
    n_rows: i64,
    scratch: &mut Scratch<'a>,
) -> Result<RaggedToTensorLevel<'a>> {
    let n_rows = checked_rows(n_rows)?;
    let mut lengths = scratch.part(n_rows)?;
    lengths.fill(0);
    let mut last = 0;
    for i in 0..ids.n_elements() {
        pace(4)?;
        let id = int_at(ids, i)?;
        let row = usize::try_from(id).ok().filter(|row| *row < n_rows && id >= last);
        let Some(row) = row else {
            return invalid!("Invalid value_rowids: {id} is below {last} or not below {n_rows}");
        };
        lengths[row] += 1;
        last = id;
    }
    Ok(RaggedToTensorLevel { n_rows, lengths })
}

/// Returns the place in the output of each value, in units of values.
fn places<'a>(
    levels: &[RaggedToTensorLevel<'_>],
    dims: &[usize],
    scratch: &mut Scratch<'a>,
) -> Result<Part<'a, usize>> {
    let mut places: Part<'_, usize> = scratch.part(levels[0].n_rows)?;
    for (row, place) in places.iter_mut().enumerate() {
        pace(2)?;
        *place = if row < dims[0] { row } else { CUT_OFF };
    }
    for (level, width) in levels.iter().zip(&dims[1..]) {
        let n_elements: usize = level.lengths.iter().sum();
        checked_shape(DType::I64, [n_elements as i64])?;
        let mut inner = scratch.part(n_elements)?;
        let mut rest = &mut inner[..];
        for (place, length) in places.iter().zip(level.lengths.iter()) {
            pace(*width)?;
            let (row, after) = rest.split_at_mut(*length);
            for (column, to) in row.iter_mut().enumerate() {
                let is_kept = *place != CUT_OFF && column < *width;
                *to = if is_kept { place * width + column } else { CUT_OFF };
            }
            rest = after;
        }
        places = inner;
    }
    Ok(places)
}

/// Writes, for each element of a value, the element of the default that stands for it.
fn broadcast_default(default: &Shape, element: &Shape, pattern: &mut [usize]) -> Result<()> {
    let wrong = default.rank() > element.rank()
        || default.iter().rev().zip(element.iter().rev()).any(|(d, e)| *d != *e && *d != 1);
    if wrong {
        return invalid!("default_value.shape={default} does not broadcast to values' {element}");
    }
    let strides = default.strides();
    pattern.fill(0);
    let mut repeat = 1;
    for axis in (0..element.rank()).rev() {
        let from_end = element.rank() - axis;
        let stride = default
            .rank()
            .checked_sub(from_end)
            .map_or(0, |at| if default[at] == 1 { 0 } else { strides[at] });
        for (i, at) in pattern.iter_mut().enumerate() {
            *at += i / repeat % element[axis] * stride;
        }
        repeat *= element[axis];
    }
    Ok(())
}

fn write(ctx: &mut Ctx<'_>, places: &[usize], pattern: &[usize], shape: &Shape) -> Result<()> {
    let (values, default) = (ctx.input(1), ctx.input(2));
    let size = pattern.len();
    if values.dtype() == DType::String {
        let n_places = shape.n_elements().checked_div(size).unwrap_or(0);
        let mut sources = BookedVec::filled(None, n_places)?;
        for (value, place) in places.iter().enumerate() {
            pace(4)?;
            if let Some(slot) = sources.get_mut(*place) {
                *slot = Some(value);
            }
        }
        let (strings, defaults) = (values.strings(), default.strings());
        let mut out = Strings::with_capacity(shape.n_elements(), strings.n_bytes())?;
        for source in sources.iter() {
            pace(4)?;
            match source {
                Some(value) => {
                    (0..size).try_for_each(|i| out.push(strings.get(value * size + i)))?
                }
                None => pattern.iter().try_for_each(|at| out.push(defaults.get(*at)))?,
            }
        }
        return ctx.set_output(0, Tensor::from_strings(shape.clone(), out)?);
    }
    let mut output = ctx.output(0, values.dtype(), shape)?;
    if size == 0 || shape.n_elements() == 0 {
        return Ok(());
    }
    for_width!(values.dtype(), T => {
        let (elements, defaults) = (values.as_wide::<T>(), default.as_wide::<T>());
        let out = output.as_wide_mut::<T>();
        for row in out.chunks_exact_mut(size) {
            pace(size)?;
            row.iter_mut().zip(pattern).for_each(|(out, at)| *out = defaults[*at]);
        }
        for (value, place) in elements.chunks_exact(size).zip(places) {
            pace(size)?;
            if *place != CUT_OFF {
                out[place * size..(place + 1) * size].copy_from_slice(value);
            }
        }
    });
    Ok(())
}
