//! `DynamicPartition` and `DynamicStitch`: rows sorted into several tensors by number, and joined.

use crate::prelude::*;
use crate::sparse::coo::checked_shape;

pub(super) const PARTITION: OpDef = OpDef::pure("DynamicPartition", RowRule::Mixed, |attrs| {
    Ok(Box::new(Partition { n_parts: attrs.count("num_partitions")? }))
});
pub(super) const STITCH: OpDef = OpDef::pure("DynamicStitch", RowRule::Mixed, |attrs| {
    Ok(Box::new(Stitch { n: attrs.count("N")? }))
});
pub(super) const PARALLEL_STITCH: OpDef =
    OpDef::pure("ParallelDynamicStitch", RowRule::Mixed, |attrs| {
        Ok(Box::new(Stitch { n: attrs.count("N")? }))
    });

struct Partition {
    n_parts: usize,
}

impl Op for Partition {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [data, parts] = arity(inputs)?;
        let (Some(dims), Some(outer)) = (data.dims(), parts.rank()) else {
            return Ok(vec![Spec::unknown(data.dtype); self.n_parts]);
        };
        let Some(inner) = dims.get(outer..) else {
            return invalid!("data must have at least the rank of partitions, got {data}");
        };
        merge_dims(Some(&dims[..outer]), parts.dims())?;
        let spec =
            Spec::new(data.dtype, std::iter::once(Dim::Unknown).chain(inner.iter().cloned()));
        Ok(vec![spec; self.n_parts])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (data, parts) = (ctx.input(0), ctx.input(1));
        let outer = parts.shape().rank();
        if data.shape().get(..outer) != Some(parts.shape().dims()) {
            // The texts are TensorFlow's (`dynamic_partition_op.cc`).
            return invalid!(
                "data.shape must start with partitions.shape, got data.shape = {}, \
                 partitions.shape = {}",
                data.shape(),
                parts.shape()
            );
        }
        let inner = &data.shape()[outer..];
        // Where the rows of each part end among all rows, which are in the order of their parts.
        let mut ends = BookedVec::filled(0usize, self.n_parts)?;
        for row in 0..parts.n_elements() {
            pace(4)?;
            let part = int_at(&parts, row)?;
            let Some(end) = usize::try_from(part).ok().and_then(|part| ends.get_mut(part)) else {
                let place = super::gather::place_of(row, parts.shape());
                return invalid!("partitions{place} = {part} is not in [0, {})", self.n_parts);
            };
            *end += 1;
        }
        let mut end = 0;
        for count in ends.iter_mut() {
            // First where they begin: each row that is put in its place moves it on.
            end += std::mem::replace(count, end);
        }
        let mut order = BookedVec::filled(0usize, parts.n_elements())?;
        for row in 0..order.len() {
            pace(4)?;
            let end = &mut ends[int_at(&parts, row)? as usize];
            order[*end] = row;
            *end += 1;
        }
        let width: usize = inner.iter().product();
        for i in 0..self.n_parts {
            let start = i.checked_sub(1).map_or(0, |before| ends[before]);
            let rows = &order[start..ends[i]];
            let dims = std::iter::once(rows.len()).chain(inner.iter().copied());
            let shape = Shape::checked(dims.map(|dim| dim as i64))?;
            rearrange(ctx, i, &[data], &shape, &DynamicRows { rows, width })?;
        }
        Ok(())
    }
}

/// Some rows of the first input.
struct DynamicRows<'a> {
    rows: &'a [usize],
    width: usize,
}

impl Move for DynamicRows<'_> {
    fn apply<T: bytemuck::Pod + Send + Sync>(
        &self,
        inputs: &[&[T]],
        output: &mut [T],
    ) -> Result<()> {
        if self.width == 0 {
            return Ok(());
        }
        for (row, to) in self.rows.iter().zip(output.chunks_exact_mut(self.width)) {
            pace(self.width)?;
            to.copy_from_slice(&inputs[0][row * self.width..(row + 1) * self.width]);
        }
        Ok(())
    }
}

/// Rows of several tensors at the places that their indices name; the last one there counts.
struct Stitch {
    n: usize,
}

impl Op for Stitch {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let (indices, data) = self.split(inputs)?;
        let mut length = Some(0i64);
        let mut inner: Option<Dims> = None;
        for (indices, data) in indices.iter().zip(data) {
            let max = known_ints(indices).map(|all| all.iter().max().map_or(0, |max| max + 1));
            length = length.zip(max).map(|(a, b)| a.max(b));
            check_length(length.unwrap_or(0))?;
            if let (Some(outer), Some(dims)) = (indices.rank(), data.dims()) {
                let Some(rest) = dims.get(outer..) else {
                    return invalid!("data {data} has a lower rank than its indices {indices}");
                };
                inner = merge_dims(inner.as_deref(), Some(rest))?;
            }
        }
        let dims = inner.map(|mut dims| {
            dims.insert(0, length.map_or(Dim::Unknown, Dim::Known));
            dims
        });
        Ok(vec![spec_of(data[0].dtype, dims)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (indices, data) = self.split(ctx.inputs())?;
        let rank = indices[0].shape().rank();
        let Some(inner) = data[0].shape().get(rank..) else {
            return invalid!("data[0] has a lower rank than its indices");
        };
        let mut length = 0;
        for (i, (indices, data)) in indices.iter().zip(data).enumerate() {
            let rank = indices.shape().rank();
            let starts = data.shape().get(..rank) == Some(indices.shape().dims());
            if !starts || data.shape().get(rank..) != Some(inner) {
                // The texts are TensorFlow's (`dynamic_stitch_op.cc`).
                return invalid!(
                    "data[{i}].shape = {} does not start with indices[{i}].shape = {}",
                    data.shape(),
                    indices.shape()
                );
            }
            for at in 0..indices.n_elements() {
                pace(4)?;
                let row = int_at(indices, at)?;
                if row < 0 {
                    return invalid!("indices[{i}] = {row} is out of range");
                }
                length = length.max(row.saturating_add(1));
            }
        }
        let (dtype, width) = (data[0].dtype(), inner.iter().product::<usize>());
        if let Some(other) = data.iter().find(|data| data.dtype() != dtype) {
            return invalid!("expected {dtype} for every input but got {}", other.dtype());
        }
        let shape = std::iter::once(length).chain(inner.iter().map(|dim| *dim as i64));
        check_length(length)?;
        let shape = checked_shape(dtype, shape)?;
        if !dtype.is_plain() {
            let inputs: Vec<View<'_>> = ctx.inputs().to_vec();
            let (indices, data) = self.split(&inputs)?;
            return rearrange(ctx, 0, data, &shape, &Stitched { indices, width });
        }
        let (inputs, mut out) = ctx.inputs_and_output(0, dtype, &shape)?;
        let (indices, data) = self.split(inputs)?;
        let data = data.iter().map(View::bytes);
        stitch(indices, data, width * dtype.size(), out.bytes())
    }
}

/// Fails for more rows than indices can count.
fn check_length(length: i64) -> Result<()> {
    if length > i64::from(i32::MAX) {
        // The text is TensorFlow's (`tensor_shape.cc`).
        return invalid!("Expected a non-negative size, got {}", length as i32);
    }
    Ok(())
}

impl Stitch {
    /// The indices and the data.
    fn split<'a, T>(&self, inputs: &'a [T]) -> Result<(&'a [T], &'a [T])> {
        if self.n == 0 || inputs.len() != self.n * 2 {
            return invalid!("expected twice {} inputs but got {}", self.n, inputs.len());
        }
        Ok(inputs.split_at(self.n))
    }
}

struct Stitched<'a> {
    indices: &'a [View<'a>],
    width: usize,
}

impl Move for Stitched<'_> {
    fn apply<T: bytemuck::Pod + Send + Sync>(
        &self,
        inputs: &[&[T]],
        output: &mut [T],
    ) -> Result<()> {
        stitch(self.indices, inputs.iter().copied(), self.width, output)
    }
}

/// Copies the rows of `data`, of `width` elements each, to where their indices say.
fn stitch<'a, T: bytemuck::Pod>(
    indices: &[View<'_>],
    data: impl Iterator<Item = &'a [T]>,
    width: usize,
    output: &mut [T],
) -> Result<()> {
    // A row that no index names is zero; in TensorFlow it is whatever was there.
    output.fill(T::zeroed());
    if width == 0 {
        return Ok(());
    }
    for (indices, data) in indices.iter().zip(data) {
        for (at, row) in data.chunks_exact(width).enumerate() {
            pace(width)?;
            let start = int_at(indices, at)? as usize * width;
            output[start..start + width].copy_from_slice(row);
        }
    }
    Ok(())
}
