//! `CombinedNonMaxSuppression`: the best boxes of all classes, for each image of a batch.
//!
//! Follows `non_max_suppression_op.cc`.

use super::boxes::{Corners, overlap};
use crate::order::sort_by;
use crate::prelude::*;

pub(super) const DEF: OpDef =
    OpDef::pure("CombinedNonMaxSuppression", RowRule::Suppression, |attrs| {
        Ok(Box::new(CombinedNms {
            pad_per_class: attrs.bool_or("pad_per_class", false)?,
            clip: attrs.bool_or("clip_boxes", true)?,
        }))
    });

struct CombinedNms {
    pad_per_class: bool,
    clip: bool,
}

/// The parameters of a query.
struct Query {
    per_class: usize,
    total: usize,
    threshold: f32,
    least_score: f32,
}

/// A selected box: its place and its class.
type Found = [usize; 2];

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
        let images = Images { corners, scores, batch, n, q, classes };
        let per_image = images.found_max(query.per_class);
        let mut scratch = ctx.scratch();
        let (mut order, mut all) = (scratch.part(n)?, scratch.part(per_image)?);
        let cap = per_image.min(size);
        let (mut kept, mut counts) = (scratch.part(batch * cap)?, scratch.part(batch)?);
        for i in 0..batch {
            let n_found = images.of(i).best(&query, &mut order, &mut all)?.min(size);
            kept[i * cap..][..n_found].copy_from_slice(&all[..n_found]);
            counts[i] = n_found;
        }
        let found = |i: usize| &kept[i * cap..][..counts[i]];
        self.write(ctx, &images, found, size)
    }

    fn scratch_bytes(&self, inputs: &[Spec], outputs: &[Spec]) -> usize {
        let (Some(boxes), Some(scores)) = (inputs[0].shape(), inputs[1].shape()) else { return 0 };
        let (Some(out), Some(&[per_class])) = (outputs[1].shape(), inputs[2].ints().as_deref())
        else {
            return 0;
        };
        let (&[batch, n, ..], &[.., classes]) = (boxes.dims(), scores.dims()) else { return 0 };
        let per_class = usize::try_from(per_class).unwrap_or(0);
        let per_image = per_class.min(n).saturating_mul(classes);
        let kept = batch.saturating_mul(per_image.min(out.last_dim()));
        let found = Scratch::bytes_of::<Found>;
        let numbers = Scratch::bytes_of::<usize>;
        numbers(n) + found(per_image) + found(kept) + numbers(batch)
    }
}

impl CombinedNms {
    fn write<'a>(
        &self,
        ctx: &mut Ctx<'_>,
        images: &Images<'_>,
        found: impl Fn(usize) -> &'a [Found],
        size: usize,
    ) -> Result<()> {
        let batch = images.batch;
        let per_box = Shape::checked([batch, size].map(|dim| dim as i64))?;
        let per_corner = Shape::checked([batch, size, 4].map(|dim| dim as i64))?;
        let mut out = ctx.output(0, DType::F32, &per_corner)?;
        let out = out.as_mut_slice::<f32>();
        out.fill(0.);
        for (i, out) in out.chunks_exact_mut((4 * size).max(1)).enumerate() {
            for (found, out) in found(i).iter().zip(out.chunks_exact_mut(4)) {
                pace(8)?;
                let clip = |x: f32| if self.clip { x.clamp(0., 1.) } else { x };
                out.copy_from_slice(&images.of(i).corners_of(*found).map(clip));
            }
        }
        let score = |i: usize, found: Found| images.of(i).score_of(found);
        let class = |_: usize, [_, class]: Found| class as f32;
        for (at, value) in [(1, &score as &dyn Fn(usize, Found) -> f32), (2, &class)] {
            let mut out = ctx.output(at, DType::F32, &per_box)?;
            let out = out.as_mut_slice::<f32>();
            out.fill(0.);
            for (i, out) in out.chunks_exact_mut(size.max(1)).enumerate() {
                found(i).iter().zip(out).for_each(|(found, out)| *out = value(i, *found));
            }
        }
        let mut counts = ctx.output(3, DType::I32, &Shape::of(&[batch]))?;
        let counts = counts.as_mut_slice::<i32>().iter_mut().enumerate();
        counts.for_each(|(i, out)| *out = found(i).len() as i32);
        Ok(())
    }
}

fn query(ctx: &Ctx<'_>) -> Result<Query> {
    let size = |i: usize| match int(&ctx.input(i)) {
        Ok(size) if size > 0 => Ok(size as usize),
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

/// The boxes and scores of a batch.
struct Images<'a> {
    corners: &'a [Corners],
    scores: &'a [f32],
    batch: usize,
    /// The places of an image.
    n: usize,
    /// The boxes that each place has: one, or one for each class.
    q: usize,
    classes: usize,
}

impl<'a> Images<'a> {
    /// The most boxes that are found in an image.
    fn found_max(&self, per_class: usize) -> usize {
        per_class.min(self.n) * self.classes
    }

    fn of(&self, i: usize) -> Image<'a> {
        let Self { n, q, classes, .. } = *self;
        Image {
            corners: &self.corners[i * n * q..][..n * q],
            scores: &self.scores[i * n * classes..][..n * classes],
            q,
            classes,
        }
    }
}

/// The boxes and scores of one image.
struct Image<'a> {
    corners: &'a [Corners],
    scores: &'a [f32],
    q: usize,
    classes: usize,
}

impl Image<'_> {
    fn corners_of(&self, [place, class]: Found) -> Corners {
        self.corners[place * self.q + if self.q == 1 { 0 } else { class }]
    }

    fn score_of(&self, [place, class]: Found) -> f32 {
        self.scores[place * self.classes + class]
    }

    /// Writes the best boxes of all classes to `found`, best first, and says how many they are.
    /// `order` has room for all places.
    fn best(&self, query: &Query, order: &mut [usize], found: &mut [Found]) -> Result<usize> {
        let mut n_found = 0;
        for class in 0..self.classes {
            n_found += self.best_of(class, query, order, &mut found[n_found..])?;
        }
        // Of equal ones, those of the first class come first, and in it those of the first place.
        sort_by(&mut found[..n_found], &mut |a: &Found, b: &Found| {
            let falling = self.score_of(*b).total_cmp(&self.score_of(*a));
            falling.then(a[1].cmp(&b[1])).then(a[0].cmp(&b[0]))
        })?;
        Ok(n_found)
    }

    /// The same for one class.
    fn best_of(
        &self,
        class: usize,
        query: &Query,
        order: &mut [usize],
        found: &mut [Found],
    ) -> Result<usize> {
        pace(order.len())?;
        let score = |place: usize| self.score_of([place, class]);
        let mut n_candidates = 0;
        for place in (0..order.len()).filter(|place| score(*place) > query.least_score) {
            order[n_candidates] = place;
            n_candidates += 1;
        }
        let candidates = &mut order[..n_candidates];
        sort_by(candidates, &mut |a: &usize, b: &usize| {
            score(*b).total_cmp(&score(*a)).then(a.cmp(b))
        })?;
        let mut n_kept = 0;
        for place in &*candidates {
            if n_kept >= query.per_class {
                break;
            }
            pace(16 * n_kept)?;
            let corners = self.corners_of([*place, class]);
            let apart =
                |other: &Found| overlap(corners, self.corners_of(*other)) <= query.threshold;
            if found[..n_kept].iter().rev().all(apart) {
                found[n_kept] = [*place, class];
                n_kept += 1;
            }
        }
        Ok(n_kept)
    }
}
