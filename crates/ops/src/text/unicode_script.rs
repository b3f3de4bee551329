//! `UnicodeScript`: the number of the script that each code point belongs to.
//!
//! The table is that of TensorFlow's ICU; `tools/opsuite/unicode_scripts.py` writes it.

use std::sync::OnceLock;

use crate::prelude::*;

pub(super) const DEF: OpDef =
    OpDef::pure("UnicodeScript", RowRule::Mixed, |_| Ok(Box::new(UnicodeScript)));

/// The number of no script.
const INVALID: i32 = -1;

struct UnicodeScript;

impl Op for UnicodeScript {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [input] = arity(inputs)?;
        input.require_dtype(DType::I32)?;
        Ok(vec![input.with_dtype(DType::I32)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (input, mut output) = ctx.unary()?;
        let runs = runs();
        for (script, point) in output.as_mut_slice::<i32>().iter_mut().zip(input.as_slice::<i32>())
        {
            pace(16)?;
            *script = script_of(runs, *point);
        }
        Ok(())
    }
}

fn script_of(runs: &[(u32, i32)], point: i32) -> i32 {
    match u32::try_from(point) {
        Ok(point) if point <= u32::from(char::MAX) => {
            let behind = runs.partition_point(|(start, _)| *start <= point);
            runs[..behind].last().map_or(INVALID, |(_, script)| *script)
        }
        _ => INVALID,
    }
}

/// Returns the start of each run of code points of one script, and the script's number.
fn runs() -> &'static [(u32, i32)] {
    static RUNS: OnceLock<Vec<(u32, i32)>> = OnceLock::new();
    RUNS.get_or_init(|| {
        let parse = |line: &str| {
            let (start, script) = line.split_once(' ')?;
            Some((u32::from_str_radix(start, 16).ok()?, script.parse().ok()?))
        };
        include_str!("scripts.txt").lines().filter_map(parse).collect()
    })
}
