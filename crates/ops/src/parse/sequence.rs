//! `ParseSequenceExample`, its second version, and `ParseSingleSequenceExample`: tensors out of
//! serialized `SequenceExample`s.
//!
//! Follows `example_parsing_ops.cc` of TensorFlow.

use super::dense;
use super::feature::read_sequence_example;
use super::rows::{Kind, Rows, Wanted, parse_sequences};
use super::sequence_output::Writer;
use crate::prelude::*;

pub(super) const V1: OpDef = OpDef::pure("ParseSequenceExample", |attrs| {
    let owned = |name| -> Result<Vec<Vec<u8>>> {
        Ok(attrs.strings(name)?.into_iter().map(<[u8]>::to_vec).collect())
    };
    let mut keys = owned("context_sparse_keys")?;
    keys.extend(owned("context_dense_keys")?);
    keys.extend(owned("feature_list_sparse_keys")?);
    keys.extend(owned("feature_list_dense_keys")?);
    let may_miss = owned("feature_list_dense_missing_assumed_empty")?;
    ParseSequence::build(attrs, Form::Attrs { keys, may_miss })
});
pub(super) const V2: OpDef =
    OpDef::pure("ParseSequenceExampleV2", |attrs| ParseSequence::build(attrs, Form::Vectors));
pub(super) const SINGLE: OpDef =
    OpDef::pure("ParseSingleSequenceExample", |attrs| ParseSequence::build(attrs, Form::Scalars));

/// The features of the context, or the lists of features, that an op parses.
pub(super) struct Part {
    pub(super) sparse: Vec<DType>,
    pub(super) dense: Vec<(DType, Shape)>,
    /// The dtypes of values and of row splits.
    pub(super) ragged: Vec<(DType, DType)>,
}

struct ParseSequence {
    context: Part,
    lists: Part,
    form: Form,
}

/// Where the keys are.
enum Form {
    /// In attributes, in the order of the parts and roles.
    Attrs { keys: Vec<Vec<u8>>, may_miss: Vec<Vec<u8>> },
    /// In a vector input for each part and role.
    Vectors,
    /// In a scalar input each.
    Scalars,
}

impl Part {
    fn read(attrs: &Attrs<'_>, dense_types: &str, prefix: &str) -> Result<Self> {
        let named = |suffix: &str| format!("{prefix}_{suffix}");
        let types = attrs.dtypes(dense_types)?;
        let shapes = attrs.shapes(&named("dense_shapes"))?;
        let splits = attrs.dtypes(&named("ragged_split_types"))?;
        let ragged = attrs.dtypes(&named("ragged_value_types"))?;
        if types.len() != shapes.len() || splits.len() != ragged.len() {
            return invalid!("there are not as many shapes as types of {prefix} features");
        }
        let shape = |dims: Option<Vec<Option<i64>>>| -> Result<Shape> {
            let dims: Option<Vec<i64>> = dims.and_then(|dims| dims.into_iter().collect());
            match dims {
                Some(dims) => Ok(Shape::checked(dims)?),
                None => invalid!("{prefix}_dense_shapes has a shape that is not fully known"),
            }
        };
        let dense = types.into_iter().zip(shapes);
        Ok(Self {
            sparse: attrs.dtypes(&named("sparse_types"))?,
            dense: dense.map(|(dtype, dims)| Ok((dtype, shape(dims)?))).collect::<Result<_>>()?,
            ragged: ragged.into_iter().zip(splits).collect(),
        })
    }

    fn len(&self) -> usize {
        self.sparse.len() + self.dense.len() + self.ragged.len()
    }

    /// The dtypes in the order of the keys.
    fn dtypes(&self) -> impl Iterator<Item = DType> {
        let dense = self.dense.iter().map(|(dtype, _)| *dtype);
        let ragged = self.ragged.iter().map(|(dtype, _)| *dtype);
        self.sparse.iter().copied().chain(dense).chain(ragged)
    }
}

impl ParseSequence {
    fn build(attrs: &Attrs<'_>, form: Form) -> Result<Box<dyn Op>> {
        let op = Self {
            context: Part::read(attrs, "Tcontext_dense", "context")?,
            lists: Part::read(attrs, "feature_list_dense_types", "feature_list")?,
            form,
        };
        if let Form::Attrs { keys, .. } = &op.form
            && keys.len() != op.n_keys()
        {
            return invalid!("there are not as many keys as types");
        }
        Ok(Box::new(op))
    }

    fn n_keys(&self) -> usize {
        self.context.len() + self.lists.len()
    }

    fn first_default(&self) -> usize {
        match self.form {
            Form::Attrs { .. } => 2,
            Form::Vectors => 9,
            Form::Scalars => 2 + self.n_keys(),
        }
    }

    fn writer(&self, n_examples: Option<usize>) -> Writer<'_> {
        let has_lengths = !matches!(self.form, Form::Scalars);
        Writer { context: &self.context, lists: &self.lists, has_lengths, n_examples }
    }
}

impl Op for ParseSequence {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let is_single = matches!(self.form, Form::Scalars);
        let n_inputs = self.first_default() + self.context.dense.len() + usize::from(is_single);
        if inputs.len() != n_inputs {
            return invalid!("expected {n_inputs} inputs but got {}", inputs.len());
        }
        for (i, input) in inputs[..self.first_default()].iter().enumerate() {
            // The second version marks lists that may be missing in a vector of bools.
            let is_flags = matches!(self.form, Form::Vectors) && i == 8;
            input.require_dtype(if is_flags { DType::Bool } else { DType::String })?;
        }
        let defaults = &inputs[self.first_default()..];
        for (default, (dtype, _)) in defaults.iter().zip(&self.context.dense) {
            default.require_dtype(*dtype)?;
        }
        let batch = match inputs[0].dims() {
            Some(dims) if dims.len() <= usize::from(!is_single) => Some(dims),
            None if is_single => Some(&[][..]),
            None => None,
            Some(_) => {
                return invalid!("Expected serialized to be a scalar or vector, got {}", inputs[0]);
            }
        };
        Ok(self.writer(None).specs(batch))
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let serialized = ctx.input(0);
        let is_batch = serialized.shape().rank() == 1;
        if serialized.shape().rank() > usize::from(!matches!(self.form, Form::Scalars)) {
            let shape = serialized.shape();
            return invalid!("Expected serialized to be a scalar or vector, got shape: {shape}");
        }
        let names = self.names(ctx)?;
        if self.parse_dense(ctx, is_batch)?.is_some() {
            return Ok(());
        }
        // This way also says what is wrong with an example.
        let (context, lists) = self.wanted(ctx)?;
        let examples =
            serialized.strings().iter().enumerate().map(|(i, example)| {
                (example, names.map_or(&b"<unknown>"[..], |names| names.get(i)))
            });
        let (context, lists): (Vec<Rows>, Vec<Rows>) = parse_sequences(&context, &lists, examples)?;
        self.writer(is_batch.then_some(serialized.n_elements())).write(ctx, context, lists)
    }

    fn scratch_bytes(&self, _: &[Spec], outputs: &[Spec]) -> usize {
        if self.is_dense() { dense::scratch_bytes(outputs.len()) } else { 0 }
    }
}

impl ParseSequence {
    /// Whether there are numbers in the context and nothing else.
    fn is_dense(&self) -> bool {
        let numbers = self.context.dense.iter().filter(|(dtype, _)| dense::is_number(*dtype));
        numbers.count() == self.n_keys()
    }

    /// Parses what is all numbers; `None` if it is not, or not as it should be.
    fn parse_dense<'a>(&self, ctx: &mut Ctx<'a>, is_batch: bool) -> Result<Option<()>> {
        let n_features = self.context.dense.len();
        let are_keys = match self.form {
            Form::Scalars => (2..2 + n_features).all(|i| ctx.input(i).n_elements() == 1),
            Form::Vectors => {
                (2..9).all(|i| ctx.input(i).n_elements() == if i == 3 { n_features } else { 0 })
            }
            Form::Attrs { .. } => true,
        };
        let defaults = self.first_default();
        let fits = |(i, (_, shape)): (usize, &(DType, Shape))| {
            let default = ctx.input(defaults + i);
            default.n_elements() == 0 || default.shape() == shape
        };
        if !self.is_dense() || !are_keys || !self.context.dense.iter().enumerate().all(fits) {
            return Ok(None);
        }
        let batch = is_batch.then_some(ctx.input(0).n_elements() as i64);
        for (i, (dtype, shape)) in self.context.dense.iter().enumerate() {
            let shape = Shape::checked(batch.into_iter().chain(shape.to_i64()))?;
            ctx.output(i, *dtype, &shape)?;
        }
        let wanted = |ctx: &Ctx<'a>, i: usize| dense::Wanted {
            key: match &self.form {
                Form::Scalars => ctx.input(2 + i).strings().get(0),
                Form::Vectors => ctx.input(3).strings().get(i),
                Form::Attrs { keys, .. } => &keys[i],
            },
            default: ctx.input(defaults + i),
        };
        Ok(dense::parse(ctx, wanted, |example, take| {
            read_sequence_example(example, take, &mut |_| Some(()))
        }))
    }

    fn names<'a>(&self, ctx: &Ctx<'a>) -> Result<Option<&'a Strings>> {
        let at = if matches!(self.form, Form::Scalars) { ctx.n_inputs() - 1 } else { 1 };
        let (serialized, names) = (ctx.input(0), ctx.input(at));
        if names.dtype() != DType::String || names.n_elements() == 0 {
            return Ok(None);
        }
        if names.n_elements() != serialized.n_elements() {
            return invalid!("example_names must be empty or have the correct number of elements");
        }
        Ok(Some(names.strings()))
    }

    fn wanted<'a, 'c: 'a>(&'a self, ctx: &Ctx<'c>) -> Result<(Vec<Wanted<'a>>, Vec<Wanted<'a>>)> {
        let keys = self.keys(ctx)?;
        let (context_keys, list_keys) = keys.split_at(self.context.len());
        let defaults = self.first_default();
        let may_miss = self.may_miss(ctx, list_keys)?;
        let kinds = self.context.dense.iter().enumerate().map(|(d, (_, shape))| {
            let default = ctx.input(defaults + d);
            if default.n_elements() > 0 && default.shape() != shape {
                let key = String::from_utf8_lossy(context_keys[self.context.sparse.len() + d]);
                return invalid!(
                    "Default value for context feature {key} has an incorrect shape: saw {} but \
                     expected {shape}",
                    default.shape()
                );
            }
            Ok(Kind::Dense { shape, default })
        });
        let context = join(&self.context, context_keys, kinds.collect::<Result<_>>()?);
        let kinds = self.lists.dense.iter().zip(may_miss);
        let kinds = kinds.map(|((_, shape), may_miss)| Kind::DenseList { shape, may_miss });
        Ok((context, join(&self.lists, list_keys, kinds.collect())))
    }

    /// All keys: those of the context's sparse, dense and ragged features, then those of lists.
    fn keys<'a, 'c: 'a>(&'a self, ctx: &Ctx<'c>) -> Result<Vec<&'a [u8]>> {
        let keys: Vec<&'a [u8]> = match &self.form {
            Form::Attrs { keys, .. } => keys.iter().map(|key| &key[..]).collect(),
            Form::Scalars => {
                (2..self.first_default()).flat_map(|i| ctx.input(i).strings().iter()).collect()
            }
            Form::Vectors => {
                // Inputs are in the order sparse, dense, ragged for the context, then for lists.
                (2..8).flat_map(|i| ctx.input(i).strings().iter()).collect()
            }
        };
        if keys.len() != self.n_keys() {
            return invalid!("expected {} keys but got {}", self.n_keys(), keys.len());
        }
        Ok(keys)
    }

    /// Whether each dense list may be missing.
    fn may_miss(&self, ctx: &Ctx<'_>, list_keys: &[&[u8]]) -> Result<Vec<bool>> {
        let dense_keys = &list_keys[self.lists.sparse.len()..][..self.lists.dense.len()];
        match &self.form {
            Form::Attrs { may_miss, .. } => {
                Ok(dense_keys.iter().map(|key| may_miss.iter().any(|m| m == key)).collect())
            }
            Form::Scalars => {
                let may_miss = ctx.input(1).strings();
                Ok(dense_keys.iter().map(|key| may_miss.iter().any(|m| m == *key)).collect())
            }
            Form::Vectors => {
                let flags: &[u8] = ctx.input(8).as_slice();
                if flags.len() != dense_keys.len() {
                    return invalid!(
                        "expected {} flags for missing lists but got {}",
                        dense_keys.len(),
                        flags.len()
                    );
                }
                Ok(flags.iter().map(|flag| *flag != 0).collect())
            }
        }
    }
}

fn join<'a>(part: &Part, keys: &[&'a [u8]], dense: Vec<Kind<'a>>) -> Vec<Wanted<'a>> {
    let open = |count: usize| std::iter::repeat_n(Kind::Open, count);
    let kinds = open(part.sparse.len()).chain(dense).chain(open(part.ragged.len()));
    let fields = keys.iter().zip(part.dtypes()).zip(kinds);
    fields.map(|((key, dtype), kind)| Wanted { key, dtype, kind }).collect()
}
