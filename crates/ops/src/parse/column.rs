//! `Column`: what all examples have of one feature, and the outputs that are made of it.

use super::feature::{read_feature, read_list};
use super::found::{Found, Mark, Totals};
use super::values::{Count, Number, Room, each_string};
use crate::prelude::*;

/// One feature, or one list of features, of all examples.
pub(super) struct Column<'f> {
    examples: &'f Strings,
    marks: &'f [Mark],
    pub(super) totals: Totals,
    dtype: DType,
    form: Form<'f>,
}

/// The number of rows that an example has of a column: one or any.
#[derive(Clone, Copy)]
pub(super) enum Form<'f> {
    /// A row; the default stands for one that is missing.
    Row { default: Option<View<'f>> },
    /// Any number of rows.
    Rows,
}

/// The padding of the values of each example: `width` in all.
#[derive(Clone, Copy)]
pub(super) struct Padding<'f> {
    pub(super) width: usize,
    /// One element; zero, or no bytes, if there is none.
    pub(super) element: Option<View<'f>>,
}

impl<'f> Column<'f> {
    pub(super) fn new(
        examples: &'f Strings,
        (found, feature): (&'f Found<'_>, usize),
        dtype: DType,
        form: Form<'f>,
    ) -> Self {
        let (marks, totals) = found.column(feature);
        Self { examples, marks, totals, dtype, form }
    }

    /// Makes the values an output.
    pub(super) fn write(
        &self,
        ctx: &mut Ctx<'_>,
        output: usize,
        shape: &Shape,
        padding: Option<Padding<'_>>,
    ) -> Result<()> {
        match self.dtype {
            DType::F32 => self.write_numbers::<f32>(ctx, output, shape, padding),
            DType::I64 => self.write_numbers::<i64>(ctx, output, shape, padding),
            _ => self.write_strings(ctx, output, shape, padding),
        }
    }

    /// Makes the values a vector.
    pub(super) fn write_flat(&self, ctx: &mut Ctx<'_>, output: usize) -> Result<()> {
        self.write(ctx, output, &Shape::of(&[self.totals.n_values]), None)
    }

    /// Makes the indices, the values and the shape of a sparse tensor outputs.
    pub(super) fn write_sparse(
        &self,
        ctx: &mut Ctx<'_>,
        outputs: [usize; 3],
        n_examples: Option<usize>,
    ) -> Result<()> {
        self.write_indices(ctx, outputs[0], n_examples.is_some())?;
        self.write_flat(ctx, outputs[1])?;
        let Totals { n_rows_max, width_max, .. } = self.totals;
        let dims = [n_examples, self.has_rows().then_some(n_rows_max), Some(width_max)];
        let dims = dims.into_iter().flatten();
        let mut view = ctx.output(outputs[2], DType::I64, &Shape::of(&[dims.clone().count()]))?;
        view.as_mut_slice::<i64>().iter_mut().zip(dims).for_each(|(to, dim)| *to = dim as i64);
        Ok(())
    }

    /// Makes row splits over the examples an output.
    pub(super) fn write_splits(
        &self,
        ctx: &mut Ctx<'_>,
        output: usize,
        dtype: DType,
    ) -> Result<()> {
        let lengths = |each: &mut dyn FnMut(usize)| {
            self.marks.iter().for_each(|mark| each(mark.n as usize));
        };
        write_splits(ctx, output, (dtype, self.marks.len()), lengths)
    }

    /// Makes row splits over the rows of all examples an output.
    pub(super) fn write_inner_splits(
        &self,
        ctx: &mut Ctx<'_>,
        output: usize,
        dtype: DType,
    ) -> Result<()> {
        let lengths = |each: &mut dyn FnMut(usize)| {
            (0..self.marks.len()).for_each(|i| self.each_row(i, |list| each(self.count(list))));
        };
        write_splits(ctx, output, (dtype, self.totals.n_rows), lengths)
    }

    /// Makes the number of rows of each example an output.
    pub(super) fn write_lengths(
        &self,
        ctx: &mut Ctx<'_>,
        output: usize,
        shape: &Shape,
    ) -> Result<()> {
        let mut view = ctx.output(output, DType::I64, shape)?;
        let lengths = view.as_mut_slice::<i64>().iter_mut().zip(self.marks);
        lengths.for_each(|(to, mark)| *to = i64::from(mark.n));
        Ok(())
    }

    fn write_numbers<T: Number>(
        &self,
        ctx: &mut Ctx<'_>,
        output: usize,
        shape: &Shape,
        padding: Option<Padding<'_>>,
    ) -> Result<()> {
        let mut view = ctx.output(output, T::DTYPE, shape)?;
        let mut room = Room::new(view.as_mut_slice::<T>());
        for example in 0..self.marks.len() {
            pace(64)?;
            let before = room.n_values;
            match self.default(example) {
                Some(default) => room.extend(default.as_slice::<T>().iter().copied()),
                None => self.each_row(example, |list| {
                    T::append(&mut room, list);
                }),
            }
            if let Some(Padding { width, element }) = padding {
                let element = element.map_or_else(T::zeroed, |element| element.as_slice()[0]);
                let n_missing = width - (room.n_values - before);
                room.extend(std::iter::repeat_n(element, n_missing));
            }
        }
        assert!(room.is_full(), "the values were counted before");
        Ok(())
    }

    fn write_strings(
        &self,
        ctx: &mut Ctx<'_>,
        output: usize,
        shape: &Shape,
        padding: Option<Padding<'_>>,
    ) -> Result<()> {
        let element = padding.and_then(|padding| padding.element);
        let element = element.map_or(&b""[..], |element| element.strings().get(0));
        let n_padded = shape.n_elements() - self.totals.n_values;
        let n_bytes = self.totals.n_bytes + super::limit_bytes(n_padded, element)?;
        let mut strings = Strings::with_capacity(shape.n_elements(), n_bytes)?;
        let mut pushed = Ok(());
        let mut push = |strings: &mut Strings, string: &[u8]| {
            if pushed.is_ok() {
                pushed = strings.push(string);
            }
        };
        for example in 0..self.marks.len() {
            pace(64)?;
            let before = strings.len();
            match self.default(example) {
                Some(default) => default.strings().iter().for_each(|s| push(&mut strings, s)),
                None => self.each_row(example, |list| {
                    each_string(list, |string| push(&mut strings, string));
                }),
            }
            if let Some(Padding { width, .. }) = padding {
                let n_missing = width - (strings.len() - before);
                (0..n_missing).for_each(|_| push(&mut strings, element));
            }
        }
        pushed?;
        ctx.set_output(output, Tensor::from_strings(shape.clone(), strings)?)
    }

    fn write_indices(&self, ctx: &mut Ctx<'_>, output: usize, is_batch: bool) -> Result<()> {
        let rank = usize::from(is_batch) + usize::from(self.has_rows()) + 1;
        let shape = Shape::of(&[self.totals.n_values, rank]);
        let mut view = ctx.output(output, DType::I64, &shape)?;
        let mut indices = view.as_mut_slice::<i64>().chunks_exact_mut(rank);
        for example in 0..self.marks.len() {
            pace(64)?;
            let mut row = 0;
            self.each_row(example, |list| {
                let n_values = match self.form {
                    Form::Row { .. } => self.marks[example].n as usize,
                    Form::Rows => self.count(list),
                };
                for (i, index) in indices.by_ref().take(n_values).enumerate() {
                    let full =
                        [is_batch.then_some(example), self.has_rows().then_some(row), Some(i)];
                    let full = full.into_iter().flatten();
                    index.iter_mut().zip(full).for_each(|(to, dim)| *to = dim as i64);
                }
                row += 1;
            });
        }
        Ok(())
    }

    fn has_rows(&self) -> bool {
        matches!(self.form, Form::Rows)
    }

    fn count(&self, list: &[u8]) -> usize {
        Count::of_list(self.dtype, list).map_or(0, |count| count.n_values)
    }

    /// The default, if an example takes it.
    fn default(&self, example: usize) -> Option<View<'f>> {
        match self.form {
            Form::Row { default } => default.filter(|_| self.part(example).is_none()),
            Form::Rows => None,
        }
    }

    fn part(&self, example: usize) -> Option<&'f [u8]> {
        self.marks[example].part(self.examples.get(example))
    }

    /// Calls `each` with the list of values of each row of an example.
    fn each_row(&self, example: usize, mut each: impl FnMut(&'f [u8])) {
        let Some(part) = self.part(example) else { return };
        if !self.has_rows() {
            return each(part);
        }
        for feature in read_list(part).flatten() {
            // A feature without a kind has no values.
            let list = read_feature(feature).ok().flatten();
            each(list.map_or(&[], |(_, list)| list));
        }
    }
}

/// Makes row splits an output: a zero, and the sums of the lengths that `lengths` gives out.
fn write_splits(
    ctx: &mut Ctx<'_>,
    output: usize,
    (dtype, n_rows): (DType, usize),
    lengths: impl Fn(&mut dyn FnMut(usize)),
) -> Result<()> {
    let mut view = ctx.output(output, dtype, &Shape::of(&[n_rows + 1]))?;
    let filled = if dtype == DType::I64 {
        fill_splits::<i64>(view.as_mut_slice(), lengths)
    } else {
        fill_splits::<i32>(view.as_mut_slice(), lengths)
    };
    match filled {
        Some(()) => Ok(()),
        None => invalid!("row splits do not fit in int32"),
    }
}

/// `None` if a sum does not fit.
fn fill_splits<T: Element + TryFrom<usize>>(
    splits: &mut [T],
    lengths: impl Fn(&mut dyn FnMut(usize)),
) -> Option<()> {
    let (first, ends) = splits.split_first_mut()?;
    *first = T::zeroed();
    let (mut ends, mut end, mut fits) = (ends.iter_mut(), 0, true);
    lengths(&mut |length| {
        end += length;
        match (ends.next(), T::try_from(end)) {
            (Some(to), Ok(end)) => *to = end,
            _ => fits = false,
        }
    });
    fits.then_some(())
}
