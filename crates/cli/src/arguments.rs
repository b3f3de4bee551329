//! The words of the command line before they are flags: what to drop, what to remark on.
//!
//! Under TensorFlow Serving's name an unknown flag is reported and the server starts all the same;
//! the program's own name and blanks among the words, as container files leave them, are dropped.

use std::collections::BTreeMap;

use config::Persona;
use config::flags::IGNORED;

/// The words that are left, and what a person should know of the others.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Typed {
    pub(crate) args: Vec<String>,
    pub(crate) remarks: Vec<String>,
}

/// The value that a flag takes: the word after it, or only the text after its `=`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Takes {
    NextWord,
    OwnWord,
}

/// The flags that we have.
pub(crate) type Known = BTreeMap<String, Takes>;

/// The words with hyphens in the names of flags as the underscores that they stand for. Values,
/// words after `--` and flags that there are not stay as they were typed.
pub(crate) fn underscored(args: Vec<String>, known: &Known) -> Vec<String> {
    let is_known = |name: &str| known.contains_key(name) || IGNORED.iter().any(|row| row.0 == name);
    let mut is_over = false;
    let mut underscored = Vec::new();
    for word in args {
        is_over |= word == "--";
        let flag = word.strip_prefix("--").filter(|_| !is_over).unwrap_or_default();
        let (name, value) = flag.split_at(flag.find('=').unwrap_or(flag.len()));
        let spelt = name.replace('-', "_");
        let is_other = spelt != name && !is_known(name) && is_known(&spelt);
        underscored.push(if is_other { format!("--{spelt}{value}") } else { word });
    }
    underscored
}

/// Sorts the words of a command line.
pub(crate) fn sort(persona: Persona, args: Vec<String>, known: &Known) -> Typed {
    let mut typed = Typed::default();
    let mut words = args.into_iter();
    typed.args.extend(words.next());
    let mut is_value = false;
    for word in words {
        let word = word.trim();
        if std::mem::take(&mut is_value) {
            typed.args.push(word.to_owned());
            continue;
        }
        let Some(flag) = word.strip_prefix("--") else {
            typed.take_word(persona, word);
            continue;
        };
        let (name, value) = flag.split_once('=').map_or((flag, None), |(n, v)| (n, Some(v)));
        let takes = known.get(name);
        if let Some((_, why)) = IGNORED.iter().find(|row| row.0 == name) {
            typed.remark(format!("--{name} has no effect here: {why}"));
        } else if persona == Persona::TensorFlowModelServer && takes.is_none() {
            typed.remark(format!("unknown argument: --{flag}"));
        } else {
            is_value = value.is_none() && takes == Some(&Takes::NextWord);
            typed.args.push(word.to_owned());
        }
    }
    typed
}

impl Typed {
    /// Takes a word that is no flag and no flag's value. TensorFlow Serving has no use for any.
    fn take_word(&mut self, persona: Persona, word: &str) {
        if word.is_empty() || is_own_name(word) {
            return;
        }
        let is_short_flag = word.starts_with('-');
        match persona {
            Persona::TensorFlowModelServer if !is_short_flag => {
                self.remark(format!("unknown argument: {word}"));
            }
            Persona::TensorFlowModelServer | Persona::Tensord => self.args.push(word.to_owned()),
        }
    }

    /// Says something once.
    fn remark(&mut self, text: String) {
        if !self.remarks.contains(&text) {
            self.remarks.push(text);
        }
    }
}

/// Returns whether a word is the name of this program.
pub(crate) fn is_own_name(word: &str) -> bool {
    let name = word.rsplit('/').next().unwrap_or_default();
    // A folder of models may be called as we are; a path that ends so is the program.
    ["tensorflow_model_server", "tensord"].contains(&word)
        || (name == "tensorflow_model_server" && word.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(persona: Persona, args: &str, expected: &str, n_remarks: usize) {
        let args = args.split(',').map(str::to_owned).collect();
        let known = [("port", Takes::NextWord), ("enable_x", Takes::OwnWord)];
        let known = known.map(|(name, takes)| (name.to_owned(), takes)).into();
        let typed = sort(persona, args, &known);
        assert_eq!(typed.args.join(","), expected);
        assert_eq!(typed.remarks.len(), n_remarks, "{:?}", typed.remarks);
    }

    #[test]
    fn own_names_and_blanks_are_dropped() {
        let persona = Persona::TensorFlowModelServer;
        check(persona, "x,tensorflow_model_server,  ,  --port=1", "x,--port=1", 0);
        check(persona, "x,/usr/bin/tensorflow_model_server,--port,1", "x,--port,1", 0);
        check(Persona::Tensord, "x,tensord,models", "x,models", 0);
    }

    #[test]
    fn hyphens_in_flags_are_underscores() {
        let check = |args: &str, expected: &str| {
            let known =
                ["enable_x", "top-k", "grpc_port"].map(|name| (name.to_owned(), Takes::OwnWord));
            let args = args.split(',').map(str::to_owned).collect();
            assert_eq!(underscored(args, &known.into()).join(","), expected);
        };
        check("x,--enable-x", "x,--enable_x");
        check("x,--grpc-port=a-b,c-d", "x,--grpc_port=a-b,c-d");
        check("x,--skip-initialize-tpu", "x,--skip_initialize_tpu");
        check("x,--top-k,--no-flag,-a-b", "x,--top-k,--no-flag,-a-b");
        check("x,--,--enable-x", "x,--,--enable-x");
    }

    #[test]
    fn unknown_flags_are_remarked_on_under_the_other_name_only() {
        check(Persona::TensorFlowModelServer, "x,--nonsense=1,--port=1", "x,--port=1", 1);
        check(Persona::TensorFlowModelServer, "x,--nonsense,1,--port=1", "x,--port=1", 2);
        check(Persona::TensorFlowModelServer, "x,--enable_x,true", "x,--enable_x", 1);
        check(Persona::Tensord, "x,--nonsense=1", "x,--nonsense=1", 0);
    }

    #[test]
    fn flags_without_effect_are_accepted_and_remarked_on_once() {
        check(Persona::Tensord, "x,--skip_initialize_tpu=true,--port=1", "x,--port=1", 1);
        check(Persona::Tensord, "x,--skip_initialize_tpu,--skip_initialize_tpu", "x", 1);
    }
}
