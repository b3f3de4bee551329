//! `RaggedTensorToTensor`: ragged rows, cut or padded to a common shape.
//!
//! Follows `ragged_tensor_to_tensor_op.cc` of TensorFlow.

use super::coo::{checked_rows, checked_shape};
use crate::prelude::*;

pub(super) const DEF: OpDef = OpDef::pure("RaggedTensorToTensor", |attrs| {
    let names = attrs.strings("row_partition_types")?;
    let kinds: Vec<Kind> = names.iter().map(|name| Kind::parse(name)).collect::<Result<_>>()?;
    let starts_well = match kinds.first() {
        Some(Kind::FirstDimSize) => kinds.get(1) == Some(&Kind::ValueRowIds),
        Some(Kind::RowSplits) => true,
        _ => false,
    };
    if !starts_well || kinds[1..].contains(&Kind::FirstDimSize) {
        return invalid!(
            "row_partition_types must start with ROW_SPLITS or FIRST_DIM_SIZE, VALUE_ROWIDS"
        );
    }
    Ok(Box::new(RaggedToTensor { kinds }))
});

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    FirstDimSize,
    ValueRowIds,
    RowSplits,
}

impl Kind {
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
    kinds: Vec<Kind>,
}

impl RaggedToTensor {
    /// The number of ragged dimensions behind the first.
    fn ragged_rank(&self) -> usize {
        self.kinds.len() - usize::from(self.kinds[0] == Kind::FirstDimSize)
    }

    fn n_rows_dim(&self, partition: &Spec) -> Dim {
        match self.kinds[0] {
            Kind::FirstDimSize => partition.sizes().map_or(Dim::Unknown, |sizes| sizes[0].clone()),
            _ => partition.dims().map_or(Dim::Unknown, |dims| dims[0].minus(&Dim::Known(1))),
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
        let levels = self.levels(ctx)?;
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
        let places = places(&levels, &dims[..n_outer])?;

        let element: Shape = values.shape()[1..].iter().copied().collect();
        let pattern = broadcast_default(default.shape(), &element)?;
        write(ctx, &places, &pattern, &out_shape)
    }
}

/// The rows of one ragged dimension: how many there are, and the row of each element.
struct Level {
    n_rows: usize,
    /// The number of elements of each row, in order.
    lengths: Vec<usize>,
}

impl RaggedToTensor {
    fn levels(&self, ctx: &Ctx<'_>) -> Result<Vec<Level>> {
        let mut levels: Vec<Level> = Vec::new();
        let mut n_rows = None;
        for (i, kind) in self.kinds.iter().enumerate() {
            let partition = ctx.input(3 + i);
            let numbers = partition.to_i64().ok_or_else(|| wrong_dtype(partition.dtype()))?;
            let level = match kind {
                Kind::FirstDimSize => {
                    n_rows = numbers.first().copied();
                    continue;
                }
                Kind::RowSplits => from_splits(&numbers)?,
                Kind::ValueRowIds => from_row_ids(&numbers, n_rows.unwrap_or(0))?,
            };
            if let Some(expected) = n_rows.filter(|expected| *expected != level.n_rows as i64) {
                return invalid!("a row partition has {} rows, not {expected}", level.n_rows);
            }
            n_rows = Some(level.lengths.iter().sum::<usize>() as i64);
            levels.push(level);
        }
        Ok(levels)
    }

    /// The output's dimensions: those asked for, else those that the rows and values have.
    fn dims(&self, shape: View<'_>, values: &Shape, levels: &[Level]) -> Result<Vec<usize>> {
        let inner = &values[1..];
        let rank = 1 + self.ragged_rank() + inner.len();
        let mut wanted = shape.to_i64().ok_or_else(|| wrong_dtype(shape.dtype()))?;
        if shape.shape().rank() == 0 {
            if wanted != [-1] {
                return invalid!(
                    "the only valid scalar shape tensor is the fully unknown shape -1"
                );
            }
            wanted = vec![-1; rank];
        }
        if wanted.len() != rank {
            return invalid!(
                "shape has {} dimensions, but the ragged tensor has {rank}",
                wanted.len()
            );
        }
        let natural = |at: usize| match at {
            0 => levels[0].n_rows,
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

fn from_splits(splits: &[i64]) -> Result<Level> {
    if splits.first() != Some(&0) || splits.windows(2).any(|pair| pair[0] > pair[1]) {
        return invalid!("Invalid row split: it must start with 0 and not decrease");
    }
    let lengths = splits.windows(2).map(|pair| (pair[1] - pair[0]) as usize).collect();
    Ok(Level { n_rows: splits.len() - 1, lengths })
}

fn from_row_ids(ids: &[i64], n_rows: i64) -> Result<Level> {
    let n_rows = checked_rows(n_rows)?;
    let mut lengths = vec![0; n_rows];
    let mut last = 0;
    for id in ids {
        let row = usize::try_from(*id).ok().filter(|row| *row < n_rows && *id >= last);
        let Some(row) = row else {
            return invalid!("Invalid value_rowids: {id} is below {last} or not below {n_rows}");
        };
        lengths[row] += 1;
        last = *id;
    }
    Ok(Level { n_rows, lengths })
}

/// Where in the output each value goes, in units of values; `None` where it is cut off.
fn places(levels: &[Level], dims: &[usize]) -> Result<Vec<Option<usize>>> {
    let mut places: Vec<Option<usize>> =
        (0..levels[0].n_rows).map(|row| (row < dims[0]).then_some(row)).collect();
    for (level, width) in levels.iter().zip(&dims[1..]) {
        let n_elements: usize = level.lengths.iter().sum();
        checked_shape(DType::I64, [n_elements as i64])?;
        let mut inner = Vec::with_capacity(n_elements.min(1 << 20));
        for (place, length) in places.iter().zip(&level.lengths) {
            inner.extend((0..*length).map(|column| {
                place.filter(|_| column < *width).map(|place| place * width + column)
            }));
        }
        places = inner;
    }
    Ok(places)
}

/// For each element of a value, the element of the default that stands for it.
fn broadcast_default(default: &Shape, element: &Shape) -> Result<Vec<usize>> {
    let wrong = default.rank() > element.rank()
        || default.iter().rev().zip(element.iter().rev()).any(|(d, e)| *d != *e && *d != 1);
    if wrong {
        return invalid!("default_value.shape={default} does not broadcast to values' {element}");
    }
    let strides = default.strides();
    let mut pattern = vec![0; element.n_elements()];
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
    Ok(pattern)
}

fn write(
    ctx: &mut Ctx<'_>,
    places: &[Option<usize>],
    pattern: &[usize],
    shape: &Shape,
) -> Result<()> {
    let (values, default) = (ctx.input(1), ctx.input(2));
    let size = pattern.len();
    if values.dtype() == DType::String {
        let n_places = shape.n_elements().checked_div(size).unwrap_or(0);
        let mut sources = vec![None; n_places];
        for (value, place) in places.iter().enumerate() {
            if let Some(slot) = place.and_then(|place| sources.get_mut(place)) {
                *slot = Some(value);
            }
        }
        let (strings, defaults) = (values.strings(), default.strings());
        let mut out = Strings::with_capacity(shape.n_elements(), strings.n_bytes());
        for source in &sources {
            match source {
                Some(value) => (0..size).for_each(|i| out.push(strings.get(value * size + i))),
                None => pattern.iter().for_each(|at| out.push(defaults.get(*at))),
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
            row.iter_mut().zip(pattern).for_each(|(out, at)| *out = defaults[*at]);
        }
        for (value, place) in elements.chunks_exact(size).zip(places) {
            if let Some(place) = place {
                out[place * size..(place + 1) * size].copy_from_slice(value);
            }
        }
    });
    Ok(())
}

fn wrong_dtype(dtype: DType) -> Error {
    Error::InvalidArgument(format!("expected int32 or int64 but got {dtype}"))
}
