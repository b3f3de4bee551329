//! `DenseCountSparseOutput`, `RaggedCountSparseOutput` and `SparseCountSparseOutput`: how often
//! each number occurs in each row, as a sparse tensor.
//!
//! Follows `count_ops.cc` of TensorFlow.

use super::coo::{self, Coo};
use super::number::Number;
use super::ragged::check_splits;
use crate::prelude::*;

pub(super) const DENSE: OpDef = OpDef::pure("DenseCountSparseOutput", RowRule::Mixed, |attrs| {
    Ok(Box::new(Dense(Counter::read(attrs)?)))
});
pub(super) const RAGGED: OpDef = OpDef::pure("RaggedCountSparseOutput", RowRule::Mixed, |attrs| {
    Ok(Box::new(Ragged(Counter::read(attrs)?)))
});
pub(super) const SPARSE: OpDef = OpDef::pure("SparseCountSparseOutput", RowRule::Mixed, |attrs| {
    Ok(Box::new(Sparse(Counter::read(attrs)?)))
});

struct Counter {
    min_length: i64,
    /// Numbers from here on are left out, unless it is -1.
    max_length: i64,
    is_binary: bool,
    dtype: DType,
}

impl Counter {
    fn read(attrs: &Attrs<'_>) -> Result<Self> {
        let (min_length, max_length) =
            (attrs.int_or("minlength", -1)?, attrs.int_or("maxlength", -1)?);
        if min_length < -1 || max_length < -1 {
            return invalid!(
                "minlength {min_length} and maxlength {max_length} must be at least -1"
            );
        }
        Ok(Self {
            min_length,
            max_length,
            is_binary: attrs.bool_or("binary_output", false)?,
            dtype: attrs.dtype("output_type")?,
        })
    }

    fn specs(&self, rank: &Dim) -> Vec<Spec> {
        vec![
            Spec::new(DType::I64, [Dim::Unknown, rank.clone()]),
            Spec::new(self.dtype, [Dim::Unknown]),
            Spec::new(DType::I64, [rank.clone()]),
        ]
    }

    /// Counts `values[i]` in row `rows(i)` of `n_rows`, or in one row without a dimension for it.
    fn count(
        &self,
        ctx: &mut Ctx<'_>,
        (values, weights): (View<'_>, View<'_>),
        n_rows: Option<usize>,
        rows: impl Fn(usize) -> usize,
    ) -> Result<()> {
        let Some(numbers) = booked_i64(&values)? else {
            return invalid!("values must be int32 or int64, not {}", values.dtype());
        };
        if weights.n_elements() > 0 && weights.shape() != values.shape() {
            return invalid!(
                "Weights and values must have the same shape. Weight shape: {}; values shape: {}",
                weights.shape(),
                values.shape()
            );
        }
        if numbers.iter().any(|number| *number < 0) {
            return invalid!("Input values must all be non-negative");
        }
        // The values that count, by the row and the number that they count for.
        let counts = |number: i64| self.max_length < 0 || number < self.max_length;
        let places = numbers.iter().enumerate().filter(|(_, number)| counts(**number));
        let mut places = BookedVec::collect(places.map(|(i, number)| (rows(i), *number, i)))?;
        crate::order::sort_by(&mut places, &mut Ord::cmp)?;
        let largest = numbers.iter().copied().max().unwrap_or(0);
        let width = match self.max_length {
            max if max >= 0 => max,
            _ => largest.wrapping_add(1).max(self.min_length),
        };
        self.write(ctx, weights, SparseCountedShape { n_rows, width }, &places)
    }

    fn write(
        &self,
        ctx: &mut Ctx<'_>,
        weights: View<'_>,
        shape: SparseCountedShape,
        places: &[SparseCounted],
    ) -> Result<()> {
        let SparseCountedShape { n_rows, width } = shape;
        let rank = if n_rows.is_some() { 2 } else { 1 };
        let mut indices = BookedVec::new();
        for (row, number, _) in each_number(places).map(|places| places[0]) {
            pace(8)?;
            indices.extend(n_rows.map(|_| row as i64))?;
            indices.push(number)?;
        }
        let n_numbers = indices.len() / rank;
        ctx.set_output(0, Tensor::from_slice(Shape::of(&[n_numbers, rank]), &indices)?)?;
        ctx.set_output(
            1,
            match self.dtype {
                DType::F32 => self.sums::<f32>(weights, places, 1.0)?,
                DType::F64 => self.sums::<f64>(weights, places, 1.0)?,
                DType::I32 => self.sums::<i32>(weights, places, 1)?,
                DType::I64 => self.sums::<i64>(weights, places, 1)?,
                other => {
                    return crate::error::unsupported!("dtype {other} is not supported here");
                }
            },
        )?;
        let dims: Vec<i64> = n_rows.map(|n| n as i64).into_iter().chain([width]).collect();
        ctx.set_output(2, Tensor::vector(&dims)?)
    }

    fn sums<T: Number>(
        &self,
        weights: View<'_>,
        places: &[SparseCounted],
        one: T,
    ) -> Result<Tensor> {
        let weights: &[T] = weights.as_slice();
        let weight = |place: &SparseCounted| weights.get(place.2).copied().unwrap_or(one);
        let sum = |places: &[SparseCounted]| {
            if self.is_binary {
                return one;
            }
            places.iter().map(weight).fold(T::zero(), Number::plus)
        };
        Ok(Tensor::vector(&BookedVec::collect(each_number(places).map(sum))?)?)
    }
}

/// The shape of the counts: rows, if there is a dimension for them, and the numbers counted.
#[derive(Clone, Copy)]
struct SparseCountedShape {
    n_rows: Option<usize>,
    width: i64,
}

/// The row and the number that a value counts for, and the place of the value.
type SparseCounted = (usize, i64, usize);

/// The values of each row and number.
fn each_number(places: &[SparseCounted]) -> impl Iterator<Item = &[SparseCounted]> {
    places.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1))
}

struct Dense(Counter);

impl Op for Dense {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [values, weights] = arity(inputs)?;
        weights.require_dtype(self.0.dtype)?;
        match values.rank() {
            Some(rank @ (1 | 2)) => Ok(self.0.specs(&Dim::of(rank))),
            None => Ok(self.0.specs(&Dim::Unknown)),
            Some(_) => invalid!("Input must be a 1 or 2-dimensional tensor. Got: {values}"),
        }
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (values, weights) = (ctx.input(0), ctx.input(1));
        let (n_rows, width) = match *values.shape().dims() {
            [n] => (None, n),
            [0, _] => return invalid!("Invalid input: Shapes dimension cannot be 0."),
            [n_rows, n] => (Some(n_rows), n),
            _ => {
                return invalid!(
                    "Input must be a 1 or 2-dimensional tensor. Got: {}",
                    values.shape()
                );
            }
        };
        self.0.count(ctx, (values, weights), n_rows, |i| {
            if n_rows.is_some() { i / width.max(1) } else { 0 }
        })
    }
}

struct Ragged(Counter);

impl Op for Ragged {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [splits, values, weights] = arity(inputs)?;
        splits.require_dtype(DType::I64)?;
        splits.require_rank(1)?;
        values.require_rank(1)?;
        weights.require_dtype(self.0.dtype)?;
        Ok(self.0.specs(&Dim::Known(2)))
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (splits, values, weights) = (ctx.input(0), ctx.input(1), ctx.input(2));
        let splits = check_splits(splits, values.n_elements())?;
        let mut rows = BookedVec::filled(0, values.n_elements())?;
        for (row, pair) in splits.windows(2).enumerate() {
            pace(8)?;
            rows[pair[0]..pair[1]].fill(row);
        }
        self.0.count(ctx, (values, weights), Some(splits.len() - 1), |i| rows[i])
    }
}

struct Sparse(Counter);

impl Op for Sparse {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [indices, values, shape, weights] = arity(inputs)?;
        coo::require(indices, values, shape)?;
        weights.require_dtype(self.0.dtype)?;
        Ok(self.0.specs(&coo::rank_dim(indices, shape)))
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let sparse = Coo::read(ctx, 0)?;
        let weights = ctx.input(3);
        let n_rows = match sparse.dims {
            [_] => None,
            [n_rows, _] => Some(*n_rows),
            _ => {
                return invalid!(
                    "Input must be a 1 or 2-dimensional tensor. Got {} dimensions",
                    sparse.rank()
                );
            }
        };
        if n_rows.is_some_and(|n| n <= 0) {
            return invalid!("The dense shape has no rows");
        }
        for (i, index) in sparse.entries().enumerate() {
            pace(8)?;
            coo::check_inside(index, sparse.dims, i)?;
        }
        let row = |i: usize| if n_rows.is_some() { sparse.entry(i)[0] as usize } else { 0 };
        let n_rows = n_rows.map(|n| n as usize);
        self.0.count(ctx, (sparse.values, weights), n_rows, row)
    }
}
