//! `ParseSequenceExample`, its second version, and `ParseSingleSequenceExample`: tensors out of
//! serialized `SequenceExample`s.
//!
//! Follows `example_parsing_ops.cc` of TensorFlow.

use super::column::{Column, Form as ColumnForm};
use super::dense;
use super::feature::read_sequence_example;
use super::found::Found;
use super::rows::{Kind, Wanted, find_sequences};
use super::sequence_output::Writer;
use crate::prelude::*;

pub(super) const V1: OpDef = OpDef::pure("ParseSequenceExample", RowRule::Widest, |attrs| {
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
pub(super) const V2: OpDef = OpDef::pure("ParseSequenceExampleV2", RowRule::Widest, |attrs| {
    ParseSequence::build(attrs, Form::Vectors)
});
pub(super) const SINGLE: OpDef =
    OpDef::pure("ParseSingleSequenceExample", RowRule::Mixed, |attrs| {
        ParseSequence::build(attrs, Form::Scalars)
    });

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

/// The place of the keys.
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

    pub(super) fn len(&self) -> usize {
        self.sparse.len() + self.dense.len() + self.ragged.len()
    }

    /// The dtype of the feature of key number `i`.
    fn dtype(&self, i: usize) -> DType {
        let (n_sparse, n_dense) = (self.sparse.len(), self.dense.len());
        match i {
            _ if i < n_sparse => self.sparse[i],
            _ if i < n_sparse + n_dense => self.dense[i - n_sparse].0,
            _ => self.ragged[i - n_sparse - n_dense].0,
        }
    }

    /// The number of the dense feature of key number `i`, if it is one.
    fn dense_at(&self, i: usize) -> Option<usize> {
        i.checked_sub(self.sparse.len()).filter(|d| *d < self.dense.len())
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

    fn run<'a>(&self, ctx: &mut Ctx<'a>) -> Result<()> {
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
        self.check(ctx)?;
        let (mut scratch, examples) = (ctx.scratch(), serialized.strings());
        let mut may_miss = scratch.part::<u8>(self.lists.dense.len())?;
        self.find_may_miss(ctx, &mut may_miss)?;
        let wanted = |i| self.wanted(ctx, &may_miss, i);
        let n_context = self.context.len();
        let mut context = Found::new(&mut scratch, (n_context, examples.len()), |i| wanted(i).key)?;
        let mut lists = Found::new(&mut scratch, (self.lists.len(), examples.len()), |i| {
            wanted(n_context + i).key
        })?;
        let named = examples
            .iter()
            .enumerate()
            .map(|(i, example)| (example, names.map_or(&b"<unknown>"[..], |names| names.get(i))));
        find_sequences([&mut context, &mut lists], wanted, named)?;
        let column = |ctx: &Ctx<'a>, i: usize| match i.checked_sub(n_context) {
            None => {
                let default = self.context.dense_at(i).map(|d| self.default(ctx, d));
                let form = ColumnForm::Row { default };
                Column::new(examples, (&context, i), self.context.dtype(i), form)
            }
            Some(i) => Column::new(examples, (&lists, i), self.lists.dtype(i), ColumnForm::Rows),
        };
        self.writer(is_batch.then_some(examples.len())).write(ctx, column)
    }

    fn scratch_bytes(&self, inputs: &[Spec], _: &[Spec]) -> usize {
        let found = |part: &Part| Found::scratch_bytes(part.len(), &inputs[0]);
        let may_miss = Scratch::bytes_of::<u8>(self.lists.dense.len());
        found(&self.context).saturating_add(found(&self.lists)).saturating_add(may_miss)
    }
}

impl ParseSequence {
    /// Returns whether there are numbers in the context and nothing else.
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
        dense::parse(ctx, wanted, |example, take| {
            read_sequence_example(example, take, &mut |_| Some(()))
        })
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

    /// The default of a dense feature of the context.
    fn default<'c>(&self, ctx: &Ctx<'c>, d: usize) -> View<'c> {
        ctx.input(self.first_default() + d)
    }

    /// Fails if there are too few or too many keys, or if a default is of another shape.
    fn check(&self, ctx: &Ctx<'_>) -> Result<()> {
        let n_keys = match &self.form {
            Form::Attrs { keys, .. } => keys.len(),
            Form::Scalars => {
                (2..self.first_default()).filter(|i| ctx.input(*i).n_elements() == 1).count()
            }
            Form::Vectors => (2..8).map(|i| ctx.input(i).n_elements()).sum(),
        };
        if n_keys != self.n_keys() {
            return invalid!("expected {} keys but got {n_keys}", self.n_keys());
        }
        for (d, (_, shape)) in self.context.dense.iter().enumerate() {
            let default = self.default(ctx, d);
            if default.n_elements() > 0 && default.shape() != shape {
                let key = String::from_utf8_lossy(self.key(ctx, self.context.sparse.len() + d));
                return invalid!(
                    "Default value for context feature {key} has an incorrect shape: saw {} but \
                     expected {shape}",
                    default.shape()
                );
            }
        }
        Ok(())
    }

    /// Key number `i`: those of the context's sparse, dense and ragged features, then of lists.
    fn key<'s, 'c: 's>(&'s self, ctx: &Ctx<'c>, i: usize) -> &'s [u8] {
        match &self.form {
            Form::Attrs { keys, .. } => &keys[i],
            Form::Scalars => ctx.input(2 + i).strings().get(0),
            Form::Vectors => {
                let (mut input, mut at) = (2, i);
                while let Some(rest) = at.checked_sub(ctx.input(input).n_elements()) {
                    (input, at) = (input + 1, rest);
                }
                ctx.input(input).strings().get(at)
            }
        }
    }

    /// Returns the wanted output of the feature, or the list, of key number `i`.
    fn wanted<'s, 'c: 's>(&'s self, ctx: &Ctx<'c>, may_miss: &[u8], i: usize) -> Wanted<'s> {
        let key = self.key(ctx, i);
        let Some(list) = i.checked_sub(self.context.len()) else {
            let kind = self.context.dense_at(i).map_or(Kind::Open, |d| Kind::Dense {
                shape: &self.context.dense[d].1,
                default: self.default(ctx, d),
            });
            return Wanted { key, dtype: self.context.dtype(i), kind };
        };
        let kind = self.lists.dense_at(list).map_or(Kind::Open, |d| Kind::DenseList {
            shape: &self.lists.dense[d].1,
            may_miss: may_miss[d] != 0,
        });
        Wanted { key, dtype: self.lists.dtype(list), kind }
    }

    /// Says of each dense list whether it may be missing.
    fn find_may_miss(&self, ctx: &Ctx<'_>, found: &mut [u8]) -> Result<()> {
        let first = self.context.len() + self.lists.sparse.len();
        let is_named = |d: usize| match &self.form {
            Form::Attrs { may_miss, .. } => may_miss.iter().any(|m| m == self.key(ctx, first + d)),
            _ => ctx.input(1).strings().iter().any(|m| m == self.key(ctx, first + d)),
        };
        if let Form::Vectors = self.form {
            let flags: &[u8] = ctx.input(8).as_slice();
            if flags.len() != found.len() {
                let (n_lists, n_flags) = (found.len(), flags.len());
                return invalid!("expected {n_lists} flags for missing lists but got {n_flags}");
            }
            found.copy_from_slice(flags);
        } else {
            let n_names = match &self.form {
                Form::Attrs { may_miss, .. } => may_miss.len(),
                _ => ctx.input(1).n_elements(),
            };
            for (d, found) in found.iter_mut().enumerate() {
                pace(n_names)?;
                *found = is_named(d).into();
            }
        }
        Ok(())
    }
}
