//! `CombinedNonMaxSuppression`: the best boxes of all classes, for each image of a batch.
//!
//! Follows `non_max_suppression_op.cc`.

use super::boxes::{Corners, overlap};
use crate::prelude::*;

pub(super) const DEF: OpDef = OpDef::pure("CombinedNonMaxSuppression", |attrs| {
    Ok(Box::new(CombinedNms {
        pad_per_class: attrs.bool_or("pad_per_class", false)?,
        clip: attrs.bool_or("clip_boxes", true)?,
    }))
});

struct CombinedNms {
    pad_per_class: bool,
    clip: bool,
}

/// What is asked for.
struct Query {
    per_class: usize,
    total: usize,
    threshold: f32,
    least_score: f32,
}

/// A selected box.
#[derive(Debug, Clone, Copy)]
struct Found {
    score: f32,
    class: usize,
    corners: Corners,
}

impl CombinedNms {
    /// The boxes that each image gets.
    fn size(&self, query: &Query, classes: usize) -> usize {
        match self.pad_per_class {
            true => query.total.min(query.per_class.saturating_mul(classes)),
            false => query.total,
        }
    }
}

impl Op for CombinedNms {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [boxes, scores, scalars @ ..] = arity::<6>(inputs)?;
        boxes.require_rank(4)?;
        scores.require_rank(3)?;
        scalars.iter().try_for_each(|scalar| scalar.require_rank(0))?;
        let batch = boxes.dims().map_or(Dim::Unknown, |dims| dims[0].clone());
        let classes = scores.dims().map_or(Dim::Unknown, |dims| dims[2].clone());
        let number = |spec: &Spec| spec.ints().and_then(|ints| usize::try_from(ints[0]).ok());
        let size = match (number(&scalars[0]), number(&scalars[1]), classes.size()) {
            (Some(per_class), Some(total), classes) if classes.is_some() || !self.pad_per_class => {
                let query = Query { per_class, total, threshold: 0., least_score: 0. };
                Dim::of(self.size(&query, classes.unwrap_or(0)))
            }
            _ => Dim::Unknown,
        };
        Ok(vec![
            Spec::new(DType::F32, [batch.clone(), size.clone(), Dim::Known(4)]),
            Spec::new(DType::F32, [batch.clone(), size.clone()]),
            Spec::new(DType::F32, [batch.clone(), size]),
            Spec::new(DType::I32, [batch]),
        ])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (boxes, scores) = (ctx.input(0), ctx.input(1));
        let query = query(ctx)?;
        let &[batch, n, q, 4] = boxes.shape().dims() else {
            return invalid!("boxes must be [batch, boxes, classes, 4]: {}", boxes.shape());
        };
        let classes = match scores.shape().dims() {
            &[b, m, classes] if b == batch && m == n && (q == 1 || q == classes) => classes,
            _ => return invalid!("scores {} do not fit boxes {}", scores.shape(), boxes.shape()),
        };
        let size = self.size(&query, classes);
        let corners: &[Corners] = boxes.as_slice::<f32>().as_chunks().0;
        let scores: &[f32] = scores.as_slice();
        let found: Vec<Vec<Found>> = (0..batch)
            .map(|i| {
                let image = Image {
                    corners: &corners[i * n * q..][..n * q],
                    scores: &scores[i * n * classes..][..n * classes],
                    q,
                    classes,
                };
                let mut found = image.best(&query);
                found.truncate(size);
                found
            })
            .collect();
        self.write(ctx, &found, size)
    }
}

impl CombinedNms {
    fn write(&self, ctx: &mut Ctx<'_>, found: &[Vec<Found>], size: usize) -> Result<()> {
        let batch = found.len();
        let per_box = Shape::checked([batch, size].map(|dim| dim as i64))?;
        let per_corner = Shape::checked([batch, size, 4].map(|dim| dim as i64))?;
        let mut out = ctx.output(0, DType::F32, &per_corner)?;
        let out = out.as_mut_slice::<f32>();
        out.fill(0.);
        for (found, out) in found.iter().zip(out.chunks_exact_mut((4 * size).max(1))) {
            for (found, out) in found.iter().zip(out.chunks_exact_mut(4)) {
                let clip = |x: f32| if self.clip { x.clamp(0., 1.) } else { x };
                out.copy_from_slice(&found.corners.map(clip));
            }
        }
        for (at, value) in
            [(1, (|f| f.score) as fn(&Found) -> f32), (2, |f: &Found| f.class as f32)]
        {
            let mut out = ctx.output(at, DType::F32, &per_box)?;
            let out = out.as_mut_slice::<f32>();
            out.fill(0.);
            for (found, out) in found.iter().zip(out.chunks_exact_mut(size.max(1))) {
                found.iter().zip(out).for_each(|(found, out)| *out = value(found));
            }
        }
        let mut counts = ctx.output(3, DType::I32, &Shape::of(&[batch]))?;
        let counts = counts.as_mut_slice::<i32>().iter_mut();
        counts.zip(found).for_each(|(out, found)| *out = found.len() as i32);
        Ok(())
    }
}

fn query(ctx: &Ctx<'_>) -> Result<Query> {
    let size = |i: usize| match ctx.input(i).to_i64().as_deref() {
        Some([size]) if *size > 0 => Ok(*size as usize),
        _ => invalid!("input {i} must be a number above 0"),
    };
    let number = |i: usize| match ctx.input(i).as_slice::<f32>() {
        [number] => Ok(*number),
        _ => invalid!("input {i} must be a number"),
    };
    let query = Query {
        per_class: size(2)?,
        total: size(3)?,
        threshold: number(4)?,
        least_score: number(5)?,
    };
    if !(0. ..=1.).contains(&query.threshold) {
        return invalid!("iou_threshold must be in [0, 1]");
    }
    Ok(query)
}

/// The boxes and scores of one image.
struct Image<'a> {
    corners: &'a [Corners],
    scores: &'a [f32],
    /// The boxes that each place has: one, or one for each class.
    q: usize,
    classes: usize,
}

impl Image<'_> {
    /// The best boxes of all classes, best first.
    fn best(&self, query: &Query) -> Vec<Found> {
        let mut found: Vec<Found> =
            (0..self.classes).flat_map(|class| self.best_of(class, query)).collect();
        found.sort_by(|a, b| b.score.total_cmp(&a.score));
        found
    }

    fn best_of(&self, class: usize, query: &Query) -> Vec<Found> {
        let own = if self.q == 1 { 0 } else { class };
        let places = self.corners.iter().skip(own).step_by(self.q);
        let scores = self.scores.iter().skip(class).step_by(self.classes);
        let mut candidates: Vec<Found> = places
            .zip(scores)
            .filter(|(_, score)| **score > query.least_score)
            .map(|(corners, score)| Found { score: *score, class, corners: *corners })
            .collect();
        candidates.sort_by(|a, b| b.score.total_cmp(&a.score));
        let mut kept: Vec<Found> = Vec::new();
        for next in candidates {
            if kept.len() >= query.per_class {
                break;
            }
            let apart = |other: &Found| overlap(next.corners, other.corners) <= query.threshold;
            if kept.iter().rev().all(apart) {
                kept.push(next);
            }
        }
        kept
    }
}
