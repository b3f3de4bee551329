//! `CTCGreedyDecoder` and `CTCBeamSearchDecoder`: the labels that a network's outputs over time
//! stand for.
//!
//! Follows `ctc_decoder_ops.cc` of TensorFlow.

use super::beam;
use crate::error::unsupported;
use crate::prelude::*;

/// The most steps of all searches of one call, each of which touches every class of every beam.
const N_STEPS_MAX: usize = 1 << 34;

pub(super) const GREEDY: OpDef = OpDef::pure("CTCGreedyDecoder", RowRule::Mixed, |attrs| {
    let merge = attrs.bool_or("merge_repeated", false)?;
    Ok(Box::new(CtcDecoder {
        merge,
        way: CtcWay::Greedy { blank: attrs.int_or("blank_index", -1)? },
    }))
});
pub(super) const BEAM: OpDef = OpDef::pure("CTCBeamSearchDecoder", RowRule::Mixed, |attrs| {
    let (width, n_paths) = (attrs.size("beam_width")?, attrs.count("top_paths")?);
    if width == 0 || n_paths == 0 {
        return invalid!("beam_width and top_paths must be at least 1");
    }
    let merge = attrs.bool_or("merge_repeated", true)?;
    Ok(Box::new(CtcDecoder { merge, way: CtcWay::Beam { width, n_paths } }))
});

struct CtcDecoder {
    /// `true` if labels that follow themselves are written once.
    merge: bool,
    way: CtcWay,
}

#[derive(Clone, Copy)]
enum CtcWay {
    Greedy { blank: i64 },
    Beam { width: usize, n_paths: usize },
}

/// The label sequences of one row, best first, and their scores.
pub(super) type Paths = BookedVec<Path>;

/// The labels of a path, and its score.
pub(super) type Path = (BookedVec<i64>, f64);

impl CtcDecoder {
    fn n_paths(&self) -> usize {
        match self.way {
            CtcWay::Greedy { .. } => 1,
            CtcWay::Beam { n_paths, .. } => n_paths,
        }
    }
}

impl Op for CtcDecoder {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [x, lengths] = arity(inputs)?;
        x.require_rank(3)?;
        lengths.require_rank(1)?;
        lengths.require_dtype(DType::I32)?;
        let n = x.dims().map_or(Dim::Unknown, |dims| dims[1].clone());
        let n_lengths = lengths.dims().map_or(Dim::Unknown, |dims| dims[0].clone());
        let batch = merge_dim(&n, &n_lengths).unwrap_or(Dim::Unknown);
        let n_paths = self.n_paths();
        let each = |spec: Spec| std::iter::repeat_n(spec, n_paths);
        Ok(each(Spec::new(DType::I64, [Dim::Unknown, Dim::Known(2)]))
            .chain(each(Spec::new(DType::I64, [Dim::Unknown])))
            .chain(each(Spec::new(DType::I64, [Dim::Known(2)])))
            .chain([Spec::new(x.dtype, [batch, Dim::of(n_paths)])])
            .collect())
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (x, lengths) = (ctx.input(0), ctx.input(1));
        let &[n_steps, n_rows, n_classes] = x.shape().dims() else {
            return invalid!("inputs is not a 3-Tensor");
        };
        if x.n_elements() == 0 {
            return invalid!("inputs must not be empty");
        }
        let lengths = checked_lengths(lengths, n_steps, n_rows)?;
        if n_steps == 0 || n_classes == 0 {
            return invalid!("max_time is 0");
        }
        let wide = match x.dtype() {
            DType::F32 => BookedVec::collect(x.as_slice::<f32>().iter().map(|x| f64::from(*x)))?,
            DType::F64 => BookedVec::from_slice(x.as_slice::<f64>())?,
            other => return unsupported!("dtype {other} is not supported here"),
        };
        let mut rows: BookedVec<Paths> = BookedVec::with_capacity(n_rows)?;
        for (row, length) in lengths.iter().enumerate() {
            let steps = (0..*length).map(|step| {
                let at = (step * n_rows + row) * n_classes;
                &wide[at..at + n_classes]
            });
            ctx.env().cancel.check()?;
            let paths = match self.way {
                CtcWay::Greedy { blank } => {
                    let path = self.greedy(steps, blank, n_classes)?;
                    BookedVec::collect(std::iter::once(path))?
                }
                CtcWay::Beam { width, n_paths } => {
                    if width.saturating_mul(n_classes).saturating_mul(*length) > N_STEPS_MAX {
                        let text = "a beam search that is too large".to_owned();
                        return Err(Error::ResourceExhausted(text));
                    }
                    beam::search(steps, width, n_paths, self.merge)?
                }
            };
            rows.push(paths)?;
        }
        self.write(ctx, &rows, x.dtype())
    }
}

/// The lengths of the rows, none above the number of steps.
fn checked_lengths(lengths: View<'_>, n_steps: usize, n_rows: usize) -> Result<BookedVec<usize>> {
    let values = booked_i64(&lengths)?.unwrap_or_default();
    if lengths.shape().rank() != 1 || values.len() != n_rows {
        let n = values.len();
        return Err(Error::FailedPrecondition(format!(
            "len(sequence_length) != batch_size. len: {n} batch_size: {n_rows}"
        )));
    }
    let check = |(row, length): (usize, &i64)| match usize::try_from((*length).max(0)) {
        Ok(length) if length <= n_steps => Ok(length),
        // The text is TensorFlow's (`ctc_decoder_ops.cc`).
        _ => Err(Error::FailedPrecondition(format!("sequence_length({row}) <= {n_steps}"))),
    };
    let mut checked = BookedVec::with_capacity(n_rows)?;
    for each in values.iter().enumerate() {
        checked.push(check(each)?)?;
    }
    Ok(checked)
}

impl CtcDecoder {
    /// The most likely class of each step, without blanks.
    fn greedy<'a>(
        &self,
        steps: impl Iterator<Item = &'a [f64]>,
        blank: i64,
        n_classes: usize,
    ) -> Result<Path> {
        let n = n_classes as i64;
        let blank = if blank < 0 { blank + n } else { blank };
        if !(0..n).contains(&blank) {
            // The text is TensorFlow's.
            return invalid!("blank_index expected to be between {} and {}", -n, n - 1);
        }
        let (mut labels, mut score, mut before) = (BookedVec::new(), 0.0, -1);
        for step in steps {
            pace(step.len())?;
            let mut best = 0;
            for (class, x) in step.iter().enumerate() {
                if *x > step[best] {
                    best = class;
                }
            }
            score -= step[best];
            let label = best as i64;
            if label != blank && !(self.merge && label == before) {
                labels.push(label)?;
            }
            before = label;
        }
        Ok((labels, score))
    }

    /// A sparse matrix of labels for each place in the order of paths, then the scores.
    fn write(&self, ctx: &mut Ctx<'_>, rows: &[Paths], dtype: DType) -> Result<()> {
        let n_paths = self.n_paths();
        for path in 0..n_paths {
            let (mut indices, mut values, mut width) = (BookedVec::new(), BookedVec::new(), 0);
            for (row, paths) in rows.iter().enumerate() {
                let labels = &paths[path].0;
                width = width.max(labels.len());
                for (at, label) in labels.iter().enumerate() {
                    pace(8)?;
                    indices.extend([row as i64, at as i64])?;
                    values.push(*label)?;
                }
            }
            let shape = Shape::of(&[values.len(), 2]);
            ctx.set_output(path, Tensor::from_slice(shape, &indices)?)?;
            ctx.set_output(n_paths + path, Tensor::vector(&values)?)?;
            let dense = [rows.len() as i64, width as i64];
            ctx.set_output(2 * n_paths + path, Tensor::vector(&dense)?)?;
        }
        let scores = rows.iter().flat_map(|paths| paths.iter().map(|path| path.1));
        let mut out = ctx.output(3 * n_paths, dtype, &Shape::of(&[rows.len(), n_paths]))?;
        match dtype {
            DType::F32 => {
                let out = out.as_mut_slice::<f32>().iter_mut();
                out.zip(scores).for_each(|(out, score)| *out = score as f32);
            }
            _ => {
                let out = out.as_mut_slice::<f64>().iter_mut();
                out.zip(scores).for_each(|(out, score)| *out = score);
            }
        }
        Ok(())
    }
}
