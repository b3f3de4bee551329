//! `UnsortedSegmentJoin`: the strings of each segment joined in order.
//!
//! Follows `unsorted_segment_join_op.cc` of TensorFlow.

use crate::prelude::*;

/// The most segments that are counted.
const N_SEGMENTS_MAX: usize = 1 << 27;

pub(super) const DEF: OpDef = OpDef::pure("UnsortedSegmentJoin", RowRule::Mixed, |attrs| {
    let separator =
        if attrs.has("separator") { attrs.bytes("separator")?.to_vec() } else { Vec::new() };
    Ok(Box::new(SegmentJoin { separator }))
});

struct SegmentJoin {
    separator: Vec<u8>,
}

impl Op for SegmentJoin {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [input, ids, n_segments] = arity(inputs)?;
        input.require_dtype(DType::String)?;
        n_segments.require_rank(0)?;
        let (Some(dims), Some(id_dims)) = (input.dims(), ids.dims()) else {
            return Ok(vec![Spec::unknown(DType::String)]);
        };
        // The texts and codes are TensorFlow's (`unsorted_segment_join_op.cc`).
        if id_dims.is_empty() {
            return invalid!("Segment_id cannot have rank 0");
        }
        if dims.len() < id_dims.len() {
            let (ids, input) = (id_dims.len(), dims.len());
            return Err(Error::OutOfRange(format!(
                "Invalid segment_id rank {ids} for input with {input} dimension(s)"
            )));
        }
        if dims.iter().zip(id_dims).any(|(a, b)| a.differs(b)) {
            return invalid!("segment_ids' shape {ids} must be a prefix of inputs' {input}");
        }
        let first = n_segments.sizes().map_or(Dim::Unknown, |sizes| sizes[0].clone());
        let rest = dims[id_dims.len()..].iter().cloned();
        Ok(vec![Spec::new(DType::String, std::iter::once(first).chain(rest))])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (input, ids) = (ctx.input(0), ctx.input(1));
        let n_segments = ctx.input(2).to_i64().and_then(|n| n.first().copied());
        let n_segments = n_segments.and_then(|n| usize::try_from(n).ok());
        let Some(n_segments) = n_segments.filter(|n| *n <= N_SEGMENTS_MAX) else {
            return invalid!("Number of segments cannot be negative, nor above {N_SEGMENTS_MAX}");
        };
        let Some(rest) = input.shape().strip_prefix(ids.shape().dims()) else {
            return invalid!(
                "Segment_id tensor shape must be a prefix of the input's: {} and {}",
                ids.shape(),
                input.shape()
            );
        };
        let shape = Shape::checked(
            std::iter::once(n_segments as i64).chain(rest.iter().map(|dim| *dim as i64)),
        )?;
        if shape.n_elements() > N_SEGMENTS_MAX {
            return Err(Error::ResourceExhausted(format!("shape {shape} is too large")));
        }
        let ids = booked_i64(&ids)?.unwrap_or_default();
        let out = self.join(input.strings(), &ids, &shape)?;
        ctx.set_output(0, Tensor::from_strings(shape, out)?)
    }
}

impl SegmentJoin {
    fn join(&self, strings: &Strings, ids: &[i64], shape: &Shape) -> Result<Strings> {
        let n_segments = shape[0];
        let width: usize = shape[1..].iter().product();
        // The strings of each place, as a list: the first and the last of it, and behind each
        // string the next. A number is one more than that of its string, and none is 0.
        let mut ends = BookedVec::filled([0usize; 2], shape.n_elements())?;
        let mut next = BookedVec::filled(0usize, strings.len())?;
        for (i, id) in ids.iter().enumerate() {
            pace(8)?;
            let segment = usize::try_from(*id).ok().filter(|segment| *segment < n_segments);
            let Some(segment) = segment else {
                return invalid!(
                    "segment_ids must be less than the number of segments {n_segments}, got {id}"
                );
            };
            for j in 0..width {
                let (number, [first, last]) = (i * width + j + 1, &mut ends[segment * width + j]);
                *if *last == 0 { first } else { &mut next[*last - 1] } = number;
                *last = number;
            }
        }
        let mut out = Strings::with_capacity(shape.n_elements(), strings.n_bytes())?;
        for [first, _] in ends.iter() {
            pace(16)?;
            let (mut number, mut is_empty) = (*first, true);
            while let Some(at) = number.checked_sub(1) {
                // Nothing is joined to nothing, even if there was an empty string before.
                if !is_empty {
                    out.extend_last(&self.separator)?;
                }
                out.extend_last(strings.get(at))?;
                is_empty &= strings.get(at).is_empty();
                number = next[at];
            }
            out.end()?;
        }
        Ok(out)
    }
}
