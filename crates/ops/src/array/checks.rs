//! `EnsureShape`, `Assert`, `Print`: ops that look and pass on.

mod summary;

use summary::Summaries;

use crate::prelude::*;

pub(super) const ENSURE_SHAPE: OpDef = OpDef::pure("EnsureShape", RowRule::SameElements, |attrs| {
    Ok(Box::new(EnsureShape { dims: dims_of_attr(attrs.shape("shape")?.as_deref()) }))
});
/// It changes nothing, but it must run: to fail is its effect.
pub(super) const ASSERT: OpDef = OpDef::of_kind("Assert", Kind::Writes, RowRule::Mixed, |attrs| {
    Ok(Box::new(Assert { n_shown: attrs.int_or("summarize", 3)? }))
})
.checks();
pub(super) const PRINT: OpDef = OpDef::of_kind("Print", Kind::Writes, RowRule::Mixed, |attrs| {
    let message =
        String::from_utf8_lossy(if attrs.has("message") { attrs.bytes("message")? } else { b"" })
            .into_owned();
    Ok(Box::new(Print { message, n_shown: attrs.int_or("summarize", 3)? }))
});
pub(super) const PRINT_V2: OpDef =
    OpDef::of_kind("PrintV2", Kind::Writes, RowRule::Mixed, |_| Ok(Box::new(PrintV2)));

struct EnsureShape {
    dims: Option<Dims>,
}

impl Op for EnsureShape {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [input] = arity(inputs)?;
        let dims =
            merge_dims(input.dims(), self.dims.as_deref()).map_err(|_| self.unlike(input))?;
        Ok(vec![Spec { dims, ..input.clone() }])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let input = ctx.input(0);
        let spec = Spec::concrete(input.dtype(), input.shape());
        if merge_dims(spec.dims(), self.dims.as_deref()).is_err() {
            return Err(self.unlike(&spec));
        }
        ctx.forward(0, input, input.shape().clone())
    }
}

impl EnsureShape {
    fn unlike(&self, got: &Spec) -> Error {
        let expected = spec_of(got.dtype, self.dims.clone());
        // The text is TensorFlow's (`shape_ops.cc`).
        Error::InvalidArgument(format!(
            "Shape of tensor {got} is not compatible with expected shape {expected}."
        ))
    }
}

/// Fails with the data unless the condition holds.
struct Assert {
    /// The number of elements of each tensor that the message shows; all if negative.
    n_shown: i64,
}

impl Op for Assert {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        arity_at_least(inputs, 1)?;
        inputs[0].require_rank(0)?;
        Ok(Vec::new())
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let condition = ctx.input(0);
        if condition.dtype() != DType::Bool || condition.n_elements() != 1 {
            return invalid!("In[0] should be a scalar: {}", condition.shape());
        }
        if condition.as_slice::<u8>()[0] != 0 {
            return Ok(());
        }
        // The text is TensorFlow's (`logging_ops.cc`).
        let data = Summaries { views: &ctx.inputs()[1..], n_shown: self.n_shown, between: " " };
        invalid!("assertion failed: {data}")
    }
}

/// Passes its first input on, and the others to the log.
struct Print {
    message: String,
    n_shown: i64,
}

impl Op for Print {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        arity_at_least(inputs, 1)?;
        Ok(vec![inputs[0].clone()])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let data = Summaries { views: &ctx.inputs()[1..], n_shown: self.n_shown, between: "" };
        tracing::info!("{}{data}", self.message);
        let input = ctx.input(0);
        ctx.forward(0, input, input.shape().clone())
    }
}

/// Writes a string to the log.
struct PrintV2;

impl Op for PrintV2 {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [text] = arity(inputs)?;
        text.require_rank(0)?;
        Ok(Vec::new())
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let text = ctx.input(0);
        if text.dtype() != DType::String || text.n_elements() != 1 {
            return invalid!("Input is expected to be scalar, but got {}", text.shape());
        }
        tracing::info!("{}", String::from_utf8_lossy(text.strings().get(0)));
        Ok(())
    }
}
