//! `CropAndResize`: parts of images, all brought to one size.
//!
//! Follows `crop_and_resize_op.cc`.

use num_traits::AsPrimitive;

use crate::prelude::*;

pub(super) const DEF: OpDef = OpDef::pure("CropAndResize", RowRule::Mixed, |attrs| {
    let nearest = match attrs.str_or("method", "bilinear")? {
        "bilinear" => false,
        "nearest" => true,
        name => return invalid!("method must be 'bilinear' or 'nearest', not {name}"),
    };
    let outside = attrs.float_or("extrapolation_value", 0.)?;
    Ok(Box::new(CropAndResize { nearest, outside }))
});

struct CropAndResize {
    nearest: bool,
    /// The value of pixels where a box reaches beyond its image.
    outside: f32,
}

impl Op for CropAndResize {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [images, boxes, indices, size] = arity(inputs)?;
        images.require_rank(4)?;
        boxes.require_rank(2)?;
        indices.require_rank(1)?;
        size.require_rank(1)?;
        let dim = |spec: &Spec, i: usize| spec.dims().map_or(Dim::Unknown, |dims| dims[i].clone());
        let is_none = dim(boxes, 0).known() == Some(0) && dim(indices, 0).known() == Some(0);
        if !is_none && dim(boxes, 1).differs(&Dim::Known(4)) {
            return invalid!("boxes must have four columns: {boxes}");
        }
        if dim(boxes, 0).differs(&dim(indices, 0)) {
            return invalid!("as many boxes {boxes} as indices {indices} are needed");
        }
        let sizes = size.sizes().unwrap_or_else(|| vec![Dim::Unknown; 2]);
        let [height, width] = &sizes[..] else {
            return invalid!("a crop size of {} numbers", sizes.len());
        };
        let count = if dim(boxes, 0) == Dim::Unknown { dim(indices, 0) } else { dim(boxes, 0) };
        Ok(vec![Spec::new(DType::F32, [count, height.clone(), width.clone(), dim(images, 3)])])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (images, boxes, indices) = (ctx.input(0), ctx.input(1), ctx.input(2));
        let (height, width) = super::size_of(ctx.input(3))?;
        let [batch, in_height, in_width, channels] = *images.shape().dims() else {
            return invalid!("input image must be 4-D: {}", images.shape());
        };
        if in_height == 0 || in_width == 0 || height == 0 || width == 0 {
            return invalid!("image and crop dimensions must be positive");
        }
        let n = indices.n_elements();
        let is_none = n == 0 && boxes.n_elements() == 0 && boxes.shape().rank() == 2;
        if !is_none && boxes.shape().dims() != [n, 4] {
            return invalid!("{} boxes for {n} indices", boxes.shape());
        }
        let (boxes, indices): (&[f32], &[i32]) = (boxes.as_slice(), indices.as_slice());
        if boxes.iter().any(|corner| !corner.is_finite()) {
            // The text is TensorFlow's (`crop_and_resize_op.cc`).
            return invalid!("Boxes contains at least one element that is not finite");
        }
        if indices.iter().any(|i| usize::try_from(*i).map_or(true, |i| i >= batch)) {
            let text = format!("box_index has values outside [0, {batch})");
            return Err(Error::OutOfRange(text));
        }
        let shape = Shape::checked([n, height, width, channels].map(|dim| dim as i64))?;
        let pool = ctx.env().pool;
        let mut out = ctx.output(0, DType::F32, &shape)?;
        let size = height * width * channels;
        if size == 0 {
            return Ok(());
        }
        let image_len = in_height * in_width * channels;
        for_number!(images.dtype(), T => {
            let images: &[T] = images.as_slice();
            pool.run_chunks(out.as_mut_slice(), size, &|i, out| {
                let image = &images[indices[i] as usize * image_len..][..image_len];
                let crop = Crop { image, size: (in_height, in_width, channels) };
                self.crop(&crop, &boxes[4 * i..], (height, width), out);
            });
        });
        Ok(())
    }
}

/// One image.
struct Crop<'a, T> {
    image: &'a [T],
    size: (usize, usize, usize),
}

impl CropAndResize {
    fn crop<T>(&self, crop: &Crop<'_, T>, area: &[f32], size: (usize, usize), out: &mut [f32])
    where
        T: Copy + AsPrimitive<f32>,
    {
        let (in_height, in_width, channels) = crop.size;
        let rows = Places::new((area[0], area[2]), in_height, size.0);
        let columns = Places::new((area[1], area[3]), in_width, size.1);
        for (y, out) in out.chunks_exact_mut(size.1 * channels).enumerate() {
            if is_stopped(8 * out.len()) {
                return;
            }
            let y = rows.at(y);
            for (x, out) in out.chunks_exact_mut(channels).enumerate() {
                let (Some(y), Some(x)) = (y, columns.at(x)) else {
                    out.fill(self.outside);
                    continue;
                };
                let at = |y: f32, x: f32, c: usize| {
                    crop.image[(y as usize * in_width + x as usize) * channels + c].as_()
                };
                for (c, out) in out.iter_mut().enumerate() {
                    *out = if self.nearest {
                        at(y.round(), x.round(), c)
                    } else {
                        let (top, bottom, left, right) = (y.floor(), y.ceil(), x.floor(), x.ceil());
                        let mix = |a: f32, b: f32, part: f32| a + (b - a) * part;
                        let upper = mix(at(top, left, c), at(top, right, c), x - left);
                        let lower = mix(at(bottom, left, c), at(bottom, right, c), x - left);
                        mix(upper, lower, y - top)
                    };
                }
            }
        }
    }
}

/// The places of the pixels of a crop along one axis of the image.
struct Places {
    first: f32,
    step: f32,
    last: f32,
}

impl Places {
    fn new((start, end): (f32, f32), from: usize, to: usize) -> Self {
        let last = (from - 1) as f32;
        let step = if to > 1 { (end - start) * last / (to - 1) as f32 } else { 0. };
        let first = if to > 1 { start * last } else { 0.5 * (start + end) * last };
        Self { first, step, last }
    }

    /// Returns the place of pixel `i`; `None` outside.
    fn at(&self, i: usize) -> Option<f32> {
        let place = self.first + i as f32 * self.step;
        Some(place).filter(|x| *x >= 0. && *x <= self.last)
    }
}
