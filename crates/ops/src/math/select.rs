//! `Select` and `SelectV2`: elements of one tensor or another, as a third says.

use super::expand::{expand, expand_in, expanded_bytes};
use super::map::CHEAP;
use super::merge::merge;
use crate::prelude::*;

pub(super) const SELECT: OpDef = OpDef::pure("Select", RowRule::Select, |_| Ok(Box::new(Select)));
pub(super) const SELECT_V2: OpDef =
    OpDef::pure("SelectV2", RowRule::Elementwise, |_| Ok(Box::new(SelectV2)));

/// The condition is a scalar, of the operands' shape, or a vector that picks whole rows.
struct Select;
/// All three broadcast.
struct SelectV2;

impl Op for Select {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [condition, yes, no] = arity(inputs)?;
        let dims = merge(yes, no)?;
        let spec = Spec { dims, ..Spec::unknown(yes.dtype) };
        if let (Some(condition), Some(operand)) = (condition.shape(), spec.shape()) {
            repeats(&condition, &operand)?;
        }
        Ok(vec![spec])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (condition, yes, no) = (ctx.input(0), ctx.input(1), ctx.input(2));
        if yes.shape() != no.shape() {
            return invalid!("inputs {} and {} differ in shape", yes.shape(), no.shape());
        }
        let each = repeats(condition.shape(), yes.shape())?;
        let flags = condition.as_slice::<u8>();
        if yes.dtype() == DType::String {
            let (yes, no) = (yes.strings(), no.strings());
            let pick = |i: usize| if flags[i / each] != 0 { yes.get(i) } else { no.get(i) };
            let strings = Strings::copied((0..yes.len()).map(pick))?;
            return ctx.set_output(0, Tensor::from_strings(ctx.input(1).shape().clone(), strings)?);
        }
        let mut out = ctx.output(0, yes.dtype(), yes.shape())?;
        for_width!(yes.dtype(), W => {
            let (yes, no, out) = (yes.as_wide::<W>(), no.as_wide(), out.as_wide_mut());
            if each == 1 {
                pick(flags, SelectLane::Full(yes), SelectLane::Full(no), out);
            } else {
                let rows = flags.iter().zip(yes.chunks(each).zip(no.chunks(each)));
                for ((flag, (yes, no)), out) in rows.zip(out.chunks_mut(each)) {
                    out.copy_from_slice(if *flag != 0 { yes } else { no });
                }
            }
        });
        Ok(())
    }
}

/// Returns how many elements each flag stands for.
fn repeats(condition: &Shape, operand: &Shape) -> Result<usize> {
    if condition == operand {
        return Ok(1);
    }
    match condition.dims() {
        [] => Ok(operand.n_elements().max(1)),
        [n] if operand.first() == Some(n) => Ok(operand[1..].iter().product::<usize>().max(1)),
        _ => invalid!("a condition of shape {condition} does not fit operands of shape {operand}"),
    }
}

impl Op for SelectV2 {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [condition, yes, no] = arity(inputs)?;
        let operands = Spec { dims: broadcast(yes, no)?, ..Spec::unknown(yes.dtype) };
        let dims = broadcast(condition, &operands)?;
        Ok(vec![Spec { dims, ..operands }])
    }

    fn scratch_bytes(&self, inputs: &[Spec], outputs: &[Spec]) -> usize {
        let Some(n) = outputs[0].shape().map(|shape| shape.n_elements()) else { return 0 };
        let bytes = |(i, input): (usize, &Spec)| match input.shape().map(|s| s.n_elements()) {
            Some(own) if own != n && (i == 0 || own != 1) && input.dtype.is_plain() => {
                expanded_bytes(n, input.dtype.size())
            }
            _ => 0,
        };
        inputs.iter().enumerate().map(bytes).sum()
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (condition, yes, no) = (ctx.input(0), ctx.input(1), ctx.input(2));
        let shape = broadcast_shapes(yes.shape(), no.shape())?;
        let shape = broadcast_shapes(condition.shape(), &shape)?;
        let (mut scratch, mut own) = (ctx.take_scratch(), BookedVec::new());
        let shapes = (condition.shape(), &shape);
        let flags = expand_in::<u8>(condition.as_wide(), shapes, &mut scratch, &mut own)?;
        if yes.dtype() == DType::String {
            return select_strings(ctx, flags, &shape);
        }
        let pool = ctx.env().pool;
        for_width!(yes.dtype(), W => {
            let (x, y) = (yes.as_wide::<W>(), no.as_wide::<W>());
            let (mut own_x, mut own_y) = (BookedVec::new(), BookedVec::new());
            let x = match x {
                [_] => x,
                _ => expand_in(x, (yes.shape(), &shape), &mut scratch, &mut own_x)?,
            };
            let y = match y {
                [_] => y,
                _ => expand_in(y, (no.shape(), &shape), &mut scratch, &mut own_y)?,
            };
            let mut out = ctx.output(0, yes.dtype(), &shape)?;
            in_pieces(pool, out.as_wide_mut::<W>(), CHEAP, |at, out| {
                let n = at..at + out.len();
                pick(&flags[n.clone()], SelectLane::of(x, n.clone()), SelectLane::of(y, n), out);
            });
        });
        Ok(())
    }
}

/// The elements of an operand: as many as there are flags, or one for all.
#[derive(Clone, Copy)]
enum SelectLane<'a, W> {
    Full(&'a [W]),
    One(W),
}

impl<'a, W: Copy> SelectLane<'a, W> {
    fn of(elements: &'a [W], range: std::ops::Range<usize>) -> Self {
        match elements {
            [one] => Self::One(*one),
            _ => Self::Full(&elements[range]),
        }
    }
}

fn pick<W: Copy>(flags: &[u8], yes: SelectLane<'_, W>, no: SelectLane<'_, W>, out: &mut [W]) {
    let each = flags.iter().zip(out);
    match (yes, no) {
        (SelectLane::Full(a), SelectLane::Full(b)) => each
            .zip(a.iter().zip(b))
            .for_each(|((flag, out), (a, b))| *out = if *flag != 0 { *a } else { *b }),
        (SelectLane::One(a), SelectLane::Full(b)) => {
            each.zip(b).for_each(|((flag, out), b)| *out = if *flag != 0 { a } else { *b });
        }
        (SelectLane::Full(a), SelectLane::One(b)) => {
            each.zip(a).for_each(|((flag, out), a)| *out = if *flag != 0 { *a } else { b });
        }
        (SelectLane::One(a), SelectLane::One(b)) => {
            each.for_each(|(flag, out)| *out = if *flag != 0 { a } else { b });
        }
    }
}

fn select_strings(ctx: &mut Ctx<'_>, flags: &[u8], shape: &Shape) -> Result<()> {
    let (yes, no) = (ctx.input(1), ctx.input(2));
    let indices = |view: View<'_>| -> Result<BookedVec<usize>> {
        let own = BookedVec::collect(0..view.n_elements())?;
        Ok(expand(&own, view.shape(), shape)?.unwrap_or(own))
    };
    let (a, b) = (indices(yes)?, indices(no)?);
    let (yes, no) = (yes.strings(), no.strings());
    let picked = flags.iter().zip(a.iter().zip(b.iter()));
    let picked = picked.map(|(flag, (a, b))| if *flag != 0 { yes.get(*a) } else { no.get(*b) });
    ctx.set_output(0, Tensor::from_strings(shape.clone(), Strings::copied(picked)?)?)
}
