//! `StringNGrams`: runs of neighbouring strings of each ragged row, joined.
//!
//! Follows `string_ngrams_op.cc` of TensorFlow.

use crate::prelude::*;

/// The most n-grams that one call may make: padding makes them without any input.
const N_NGRAMS_MAX: usize = 1 << 27;

/// The most strings of one n-gram.
const WIDTH_MAX: usize = 1 << 16;

pub(super) const DEF: OpDef = OpDef::pure("StringNGrams", RowRule::Mixed, |attrs| {
    let widths = attrs.ints("ngram_widths")?.iter().map(|width| match usize::try_from(*width) {
        Ok(width @ 1..=WIDTH_MAX) => Ok(width),
        _ => invalid!("ngram_widths must contain positive values, none above {WIDTH_MAX}"),
    });
    Ok(Box::new(NGrams {
        separator: attrs.bytes("separator")?.to_vec(),
        widths: widths.collect::<Result<_>>()?,
        left: attrs.bytes("left_pad")?.to_vec(),
        right: attrs.bytes("right_pad")?.to_vec(),
        pad_width: usize::try_from(attrs.int("pad_width")?).ok(),
        keeps_short: attrs.bool_or("preserve_short_sequences", false)?,
    }))
});

struct NGrams {
    separator: Vec<u8>,
    widths: Vec<usize>,
    left: Vec<u8>,
    right: Vec<u8>,
    /// The most padding on each side; `None` for as much as makes sense.
    pad_width: Option<usize>,
    keeps_short: bool,
}

impl Op for NGrams {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [strings, splits] = arity(inputs)?;
        strings.require_dtype(DType::String)?;
        // Where there is nothing, the n-grams have the shape of the strings.
        let ngrams = match strings.rank() {
            Some(1) => Spec::new(DType::String, [Dim::Unknown]),
            _ => Spec::unknown(DType::String),
        };
        Ok(vec![ngrams, splits.with_dtype(splits.dtype)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (strings, splits_shape) = (ctx.input(0).strings(), ctx.input(1).shape().clone());
        let splits = check_splits(ctx.input(1), strings.len())?;
        if strings.is_empty() || splits.is_empty() {
            let (shape, n) = (ctx.input(0).shape().clone(), strings.len());
            let none = Strings::repeated(b"", n)?;
            ctx.set_output(0, Tensor::from_strings(shape, none)?)?;
            return ctx.forward(1, ctx.input(1), splits_shape);
        }
        let mut out = Strings::with_capacity(strings.len(), 0)?;
        let mut ends = BookedVec::with_capacity(splits.len())?;
        ends.push(0)?;
        for row in splits.windows(2) {
            ctx.env().cancel.check()?;
            self.row(strings, row[0]..row[1], &mut out)?;
            ends.push(out.len() as i64)?;
        }
        ctx.set_output(0, Tensor::from_strings(Shape::of(&[out.len()]), out)?)?;
        if ctx.input(1).dtype() == DType::I64 {
            return ctx.set_output(1, Tensor::from_slice(splits_shape, &ends)?);
        }
        let narrow = BookedVec::collect(ends.iter().map(|end| *end as i32))?;
        ctx.set_output(1, Tensor::from_slice(splits_shape, &narrow)?)
    }
}

/// The cut of a row into n-grams: their width, the padding on each side, and how many they are.
#[derive(Clone, Copy)]
struct NGramCut {
    width: usize,
    padding: usize,
    count: usize,
}

impl NGrams {
    fn row(&self, strings: &Strings, row: std::ops::Range<usize>, out: &mut Strings) -> Result<()> {
        let before = out.len();
        let len = row.len();
        for width in &self.widths {
            let padding = self.padding(*width);
            let count = (len + 2 * padding + 1).saturating_sub(*width);
            let cut = NGramCut { width: *width, padding, count };
            self.ngrams(strings, row.clone(), cut, out)?;
        }
        if self.keeps_short && out.len() == before && len > 0 {
            // Only a fixed padding can leave a row too short; then it becomes one n-gram.
            let padding = self.pad_width.unwrap_or(0).min(WIDTH_MAX);
            let cut = NGramCut { width: len + 2 * padding, padding, count: 1 };
            self.ngrams(strings, row, cut, out)?;
        }
        Ok(())
    }

    /// The padding on each side of n-grams of this width: never an n-gram of padding alone.
    fn padding(&self, width: usize) -> usize {
        self.pad_width.unwrap_or(width - 1).min(width - 1)
    }

    fn ngrams(
        &self,
        strings: &Strings,
        row: std::ops::Range<usize>,
        cut: NGramCut,
        out: &mut Strings,
    ) -> Result<()> {
        let NGramCut { width, padding, count } = cut;
        if count.saturating_add(out.len()) > N_NGRAMS_MAX {
            return Err(Error::ResourceExhausted(format!("{count} n-grams are too many")));
        }
        for i in 0..count {
            let left = padding.saturating_sub(i);
            let right = padding.saturating_sub(count - (i + 1));
            let n_strings = width.saturating_sub(left + right);
            let start = row.start + i.saturating_sub(padding);
            let parts = std::iter::repeat_n(&self.left[..], left)
                .chain((start..start + n_strings).map(|at| strings.get(at)))
                .chain(std::iter::repeat_n(&self.right[..], right));
            for (n, part) in parts.enumerate() {
                if n > 0 {
                    out.extend_last(&self.separator)?;
                }
                out.extend_last(part)?;
            }
            out.end()?;
        }
        Ok(())
    }
}

/// Row splits as sizes. Fails unless they cut `n_values` values into rows.
fn check_splits(splits: View<'_>, n_values: usize) -> Result<BookedVec<usize>> {
    let Some(numbers) = booked_i64(&splits)? else {
        return invalid!("data_splits must be int32 or int64, not {}", splits.dtype());
    };
    let Some((first, last)) = numbers.first().zip(numbers.last()) else {
        return Ok(BookedVec::new());
    };
    if *first != 0 {
        return invalid!("First split value must be 0, got {first}");
    }
    if let Some(pair) = numbers.windows(2).find(|pair| pair[0] > pair[1]) {
        return invalid!("Invalid split value {}, must be at least {}", pair[1], pair[0]);
    }
    if *last != n_values as i64 {
        return invalid!("Last split value must be data size. Expected {n_values}, got {last}");
    }
    Ok(BookedVec::collect(numbers.iter().map(|split| *split as usize))?)
}
