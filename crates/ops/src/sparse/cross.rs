//! `SparseCross`, `SparseCrossV2` and `SparseCrossHashed`: all combinations of the features of a
//! row, one of each column, joined or hashed.
//!
//! Follows `sparse_cross_op.cc` of TensorFlow.

use super::coo::Coo;
use crate::prelude::*;
use crate::text::farmhash::{concatenate, fingerprint64};
use crate::text::hashes::siphash;

/// The most combinations that one call may make: their number grows with every column.
const N_CROSSES_MAX: usize = 1 << 26;

pub(super) const V1: OpDef = OpDef::pure("SparseCross", RowRule::Mixed, |attrs| {
    let n_buckets = attrs.int("num_buckets")?.cast_unsigned();
    let hash_key = attrs.int("hash_key")?.cast_unsigned();
    // TensorFlow picks its kernel by dtype, whatever `hashed_output` says.
    let result = match attrs.dtype("out_type")? {
        DType::I64 => Way::Hash { n_buckets, hash_key: Some(hash_key) },
        _ => Way::Join,
    };
    build(attrs, CrossForm::Attrs(result))
});
pub(super) const V2: OpDef =
    OpDef::pure("SparseCrossV2", RowRule::Mixed, |attrs| build(attrs, CrossForm::Separator));
pub(super) const HASHED: OpDef =
    OpDef::pure("SparseCrossHashed", RowRule::Mixed, |attrs| build(attrs, CrossForm::Salted));

fn build(attrs: &Attrs<'_>, form: CrossForm) -> Result<Box<dyn Op>> {
    let (sparse, dense) = (attrs.dtypes("sparse_types")?, attrs.dtypes("dense_types")?);
    if attrs.size("N")? != sparse.len() {
        return invalid!("N is not the number of sparse_types");
    }
    Ok(Box::new(Cross { n_sparse: sparse.len(), n_dense: dense.len(), form }))
}

struct Cross {
    n_sparse: usize,
    n_dense: usize,
    form: CrossForm,
}

/// The place where an op says how features are combined.
enum CrossForm {
    Attrs(Way),
    /// Joined with the separator in the last input.
    Separator,
    /// Hashed as the last three inputs say: number of buckets, strong or not, salt.
    Salted,
}

/// The value of a combination.
#[derive(Clone, Copy)]
pub(super) enum Way {
    Join,
    Hash {
        n_buckets: u64,
        /// The number that the hash begins with; without it, the hash begins with the first
        /// feature.
        hash_key: Option<u64>,
    },
}

impl CrossForm {
    fn n_inputs(&self) -> usize {
        match self {
            Self::Attrs(_) => 0,
            Self::Separator => 1,
            Self::Salted => 3,
        }
    }

    fn is_hash(&self) -> bool {
        matches!(self, Self::Salted | Self::Attrs(Way::Hash { .. }))
    }
}

impl Op for Cross {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let n_inputs = 3 * self.n_sparse + self.n_dense + self.form.n_inputs();
        if inputs.len() != n_inputs {
            return invalid!("expected {n_inputs} inputs but got {}", inputs.len());
        }
        for i in 0..self.n_sparse {
            inputs[i].require_dtype(DType::I64)?;
            inputs[2 * self.n_sparse + i].require_dtype(DType::I64)?;
        }
        let values = &inputs[self.n_sparse..2 * self.n_sparse];
        let dense = &inputs[3 * self.n_sparse..][..self.n_dense];
        if let Some(other) =
            values.iter().chain(dense).find(|x| !matches!(x.dtype, DType::I64 | DType::String))
        {
            return invalid!("features must be int64 or string, but are {other}");
        }
        let more = &inputs[3 * self.n_sparse + self.n_dense..];
        let dtypes: &[DType] = match self.form {
            CrossForm::Attrs(_) => &[],
            CrossForm::Separator => &[DType::String],
            CrossForm::Salted => &[DType::I64, DType::Bool, DType::I64],
        };
        more.iter().zip(dtypes).try_for_each(|(input, dtype)| input.require_dtype(*dtype))?;
        let dtype = if self.form.is_hash() { DType::I64 } else { DType::String };
        Ok(vec![
            Spec::new(DType::I64, [Dim::Unknown, Dim::Known(2)]),
            Spec::new(dtype, [Dim::Unknown]),
            Spec::new(DType::I64, [Dim::Known(2)]),
        ])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let columns = self.columns(ctx)?;
        let n_rows = columns.first().map_or(0, Column::n_rows);
        if columns.iter().any(|column| column.n_rows() != n_rows) {
            return invalid!("Expected batch size {n_rows} of all columns");
        }
        let joiner = self.joiner(ctx)?;
        let mut crosses = Crosses::new(self.form.is_hash());
        let mut width = 0;
        for row in 0..n_rows {
            ctx.env().cancel.check()?;
            let n = crosses.add_row(&columns, row, &joiner)?;
            width = width.max(n as i64);
        }
        let n = crosses.indices.len() / 2;
        ctx.set_output(0, Tensor::from_slice(Shape::of(&[n, 2]), &crosses.indices)?)?;
        ctx.set_output(
            1,
            match crosses.values {
                Values::Hashes(hashes) => Tensor::vector(&hashes)?,
                Values::Strings(strings) => Tensor::from_strings(Shape::of(&[n]), strings)?,
            },
        )?;
        ctx.set_output(2, Tensor::vector(&[n_rows as i64, width])?)
    }
}

impl Cross {
    fn columns<'a>(&self, ctx: &Ctx<'a>) -> Result<Vec<Column<'a>>> {
        let n = self.n_sparse;
        let sparse = (0..n).map(|i| {
            let coo = Coo::new(ctx.input(i), ctx.input(n + i), ctx.input(2 * n + i))?;
            Column::sparse(&coo)
        });
        let dense = (0..self.n_dense).map(|i| Column::dense(ctx.input(3 * n + i)));
        sparse.chain(dense).collect()
    }

    fn joiner<'a>(&self, ctx: &Ctx<'a>) -> Result<Joiner<'a>> {
        let first = 3 * self.n_sparse + self.n_dense;
        let scalar = |view: View<'a>| match view.n_elements() {
            1 => Ok(view),
            _ => invalid!("expected a scalar but got shape {}", view.shape()),
        };
        match self.form {
            CrossForm::Attrs(way) => Ok(Joiner { way, separator: b"_X_", key: None }),
            CrossForm::Separator => {
                let separator = ctx.input(first);
                if separator.shape().rank() != 0 {
                    return invalid!("Input separator should be a scalar: {}", separator.shape());
                }
                let separator = scalar(separator)?.strings().get(0);
                Ok(Joiner { way: Way::Join, separator, key: None })
            }
            CrossForm::Salted => {
                let n_buckets = scalar(ctx.input(first))?.as_slice::<i64>()[0].cast_unsigned();
                let is_strong = scalar(ctx.input(first + 1))?.as_slice::<u8>()[0] != 0;
                let &[a, b] = ctx.input(first + 2).as_slice::<i64>() else {
                    return invalid!("salt must have 2 elements");
                };
                let key = is_strong.then_some([a.cast_unsigned(), b.cast_unsigned()]);
                let way = Way::Hash { n_buckets, hash_key: None };
                Ok(Joiner { way, separator: b"", key })
            }
        }
    }
}

/// The features of a column: those of row `r` are `values[starts[r]..starts[r + 1]]`.
pub(super) struct Column<'a> {
    pub(super) values: View<'a>,
    pub(super) starts: BookedVec<usize>,
    pub(super) is_sparse: bool,
}

impl<'a> Column<'a> {
    pub(super) fn sparse(coo: &Coo<'a>) -> Result<Self> {
        let &[n_rows, _] = coo.dims else {
            return invalid!("shape should imply a 2D tensor, but got {} dimensions", coo.rank());
        };
        let n_rows = super::coo::checked_rows(n_rows)?;
        let mut starts = BookedVec::filled(0, n_rows + 1)?;
        let mut last = 0;
        for (i, index) in coo.entries().enumerate() {
            pace(8)?;
            let row = usize::try_from(index[0]).ok().filter(|row| *row < n_rows && *row >= last);
            let Some(row) = row else {
                return invalid!(
                    "indices[{i}, 0] is {}, which is out of order or not below {n_rows}",
                    index[0]
                );
            };
            starts[row + 1] += 1;
            last = row;
        }
        for row in 0..n_rows {
            pace(8)?;
            starts[row + 1] += starts[row];
        }
        Ok(Self { values: coo.values, starts, is_sparse: true })
    }

    pub(super) fn dense(values: View<'a>) -> Result<Self> {
        let &[n_rows, width] = values.shape().dims() else {
            let shape = values.shape();
            return invalid!("Dense inputs should be a matrix but received shape {shape}");
        };
        let starts = BookedVec::collect((0..=n_rows).map(|row| row * width))?;
        Ok(Self { values, starts, is_sparse: false })
    }

    pub(super) fn n_rows(&self) -> usize {
        self.starts.len() - 1
    }

    fn len(&self, row: usize) -> usize {
        self.starts[row + 1] - self.starts[row]
    }
}

/// Makes one value of a combination.
pub(super) struct Joiner<'a> {
    pub(super) way: Way,
    pub(super) separator: &'a [u8],
    /// The key of a strong hash.
    pub(super) key: Option<[u64; 2]>,
}

impl Joiner<'_> {
    fn hash(&self, column: &Column<'_>, at: usize) -> u64 {
        let of_bytes = |bytes: &[u8]| match self.key {
            None => fingerprint64(bytes),
            Some(key) => siphash(key, bytes),
        };
        if column.values.dtype() == DType::String {
            return of_bytes(column.values.strings().get(at));
        }
        let number = column.values.as_slice::<i64>()[at];
        let is_salted = matches!(self.way, Way::Hash { hash_key: None, .. });
        if is_salted && column.is_sparse {
            // As TensorFlow, which takes the size of the dtype's name for that of the number.
            return of_bytes(&number.to_le_bytes()[..4]);
        }
        number.cast_unsigned()
    }

    fn text(column: &Column<'_>, at: usize, out: &mut Strings) -> Result<()> {
        let text = match column.values.dtype() {
            DType::String => out.extend_last(column.values.strings().get(at)),
            _ => out.extend_last(column.values.as_slice::<i64>()[at].to_string().as_bytes()),
        };
        Ok(text?)
    }
}

pub(super) enum Values {
    Hashes(BookedVec<i64>),
    Strings(Strings),
}

/// The combinations so far.
pub(super) struct Crosses {
    pub(super) indices: BookedVec<i64>,
    pub(super) values: Values,
}

impl Crosses {
    pub(super) fn new(is_hash: bool) -> Self {
        let values = match is_hash {
            true => Values::Hashes(BookedVec::new()),
            false => Values::Strings(Strings::default()),
        };
        Self { indices: BookedVec::new(), values }
    }

    /// Adds the combinations of a row, the last column fastest, and gives their number.
    pub(super) fn add_row(
        &mut self,
        columns: &[Column<'_>],
        row: usize,
        joiner: &Joiner<'_>,
    ) -> Result<usize> {
        let counts: Vec<usize> = columns.iter().map(|column| column.len(row)).collect();
        let n = counts.iter().try_fold(1usize, |n, count| n.checked_mul(*count));
        let Some(n) = n.filter(|n| n + self.indices.len() / 2 <= N_CROSSES_MAX) else {
            return Err(Error::ResourceExhausted("too many combinations of features".to_owned()));
        };
        let mut picks = vec![0; columns.len()];
        for i in 0..n {
            let mut rest = i;
            for (pick, count) in picks.iter_mut().zip(&counts).rev() {
                *pick = rest % count;
                rest /= count;
            }
            let features = columns.iter().zip(&picks).map(|(c, pick)| (c, c.starts[row] + pick));
            match (&mut self.values, joiner.way) {
                (Values::Hashes(hashes), Way::Hash { n_buckets, hash_key }) => {
                    let hash = features.fold(hash_key, |hash, (column, at)| {
                        let next = joiner.hash(column, at);
                        Some(hash.map_or(next, |hash| concatenate(hash, next)))
                    });
                    let hash = hash.unwrap_or(0);
                    let modulus = if n_buckets > 0 { n_buckets } else { i64::MAX.cast_unsigned() };
                    hashes.push((hash % modulus).cast_signed())?;
                }
                (Values::Strings(strings), _) => {
                    for (k, (column, at)) in features.enumerate() {
                        if k > 0 {
                            strings.extend_last(joiner.separator)?;
                        }
                        Joiner::text(column, at, strings)?;
                    }
                    strings.end()?;
                }
                (Values::Hashes(_), _) => {
                    return Err(Error::Internal("a hash of no hash".to_owned()));
                }
            }
            self.indices.extend([row as i64, i as i64])?;
        }
        Ok(n)
    }
}
