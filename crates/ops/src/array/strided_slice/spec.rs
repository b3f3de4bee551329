//! The masks of a strided slice, and the range that each of its items means.
//!
//! Follows `strided_slice_op.cc` of TensorFlow (`ValidateStridedSliceOp`).

use smallvec::SmallVec;

use crate::prelude::*;

/// The bits that say what the items of a slice are, item 0 in the lowest bit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Masks {
    begin: i64,
    end: i64,
    ellipsis: i64,
    new_axis: i64,
    shrink: i64,
}

/// The origin of one dimension of the input, or of one new dimension.
#[derive(Debug, Clone, Copy)]
pub(super) enum Item {
    /// A new dimension of size one.
    NewAxis,
    /// A dimension that no item names.
    Whole,
    /// A dimension with the item of this number.
    Sliced(usize),
}

/// The part of a dimension that is selected. A bound is `None` where it is left out (masked).
pub(super) struct Range {
    begin: Option<Dim>,
    end: Option<Dim>,
    stride: Dim,
    shrinks: bool,
}

/// A range of a dimension of known size.
pub(super) struct Cut {
    pub(super) begin: usize,
    pub(super) size: usize,
    pub(super) stride: isize,
    pub(super) shrinks: bool,
}

impl Masks {
    pub(super) fn build(attrs: &Attrs<'_>) -> Result<Self> {
        let masks = Self {
            begin: attrs.int_or("begin_mask", 0)?,
            end: attrs.int_or("end_mask", 0)?,
            ellipsis: attrs.int_or("ellipsis_mask", 0)?,
            new_axis: attrs.int_or("new_axis_mask", 0)?,
            shrink: attrs.int_or("shrink_axis_mask", 0)?,
        };
        if masks.ellipsis.count_ones() > 1 {
            return invalid!("Multiple ellipses in slice spec not allowed");
        }
        Ok(masks)
    }

    /// Returns the meanings of the `n_items` items for an input of this rank, in order.
    pub(super) fn items(&self, n_items: usize, rank: usize) -> Result<SmallVec<[Item; 8]>> {
        if n_items > 32 {
            return invalid!("a slice has at most 32 items, not {n_items}");
        }
        let is = |mask: i64, i: usize| mask >> i & 1 == 1;
        let consumes = |i: &usize| !is(self.ellipsis, *i) && !is(self.new_axis, *i);
        let n_named = (0..n_items).filter(consumes).count();
        if n_named > rank {
            // The text is TensorFlow's.
            return invalid!(
                "Index out of range using input dim {rank}; input has only {rank} dims"
            );
        }
        let mut items = SmallVec::new();
        for i in 0..n_items {
            if is(self.ellipsis, i) {
                items.extend((n_named..rank).map(|_| Item::Whole));
            } else if is(self.new_axis, i) {
                items.push(Item::NewAxis);
            } else {
                items.push(Item::Sliced(i));
            }
        }
        let has_ellipsis = (0..n_items).any(|i| is(self.ellipsis, i));
        if !has_ellipsis {
            items.extend((n_named..rank).map(|_| Item::Whole));
        }
        Ok(items)
    }

    /// The range of an item, whose begin, end and stride `bounds` gives.
    pub(super) fn range(&self, item: Item, bounds: impl Fn(usize) -> (Dim, Dim, Dim)) -> Range {
        let Item::Sliced(i) = item else {
            return Range { begin: None, end: None, stride: Dim::Known(1), shrinks: false };
        };
        let (begin, end, stride) = bounds(i);
        let is = |mask: i64| mask >> i & 1 == 1;
        let shrinks = is(self.shrink);
        Range {
            begin: (shrinks || !is(self.begin)).then_some(begin),
            end: (!is(self.end)).then_some(end),
            stride,
            shrinks,
        }
    }
}

impl Range {
    /// The range of a dimension of this size. All bounds are numbers; they are for a kernel.
    pub(super) fn resolve(&self, axis: usize, dim: usize) -> Result<Cut> {
        let unknown = || Error::Internal("a slice of unknown bounds".to_owned());
        let stride = self.stride.known().ok_or_else(unknown)?;
        if stride == 0 {
            return invalid!("strides[{axis}] must be non-zero");
        }
        let dim = dim as i64;
        if self.shrinks {
            let begin = self.begin.as_ref().and_then(Dim::known).ok_or_else(unknown)?;
            if stride < 0 {
                return invalid!("only stride 1 allowed on non-range indexing.");
            }
            let at = if begin < 0 { begin.saturating_add(dim) } else { begin };
            if at < 0 || at >= dim {
                // The text is TensorFlow's.
                return invalid!("slice index {begin} of dimension {axis} out of bounds.");
            }
            return Ok(Cut { begin: at as usize, size: 1, stride: 1, shrinks: true });
        }
        // A backward range ends before element 0.
        let (low, high) = if stride > 0 { (0, dim) } else { (-1, dim - 1) };
        let clamp = |bound: &Option<Dim>, open: i64| match bound {
            None => Ok(open),
            Some(bound) => {
                let bound = bound.known().ok_or_else(unknown)?;
                let forward = if bound < 0 { bound.saturating_add(dim) } else { bound };
                Ok::<i64, Error>(forward.clamp(low, high.max(low)))
            }
        };
        let (first, last) = if stride > 0 { (low, high) } else { (high, low) };
        let (begin, end) = (clamp(&self.begin, first)?, clamp(&self.end, last)?);
        let span = end - begin;
        let empty = span == 0 || (span < 0) != (stride < 0);
        let steps = span.unsigned_abs().div_ceil(stride.unsigned_abs());
        let size = if empty { 0 } else { steps as usize };
        let stride = isize::try_from(stride).unwrap_or(1); // Only a single step is that wide.
        Ok(Cut { begin: begin.max(0) as usize, size, stride, shrinks: false })
    }

    /// The size that remains of a dimension; `None` if the dimension goes. Fails where running
    /// surely would.
    pub(super) fn size_of(&self, axis: usize, dim: &Dim) -> Result<Option<Dim>> {
        if let (Some(size), true) = (dim.size(), self.is_known()) {
            let cut = self.resolve(axis, size)?;
            return Ok((!cut.shrinks).then(|| Dim::of(cut.size)));
        }
        if self.shrinks {
            return Ok(None);
        }
        let is_start = self.begin.as_ref().is_none_or(|begin| begin.known() == Some(0));
        let forward = self.stride.known() == Some(1);
        Ok(Some(match &self.end {
            None if is_start && forward => dim.clone(),
            None if self.begin.is_none() && self.stride.known() == Some(-1) => dim.clone(),
            Some(end) if is_start && forward && end.same(dim) => dim.clone(),
            Some(end) if is_start && forward && end.known() == Some(0) => Dim::Known(0),
            _ => Dim::Unknown,
        }))
    }

    /// The elements that are left of a vector of sizes.
    pub(super) fn pick(&self, input: &Spec) -> Option<Vec<Dim>> {
        let sizes = sizes_of(input).filter(|_| input.rank() == Some(1) && self.is_known())?;
        let cut = self.resolve(0, sizes.len()).ok()?;
        let at = |i: usize| cut.begin.checked_add_signed(cut.stride.checked_mul(i as isize)?);
        (0..cut.size).map(|i| sizes.get(at(i)?).cloned()).collect()
    }

    fn is_known(&self) -> bool {
        let known = |bound: &Option<Dim>| bound.as_ref().is_none_or(|dim| dim.known().is_some());
        let end = self.shrinks || known(&self.end);
        known(&self.begin) && end && self.stride.known().is_some()
    }
}
