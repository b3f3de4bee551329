//! `Placeholder`: an input of the graph, which cannot run unless it is fed.

use crate::prelude::*;

pub(super) const PLACEHOLDER: OpDef =
    OpDef::pure("Placeholder", RowRule::Mixed, Placeholder::build);
pub(super) const PLACEHOLDER_V2: OpDef =
    OpDef::pure("PlaceholderV2", RowRule::Mixed, Placeholder::build);
pub(super) const PLACEHOLDER_WITH_DEFAULT: OpDef =
    OpDef::pure("PlaceholderWithDefault", RowRule::Mixed, |attrs| {
        let dims = dims_of_attr(attrs.shape("shape")?.as_deref());
        Ok(Box::new(PlaceholderWithDefault { dims }))
    });

struct Placeholder {
    spec: Spec,
}

impl Placeholder {
    fn build(attrs: &Attrs<'_>) -> Result<Box<dyn Op>> {
        let dims = dims_of_attr(attrs.shape_or_unknown("shape")?.as_deref());
        Ok(Box::new(Self { spec: spec_of(attrs.dtype("dtype")?, dims) }))
    }
}

impl Op for Placeholder {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [] = arity(inputs)?;
        Ok(vec![self.spec.clone()])
    }

    fn run(&self, _: &mut Ctx<'_>) -> Result<()> {
        let (dtype, dims) = (self.spec.dtype, &self.spec.dims);
        let shape = match dims {
            None => String::new(),
            Some(dims) => {
                let dims: Vec<String> = dims.iter().map(ToString::to_string).collect();
                format!(" and shape [{}]", dims.join(","))
            }
        };
        // The text is TensorFlow's (`constant_op.cc`), without the node's name.
        invalid!("You must feed a value for placeholder tensor with dtype {dtype}{shape}")
    }
}

/// Passes its input on, which is the value when nothing is fed.
struct PlaceholderWithDefault {
    dims: Option<Dims>,
}

impl Op for PlaceholderWithDefault {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [input] = arity(inputs)?;
        merge_dims(input.dims(), self.dims.as_deref())?;
        // Feeding may replace the value by any of the declared shape.
        Ok(vec![spec_of(input.dtype, self.dims.clone())])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let input = ctx.input(0);
        ctx.forward(0, input, input.shape().clone())
    }
}
