//! `Fill` and `Empty`: a shape given as a value, filled.

use crate::prelude::*;

pub(super) const FILL: OpDef = OpDef::pure("Fill", RowRule::Fill, |_| Ok(Box::new(Fill)));
pub(super) const EMPTY: OpDef = OpDef::pure("Empty", RowRule::Mixed, |attrs| {
    Ok(Box::new(Empty { dtype: attrs.dtype("dtype")? }))
});

pub(super) const FAKE_PARAM: OpDef = OpDef::pure("FakeParam", RowRule::Mixed, |attrs| {
    let dims = attrs.shape("shape")?;
    Ok(Box::new(FakeParam { dtype: attrs.dtype("dtype")?, dims: dims_of_attr(dims.as_deref()) }))
});

struct Fill;

impl Op for Fill {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [dims, value] = arity(inputs)?;
        if value.rank().is_some_and(|rank| rank > 1) || value.n_elements().differs(&Dim::Known(1)) {
            return not_scalar(value);
        }
        // A number stands for a list of one, as in old graphs.
        dims.require_rank_at_most(1)?;
        let output = shaped(value.dtype, dims)?;
        let n = output.n_elements().size().filter(|n| *n <= 32);
        let fill = sizes_of(value).zip(n).map(|(value, n)| vec![value[0].clone(); n]);
        Ok(vec![with_sizes(output, fill)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (dims, value) = (ctx.input(0), ctx.input(1));
        if value.shape().rank() > 1 || value.n_elements() != 1 {
            return not_scalar(&value.shape());
        }
        let shape = Shape::checked(ints(&dims)?)?;
        let walk = Walk::new(0, [(shape.n_elements(), 0)]);
        rearrange(ctx, 0, &[value], &shape, &Gather { walk, pool: ctx.env().pool })
    }
}

fn not_scalar<T>(got: &impl std::fmt::Display) -> Result<T> {
    invalid!("value must be a scalar, got {got}")
}

/// A tensor without values; ours are zero.
struct Empty {
    dtype: DType,
}

impl Op for Empty {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [dims] = arity(inputs)?;
        dims.require_rank(1)?;
        Ok(vec![shaped(self.dtype, dims)?])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let shape = Shape::checked(ints(&ctx.input(0))?)?;
        if !self.dtype.is_plain() {
            return ctx.set_output(0, Tensor::zeros(self.dtype, shape)?);
        }
        ctx.output(0, self.dtype, &shape)?.bytes().fill(0);
        Ok(())
    }
}

/// Stands where a branch has no value to give; nobody reads it.
struct FakeParam {
    dtype: DType,
    dims: Option<Dims>,
}

impl Op for FakeParam {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [] = arity(inputs)?;
        Ok(vec![spec_of(self.dtype, self.dims.clone())])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let dims = self.dims.iter().flatten();
        let shape = Shape::checked(dims.map(|dim| dim.known().unwrap_or(0)))?;
        let value = match self.dtype {
            dtype if dtype.is_plain() => {
                ctx.output(0, dtype, &shape)?.bytes().fill(0);
                return Ok(());
            }
            DType::Variant | DType::Resource => Tensor::from_handles(
                self.dtype,
                shape.clone(),
                std::iter::repeat_n(tensor::Handle::new(()), shape.n_elements()),
            )?,
            dtype => Tensor::zeros(dtype, shape)?,
        };
        ctx.set_output(0, value)
    }
}

/// A tensor whose shape is the value of `dims`.
fn shaped(dtype: DType, dims: &Spec) -> Result<Spec> {
    let Some(sizes) = sizes_of(dims) else {
        return Ok(spec_of_rank(dtype, dims.rank().and(dims.n_elements().size())));
    };
    if let Some(size) = sizes.iter().find(|size| size.known().is_some_and(|size| size < 0)) {
        return invalid!("Dimension {size} must be >= 0");
    }
    Ok(Spec::new(dtype, sizes))
}
