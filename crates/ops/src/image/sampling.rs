//! The pixels of an image that a pixel of another size is made of, and their weights.

/// The places of the output's pixels in the input.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sampling {
    /// The corners' centres lie on each other.
    pub(super) align_corners: bool,
    /// Pixels are squares with their centres at halves.
    pub(super) half_pixel_centers: bool,
}

/// The places along one axis that a pixel is made of, with their weights.
pub(super) type Taps<const N: usize> = [(usize, f32); N];

/// Entries of the table of cubic weights, for a distance of 1.
const TABLE: usize = 1 << 10;

impl Sampling {
    /// Input pixels for each output pixel.
    pub(super) fn scale(self, from: usize, to: usize) -> f32 {
        if self.align_corners && to > 1 {
            return (from as f32 - 1.) / (to as f32 - 1.);
        }
        from as f32 / to as f32
    }

    /// Returns the place of output pixel `x` in the input.
    fn place(self, x: usize, scale: f32) -> f32 {
        if self.half_pixel_centers { (x as f32 + 0.5) * scale - 0.5 } else { x as f32 * scale }
    }

    /// The nearest place of each output pixel.
    pub(super) fn nearest(self, from: usize, to: usize) -> impl Fn(usize) -> usize {
        let scale = self.scale(from, to);
        move |x| {
            let x = if self.half_pixel_centers { x as f32 + 0.5 } else { x as f32 } * scale;
            let x = if self.align_corners { x.round() } else { x.floor() };
            (x.max(0.) as usize).min(from.saturating_sub(1))
        }
    }

    /// Two places of each output pixel.
    pub(super) fn bilinear(self, from: usize, to: usize) -> impl Fn(usize) -> Taps<2> {
        let scale = self.scale(from, to);
        let last = from.saturating_sub(1);
        move |x| {
            let x = self.place(x, scale);
            let lower = x.floor();
            let upper = (x.ceil().max(0.) as usize).min(last);
            let part = x - lower;
            [((lower.max(0.) as usize).min(last), 1. - part), (upper, part)]
        }
    }

    /// Four places of each output pixel, weighted by a cubic.
    pub(super) fn bicubic(self, from: usize, to: usize) -> impl Fn(usize) -> Taps<4> {
        // Keys' cubic with half pixels, a sharper one without.
        let a = if self.half_pixel_centers { -0.5f64 } else { -0.75 };
        let near = move |i: usize| {
            let x = i as f64 / TABLE as f64;
            (((a + 2.) * x - (a + 3.)) * x * x + 1.) as f32
        };
        let far = move |i: usize| {
            let x = i as f64 / TABLE as f64 + 1.;
            (((a * x - 5. * a) * x + 8. * a) * x - 4. * a) as f32
        };
        let scale = self.scale(from, to);
        let last = from.saturating_sub(1) as i64;
        move |x| {
            let x = self.place(x, scale);
            let first = x.floor() as i64 - 1;
            let part = ((x - x.floor()) * TABLE as f32).round_ties_even() as usize;
            let weights = [far(part), near(part), near(TABLE - part), far(TABLE - part)];
            if !self.half_pixel_centers {
                return std::array::from_fn(|i| (at(first, i, last), weights[i]));
            }
            // With half pixels, what lies outside of the image does not count.
            let mut inside = std::array::from_fn::<f32, 4, _>(|i| {
                if (0..=last).contains(&(first + i as i64)) { weights[i] } else { 0. }
            });
            normalise(&mut inside);
            std::array::from_fn(|i| (at(first, i, last), inside[i]))
        }
    }

    /// Returns how many input lines an output line covers. A single line with aligned corners would
    /// have no extent; every output line is then a part of it.
    pub(super) fn extent(self, from: usize, to: usize) -> f32 {
        if from == 1 { 1. / to as f32 } else { self.scale(from, to) }
    }

    /// All places that output pixel `x` covers, weighted by how much of them it does.
    pub(super) fn area(
        self,
        (from, to): (usize, usize),
        x: usize,
    ) -> impl Iterator<Item = (usize, f32)> + Clone {
        let scale = self.extent(from, to);
        let last = from.saturating_sub(1);
        let (start, end) = (x as f32 * scale, (x + 1) as f32 * scale);
        let places = start.floor() as usize..end.ceil() as usize;
        places.map(move |i| {
            let (before, after) = ((i as f32) < start, i as f32 + 1. > end);
            let weight = match (before, after) {
                (true, true) => scale,
                (true, false) => i as f32 + 1. - start,
                (false, true) => end - i as f32,
                (false, false) => 1.,
            };
            (i.min(last), weight)
        })
    }
}

/// Place number `i` from `first` on, or the nearest one in the image.
fn at(first: i64, i: usize, last: i64) -> usize {
    (first + i as i64).clamp(0, last) as usize
}

/// Makes the weights sum to one, unless they cancel.
pub(super) fn normalise(weights: &mut [f32]) {
    let sum: f32 = weights.iter().sum();
    if sum.abs() >= 1000. * f32::MIN_POSITIVE {
        weights.iter_mut().for_each(|weight| *weight /= sum);
    }
}

/// The sum of the places of rows and columns, weighted by both.
#[inline]
pub(super) fn weighted(
    rows: impl Iterator<Item = (usize, f32)>,
    columns: &(impl Iterator<Item = (usize, f32)> + Clone),
    at: impl Fn(usize, usize) -> f32,
) -> f32 {
    let row = |y: usize| columns.clone().map(|(x, weight)| at(y, x) * weight).sum::<f32>();
    rows.map(|(y, weight)| row(y) * weight).sum()
}
