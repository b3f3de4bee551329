//! Loops and calls whose functions were made ready: tensors of known size stay in the scratch
//! memory of the op from iteration to iteration, others are handed on.

use std::sync::Arc;

use device::Span;

use super::branch::{By, truth};
use super::memory::{Memory, Parts, Slot, SlotLeft, seen};
use crate::env::{Env, Ready};
use crate::op::ReadyOp;
use crate::prelude::*;

/// A `While` of given specs.
#[derive(Clone)]
pub(super) struct ReadyWhile {
    cond: Arc<dyn Ready>,
    body: Arc<dyn Ready>,
    state: Vec<Slot>,
    /// The places of the state, in iterations of even and of odd number. A state that is handed
    /// on stays where it is; one that is then never read has no place.
    spans: [Vec<Option<Span>>; 2],
    /// `true` for each number whose state the body leaves as it is.
    stays: Vec<bool>,
    flag: ((DType, Shape), Span),
    memory: Memory,
    work_bytes: usize,
}

impl ReadyWhile {
    /// The loop of two functions and a state of these specs; `None` if the functions give others.
    pub(super) fn build(
        cond: Arc<dyn Ready>,
        body: Arc<dyn Ready>,
        specs: &[Spec],
    ) -> Option<ReadyOp> {
        let state: Vec<Slot> = specs.iter().map(Slot::of).collect();
        let [flag] = cond.outputs() else { return None };
        let flag = (flag.dtype, Slot::of(flag).shape?);
        if !all_taken(&state, body.outputs()) {
            return None;
        }
        let stays: Vec<bool> = (0..state.len()).map(|i| body.hands_on(i)).collect();
        let mut memory = Memory::default();
        let mut spans = [Vec::new(), Vec::new()];
        for (i, slot) in state.iter().enumerate() {
            let is_read = body.reads(i) || cond.reads(i) || !stays[i];
            let first = slot.span(&mut memory, is_read);
            spans[1].push(if stays[i] { first } else { slot.span(&mut memory, is_read) });
            spans[0].push(first);
        }
        let flag_span = memory.span(flag.0, &flag.1);
        let work_bytes = cond.work_bytes().max(body.work_bytes());
        let (open_bytes, is_static) =
            (cond.open_bytes().max(body.open_bytes()), cond.is_static() && body.is_static());
        let hands_on = (0..state.len()).filter(|i| stays[*i]).collect();
        let flag = (flag, flag_span);
        let op = Self { cond, body, state, spans, stays, flag, memory, work_bytes };
        Some(ReadyOp { op: Arc::new(op), open_bytes, is_static, hands_on })
    }
}

impl Op for ReadyWhile {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        Ok(inputs.iter().map(|input| Spec::unknown(input.dtype)).collect())
    }

    fn scratch_bytes(&self, _: &[Spec], _: &[Spec]) -> usize {
        self.memory.bytes + self.work_bytes
    }

    fn least_scratch_bytes(&self, _: &[Spec], _: &[Spec]) -> usize {
        self.memory.bytes + self.cond.least_work_bytes().max(self.body.least_work_bytes())
    }

    fn lowered(
        &self,
        scratch_bytes: usize,
        env: &Env<'_>,
        should_stop: &mut dyn FnMut() -> bool,
    ) -> Option<Arc<dyn Op>> {
        let most = scratch_bytes.checked_sub(self.memory.bytes)?;
        let cond = lowered(&self.cond, most, env, should_stop)?;
        let body = lowered(&self.body, most, env, should_stop)?;
        let work_bytes = cond.work_bytes().max(body.work_bytes());
        Some(Arc::new(Self { cond, body, work_bytes, ..self.clone() }))
    }

    fn kernel_bytes(&self, _: &[Spec], _: &[Spec]) -> usize {
        self.cond.kernel_bytes().max(self.body.kernel_bytes())
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (env, memory) = (ctx.env(), ctx.take_scratch());
        let mut parts = Parts { memory, work: self.memory.bytes, open: Vec::new() };
        let mut handed = Vec::with_capacity(self.state.len());
        for (i, slot) in self.state.iter().enumerate() {
            handed.push(slot.enter((ctx, i), self.spans[0][i], parts.memory)?);
        }
        let mut shown = vec![None; handed.len()];
        let [mut now, mut next] = [&self.spans[0], &self.spans[1]];
        loop {
            env.cancel.check()?;
            shown.clone_from_slice(&handed);
            self.cond.run(parts.frame(now, &[Some(self.flag.1)], &mut shown), env)?;
            shown.fill(None);
            if !truth(&seen(parts.memory, self.flag.1, &self.flag.0))? {
                break;
            }
            self.body.run(parts.frame(now, next, &mut handed), env)?;
            std::mem::swap(&mut now, &mut next);
        }
        for (i, slot) in self.state.iter().enumerate() {
            if self.stays[i] {
                let input = ctx.input(i);
                ctx.forward(i, input, input.shape().clone())?;
            } else {
                let left = SlotLeft { memory: parts.memory, handed: &mut handed[i] };
                slot.leave((ctx, i), now[i], left)?;
            }
        }
        Ok(())
    }
}

/// A function with at most so much working memory: as it is, or with other offsets.
fn lowered(
    function: &Arc<dyn Ready>,
    work_bytes: usize,
    env: &Env<'_>,
    should_stop: &mut dyn FnMut() -> bool,
) -> Option<Arc<dyn Ready>> {
    match function.work_bytes() <= work_bytes {
        true => Some(Arc::clone(function)),
        false => function.lowered(work_bytes, env, should_stop),
    }
}

/// Returns whether a function that gives tensors of these specs can leave them in the slots.
fn all_taken(slots: &[Slot], specs: &[Spec]) -> bool {
    slots.len() == specs.len() && slots.iter().zip(specs).all(|(slot, spec)| slot.takes(spec))
}

/// The way in which a call picks its function.
#[derive(Clone, Copy)]
pub(super) enum Pick {
    /// There is one.
    Only,
    /// By its first input.
    Branch(By),
}

/// A call of one of several functions of given specs.
#[derive(Clone)]
pub(super) struct ReadyCall {
    pick: Pick,
    functions: Vec<Arc<dyn Ready>>,
    inputs: (Vec<Slot>, Vec<Option<Span>>),
    outputs: (Vec<Slot>, Vec<Option<Span>>),
    memory: Memory,
    work_bytes: usize,
}

impl ReadyCall {
    /// The call with inputs and outputs of these specs; `None` if a function gives others.
    pub(super) fn build(
        pick: Pick,
        functions: Vec<Arc<dyn Ready>>,
        inputs: &[Spec],
        outputs: &[Spec],
    ) -> Option<ReadyOp> {
        let slots = |specs: &[Spec]| specs.iter().map(Slot::of).collect::<Vec<Slot>>();
        let (inputs, outputs) = (slots(inputs), slots(outputs));
        if !functions.iter().all(|function| all_taken(&outputs, function.outputs())) {
            return None;
        }
        let mut memory = Memory::default();
        let is_given = |i: usize| {
            let uses = |f: &dyn Ready| f.reads(i) || f.hands_on(i);
            functions.iter().any(|function| uses(&**function))
        };
        let input_spans = inputs.iter().enumerate();
        let input_spans = input_spans.map(|(i, slot)| slot.span(&mut memory, is_given(i)));
        let input_spans = input_spans.collect();
        let output_spans = outputs.iter().map(|slot| slot.span(&mut memory, true)).collect();
        let most = |bytes: fn(&dyn Ready) -> usize| {
            functions.iter().map(|function| bytes(&**function)).max().unwrap_or(0)
        };
        let (work_bytes, open_bytes) = (most(|f| f.work_bytes()), most(|f| f.open_bytes()));
        let is_static = functions.iter().all(|function| function.is_static());
        let (inputs, outputs) = ((inputs, input_spans), (outputs, output_spans));
        let op = Self { pick, functions, inputs, outputs, memory, work_bytes };
        Some(ReadyOp { op: Arc::new(op), open_bytes, is_static, hands_on: Vec::new() })
    }
}

impl Op for ReadyCall {
    fn infer(&self, _: &[Spec]) -> Result<Vec<Spec>> {
        Ok(self.outputs.0.iter().map(|slot| Spec::unknown(slot.dtype)).collect())
    }

    fn scratch_bytes(&self, _: &[Spec], _: &[Spec]) -> usize {
        self.memory.bytes + self.work_bytes
    }

    fn least_scratch_bytes(&self, _: &[Spec], _: &[Spec]) -> usize {
        let least = self.functions.iter().map(|function| function.least_work_bytes());
        self.memory.bytes + least.max().unwrap_or(0)
    }

    fn lowered(
        &self,
        scratch_bytes: usize,
        env: &Env<'_>,
        should_stop: &mut dyn FnMut() -> bool,
    ) -> Option<Arc<dyn Op>> {
        let most = scratch_bytes.checked_sub(self.memory.bytes)?;
        let functions = self.functions.iter();
        let functions = functions.map(|function| lowered(function, most, env, &mut *should_stop));
        let functions: Vec<Arc<dyn Ready>> = functions.collect::<Option<_>>()?;
        let work_bytes = functions.iter().map(|function| function.work_bytes()).max().unwrap_or(0);
        Some(Arc::new(Self { functions, work_bytes, ..self.clone() }))
    }

    fn kernel_bytes(&self, _: &[Spec], _: &[Spec]) -> usize {
        self.functions.iter().map(|function| function.kernel_bytes()).max().unwrap_or(0)
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (picked, first) = match self.pick {
            Pick::Only => (0, 0),
            Pick::Branch(by) => (by.pick(&ctx.input(0), self.functions.len())?, 1),
        };
        let (env, memory) = (ctx.env(), ctx.take_scratch());
        let mut parts = Parts { memory, work: self.memory.bytes, open: Vec::new() };
        let n_handed = self.inputs.0.len().max(self.outputs.0.len());
        let mut handed = vec![None; n_handed];
        for (i, (slot, span)) in self.inputs.0.iter().zip(&self.inputs.1).enumerate() {
            handed[i] = slot.enter((ctx, first + i), *span, parts.memory)?;
        }
        let frame = parts.frame(&self.inputs.1, &self.outputs.1, &mut handed);
        self.functions[picked].run(frame, env)?;
        for (i, (slot, span)) in self.outputs.0.iter().zip(&self.outputs.1).enumerate() {
            let left = SlotLeft { memory: parts.memory, handed: &mut handed[i] };
            slot.leave((ctx, i), *span, left)?;
        }
        Ok(())
    }
}
