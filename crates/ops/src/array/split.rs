//! `Split` and `SplitV`: a tensor cut along an axis.

use smallvec::SmallVec;

use crate::prelude::*;

pub(super) const SPLIT: OpDef =
    OpDef::pure("Split", RowRule::Along { value: 1, axes: 0 }, |attrs| {
        Ok(Box::new(Split { n_parts: n_parts(attrs)?, form: SplitForm::Even }))
    });
pub(super) const SPLIT_V: OpDef =
    OpDef::pure("SplitV", RowRule::Along { value: 0, axes: 2 }, |attrs| {
        Ok(Box::new(Split { n_parts: n_parts(attrs)?, form: SplitForm::Sizes }))
    });

fn n_parts(attrs: &Attrs<'_>) -> Result<usize> {
    match attrs.count("num_split")? {
        0 => invalid!("num_split must be at least 1"),
        n_parts => Ok(n_parts),
    }
}

struct Split {
    n_parts: usize,
    form: SplitForm,
}

/// The sizes of parts.
type Lengths = SmallVec<[usize; 8]>;

/// The form in which the inputs say where to cut.
#[derive(Clone, Copy)]
enum SplitForm {
    /// `(axis, value)`, into parts of one size.
    Even,
    /// `(value, sizes, axis)`, where one size may be -1.
    Sizes,
}

impl Op for Split {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let (value, sizes, axis) = match self.form {
            SplitForm::Even => {
                let [axis, value] = arity(inputs)?;
                (value, None, axis)
            }
            SplitForm::Sizes => {
                let [value, sizes, axis] = arity(inputs)?;
                sizes.require_rank(1)?;
                (value, Some(sizes), axis)
            }
        };
        if sizes.is_none() {
            axis.require_rank(0)?;
        }
        let Some(dims) = value.dims() else {
            return Ok(vec![Spec::unknown(value.dtype); self.n_parts]);
        };
        let Some(axis) = known_int(axis) else {
            return Ok(vec![spec_of_rank(value.dtype, Some(dims.len())); self.n_parts]);
        };
        let axis = split_axis(axis, dims.len())?;
        let lengths = match sizes {
            None => self.even_dims(&dims[axis])?,
            Some(sizes) => self.sized_dims(&dims[axis], sizes)?,
        };
        let part = |length: Dim| {
            let mut dims: Dims = dims.iter().cloned().collect();
            dims[axis] = length;
            spec_of(value.dtype, Some(dims))
        };
        Ok(lengths.into_iter().map(part).collect())
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (value, axis) = match self.form {
            SplitForm::Even => (ctx.input(1), ctx.input(0)),
            SplitForm::Sizes => (ctx.input(0), ctx.input(2)),
        };
        let shape = value.shape();
        let axis = split_axis(int(&axis)?, shape.rank())?;
        let lengths = match self.form {
            SplitForm::Even => self.even(shape[axis])?,
            SplitForm::Sizes => self.sized(shape[axis], &ints(&ctx.input(1))?)?,
        };
        let n_inner: usize = shape[axis + 1..].iter().product();
        let n_outer: usize = shape[..axis].iter().product();
        let row = (n_inner * shape[axis]) as isize;
        let mut start = 0;
        for (i, length) in lengths.iter().enumerate() {
            let mut dims = shape.to_i64();
            dims[axis] = *length as i64;
            let rows = [(n_outer, row), (n_inner * length, 1)];
            let how = Gather { walk: Walk::new(start, rows), pool: ctx.env().pool };
            rearrange(ctx, i, &[value], &Shape::checked(dims)?, &how)?;
            start += n_inner * length;
        }
        Ok(())
    }
}

impl Split {
    fn even(&self, length: usize) -> Result<Lengths> {
        if !length.is_multiple_of(self.n_parts) {
            // The text is TensorFlow's (`split_op.cc`).
            return invalid!(
                "Number of ways to split should evenly divide the split dimension, but got \
                 split_dim size {length} and num_split {}",
                self.n_parts
            );
        }
        Ok(Lengths::from_elem(length / self.n_parts, self.n_parts))
    }

    fn sized(&self, length: usize, sizes: &[i64]) -> Result<Lengths> {
        if sizes.len() != self.n_parts {
            return invalid!("size_splits has {} sizes for {} parts", sizes.len(), self.n_parts);
        }
        if sizes == [-1] {
            return invalid!(
                "If there is only one output, it must have the same size as the input"
            );
        }
        let mut open = None;
        let mut total = 0usize;
        let mut lengths = Lengths::from_elem(0, sizes.len());
        for (i, given) in sizes.iter().enumerate() {
            match given {
                -1 if open.is_some() => {
                    return invalid!("There can only be one -1 in the input, got {sizes:?}");
                }
                -1 => open = Some(i),
                given => {
                    lengths[i] = size(*given, "Split size")?;
                    total = total.saturating_add(lengths[i]);
                }
            }
        }
        let fits = if open.is_some() { total <= length } else { total == length };
        if !fits {
            // The text is TensorFlow's (`split_v_op.cc`).
            return invalid!(
                "Determined shape must either match input shape along split_dim exactly if fully \
                 specified, or be less than the size of the input along split_dim if not fully \
                 specified. Got: {total}"
            );
        }
        if let Some(open) = open {
            lengths[open] = length - total;
        }
        Ok(lengths)
    }

    fn even_dims(&self, length: &Dim) -> Result<Vec<Dim>> {
        if let Some(length) = length.size() {
            self.even(length)?;
        }
        Ok(vec![length.divided_by(&Dim::of(self.n_parts)); self.n_parts])
    }

    fn sized_dims(&self, length: &Dim, sizes: &Spec) -> Result<Vec<Dim>> {
        let Some(sizes) = sizes_of(sizes).filter(|sizes| sizes.len() == self.n_parts) else {
            return Ok(vec![Dim::Unknown; self.n_parts]);
        };
        let numbers: Option<Vec<i64>> = sizes.iter().map(Dim::known).collect();
        if let (Some(length), Some(numbers)) = (length.size(), numbers) {
            return Ok(self.sized(length, &numbers)?.into_iter().map(Dim::of).collect());
        }
        let given = sizes.iter().filter(|size| size.known() != Some(-1));
        let total = given.fold(Dim::Known(0), |sum, size| sum.plus(size));
        let rest = length.minus(&total);
        // What is left over is no dimension if the sizes are too large; running tells.
        let rest = if rest.known().is_some_and(|rest| rest < 0) { Dim::Unknown } else { rest };
        let part = |size: &Dim| if size.known() == Some(-1) { rest.clone() } else { size.clone() };
        Ok(sizes.iter().map(part).collect())
    }
}

fn split_axis(axis: i64, rank: usize) -> Result<usize> {
    normalise_axis(axis, rank).map_err(|_| {
        let text = format!("-input rank(-{rank}) <= split_dim < input rank ({rank})");
        Error::InvalidArgument(format!("{text}, but got {axis}"))
    })
}
