//! The words of the command line before they are flags: what to drop, what to remark on.
//!
//! Under TensorFlow Serving's name an unknown flag is reported and the server starts all the same;
//! the program's own name and blanks among the words, as container files leave them, are dropped.

use std::collections::BTreeSet;

use anyhow::{Result, bail};

use crate::cli::Persona;
use crate::flags::{IGNORED, LATER, REFUSED};

/// The words that are left, and what a person should know of the others.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Typed {
    pub(crate) args: Vec<String>,
    pub(crate) remarks: Vec<String>,
}

/// Sorts the words of a command line. `known` are the names of the flags we have.
pub(crate) fn sort(persona: Persona, args: Vec<String>, known: &BTreeSet<String>) -> Result<Typed> {
    let mut typed = Typed::default();
    let mut words = args.into_iter();
    typed.args.extend(words.next());
    for word in words {
        let word = word.trim();
        let Some(flag) = word.strip_prefix("--") else {
            if !word.is_empty() && !is_own_name(word) {
                typed.args.push(word.to_owned());
            }
            continue;
        };
        let name = flag.split('=').next().unwrap_or_default();
        if REFUSED.contains(&name) {
            bail!("--{name} is not built in yet: without it connections would be in the clear");
        } else if let Some((_, why)) = IGNORED.iter().find(|row| row.0 == name) {
            typed.remarks.push(format!("--{name} has no effect here: {why}"));
        } else if LATER.contains(&name) {
            typed.remarks.push(format!("--{name} is not built in yet and has no effect"));
        } else if persona == Persona::TensorFlowModelServer && !known.contains(name) {
            typed.remarks.push(format!("unknown argument: --{flag}"));
        } else {
            typed.args.push(word.to_owned());
        }
    }
    Ok(typed)
}

fn is_own_name(word: &str) -> bool {
    ["tensorflow_model_server", "tensord"].contains(&word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(persona: Persona, args: &str, expected: &str, n_remarks: usize) {
        let args = args.split(',').map(str::to_owned).collect();
        let known = ["port".to_owned()].into();
        let typed = sort(persona, args, &known).unwrap();
        assert_eq!(typed.args.join(","), expected);
        assert_eq!(typed.remarks.len(), n_remarks, "{:?}", typed.remarks);
    }

    #[test]
    fn own_names_and_blanks_are_dropped() {
        let persona = Persona::TensorFlowModelServer;
        check(persona, "x,tensorflow_model_server,  ,  --port=1", "x,--port=1", 0);
    }

    #[test]
    fn unknown_flags_are_remarked_on_under_the_other_name_only() {
        check(Persona::TensorFlowModelServer, "x,--nonsense=1,--port=1", "x,--port=1", 1);
        check(Persona::Tensord, "x,--nonsense=1", "x,--nonsense=1", 0);
    }

    #[test]
    fn flags_without_effect_are_accepted_and_remarked_on() {
        check(Persona::Tensord, "x,--enable_profiler=true,--port=1", "x,--port=1", 1);
        check(Persona::Tensord, "x,--enable_batching", "x", 1);
    }

    #[test]
    fn what_would_weaken_security_is_refused() {
        let args = vec!["x".to_owned(), "--ssl_config_file=f".to_owned()];
        assert!(sort(Persona::Tensord, args, &BTreeSet::new()).is_err());
    }
}
