//! `NonMaxSuppression` and its versions: the best of the boxes that overlap.
//!
//! Follows `non_max_suppression_op.cc`.

use std::cmp::Ordering;

use super::boxes::{Corners, overlap};
use super::heap::Heap;
use crate::error::unsupported;
use crate::nn::{Floats, float, narrow};
use crate::prelude::*;

pub(super) const V1: OpDef = OpDef::pure("NonMaxSuppression", RowRule::Mixed, |attrs| {
    let threshold = attrs.float_or("iou_threshold", 0.5)?;
    Ok(Box::new(Nms { threshold: Some(threshold), n_inputs: 3, ..Nms::new() }))
});
pub(super) const V2: OpDef = OpDef::pure("NonMaxSuppressionV2", RowRule::Mixed, |_| {
    Ok(Box::new(Nms { n_inputs: 4, ..Nms::new() }))
});
pub(super) const V3: OpDef = OpDef::pure("NonMaxSuppressionV3", RowRule::Mixed, |_| {
    Ok(Box::new(Nms { n_inputs: 5, ..Nms::new() }))
});
pub(super) const V4: OpDef = OpDef::pure("NonMaxSuppressionV4", RowRule::Mixed, |attrs| {
    let pad = attrs.bool_or("pad_to_max_output_size", false)?;
    Ok(Box::new(Nms { n_inputs: 5, pad, counted: true, ..Nms::new() }))
});
pub(super) const V5: OpDef = OpDef::pure("NonMaxSuppressionV5", RowRule::Mixed, |attrs| {
    let pad = attrs.bool_or("pad_to_max_output_size", false)?;
    Ok(Box::new(Nms { n_inputs: 6, pad, counted: true, scored: true, ..Nms::new() }))
});
pub(super) const WITH_OVERLAPS: OpDef =
    OpDef::pure("NonMaxSuppressionWithOverlaps", RowRule::Mixed, |_| {
        Ok(Box::new(Nms { n_inputs: 5, overlaps: true, ..Nms::new() }))
    });

struct Nms {
    n_inputs: usize,
    /// The overlap above which a box is dropped, unless it is an input.
    threshold: Option<f32>,
    /// `true` if the outputs are filled up to the most boxes.
    pad: bool,
    /// `true` if the number of boxes is an output.
    counted: bool,
    /// `true` if the scores are an output.
    scored: bool,
    /// `true` if overlaps are given instead of boxes.
    overlaps: bool,
}

/// The parameters of a query.
struct Query {
    most: usize,
    threshold: f32,
    least_score: f32,
    sigma: f32,
}

impl Nms {
    fn new() -> Self {
        Self {
            n_inputs: 0,
            threshold: None,
            pad: false,
            counted: false,
            scored: false,
            overlaps: false,
        }
    }
}

impl Op for Nms {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        if inputs.len() != self.n_inputs {
            return invalid!("expected {} inputs but got {}", self.n_inputs, inputs.len());
        }
        let (boxes, scores) = (&inputs[0], &inputs[1]);
        boxes.require_rank(2)?;
        scores.require_rank(1)?;
        inputs[2..].iter().try_for_each(|scalar| scalar.require_rank(0))?;
        if let (Some(boxes_dims), Some(scores_dims)) = (boxes.dims(), scores.dims()) {
            let columns = if self.overlaps { scores_dims[0].clone() } else { Dim::Known(4) };
            if boxes_dims[0].differs(&scores_dims[0]) || boxes_dims[1].differs(&columns) {
                return invalid!("boxes {boxes} and scores {scores} do not fit");
            }
        }
        let most = inputs[2].sizes().and_then(|sizes| sizes.first().cloned());
        let count = most.filter(|_| self.pad).unwrap_or(Dim::Unknown);
        let mut outputs = vec![Spec::new(DType::I32, [count.clone()])];
        if self.scored {
            outputs.push(Spec::new(boxes.dtype, [count]));
        }
        if self.counted {
            outputs.push(Spec::scalar(DType::I32));
        }
        Ok(outputs)
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (boxes, scores) = (ctx.input(0), ctx.input(1));
        let n = scores.n_elements();
        let columns = if self.overlaps { n } else { 4 };
        let fits = scores.shape().rank() == 1 && boxes.shape().dims() == [n, columns];
        if !fits {
            return invalid!("boxes {} and scores {} do not fit", boxes.shape(), scores.shape());
        }
        let mut scratch = ctx.scratch();
        let wide = (Floats::of(&boxes, &mut scratch)?, Floats::of(&scores, &mut scratch)?);
        let (Some(wide_boxes), Some(wide_scores)) = wide else {
            return unsupported!("dtype {} is not supported here", boxes.dtype());
        };
        let query = self.query(ctx)?;
        let mut room = Room { candidates: scratch.part(n)?, selected: scratch.part(n)? };
        let selected = if self.overlaps {
            select(&query, &wide_scores, &mut room, |a, b| wide_boxes[a * n + b])?
        } else {
            let corners: &[Corners] = wide_boxes.as_chunks().0;
            let overlap = |a: usize, b: usize| overlap(corners[a], corners[b]);
            select(&query, &wide_scores, &mut room, overlap)?
        };
        let len = if self.pad { query.most } else { selected.len() };
        let shape = Shape::checked([len as i64])?;
        let mut indices = ctx.output(0, DType::I32, &shape)?;
        let indices = indices.as_mut_slice::<i32>();
        indices.fill(0);
        indices.iter_mut().zip(selected).for_each(|(out, found)| *out = found.index as i32);
        if self.scored {
            let mut values = scratch.part(len)?;
            values.fill(0.);
            values.iter_mut().zip(selected).for_each(|(value, found)| *value = found.score);
            narrow(&values, &mut ctx.output(1, boxes.dtype(), &shape)?)?;
        }
        if self.counted {
            let at = 1 + usize::from(self.scored);
            let mut count = ctx.output(at, DType::I32, &Shape::scalar())?;
            count.as_mut_slice::<i32>().fill(selected.len() as i32);
        }
        Ok(())
    }

    fn scratch_bytes(&self, inputs: &[Spec], outputs: &[Spec]) -> usize {
        let (boxes, scores) = (&inputs[0], &inputs[1]);
        let values = if self.scored { Scratch::bytes_for::<f32>(&outputs[1]) } else { 0 };
        let candidates = Scratch::bytes_for::<Candidate>(scores);
        Floats::bytes(boxes) + Floats::bytes(scores) + 2 * candidates + values
    }
}

impl Nms {
    fn query(&self, ctx: &Ctx<'_>) -> Result<Query> {
        let number = |i: usize| match float(&ctx.input(i)) {
            Some(number) => Ok(number),
            None => invalid!("input {i} must be a number"),
        };
        let Ok(most) = int(&ctx.input(2)) else {
            return invalid!("max_output_size must be a number");
        };
        let Ok(most) = usize::try_from(most) else {
            return invalid!("max_output_size must be non-negative");
        };
        let threshold = match self.threshold {
            Some(threshold) => threshold,
            None => number(3)?,
        };
        if !self.overlaps && !(0. ..=1.).contains(&threshold) {
            return invalid!("iou_threshold must be in [0, 1]");
        }
        let least_score = if self.n_inputs > 4 { number(4)? } else { f32::MIN };
        let sigma = if self.n_inputs > 5 { number(5)? } else { 0. };
        if sigma < 0. {
            return invalid!("soft_nms_sigma must be at least 0");
        }
        Ok(Query { most, threshold, least_score, sigma })
    }
}

/// A box that may be selected.
#[derive(Debug, Clone, Copy, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Candidate {
    score: f32,
    index: u32,
    /// The number of selected boxes that the box was compared with.
    seen: u32,
}

/// Room for as many boxes as there are.
struct Room<'a> {
    candidates: Part<'a, Candidate>,
    selected: Part<'a, Candidate>,
}

impl Eq for Candidate {}

impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> Ordering {
        self.score.total_cmp(&other.score).then(other.index.cmp(&self.index))
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The selected boxes and their scores, best first.
fn select<'a>(
    query: &Query,
    scores: &[f32],
    room: &'a mut Room<'_>,
    overlap: impl Fn(usize, usize) -> f32,
) -> Result<&'a [Candidate]> {
    let mut candidates = Heap::new(&mut room.candidates);
    for (index, score) in scores.iter().enumerate() {
        pace(16)?;
        if *score > query.least_score {
            candidates.push(Candidate { score: *score, index: index as u32, seen: 0 });
        }
    }
    let (selected, mut n_selected) = (&mut room.selected[..], 0);
    while n_selected < query.most {
        pace(16 * (1 + n_selected))?;
        let Some(mut next) = candidates.pop() else { break };
        let before = next.score;
        if !suppress(query, &mut next, &selected[..n_selected], &overlap) {
            continue;
        }
        next.seen = n_selected as u32;
        if next.score == before {
            selected[n_selected] = next;
            n_selected += 1;
        } else if next.score > query.least_score {
            candidates.push(next);
        }
    }
    Ok(&selected[..n_selected])
}

/// Lowers the score of a box by what it overlaps with; `false` if it is out of the question.
fn suppress(
    query: &Query,
    next: &mut Candidate,
    selected: &[Candidate],
    overlap: impl Fn(usize, usize) -> f32,
) -> bool {
    let soft = query.sigma > 0.;
    for other in selected[next.seen as usize..].iter().rev() {
        let share = overlap(next.index as usize, other.index as usize);
        if !soft && share > query.threshold {
            return false;
        }
        if soft {
            next.score *= (-0.5 / query.sigma * share * share).exp();
        }
        if next.score <= query.least_score {
            break;
        }
    }
    true
}
