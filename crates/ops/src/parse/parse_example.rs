//! `ParseExample`, `ParseExampleV2` and `ParseSingleExample`: tensors out of serialized examples.
//!
//! Follows `example_parsing_ops.cc` of TensorFlow; the messages are its own, clients know them.

use super::column::{Column, Form, Padding};
use super::dense::{self, Wanted};
use super::feature::read_example;
use super::found::Found;
use super::schema::{Field, Place, Role, find_all};
use crate::prelude::*;

pub(super) const V1: OpDef =
    OpDef::pure("ParseExample", RowRule::ParseExample { n_sparse: "Nsparse" }, |attrs| {
        let config = ParseExampleConfig::read(attrs, 0)?;
        if attrs.size("Nsparse")? != config.sparse.len()
            || attrs.size("Ndense")? != config.dense.len()
        {
            return invalid!("Nsparse and Ndense are not the numbers of types");
        }
        Ok(Box::new(ParseExample { config, keys: ParseExampleKeys::Scalars }))
    });

pub(super) const V2: OpDef =
    OpDef::pure("ParseExampleV2", RowRule::ParseExample { n_sparse: "num_sparse" }, |attrs| {
        let config = ParseExampleConfig::read(attrs, attrs.dtypes("ragged_value_types")?.len())?;
        if attrs.size("num_sparse")? != config.sparse.len() {
            return invalid!("num_sparse is not the number of sparse_types");
        }
        Ok(Box::new(ParseExample { config, keys: ParseExampleKeys::Vectors }))
    });

pub(super) const SINGLE: OpDef = OpDef::pure("ParseSingleExample", RowRule::Mixed, |attrs| {
    let config = ParseExampleConfig::read(attrs, 0)?;
    let owned = |name| -> Result<Vec<Vec<u8>>> {
        Ok(attrs.strings(name)?.into_iter().map(<[u8]>::to_vec).collect())
    };
    let (sparse, dense) = (owned("sparse_keys")?, owned("dense_keys")?);
    if sparse.len() != config.sparse.len() || dense.len() != config.dense.len() {
        return invalid!("there are not as many keys as types");
    }
    Ok(Box::new(ParseExample { config, keys: ParseExampleKeys::Attrs { sparse, dense } }))
});

struct ParseExample {
    config: ParseExampleConfig,
    keys: ParseExampleKeys,
}

/// The attributes of an op that parses.
struct ParseExampleConfig {
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

/// The place of the keys.
enum ParseExampleKeys {
    /// In a scalar input each.
    Scalars,
    /// In a vector input for each role.
    Vectors,
    /// In attributes.
    Attrs { sparse: Vec<Vec<u8>>, dense: Vec<Vec<u8>> },
}

impl ParseExampleConfig {
    /// The number of features.
    fn len(&self) -> usize {
        self.sparse.len() + self.dense.len() + self.ragged.len()
    }

    /// Returns whether there are numbers of fixed shapes and nothing else.
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

/// The output that a dense feature becomes: for how many examples, and with what for padding.
#[derive(Clone, Copy)]
struct DenseOutput<'a> {
    number: usize,
    n_examples: Option<usize>,
    default: View<'a>,
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

    /// Makes a column an output.
    fn write(&self, ctx: &mut Ctx<'_>, column: &Column<'_>, output: DenseOutput<'_>) -> Result<()> {
        let DenseOutput { number: output, n_examples, default } = output;
        let width = column.totals.width_max;
        let first = if self.is_open() { width / self.stride } else { 0 };
        let batch = n_examples.map(|n| n as i64);
        let shape = Shape::checked(batch.into_iter().chain(self.dims_with(first as i64)))?;
        if !self.is_open() {
            return column.write(ctx, output, &shape, None);
        }
        super::limit(self.dtype, &shape)?;
        column.write(ctx, output, &shape, Some(Padding { width, element: Some(default) }))
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
            (ParseExampleKeys::Scalars, None) => vec![Dim::Unknown],
            (ParseExampleKeys::Scalars, Some(dims)) if dims.len() == 1 => dims.to_vec(),
            (ParseExampleKeys::Vectors, Some(dims)) if dims.len() <= 1 => dims.to_vec(),
            (ParseExampleKeys::Attrs { .. }, None | Some([])) => vec![],
            (ParseExampleKeys::Vectors, None) => return Ok(self.unknown_specs()),
            _ => return invalid!("Expected serialized to be {}, got {serialized}", self.wanted()),
        };
        Ok(self.specs(&batch))
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let serialized = ctx.input(0);
        let is_batch = match (serialized.shape().rank(), &self.keys) {
            (1, ParseExampleKeys::Scalars | ParseExampleKeys::Vectors) => true,
            (0, ParseExampleKeys::Vectors | ParseExampleKeys::Attrs { .. }) => false,
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
        self.check(ctx)?;
        let (mut scratch, examples) = (ctx.scratch(), serialized.strings());
        let key = |i| self.key(ctx, i);
        let mut found = Found::new(&mut scratch, (self.config.len(), examples.len()), key)?;
        let placed = examples.iter().enumerate().map(|(index, example)| {
            let name = names.map(|names| names.get(index));
            (example, if is_batch { Place::Batch { name, index } } else { Place::Alone })
        });
        find_all(&mut found, key, |i| self.field(ctx, i), placed)?;
        let n_examples = is_batch.then_some(examples.len());
        self.write(ctx, (&found, examples), n_examples)
    }

    fn scratch_bytes(&self, inputs: &[Spec], _: &[Spec]) -> usize {
        Found::scratch_bytes(self.config.len(), &inputs[0])
    }
}

impl ParseExample {
    /// Parses what is all numbers of fixed shapes; `None` if it is not, or not as it should be.
    fn parse_dense<'a>(&self, ctx: &mut Ctx<'a>, is_batch: bool) -> Result<Option<()>> {
        let n_features = self.config.dense.len();
        let are_keys = match self.keys {
            ParseExampleKeys::Scalars => {
                (2..2 + n_features).all(|i| ctx.input(i).n_elements() == 1)
            }
            ParseExampleKeys::Vectors => {
                (2..5).all(|i| ctx.input(i).shape()[..] == [if i == 3 { n_features } else { 0 }])
            }
            ParseExampleKeys::Attrs { .. } => true,
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
                ParseExampleKeys::Scalars => ctx.input(2 + i).strings().get(0),
                ParseExampleKeys::Vectors => ctx.input(3).strings().get(i),
                ParseExampleKeys::Attrs { dense, .. } => &dense[i],
            },
            default: ctx.input(self.first_default() + i),
        };
        dense::parse(ctx, wanted, read_example)
    }

    fn wanted(&self) -> &'static str {
        match self.keys {
            ParseExampleKeys::Scalars => "a vector",
            ParseExampleKeys::Vectors => "a scalar or vector",
            ParseExampleKeys::Attrs { .. } => "a scalar",
        }
    }

    fn first_default(&self) -> usize {
        match self.keys {
            ParseExampleKeys::Scalars => 2 + self.config.sparse.len() + self.config.dense.len(),
            ParseExampleKeys::Vectors => 5,
            ParseExampleKeys::Attrs { .. } => 1,
        }
    }

    /// The names of the examples, if there are any.
    fn names<'a>(&self, ctx: &Ctx<'a>) -> Result<Option<&'a Strings>> {
        if matches!(self.keys, ParseExampleKeys::Attrs { .. }) {
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

    /// Fails if there are too few or too many keys, or if a default does not fit.
    fn check(&self, ctx: &Ctx<'_>) -> Result<()> {
        let ParseExampleConfig { sparse, dense, ragged } = &self.config;
        match &self.keys {
            ParseExampleKeys::Attrs { .. } => {}
            ParseExampleKeys::Scalars => {
                for key in (2..self.first_default()).map(|i| ctx.input(i)) {
                    if key.n_elements() != 1 {
                        return invalid!(
                            "Expected a key to be a scalar, but it is {}",
                            key.shape()
                        );
                    }
                }
            }
            ParseExampleKeys::Vectors => {
                for (i, count) in [(2, sparse.len()), (3, dense.len()), (4, ragged.len())] {
                    let input = ctx.input(i);
                    if input.shape().dims() != [count] {
                        return invalid!("Expected {count} keys but got {}", input.shape());
                    }
                }
            }
        }
        let mut defaults = dense.iter().enumerate();
        defaults.try_for_each(|(d, feature)| feature.check_default(d, self.default(ctx, d)))
    }

    /// The default of a dense feature.
    fn default<'c>(&self, ctx: &Ctx<'c>, d: usize) -> View<'c> {
        ctx.input(self.first_default() + d)
    }

    /// Key number `i`: sparse, then dense, then ragged.
    fn key<'s, 'c: 's>(&'s self, ctx: &Ctx<'c>, i: usize) -> &'s [u8] {
        let (n_sparse, n_dense) = (self.config.sparse.len(), self.config.dense.len());
        let (input, at) = match i {
            _ if i < n_sparse => (2, i),
            _ if i < n_sparse + n_dense => (3, i - n_sparse),
            _ => (4, i - n_sparse - n_dense),
        };
        match &self.keys {
            ParseExampleKeys::Attrs { sparse, .. } if input == 2 => &sparse[at],
            ParseExampleKeys::Attrs { dense, .. } => &dense[at],
            ParseExampleKeys::Scalars => ctx.input(2 + i).strings().get(0),
            ParseExampleKeys::Vectors => ctx.input(input).strings().get(at),
        }
    }

    /// Returns the wanted field of key number `i`.
    fn field<'s, 'c: 's>(&'s self, ctx: &Ctx<'c>, i: usize) -> Field<'s> {
        let ParseExampleConfig { sparse, dense, ragged } = &self.config;
        let key = self.key(ctx, i);
        if let Some(dtype) = sparse.get(i) {
            return Field { key, dtype: *dtype, role: Role::Open };
        }
        let d = i - sparse.len();
        let Some(feature) = dense.get(d) else {
            return Field { key, dtype: ragged[d - dense.len()].0, role: Role::Open };
        };
        let (stride, shape) = (feature.stride, feature.text.as_str());
        let role = if feature.is_open() {
            Role::Strided { stride, shape }
        } else {
            Role::Fixed { n_values: stride, shape, default: self.default(ctx, d) }
        };
        Field { key, dtype: feature.dtype, role }
    }

    /// Makes outputs of what was found. There is no number of examples if there is one without a
    /// batch dimension.
    fn write(
        &self,
        ctx: &mut Ctx<'_>,
        (found, examples): (&Found<'_>, &Strings),
        n_examples: Option<usize>,
    ) -> Result<()> {
        let ParseExampleConfig { sparse, dense, ragged } = &self.config;
        let (n_sparse, n_dense, n_ragged) = (sparse.len(), dense.len(), ragged.len());
        let open = Form::Row { default: None };
        for (i, dtype) in sparse.iter().enumerate() {
            let column = Column::new(examples, (found, i), *dtype, open);
            column.write_sparse(ctx, [i, n_sparse + i, 2 * n_sparse + i], n_examples)?;
        }
        for (d, feature) in dense.iter().enumerate() {
            let default = self.default(ctx, d);
            let form = Form::Row { default: (!feature.is_open()).then_some(default) };
            let column = Column::new(examples, (found, n_sparse + d), feature.dtype, form);
            let output = DenseOutput { number: 3 * n_sparse + d, n_examples, default };
            feature.write(ctx, &column, output)?;
        }
        for (i, (dtype, splits)) in ragged.iter().enumerate() {
            let column = Column::new(examples, (found, n_sparse + n_dense + i), *dtype, open);
            let first = 3 * n_sparse + n_dense + i;
            column.write_flat(ctx, first)?;
            if n_examples.is_some() {
                column.write_splits(ctx, first + n_ragged, *splits)?;
            } else {
                ctx.output(first + n_ragged, *splits, &Shape::of(&[0]))?;
            }
        }
        Ok(())
    }

    fn specs(&self, batch: &[Dim]) -> Vec<Spec> {
        let ParseExampleConfig { sparse, dense, ragged } = &self.config;
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
