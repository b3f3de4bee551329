//! Preparation of a version for serving: plans for the batches that it can have, and the need of
//! the largest of them.

use device::AHEAD_BYTES_MAX;
use graph::Plan;
use ops::Cancel;
use pool::Pool;
use schedule::Need;
use tensor::{DType, Shape, Spec};

use crate::engine::Model;
use crate::programs::{Inputs, ProgramPick};

/// The most sizes of batches that plans are made for; a program keeps more of them.
const SIZES_MAX: usize = 12;

/// A model whose plans are made, and the threads that help.
pub(crate) struct Prepared<'a> {
    pub(crate) model: &'a Model,
    pub(crate) pool: &'a Pool,
}

/// The bytes that a run of a batch takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RunNeed {
    /// With its inputs, as far as memory is taken ahead for it.
    pub(crate) ahead: Need,
    /// Its workspace and its results, which its model is promised: of the device, and of the host
    /// where that is another.
    pub(crate) bytes: u64,
    pub(crate) host_bytes: u64,
}

impl Prepared<'_> {
    /// Makes the plans of a signature for batches of these sizes, the smallest first, until one
    /// needs more than is ever taken ahead; gives what each needs. A signature that leaves more
    /// open than the rows has none.
    pub(crate) fn plan(&self, signature: &str, sizes: &[usize]) -> Vec<RunNeed> {
        let mut needs = Vec::new();
        let Some(specs) = self.model.specs.get(signature) else { return needs };
        for rows in sizes {
            let inputs: Option<Vec<_>> = specs.iter().map(|spec| concrete(spec, *rows)).collect();
            let Some(inputs) = inputs else { break };
            let pick = ProgramPick { signature, inputs: Inputs::Shapes(&inputs) };
            let planned = self.model.with(pick, &Cancel::default(), self.pool, |program, env| {
                program.plan(&inputs, env)
            });
            // What cannot be planned fails when it is run.
            let Ok(plan) = planned else { break };
            let need = self.need(&plan, &inputs);
            needs.push(need);
            if !self.is_taken_ahead(&need.ahead) {
                break;
            }
        }
        needs
    }

    /// Returns whether a run needs no more than is taken ahead.
    pub(crate) fn is_taken_ahead(&self, need: &Need) -> bool {
        need.work_bytes <= self.model.room(AHEAD_BYTES_MAX)
    }

    /// The need of a run: inputs, and once more together if they are a batch.
    fn need(&self, plan: &Plan, inputs: &[(DType, Shape)]) -> RunNeed {
        let is_split = self.model.lease.0.as_ref().is_some_and(|owner| owner.is_split());
        let bytes = |(dtype, shape): &(DType, Shape)| dtype.size() * shape.n_elements();
        let inputs = 2 * inputs.iter().map(bytes).sum::<usize>();
        let (own, host) = if is_split { (0, inputs) } else { (inputs, 0) };
        let ahead = Need {
            work_bytes: plan.work_bytes() as u64,
            open_bytes: (plan.dynamic_bytes() + own) as u64,
            host_work_bytes: plan.host_work_bytes() as u64,
            host_open_bytes: (plan.host_dynamic_bytes() + host) as u64,
        };
        let bytes = (plan.work_bytes() + plan.dynamic_bytes()) as u64;
        let host_bytes = (plan.host_work_bytes() + plan.host_dynamic_bytes()) as u64;
        RunNeed { ahead, bytes, host_bytes }
    }
}

/// The most of both.
pub(crate) fn larger(a: Need, b: Need) -> Need {
    Need {
        work_bytes: a.work_bytes.max(b.work_bytes),
        open_bytes: a.open_bytes.max(b.open_bytes),
        host_work_bytes: a.host_work_bytes.max(b.host_work_bytes),
        host_open_bytes: a.host_open_bytes.max(b.host_open_bytes),
    }
}

/// The sizes that batches can have, the smallest first: those that are allowed, or else powers of
/// two and the largest; one row if nothing is batched.
pub(crate) fn sizes(options: Option<&batch::Options>) -> Vec<usize> {
    let Some(options) = options else { return vec![1] };
    let mut sizes: Vec<usize> = match options.allowed_sizes.is_empty() {
        true => {
            let largest = options.batch_rows_max;
            let powers = (0..usize::BITS).map(|power| 1 << power);
            powers.take_while(|size| *size < largest).chain([largest]).collect()
        }
        false => options.allowed_sizes.clone(),
    };
    sizes.truncate(SIZES_MAX);
    sizes
}

/// The dtype and shape of an input with so many rows; `None` if more of it is open.
fn concrete(spec: &Spec, rows: usize) -> Option<(DType, Shape)> {
    let size = |(number, dim): (usize, &tensor::Dim)| match (dim.size(), number) {
        (None, 0) => Some(rows),
        (size, _) => size,
    };
    let dims: Option<Vec<usize>> = spec.dims()?.iter().enumerate().map(size).collect();
    Some((spec.dtype, Shape::of(&dims?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_have_the_sizes_that_are_allowed_or_any_up_to_the_largest() {
        let check = |rows_max: usize, allowed: &[usize], expected: &[usize]| {
            let base = batch::Options::unbatched(9);
            let allowed_sizes = allowed.to_vec();
            let options = batch::Options { batch_rows_max: rows_max, allowed_sizes, ..base };
            assert_eq!(sizes(Some(&options)), expected);
        };
        check(1, &[], &[1]);
        check(6, &[], &[1, 2, 4, 6]);
        check(8, &[], &[1, 2, 4, 8]);
        check(8, &[3, 8], &[3, 8]);
        check(1000, &[], &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000]);
        assert_eq!(sizes(None), [1]);
    }

    #[test]
    fn only_the_rows_of_an_input_may_be_open() {
        use tensor::Dim;
        let open = Dim::Unknown;
        let spec = |dims: &[Dim]| Spec::new(DType::F32, dims.to_vec());
        let shape = |spec: &Spec| concrete(spec, 5).map(|(_, shape)| shape);
        assert_eq!(shape(&spec(&[open.clone(), Dim::Known(3)])), Some(Shape::of(&[5, 3])));
        assert_eq!(shape(&spec(&[Dim::Known(2), Dim::Known(3)])), Some(Shape::of(&[2, 3])));
        assert_eq!(shape(&spec(&[open.clone(), open])), None);
        assert_eq!(shape(&Spec::unknown(DType::F32)), None);
    }
}
