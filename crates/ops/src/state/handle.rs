//! `VarHandleOp` and the ops that read what it points to.

use tensor::Handle;

use super::variable::Variable;
use crate::facts::VariableAccess;
use crate::prelude::*;

pub(super) const VAR_HANDLE: OpDef =
    OpDef::of_kind("VarHandleOp", Kind::Handle, RowRule::Mixed, VarHandle::build)
        .uses(VariableAccess::Handle);
pub(super) const READ: OpDef =
    OpDef::of_kind("ReadVariableOp", Kind::Reads, RowRule::Mixed, |attrs| {
        Ok(Box::new(ReadHandle { dtype: attrs.dtype("dtype")? }))
    })
    .uses(VariableAccess::Value);
pub(super) const IS_INITIALIZED: OpDef =
    OpDef::of_kind("VarIsInitializedOp", Kind::Reads, RowRule::Mixed, |_| {
        Ok(Box::new(IsInitialized))
    })
    .uses(VariableAccess::Look);
pub(super) const SHAPE: OpDef =
    OpDef::of_kind("VariableShape", Kind::Reads, RowRule::Mixed, |attrs| {
        Ok(Box::new(VariableShape { out: attrs.dtype_or("out_type", DType::I32)? }))
    })
    .uses(VariableAccess::Look);
pub(super) const DISABLE_COPY_ON_READ: OpDef =
    OpDef::pure("DisableCopyOnRead", RowRule::Mixed, |_| Ok(Box::new(DisableCopyOnRead)))
        .uses(VariableAccess::Look);

/// Finds a variable by container and name. Those without a name are one, as in TensorFlow.
struct VarHandle {
    container: String,
    name: String,
    dtype: DType,
    dims: Option<Vec<Option<i64>>>,
}

impl VarHandle {
    fn build(attrs: &Attrs<'_>) -> Result<Box<dyn Op>> {
        Ok(Box::new(Self {
            container: attrs.str_or("container", "")?.to_owned(),
            name: attrs.str_or("shared_name", "")?.to_owned(),
            dtype: attrs.dtype("dtype")?,
            dims: attrs.shape_or_unknown("shape")?,
        }))
    }
}

impl Op for VarHandle {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [] = arity(inputs)?;
        Ok(vec![Spec::scalar(DType::Resource)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let make = || Variable::new(&self.name, self.dtype).with_dims(self.dims.clone());
        let variable = ctx.env().resources.get_or_create(&self.container, &self.name, make)?;
        if variable.dtype() != self.dtype {
            let (name, was, is) = (&self.name, variable.dtype(), self.dtype);
            return invalid!("variable {name} is {was} but is declared {is} here");
        }
        ctx.set_output(0, Tensor::from_handle(DType::Resource, Handle::shared(variable)))
    }
}

/// The variable that input number `index` of a kernel points to.
pub(crate) fn variable<'a>(ctx: &Ctx<'a>, index: usize) -> Result<&'a Variable> {
    let view = ctx.input(index);
    if view.dtype() != DType::Resource {
        return invalid!("expected a resource but got {}", view.dtype());
    }
    match view.handles() {
        [handle] => handle.get().map_or_else(|| invalid!("the resource is no variable"), Ok),
        _ => invalid!("expected a scalar resource but got shape {}", view.shape()),
    }
}

/// Returns the declared spec of the variable that a handle points to, if the handle is known.
pub(crate) fn variable_spec(handle: &Spec, dtype: DType) -> Spec {
    let known = handle.as_constant().filter(|tensor| tensor.dtype() == DType::Resource);
    let variable = known.and_then(|tensor| tensor.view().handles().first()?.get::<Variable>());
    variable.map_or_else(|| Spec::unknown(dtype), |variable| variable.spec().with_dtype(dtype))
}

struct ReadHandle {
    dtype: DType,
}

impl Op for ReadHandle {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [handle] = arity(inputs)?;
        Ok(vec![variable_spec(handle, self.dtype)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let value = variable(ctx, 0)?.value()?;
        if value.dtype() != self.dtype {
            return invalid!(
                "Trying to read variable with wrong dtype. Expected {} got {}",
                self.dtype,
                value.dtype()
            );
        }
        ctx.set_output(0, value)
    }
}

struct IsInitialized;

impl Op for IsInitialized {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [_] = arity(inputs)?;
        Ok(vec![Spec::scalar(DType::Bool)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let is_initialized = variable(ctx, 0)?.read().is_some();
        ctx.output(0, DType::Bool, &Shape::scalar())?.bytes()[0] = u8::from(is_initialized);
        Ok(())
    }
}

struct VariableShape {
    out: DType,
}

impl Op for VariableShape {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [handle] = arity(inputs)?;
        let spec = variable_spec(handle, self.out);
        let rank = spec.rank().map_or(Dim::Unknown, Dim::of);
        Ok(vec![with_sizes(Spec::new(self.out, [rank]), spec.dims().map(<[Dim]>::to_vec))])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let variable = variable(ctx, 0)?;
        let Some(value) = variable.read() else {
            return Err(Error::NotFound(format!("{} does not exist", variable.name())));
        };
        let output = ctx.output(0, self.out, &Shape::of(&[value.shape().rank()]))?;
        crate::array::write_sizes(output, value.shape())
    }
}

/// Tells TensorFlow to stop copying a variable that is read; we never did.
struct DisableCopyOnRead;

impl Op for DisableCopyOnRead {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [_] = arity(inputs)?;
        Ok(Vec::new())
    }

    fn run(&self, _: &mut Ctx<'_>) -> Result<()> {
        Ok(())
    }
}
