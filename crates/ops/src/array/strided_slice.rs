//! `StridedSlice` and `TensorStridedSliceUpdate`: Python's `x[1:3, ..., ::-1, 0, None]`.

mod spec;

use smallvec::SmallVec;
use spec::{Item, Masks, Range};

use crate::prelude::*;

pub(super) const STRIDED_SLICE: OpDef =
    OpDef::pure("StridedSlice", RowRule::StridedSlice, |attrs| {
        Ok(Box::new(StridedSlice { masks: Masks::build(attrs)? }))
    });
pub(super) const TENSOR_STRIDED_SLICE_UPDATE: OpDef =
    OpDef::pure("TensorStridedSliceUpdate", RowRule::Mixed, |attrs| {
        Ok(Box::new(Update { masks: Masks::build(attrs)? }))
    });

struct StridedSlice {
    masks: Masks,
}

impl Op for StridedSlice {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [input, begin, end, strides] = arity(inputs)?;
        let Some(n_items) = n_items(begin, end, strides)? else {
            return Ok(vec![Spec::unknown(input.dtype)]);
        };
        let Some(dims) = input.dims() else { return Ok(vec![Spec::unknown(input.dtype)]) };
        let items = self.masks.items(n_items, dims.len())?;
        let ranges = self.ranges(&items, [begin, end, strides]);
        let mut output = Dims::new();
        let mut parts = None;
        let mut axis = 0;
        for (item, range) in items.iter().zip(&ranges) {
            if let Item::NewAxis = item {
                output.push(Dim::Known(1));
                continue;
            }
            if let Some(dim) = range.size_of(axis, &dims[axis])? {
                output.push(dim);
            }
            if axis == 0 {
                parts = range.pick(input);
            }
            axis += 1;
        }
        Ok(vec![with_sizes(spec_of(input.dtype, Some(output)), parts)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let input = ctx.input(0);
        let region = StridedSliceRegion::of(&self.masks, ctx, input.shape())?;
        if region.shape.n_elements() == input.n_elements() && region.is_whole {
            return ctx.forward(0, input, region.shape);
        }
        let how = Gather { walk: region.walk(), pool: ctx.env().pool };
        rearrange(ctx, 0, &[input], &region.shape, &how)
    }
}

impl StridedSlice {
    /// The range of each item, as far as the specs tell.
    fn ranges(&self, items: &[Item], specs: [&Spec; 3]) -> Vec<Range> {
        let [begin, end, strides] = specs.map(sizes_of);
        let at = |sizes: &Option<Vec<Dim>>, i: usize| {
            sizes.as_ref().and_then(|sizes| sizes.get(i)).cloned().unwrap_or(Dim::Unknown)
        };
        items
            .iter()
            .map(|item| self.masks.range(*item, |i| (at(&begin, i), at(&end, i), at(&strides, i))))
            .collect()
    }
}

/// The number of items of a slice, if it is known.
fn n_items(begin: &Spec, end: &Spec, strides: &Spec) -> Result<Option<usize>> {
    let mut dims = None;
    for spec in [begin, end, strides] {
        spec.require_rank(1)?;
        dims = merge_dims(dims.as_deref(), spec.dims())?;
    }
    Ok(dims.and_then(|dims| dims[0].size()))
}

/// The elements that a slice selects of a concrete tensor.
struct StridedSliceRegion {
    /// The beginning of the region, and the distances between neighbours along each of its
    /// dimensions.
    start: usize,
    strides: SmallVec<[isize; 6]>,
    shape: Shape,
    /// `true` if the elements are those of the tensor, in order.
    is_whole: bool,
}

impl StridedSliceRegion {
    /// The region that inputs 1, 2 and 3 describe.
    fn of(masks: &Masks, ctx: &Ctx<'_>, shape: &Shape) -> Result<Self> {
        let [begin, end, strides] = [1, 2, 3].map(|i| ints(&ctx.input(i)));
        let (begin, end, strides) = (begin?, end?, strides?);
        if begin.len() != end.len() || begin.len() != strides.len() {
            // The text is TensorFlow's (`strided_slice_op.cc`).
            return invalid!(
                "Expected begin, end, and strides to be 1D equal size tensors, but got shapes \
                 [{}], [{}], and [{}] instead",
                begin.len(),
                end.len(),
                strides.len()
            );
        }
        let items = masks.items(begin.len(), shape.rank())?;
        let mut places: SmallVec<[isize; 6]> = SmallVec::new();
        let (mut dims, mut start, mut axis, mut is_whole) = (Ints::new(), 0usize, 0, true);
        let apart = shape.strides();
        for item in items {
            if let Item::NewAxis = item {
                dims.push(1);
                places.push(0);
                continue;
            }
            let known =
                |i: usize| (Dim::Known(begin[i]), Dim::Known(end[i]), Dim::Known(strides[i]));
            let cut = masks.range(item, known).resolve(axis, shape[axis])?;
            if cut.size > 0 {
                start += cut.begin * apart[axis];
            }
            if !cut.shrinks {
                dims.push(cut.size as i64);
                places.push(cut.stride.wrapping_mul(apart[axis] as isize));
            }
            is_whole &= cut.stride == 1;
            axis += 1;
        }
        let shape = Shape::checked(dims)?;
        // The start means nothing when nothing is selected.
        let start = if shape.n_elements() == 0 { 0 } else { start };
        Ok(Self { start, strides: places, shape, is_whole })
    }

    fn walk(&self) -> Walk {
        Walk::new(self.start, self.shape.iter().copied().zip(self.strides.iter().copied()))
    }
}

/// A copy of the first input with a region replaced by the last.
struct Update {
    masks: Masks,
}

impl Op for Update {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [input, begin, end, strides, value] = arity(inputs)?;
        let sliced = StridedSlice { masks: self.masks }.infer(&[
            input.with_dtype(input.dtype),
            begin.clone(),
            end.clone(),
            strides.clone(),
        ])?;
        let region = &sliced[0];
        if let (Some(region), Some(value)) = (region.shape(), value.shape()) {
            fits(&region, &value)?;
        }
        Ok(vec![input.with_dtype(input.dtype)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (input, value) = (ctx.input(0), ctx.input(4));
        let region = StridedSliceRegion::of(&self.masks, ctx, input.shape())?;
        fits(&region.shape, value.shape())?;
        rearrange(ctx, 0, &[input, value], input.shape(), &Replace::new(&region, value.shape()))
    }
}

fn fits(region: &Shape, value: &Shape) -> Result<()> {
    // Nothing fits nothing, and one element one element, whatever their shapes.
    let (n, n_values) = (region.n_elements(), value.n_elements());
    // Dimensions of one element before those of the slice do not count.
    let (outer, inner) = value.split_at(value.rank().saturating_sub(region.rank()));
    let both = broadcast_shapes(region, &Shape::of(inner));
    let is_spread = outer.iter().all(|dim| *dim == 1) && both.is_ok_and(|both| both == *region);
    if !is_spread && n != 0 && (n, n_values) != (1, 1) {
        return invalid!("cannot assign a value of shape {value} to a slice of shape {region}");
    }
    Ok(())
}

/// Writes a value to a region, where it is repeated along the dimensions that it does not have.
struct Replace {
    start: usize,
    /// The size of each dimension of the region, and how far apart its neighbours are in the value
    /// and in the tensor.
    axes: SmallVec<[(usize, isize, isize); 6]>,
}

impl Replace {
    fn new(region: &StridedSliceRegion, value: &Shape) -> Self {
        let strides = value.strides();
        let axis = |(i, (size, place)): (usize, (&usize, &isize))| {
            let at = (i + value.rank()).checked_sub(region.shape.rank());
            let apart = at.filter(|at| value[*at] != 1).map_or(0, |at| strides[at] as isize);
            (*size, apart, *place)
        };
        let sizes = region.shape.iter().zip(&region.strides);
        Self { start: region.start, axes: sizes.enumerate().map(axis).collect() }
    }
}

impl Move for Replace {
    fn apply<T: bytemuck::Pod + Send + Sync>(
        &self,
        inputs: &[&[T]],
        output: &mut [T],
    ) -> Result<()> {
        output.copy_from_slice(inputs[0]);
        if self.axes.iter().all(|axis| axis.0 > 0) {
            spread(&self.axes, (0, self.start), inputs[1], output);
        }
        Ok(())
    }
}

/// Copies what is seen of two tensors along `axes`, from these places on.
fn spread<T: Copy>(
    axes: &[(usize, isize, isize)],
    (from_at, to_at): (usize, usize),
    from: &[T],
    to: &mut [T],
) {
    match axes {
        [] => to[to_at] = from[from_at],
        [(size, 1, 1)] => to[to_at..][..*size].copy_from_slice(&from[from_at..][..*size]),
        [(size, 0, 1)] => to[to_at..][..*size].fill(from[from_at]),
        [(size, from_apart, to_apart), inner @ ..] => {
            let (mut from_at, mut to_at) = (from_at, to_at);
            for _ in 0..*size {
                spread(inner, (from_at, to_at), from, to);
                from_at = from_at.wrapping_add_signed(*from_apart);
                to_at = to_at.wrapping_add_signed(*to_apart);
            }
        }
    }
}
