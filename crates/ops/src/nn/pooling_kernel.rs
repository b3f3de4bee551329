//! Pooling kernels, channels last.

use ::pool::Pool;
use num_traits::Bounded;

use super::window::Window;
use crate::cancel::is_stopped;

/// A pooling with all sizes known.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pooling {
    pub(crate) batch: usize,
    pub(crate) window: Window,
    pub(crate) channels: usize,
}

/// A function that computes the channels of one pixel of the output, from its image and its place.
type Pixel<'a, T> = dyn Fn(&[T], usize, &mut [T]) + Sync + 'a;

/// The least elements of output that are worth a task of their own.
const TASK_ELEMENTS: usize = 16 << 10;

impl Pooling {
    /// Calls `pixel` for each pixel of the output with its image, its place and its channels.
    pub(crate) fn each<T: Send + Sync>(
        &self,
        pool: &Pool,
        image: &[T],
        out: &mut [T],
        pixel: &Pixel<'_, T>,
    ) {
        let (places, channels) = (self.window.n_outputs(), self.channels);
        if places * channels == 0 {
            return;
        }
        let size = self.window.n_inputs() * channels;
        let per_task = TASK_ELEMENTS.div_ceil(channels);
        pool.run_chunks(out, per_task * channels, &|task, out| {
            for (i, out) in out.chunks_exact_mut(channels).enumerate() {
                if is_stopped(channels) {
                    return;
                }
                let place = task * per_task + i;
                let image = &image[place / places * size..][..size];
                pixel(image, place % places, out);
            }
        });
    }

    /// Calls `tap` with the channels of each pixel of the image that the window at `place` covers.
    fn covered<'a, T>(&self, image: &'a [T], place: usize, mut tap: impl FnMut(&'a [T])) -> usize {
        let window = &self.window;
        let [_, height, width] = window.output;
        let (z, y, x) = (place / (height * width), place / width % height, place % width);
        let (xs, mut count) = (window.inside(2, x), 0);
        for tap_z in window.inside(0, z) {
            for tap_y in window.inside(1, y) {
                if is_stopped(xs.len() * self.channels) {
                    return count.max(1);
                }
                let row = window.at(0, z, tap_z).unwrap_or(0) * window.input[1]
                    + window.at(1, y, tap_y).unwrap_or(0);
                let first = window.at(2, x, xs.start).unwrap_or(0);
                let at = (row * window.input[2] + first) * self.channels;
                image[at..][..xs.len() * self.channels]
                    .chunks_exact(self.channels)
                    .for_each(&mut tap);
                count += xs.len();
            }
        }
        count
    }
}

/// The largest element of each window.
pub(crate) fn maximum<T>(pooling: &Pooling, pool: &Pool, image: &[T], out: &mut [T])
where
    T: Copy + PartialOrd + Bounded + Send + Sync,
{
    pooling.each(pool, image, out, &|image, place, out| {
        out.fill(T::min_value());
        pooling.covered(image, place, |pixel| {
            for (out, x) in out.iter_mut().zip(pixel) {
                *out = if *x > *out { *x } else { *out };
            }
        });
    });
}

/// The mean of each window; what pads the image does not count.
pub(crate) fn average<T>(pooling: &Pooling, pool: &Pool, image: &[T], out: &mut [T])
where
    T: num_traits::Float + Send + Sync,
{
    pooling.each(pool, image, out, &|image, place, out| {
        out.fill(T::zero());
        let count = pooling.covered(image, place, |pixel| {
            out.iter_mut().zip(pixel).for_each(|(out, x)| *out = *out + *x);
        });
        let count = T::from(count).unwrap_or_else(T::one);
        out.iter_mut().for_each(|out| *out = *out / count);
    });
}
