//! `ResizeBilinear`, `ResizeNearestNeighbor`, `ResizeBicubic` and `ResizeArea`: images in another
//! size.
//!
//! Follows `resize_bilinear_op.cc`, `resize_nearest_neighbor_op.cc`, `resize_bicubic_op.cc`,
//! `resize_area_op.cc` and `image_resizer_state.h`.

use num_traits::AsPrimitive;

use super::sampling::{self, Sampling};
use crate::prelude::*;

pub(super) const BILINEAR: OpDef =
    OpDef::pure("ResizeBilinear", |attrs| build(attrs, Method::Bilinear));
pub(super) const NEAREST: OpDef =
    OpDef::pure("ResizeNearestNeighbor", |attrs| build(attrs, Method::Nearest));
pub(super) const BICUBIC: OpDef =
    OpDef::pure("ResizeBicubic", |attrs| build(attrs, Method::Bicubic));
pub(super) const AREA: OpDef = OpDef::pure("ResizeArea", |attrs| build(attrs, Method::Area));

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
        let mut out = ctx.output(0, self.dtype(images.dtype()), &shape)?;
        if self.method == Method::Nearest {
            for_width!(images.dtype(), T => {
                call.nearest::<T>(pool, images.as_wide(), out.as_wide_mut());
            });
            return Ok(());
        }
        for_number!(images.dtype(), T => {
            call.interpolate::<T>(pool, self.method, images.as_slice(), out.as_mut_slice());
        });
        Ok(())
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
                let number = task * rows + i;
                let image = &images[number / self.height * size..][..size];
                line(image, number % self.height, out);
            }
        });
    }

    fn nearest<T: Copy + Send + Sync>(&self, pool: &pool::Pool, images: &[T], out: &mut [T]) {
        let rows = self.sampling.nearest(self.in_height, self.height);
        let columns = self.sampling.nearest(self.in_width, self.width);
        let c = self.channels;
        self.lines(pool, images, out, |image, y, out| {
            let row = &image[rows[y] * self.in_width * c..][..self.in_width * c];
            for (out, x) in out.chunks_exact_mut(c).zip(&columns) {
                out.copy_from_slice(&row[x * c..][..c]);
            }
        });
    }

    /// Each pixel as a weighted sum of a few rows and a few columns.
    fn interpolate<T>(&self, pool: &pool::Pool, method: Method, images: &[T], out: &mut [f32])
    where
        T: Copy + Sync + AsPrimitive<f32>,
    {
        let weigh = |from: usize, to: usize| match method {
            Method::Bicubic => self.sampling.bicubic(from, to),
            Method::Area => self.sampling.area(from, to),
            Method::Bilinear | Method::Nearest => self.sampling.bilinear(from, to),
        };
        let rows = weigh(self.in_height, self.height);
        let columns = weigh(self.in_width, self.width);
        let area = match method {
            Method::Area => {
                let scale = |from, to| self.sampling.extent(from, to);
                let pixels = scale(self.in_height, self.height) * scale(self.in_width, self.width);
                1. / pixels
            }
            _ => 1.,
        };
        let c = self.channels;
        self.lines(pool, images, out, |image, y, out| {
            let step = self.in_width * c;
            for (out, column) in out.chunks_exact_mut(c).zip(&columns) {
                for (channel, out) in out.iter_mut().enumerate() {
                    let at = |y: usize, x: usize| image[y * step + x * c + channel].as_();
                    *out = sampling::weighted(&rows[y], column, at) * area;
                }
            }
        });
    }
}
