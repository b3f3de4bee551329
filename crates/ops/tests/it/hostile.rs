//! Examples are read twice, once to count and once to write: damaged ones are refused, or both
//! readings agree. The cases are those of `testdata/ops`.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

use ops::{Attrs, Cancel, Ctx, Env, NoFiles, NoFunctions, Op, Output, Resources};
use pool::Pool;
use tensor::{DType, Spec, Strings, Tensor};
use testkit::opcases::{self, Case};

/// The number of times that each case is damaged.
const N_TRIES: usize = 400;

#[test]
fn damaged_examples_are_refused_or_parsed_but_never_panic() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/ops");
    let mut random = Random(1);
    let (mut n_parsed, mut n_refused) = (0, 0);
    for case in opcases::read_all(&folder) {
        let is_parser = |op: &str| op.starts_with("Parse") && op.contains("Example");
        if !is_parser(&case.nodes[0].op) || case.inputs[0].dtype() != DType::String {
            continue;
        }
        let Ok(op) = build(&case) else { continue };
        for _ in 0..N_TRIES {
            let mut inputs = case.inputs.clone();
            let strings = inputs[0].strings().iter().map(|bytes| random.damage(bytes));
            let strings = Strings::collect(strings).unwrap();
            inputs[0] = Tensor::from_strings(inputs[0].shape().clone(), strings).unwrap();
            match run(&*op, &inputs) {
                Ok(()) => n_parsed += 1,
                Err(_) => n_refused += 1,
            }
        }
    }
    assert!(n_parsed > 1000 && n_refused > 1000, "{n_parsed} parsed, {n_refused} refused");
}

fn build(case: &Case) -> ops::Result<Box<dyn Op>> {
    (ops::find(&case.nodes[0].op).unwrap().build)(&Attrs::new(&case.nodes[0].attrs))
}

fn run(op: &dyn Op, inputs: &[Tensor]) -> ops::Result<()> {
    let (pool, resources) = (Pool::new(1), Resources::default());
    let env = Env {
        pool: &pool,
        functions: &NoFunctions,
        files: &NoFiles,
        resources: &resources,
        cancel: &Cancel::default(),
    };
    let specs: Vec<Spec> = inputs.iter().cloned().map(Spec::constant).collect();
    let n_outputs = op.infer(&specs)?.len();
    let outputs = (0..n_outputs).map(|_| Output::Open(None));
    let mut ctx = Ctx::new(inputs.iter().map(Tensor::view), outputs, &env);
    op.run(&mut ctx)?;
    assert_eq!(ctx.finish()?.len(), n_outputs);
    Ok(())
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) as usize % n
    }

    fn byte(&mut self) -> u8 {
        u8::try_from(self.below(256)).unwrap()
    }

    /// The bytes with one change, or none.
    fn damage(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        if bytes.is_empty() {
            return bytes;
        }
        let at = self.below(bytes.len());
        match self.below(6) {
            0 => bytes[at] = self.byte(),
            1 => bytes[at] ^= 1 << self.below(8),
            2 => bytes.truncate(at),
            3 => bytes.insert(at, self.byte()),
            // Two in one: features with one key.
            4 => bytes.extend_from_within(..),
            _ => {}
        }
        bytes
    }
}
