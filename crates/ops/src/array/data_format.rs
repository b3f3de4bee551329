//! `DataFormatDimMap` and `DataFormatVecPermute`: axes and sizes in another order of dimensions.
//!
//! Follows `data_format_ops.cc` of TensorFlow.

use smallvec::SmallVec;

use crate::prelude::*;

pub(super) const DIM_MAP: OpDef = OpDef::pure("DataFormatDimMap", RowRule::Mixed, |attrs| {
    let formats = Formats::build(attrs)?;
    if formats.order.len() != 4 && formats.order.len() != 5 {
        return invalid!("Source format must be of length 4 or 5");
    }
    Ok(Box::new(DimMap(formats)))
});
pub(super) const VEC_PERMUTE: OpDef =
    OpDef::pure("DataFormatVecPermute", RowRule::Mixed, |attrs| {
        Ok(Box::new(VecPermute(Formats::build(attrs)?)))
    });

struct Formats {
    source: Vec<u8>,
    target: Vec<u8>,
    /// For each dimension of the source, its place in the target.
    order: Vec<usize>,
}

impl Formats {
    fn build(attrs: &Attrs<'_>) -> Result<Self> {
        let source = attrs.str_or("src_format", "NHWC")?.as_bytes().to_vec();
        let target = attrs.str_or("dst_format", "NCHW")?.as_bytes().to_vec();
        let (from, to) = (attrs.str_or("src_format", "NHWC")?, attrs.str_or("dst_format", "NCHW")?);
        let place = |letter: &u8| target.iter().position(|other| other == letter);
        let order: Option<Vec<usize>> = source.iter().map(place).collect();
        let is_permutation = |order: &Vec<usize>| {
            source.len() == target.len() && (0..source.len()).all(|at| order.contains(&at))
        };
        match order.filter(is_permutation) {
            Some(order) => Ok(Self { source, target, order }),
            None => invalid!(
                "Destination and source format must determine a permutation, got {from} and {to}"
            ),
        }
    }
}

struct DimMap(Formats);

impl Op for DimMap {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [x] = arity(inputs)?;
        Ok(vec![x.with_dtype(x.dtype)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let order = &self.0.order;
        let x = ctx.input(0);
        let mut output = ctx.output(0, x.dtype(), x.shape())?;
        for_integer!(x.dtype(), T => {
            for (i, out) in output.as_mut_slice::<T>().iter_mut().enumerate() {
                pace(4)?;
                *out = order[normalise_axis(int_at(&x, i)?, order.len())?] as T;
            }
        });
        Ok(())
    }
}

struct VecPermute(Formats);

impl Op for VecPermute {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [x] = arity(inputs)?;
        if x.rank().is_some_and(|rank| rank != 1 && rank != 2) {
            return invalid!("input must be a vector or 2-D tensor, but got {x}");
        }
        Ok(vec![x.with_dtype(x.dtype)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let x = ctx.input(0);
        let rank = self.0.source.len();
        let (n, width) = match *x.shape().dims() {
            [n] => (n, 1),
            [n, 2] => (n, 2),
            _ => return invalid!("input must be a vector or have 2 columns, got {}", x.shape()),
        };
        // Fewer elements are those of the spatial dimensions alone.
        let keep = |format: &[u8]| -> SmallVec<[u8; 8]> {
            let is_kept = |letter: &u8| n == rank || !b"NC".contains(letter);
            format.iter().copied().filter(is_kept).collect()
        };
        let (source, target) = (keep(&self.0.source), keep(&self.0.target));
        if source.len() != n {
            let spatial = rank.saturating_sub(2);
            return invalid!("1D input must be of size {spatial} or {rank}, but got {}", x.shape());
        }
        let from = |letter: &u8| source.iter().position(|other| other == letter);
        let sources: Option<SmallVec<[usize; 8]>> = target.iter().map(from).collect();
        let Some(sources) = sources else { return invalid!("the formats do not match") };
        let mut output = ctx.output(0, x.dtype(), x.shape())?;
        for_width!(x.dtype(), T => {
            let out = output.as_wide_mut::<T>().chunks_exact_mut(width);
            for (out, source) in out.zip(&sources) {
                out.copy_from_slice(&x.as_wide::<T>()[source * width..(source + 1) * width]);
            }
        });
        Ok(())
    }
}
