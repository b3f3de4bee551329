//! `Persona`: under which name the program runs.

/// Under which name the program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Persona {
    /// Our own, with our own defaults.
    Tensord,
    /// TensorFlow Serving's, with its command line and its defaults.
    TensorFlowModelServer,
}

/// The name of TensorFlow Serving's program.
const TENSORFLOW_MODEL_SERVER: &str = "tensorflow_model_server";

impl Persona {
    /// The persona that a program started as `program`, a name or a path, has.
    pub fn of(program: &str) -> Self {
        match program.rsplit('/').next() {
            Some(TENSORFLOW_MODEL_SERVER) => Self::TensorFlowModelServer,
            Some(_) | None => Self::Tensord,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_the_program_decides() {
        let check = |program, expected| assert_eq!(Persona::of(program), expected, "{program}");
        check("tensord", Persona::Tensord);
        check("/usr/bin/tensord", Persona::Tensord);
        check("", Persona::Tensord);
        check("/opt/tensorflow_model_server/tensord", Persona::Tensord);
        check("tensorflow_model_server", Persona::TensorFlowModelServer);
        check("/usr/bin/tensorflow_model_server", Persona::TensorFlowModelServer);
    }
}
