//! `ResizeBilinear`, `ResizeNearestNeighbor`, `ResizeBicubic` and `ResizeArea`: images in another
//! size.
//!
//! Follows `resize_bilinear_op.cc`, `resize_nearest_neighbor_op.cc`, `resize_bicubic_op.cc`,
//! `resize_area_op.cc` and `image_resizer_state.h`.

use num_traits::AsPrimitive;

use super::sampling::{self, Sampling, Taps};
use crate::prelude::*;

pub(super) const BILINEAR: OpDef =
    OpDef::pure("ResizeBilinear", RowRule::Images, |attrs| build(attrs, Method::Bilinear));
pub(super) const NEAREST: OpDef =
    OpDef::pure("ResizeNearestNeighbor", RowRule::Images, |attrs| build(attrs, Method::Nearest));
pub(super) const BICUBIC: OpDef =
    OpDef::pure("ResizeBicubic", RowRule::Images, |attrs| build(attrs, Method::Bicubic));
pub(super) const AREA: OpDef =
    OpDef::pure("ResizeArea", RowRule::Images, |attrs| build(attrs, Method::Area));

fn build(attrs: &Attrs<'_>, method: Method) -> Result<Box<dyn Op>> {
    let sampling = Sampling {
        align_corners: attrs.bool_or("align_corners", false)?,
        half_pixel_centers: attrs.bool_or("half_pixel_centers", false)?,
    };
    if sampling.align_corners && sampling.half_pixel_centers {
        return invalid!("If half_pixel_centers is True, align_corners must be False.");
    }
    Ok(Box::new(Resize { method, sampling }))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Method {
    Bilinear,
    Nearest,
    Bicubic,
    Area,
}

impl Method {
    /// The taps of a column that are kept for all lines.
    fn n_taps(self) -> usize {
        match self {
            Self::Bilinear => 2,
            Self::Nearest => 1,
            Self::Bicubic => 4,
            Self::Area => 0,
        }
    }
}

struct Resize {
    method: Method,
    sampling: Sampling,
}

impl Resize {
    fn dtype(&self, input: DType) -> DType {
        if self.method == Method::Nearest { input } else { DType::F32 }
    }
}

impl Op for Resize {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [images, size] = arity(inputs)?;
        images.require_rank(4)?;
        size.require_rank(1)?;
        let unknown = [const { Dim::Unknown }; 4];
        let dims = images.dims().unwrap_or(&unknown);
        let (height, width) = match size.sizes() {
            Some(sizes) => {
                let [height, width] = &sizes[..] else {
                    return invalid!("a size of {} numbers", sizes.len());
                };
                (height.clone(), width.clone())
            }
            None => (Dim::Unknown, Dim::Unknown),
        };
        let dims = [dims[0].clone(), height, width, dims[3].clone()];
        Ok(vec![Spec::new(self.dtype(images.dtype), dims)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (images, size, pool) = (ctx.input(0), ctx.input(1), ctx.env().pool);
        let call = Call::checked(images.shape(), size, self.sampling)?;
        let shape = call.shape()?;
        if call.height == 0 || call.width == 0 {
            return invalid!("output dimensions must be positive");
        }
        if (call.in_height == 0 || call.in_width == 0) && call.batch * call.channels > 0 {
            return invalid!("input image must be of non-zero size");
        }
        let mut scratch = ctx.scratch();
        if shape.n_elements() == 0 {
            ctx.output(0, self.dtype(images.dtype()), &shape)?;
            return Ok(());
        }
        // The output first: it is what fails if the size asked for is absurd.
        let mut out = ctx.output(0, self.dtype(images.dtype()), &shape)?;
        let mut columns = scratch.part(call.width * self.method.n_taps())?;
        let mut weights = scratch.part(columns.len())?;
        if self.method == Method::Nearest {
            for_width!(images.dtype(), T => {
                call.nearest::<T>(pool, images.as_wide(), &mut columns, out.as_wide_mut());
            });
            return Ok(());
        }
        for_number!(images.dtype(), T => {
            let (images, out) = (images.as_slice::<T>(), out.as_mut_slice());
            let (width, height) = ((call.in_width, call.width), (call.in_height, call.height));
            match self.method {
                Method::Bicubic => {
                    let taps = |(from, to)| self.sampling.bicubic(from, to);
                    let columns = Columns::new(taps(width), &mut columns, &mut weights);
                    let taps = ResizeTaps { rows: taps(height), columns: &columns };
                    call.interpolate(pool, images, &taps, out);
                }
                Method::Bilinear | Method::Nearest => {
                    let taps = |(from, to)| self.sampling.bilinear(from, to);
                    let columns = Columns::new(taps(width), &mut columns, &mut weights);
                    let taps = ResizeTaps { rows: taps(height), columns: &columns };
                    call.interpolate(pool, images, &taps, out);
                }
                Method::Area => call.area(pool, images, out),
            }
        });
        Ok(())
    }

    fn scratch_bytes(&self, _: &[Spec], outputs: &[Spec]) -> usize {
        let shape = outputs[0].shape().filter(|shape| shape.n_elements() > 0);
        let n = shape.map_or(0, |shape| shape[2] * self.method.n_taps());
        Scratch::bytes_of::<u32>(n) + Scratch::bytes_of::<f32>(n)
    }
}

/// One call with all sizes known.
struct Call {
    batch: usize,
    channels: usize,
    in_height: usize,
    in_width: usize,
    height: usize,
    width: usize,
    sampling: Sampling,
}

/// The rows and the columns that each pixel is a weighted sum of.
struct ResizeTaps<'a, R, const N: usize> {
    rows: R,
    columns: &'a Columns<'a, N>,
}

impl Call {
    fn checked(images: &Shape, size: View<'_>, sampling: Sampling) -> Result<Self> {
        let [batch, in_height, in_width, channels] = *images.dims() else {
            return invalid!("input must be 4-dimensional: {images}");
        };
        let (height, width) = super::size_of(size)?;
        Ok(Self { batch, channels, in_height, in_width, height, width, sampling })
    }

    fn shape(&self) -> Result<Shape> {
        let dims = [self.batch, self.height, self.width, self.channels];
        Ok(Shape::checked(dims.map(|dim| dim as i64))?)
    }

    /// Calls `line` for each row of each output image with the image and the row's number.
    fn lines<T: Sync, U: Send>(
        &self,
        pool: &pool::Pool,
        images: &[T],
        out: &mut [U],
        line: impl Fn(&[T], usize, &mut [U]) + Sync,
    ) {
        let size = self.in_height * self.in_width * self.channels;
        let row = self.width * self.channels;
        if row == 0 || size == 0 {
            return;
        }
        let rows = (1usize << 14).div_ceil(row);
        pool.run_chunks(out, rows * row, &|task, out| {
            for (i, out) in out.chunks_exact_mut(row).enumerate() {
                if is_stopped(8 * row) {
                    return;
                }
                let number = task * rows + i;
                let image = &images[number / self.height * size..][..size];
                line(image, number % self.height, out);
            }
        });
    }

    fn nearest<T: Copy + Send + Sync>(
        &self,
        pool: &pool::Pool,
        images: &[T],
        columns: &mut [u32],
        out: &mut [T],
    ) {
        let row_of = self.sampling.nearest(self.in_height, self.height);
        let column_of = self.sampling.nearest(self.in_width, self.width);
        columns.iter_mut().enumerate().for_each(|(x, column)| *column = column_of(x) as u32);
        let c = self.channels;
        self.lines(pool, images, out, |image, y, out| {
            let row = &image[row_of(y) * self.in_width * c..][..self.in_width * c];
            for (out, x) in out.chunks_exact_mut(c).zip(&*columns) {
                out.copy_from_slice(&row[*x as usize * c..][..c]);
            }
        });
    }

    /// Each pixel as a weighted sum of a few rows and a few columns.
    fn interpolate<T, R, const N: usize>(
        &self,
        pool: &pool::Pool,
        images: &[T],
        taps: &ResizeTaps<'_, R, N>,
        out: &mut [f32],
    ) where
        T: Copy + Sync + AsPrimitive<f32>,
        R: Fn(usize) -> Taps<N> + Sync,
    {
        let (c, step) = (self.channels, self.in_width * self.channels);
        let ResizeTaps { rows, columns } = taps;
        self.lines(pool, images, out, |image, y, out| {
            let rows = rows(y).map(|(y, weight)| (&image[y * step..][..step], weight));
            for (x, out) in out.chunks_exact_mut(c).enumerate() {
                let columns = columns.at(x);
                let pixels = rows.map(|(row, weight)| {
                    (columns.map(|(x, weight)| (&row[x * c..][..c], weight)), weight)
                });
                for (channel, out) in out.iter_mut().enumerate() {
                    let row = |row: &[(&[T], f32); N]| {
                        row.iter().map(|(pixel, weight)| pixel[channel].as_() * weight).sum::<f32>()
                    };
                    *out = pixels.iter().map(|(pixels, weight)| row(pixels) * weight).sum();
                }
            }
        });
    }

    /// Each pixel as the mean of all that it covers.
    fn area<T>(&self, pool: &pool::Pool, images: &[T], out: &mut [f32])
    where
        T: Copy + Sync + AsPrimitive<f32>,
    {
        let (sampling, c, step) = (self.sampling, self.channels, self.in_width * self.channels);
        let (height, width) = ((self.in_height, self.height), (self.in_width, self.width));
        let pixels = sampling.extent(height.0, height.1) * sampling.extent(width.0, width.1);
        self.lines(pool, images, out, |image, y, out| {
            let rows = sampling.area(height, y);
            for (x, out) in out.chunks_exact_mut(c).enumerate() {
                let columns = sampling.area(width, x);
                if is_stopped(pixels as usize * c) {
                    return;
                }
                for (channel, out) in out.iter_mut().enumerate() {
                    let at = |y: usize, x: usize| image[y * step + x * c + channel].as_();
                    *out = sampling::weighted(rows.clone(), &columns, at) * (1. / pixels);
                }
            }
        });
    }
}

/// The places and weights that each pixel of a line is made of.
struct Columns<'a, const N: usize> {
    places: &'a [[u32; N]],
    weights: &'a [[f32; N]],
}

impl<'a, const N: usize> Columns<'a, N> {
    fn new(taps: impl Fn(usize) -> Taps<N>, places: &'a mut [u32], weights: &'a mut [f32]) -> Self {
        let (places, weights) = (places.as_chunks_mut().0, weights.as_chunks_mut().0);
        for (x, (places, weights)) in places.iter_mut().zip(weights.iter_mut()).enumerate() {
            let taps = taps(x);
            (*places, *weights) = (taps.map(|tap| tap.0 as u32), taps.map(|tap| tap.1));
        }
        Self { places, weights }
    }

    fn at(&self, x: usize) -> Taps<N> {
        std::array::from_fn(|i| (self.places[x][i] as usize, self.weights[x][i]))
    }
}
