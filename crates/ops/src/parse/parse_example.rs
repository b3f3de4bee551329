//! `ParseExample`, `ParseExampleV2` and `ParseSingleExample`: tensors out of serialized examples.
//!
//! Follows `example_parsing_ops.cc` of TensorFlow; the messages are its own, clients know them.

use super::dense::{self, Wanted};
use super::feature::read_example;
use super::schema::{Column, Field, Place, Role, parse_batch};
use super::values::for_rows;
use crate::prelude::*;

pub(super) const V1: OpDef = OpDef::pure("ParseExample", |attrs| {
    let config = Config::read(attrs, 0)?;
    if attrs.size("Nsparse")? != config.sparse.len() || attrs.size("Ndense")? != config.dense.len()
    {
        return invalid!("Nsparse and Ndense are not the numbers of types");
    }
    Ok(Box::new(ParseExample { config, keys: Keys::Scalars }))
});

pub(super) const V2: OpDef = OpDef::pure("ParseExampleV2", |attrs| {
    let config = Config::read(attrs, attrs.dtypes("ragged_value_types")?.len())?;
    if attrs.size("num_sparse")? != config.sparse.len() {
        return invalid!("num_sparse is not the number of sparse_types");
    }
    Ok(Box::new(ParseExample { config, keys: Keys::Vectors }))
});

pub(super) const SINGLE: OpDef = OpDef::pure("ParseSingleExample", |attrs| {
    let config = Config::read(attrs, 0)?;
    let owned = |name| -> Result<Vec<Vec<u8>>> {
        Ok(attrs.strings(name)?.into_iter().map(<[u8]>::to_vec).collect())
    };
    let (sparse, dense) = (owned("sparse_keys")?, owned("dense_keys")?);
    if sparse.len() != config.sparse.len() || dense.len() != config.dense.len() {
        return invalid!("there are not as many keys as types");
    }
    Ok(Box::new(ParseExample { config, keys: Keys::Attrs { sparse, dense } }))
});

struct ParseExample {
    config: Config,
    keys: Keys,
}

/// What an op parses, as its attributes say.
struct Config {
    sparse: Vec<DType>,
    dense: Vec<Dense>,
    /// The dtypes of values and of row splits.
    ragged: Vec<(DType, DType)>,
}

/// A dense feature.
struct Dense {
    dtype: DType,
    /// The dimensions of one example; the first may be unknown.
    dims: Vec<Option<i64>>,
    /// The same as TensorFlow prints it.
    text: String,
    /// The values of one example, or of one row if the first dimension is unknown.
    stride: usize,
}

/// Where the keys are.
enum Keys {
    /// In a scalar input each.
    Scalars,
    /// In a vector input for each role.
    Vectors,
    /// In attributes.
    Attrs { sparse: Vec<Vec<u8>>, dense: Vec<Vec<u8>> },
}

impl Config {
    /// Whether there are numbers of fixed shapes and nothing else.
    fn is_dense(&self) -> bool {
        let is_fixed = |feature: &Dense| !feature.is_open() && dense::is_number(feature.dtype);
        self.sparse.is_empty() && self.ragged.is_empty() && self.dense.iter().all(is_fixed)
    }

    fn read(attrs: &Attrs<'_>, n_ragged: usize) -> Result<Self> {
        let types = attrs.dtypes("Tdense")?;
        let shapes = attrs.shapes("dense_shapes")?;
        if types.len() != shapes.len() {
            return invalid!("len(dense_keys) != len(dense_shapes)");
        }
        let splits = attrs.dtypes("ragged_split_types")?;
        if splits.len() != n_ragged {
            return invalid!("len(ragged_value_types) != len(ragged_split_types)");
        }
        if let Some(other) = splits.iter().find(|dtype| !matches!(dtype, DType::I32 | DType::I64)) {
            return invalid!("Invalid ragged_split_type: {other}");
        }
        let dense = types.into_iter().zip(shapes).map(|(dtype, dims)| Dense::new(dtype, dims));
        Ok(Self {
            sparse: attrs.dtypes("sparse_types")?,
            dense: dense.collect::<Result<_>>()?,
            ragged: attrs.dtypes("ragged_value_types")?.into_iter().zip(splits).collect(),
        })
    }
}

impl Dense {
    fn new(dtype: DType, dims: Option<Vec<Option<i64>>>) -> Result<Self> {
        let Some(dims) = dims.filter(|dims| dims.iter().skip(1).all(Option::is_some)) else {
            return invalid!(
                "dense_shapes has a shape of unknown rank or with unknown inner dimensions"
            );
        };
        let is_open = dims.first() == Some(&None);
        let n_values = Shape::checked(dims.iter().copied().flatten())?.n_elements();
        if is_open && n_values == 0 {
            return invalid!("dense_shapes has a row of no elements and an unknown number of rows");
        }
        let texts: Vec<String> =
            dims.iter().map(|dim| dim.map_or("?".to_owned(), |dim| dim.to_string())).collect();
        Ok(Self { dtype, text: format!("[{}]", texts.join(",")), stride: n_values, dims })
    }

    fn is_open(&self) -> bool {
        self.dims.first() == Some(&None)
    }

    /// The dimensions of one example, with the first as given if it is open.
    fn dims_with(&self, first: i64) -> impl Iterator<Item = i64> {
        self.dims.iter().map(move |dim| dim.unwrap_or(first))
    }

    /// Fails if a default is not of this dtype and shape; an empty one means that there is none.
    fn check_default(&self, d: usize, default: View<'_>) -> Result<()> {
        let shape = default.shape();
        if default.dtype() != self.dtype {
            return invalid!(
                "dense_defaults[{d}].dtype() == {} != dense_types[{d}] == {}",
                default.dtype(),
                self.dtype
            );
        }
        if self.is_open() {
            if default.n_elements() == 1 {
                return Ok(());
            }
            return invalid!(
                "dense_shape[{d}] is a variable length shape: {}, therefore def_value[{d}] must \
                 contain a single element (the padding element).  But its shape is: {shape}",
                self.text
            );
        }
        let same = shape.to_i64().into_iter().eq(self.dims_with(0));
        if default.n_elements() > 0 && !same {
            return invalid!(
                "def_value[{d}].shape() == {shape} is not compatible with dense_shapes_[{d}] \
                 == {}",
                self.text
            );
        }
        Ok(())
    }
}

impl Op for ParseExample {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let config = &self.config;
        let n_inputs = self.first_default() + config.dense.len();
        if inputs.len() != n_inputs {
            return invalid!("expected {n_inputs} inputs but got {}", inputs.len());
        }
        inputs[..self.first_default()]
            .iter()
            .try_for_each(|key| key.require_dtype(DType::String))?;
        let serialized = &inputs[0];
        let batch: Vec<Dim> = match (&self.keys, serialized.dims()) {
            (Keys::Scalars, None) => vec![Dim::Unknown],
            (Keys::Scalars, Some(dims)) if dims.len() == 1 => dims.to_vec(),
            (Keys::Vectors, Some(dims)) if dims.len() <= 1 => dims.to_vec(),
            (Keys::Attrs { .. }, None | Some([])) => vec![],
            (Keys::Vectors, None) => return Ok(self.unknown_specs()),
            _ => return invalid!("Expected serialized to be {}, got {serialized}", self.wanted()),
        };
        Ok(self.specs(&batch))
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let serialized = ctx.input(0);
        let is_batch = match (serialized.shape().rank(), &self.keys) {
            (1, Keys::Scalars | Keys::Vectors) => true,
            (0, Keys::Vectors | Keys::Attrs { .. }) => false,
            _ => {
                let shape = serialized.shape();
                return invalid!("Expected serialized to be {}, got shape: {shape}", self.wanted());
            }
        };
        let names = self.names(ctx)?;
        if self.parse_dense(ctx, is_batch)?.is_some() {
            return Ok(());
        }
        // This way also says what is wrong with an example.
        let keys = self.read_keys(ctx)?;
        let fields = self.fields(ctx, &keys)?;
        let examples = serialized.strings().iter().enumerate().map(|(index, example)| {
            let name = names.map(|names| names.get(index));
            (example, if is_batch { Place::Batch { name, index } } else { Place::Alone })
        });
        let columns = parse_batch(&fields, examples)?;
        let writer = Writer {
            config: &self.config,
            n_examples: is_batch.then_some(serialized.n_elements()),
        };
        writer.write(ctx, columns, self.first_default())
    }

    fn scratch_bytes(&self, _: &[Spec], outputs: &[Spec]) -> usize {
        if self.config.is_dense() { dense::scratch_bytes(outputs.len()) } else { 0 }
    }
}

impl ParseExample {
    /// Parses what is all numbers of fixed shapes; `None` if it is not, or not as it should be.
    fn parse_dense<'a>(&self, ctx: &mut Ctx<'a>, is_batch: bool) -> Result<Option<()>> {
        let n_features = self.config.dense.len();
        let are_keys = match self.keys {
            Keys::Scalars => (2..2 + n_features).all(|i| ctx.input(i).n_elements() == 1),
            Keys::Vectors => {
                (2..5).all(|i| ctx.input(i).shape()[..] == [if i == 3 { n_features } else { 0 }])
            }
            Keys::Attrs { .. } => true,
        };
        if !self.config.is_dense() || !are_keys {
            return Ok(None);
        }
        let batch = is_batch.then_some(ctx.input(0).n_elements() as i64);
        for (i, feature) in self.config.dense.iter().enumerate() {
            feature.check_default(i, ctx.input(self.first_default() + i))?;
            let shape = Shape::checked(batch.into_iter().chain(feature.dims_with(0)))?;
            ctx.output(i, feature.dtype, &shape)?;
        }
        let wanted = |ctx: &Ctx<'a>, i: usize| Wanted {
            key: match &self.keys {
                Keys::Scalars => ctx.input(2 + i).strings().get(0),
                Keys::Vectors => ctx.input(3).strings().get(i),
                Keys::Attrs { dense, .. } => &dense[i],
            },
            default: ctx.input(self.first_default() + i),
        };
        Ok(dense::parse(ctx, wanted, read_example))
    }

    fn wanted(&self) -> &'static str {
        match self.keys {
            Keys::Scalars => "a vector",
            Keys::Vectors => "a scalar or vector",
            Keys::Attrs { .. } => "a scalar",
        }
    }

    fn first_default(&self) -> usize {
        match self.keys {
            Keys::Scalars => 2 + self.config.sparse.len() + self.config.dense.len(),
            Keys::Vectors => 5,
            Keys::Attrs { .. } => 1,
        }
    }

    /// The names of the examples, if there are any.
    fn names<'a>(&self, ctx: &Ctx<'a>) -> Result<Option<&'a Strings>> {
        if matches!(self.keys, Keys::Attrs { .. }) {
            return Ok(None);
        }
        let (serialized, names) = (ctx.input(0), ctx.input(1));
        if names.n_elements() == 0 {
            return Ok(None);
        }
        if names.shape() != serialized.shape() {
            return invalid!(
                "Expected names have the same shape as serialized: name.shape={}, \
                 serialized.shape={}",
                names.shape(),
                serialized.shape()
            );
        }
        Ok(Some(names.strings()))
    }

    /// The keys: sparse, then dense, then ragged.
    fn read_keys<'a, 'c: 'a>(&'a self, ctx: &Ctx<'c>) -> Result<Vec<&'a [u8]>> {
        let Config { sparse, dense, ragged } = &self.config;
        match &self.keys {
            Keys::Attrs { sparse, dense } => {
                Ok(sparse.iter().chain(dense).map(|k| &k[..]).collect())
            }
            Keys::Scalars => {
                let keys = (2..self.first_default()).map(|i| ctx.input(i));
                keys.map(|key| match key.n_elements() {
                    1 => Ok(key.strings().get(0)),
                    _ => invalid!("Expected a key to be a scalar, but it is {}", key.shape()),
                })
                .collect()
            }
            Keys::Vectors => {
                let mut keys = Vec::new();
                for (i, count) in [(2, sparse.len()), (3, dense.len()), (4, ragged.len())] {
                    let input = ctx.input(i);
                    if input.shape().dims() != [count] {
                        return invalid!("Expected {count} keys but got {}", input.shape());
                    }
                    keys.extend(input.strings().iter());
                }
                Ok(keys)
            }
        }
    }

    fn fields<'a, 'c: 'a>(&'a self, ctx: &Ctx<'c>, keys: &[&'a [u8]]) -> Result<Vec<Field<'a>>> {
        let Config { sparse, dense, ragged } = &self.config;
        let mut roles: Vec<(DType, Role<'a>)> =
            sparse.iter().map(|dtype| (*dtype, Role::Open)).collect();
        for (d, feature) in dense.iter().enumerate() {
            let default = ctx.input(self.first_default() + d);
            feature.check_default(d, default)?;
            let (stride, shape) = (feature.stride, feature.text.as_str());
            let role = if feature.is_open() {
                Role::Strided { stride, shape }
            } else {
                Role::Fixed { n_values: stride, shape, default }
            };
            roles.push((feature.dtype, role));
        }
        roles.extend(ragged.iter().map(|(dtype, _)| (*dtype, Role::Open)));
        let field =
            |((dtype, role), key): ((DType, Role<'a>), &&'a [u8])| Field { key, dtype, role };
        Ok(roles.into_iter().zip(keys).map(field).collect())
    }

    fn specs(&self, batch: &[Dim]) -> Vec<Spec> {
        let Config { sparse, dense, ragged } = &self.config;
        let rank = Dim::of(batch.len() + 1);
        let mut specs: Vec<Spec> = Vec::new();
        specs.extend(sparse.iter().map(|_| Spec::new(DType::I64, [Dim::Unknown, rank.clone()])));
        specs.extend(sparse.iter().map(|dtype| Spec::new(*dtype, [Dim::Unknown])));
        specs.extend(sparse.iter().map(|_| Spec::new(DType::I64, [rank.clone()])));
        specs.extend(dense.iter().map(|feature| {
            let inner = feature.dims.iter().map(|dim| dim.map_or(Dim::Unknown, Dim::Known));
            Spec::new(feature.dtype, batch.iter().cloned().chain(inner))
        }));
        specs.extend(ragged.iter().map(|(dtype, _)| Spec::new(*dtype, [Dim::Unknown])));
        // The row splits of a single example are empty.
        let n_splits = batch.first().map_or(Dim::Known(0), |n| n.plus(&Dim::Known(1)));
        specs.extend(ragged.iter().map(|(_, splits)| Spec::new(*splits, [n_splits.clone()])));
        specs
    }

    fn unknown_specs(&self) -> Vec<Spec> {
        self.specs(&[Dim::Unknown]).iter().map(|spec| Spec::unknown(spec.dtype)).collect()
    }
}

/// Makes outputs of what was parsed.
struct Writer<'c> {
    config: &'c Config,
    /// The number of examples; none if there is one without a batch dimension.
    n_examples: Option<usize>,
}

impl Writer<'_> {
    fn write(&self, ctx: &mut Ctx<'_>, columns: Vec<Column>, first_default: usize) -> Result<()> {
        let (n_sparse, n_dense) = (self.config.sparse.len(), self.config.dense.len());
        let n_ragged = self.config.ragged.len();
        let mut columns = columns.into_iter();
        for (i, column) in columns.by_ref().take(n_sparse).enumerate() {
            self.write_sparse(ctx, column, [i, n_sparse + i, 2 * n_sparse + i])?;
        }
        for (d, column) in columns.by_ref().take(n_dense).enumerate() {
            let padding = ctx.input(first_default + d);
            self.write_dense(ctx, column, (&self.config.dense[d], padding), 3 * n_sparse + d)?;
        }
        for (i, column) in columns.enumerate() {
            let first = 3 * n_sparse + n_dense + i;
            self.write_ragged(ctx, column, self.config.ragged[i].1, [first, first + n_ragged])?;
        }
        Ok(())
    }

    fn write_sparse(&self, ctx: &mut Ctx<'_>, column: Column, outputs: [usize; 3]) -> Result<()> {
        let n_values = column.values.len();
        let width = longest(&column.ends) as i64;
        let mut indices = Vec::with_capacity(2 * n_values);
        let mut row = 0;
        for_rows(&column.ends, |start, end| {
            for i in 0..end - start {
                if self.n_examples.is_some() {
                    indices.push(row);
                }
                indices.push(i as i64);
            }
            row += 1;
        });
        let (rank, dims) = match self.n_examples {
            Some(n) => (2, vec![n as i64, width]),
            None => (1, vec![width]),
        };
        ctx.set_output(outputs[0], Tensor::from_slice(Shape::of(&[n_values, rank]), &indices)?)?;
        column.values.write(ctx, outputs[1], Shape::of(&[n_values]))?;
        ctx.set_output(outputs[2], Tensor::vector(&dims)?)
    }

    fn write_dense(
        &self,
        ctx: &mut Ctx<'_>,
        column: Column,
        (feature, padding): (&Dense, View<'_>),
        output: usize,
    ) -> Result<()> {
        let width = longest(&column.ends);
        let first = if feature.is_open() { width / feature.stride } else { 0 };
        let batch = self.n_examples.map(|n| n as i64);
        let shape = Shape::checked(batch.into_iter().chain(feature.dims_with(first as i64)))?;
        if !feature.is_open() {
            return column.values.write(ctx, output, shape);
        }
        super::limit(feature.dtype, &shape)?;
        column.values.padded(&column.ends, width, padding).write(ctx, output, shape)
    }

    fn write_ragged(
        &self,
        ctx: &mut Ctx<'_>,
        column: Column,
        splits: DType,
        outputs: [usize; 2],
    ) -> Result<()> {
        let n_values = column.values.len();
        column.values.write(ctx, outputs[0], Shape::of(&[n_values]))?;
        let ends = if self.n_examples.is_some() { &column.ends[..] } else { &[] };
        let splits = super::splits(splits, self.n_examples.is_some(), ends)?;
        ctx.set_output(outputs[1], splits)
    }
}

/// The length of the longest row.
fn longest(ends: &[usize]) -> usize {
    let mut longest = 0;
    for_rows(ends, |start, end| longest = longest.max(end - start));
    longest
}
