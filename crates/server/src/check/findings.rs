//! `Finding`: the outcome of one check.

/// The outcome of a check, and how to mend it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The thing that was checked.
    pub about: String,
    /// The gravity of the outcome.
    pub verdict: Verdict,
    /// The outcome in words.
    pub text: String,
    /// The remedy; empty if nothing is to be done.
    pub remedy: String,
}

/// The gravity of an outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// All is well.
    Ok,
    /// A server starts, but something may not be as wanted.
    Warning,
    /// A server does not start, or not all of its models are served.
    Problem,
}

impl Verdict {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

impl Finding {
    pub(super) fn ok(about: impl Into<String>, text: impl Into<String>) -> Self {
        let (about, text) = (about.into(), text.into());
        Self { about, verdict: Verdict::Ok, text, remedy: String::new() }
    }

    pub(super) fn warning(about: impl Into<String>, text: impl Into<String>) -> Self {
        Self { verdict: Verdict::Warning, ..Self::ok(about, text) }
    }

    pub(super) fn problem(about: impl Into<String>, text: impl Into<String>) -> Self {
        Self { verdict: Verdict::Problem, ..Self::ok(about, text) }
    }

    /// The same finding with what to do about it.
    pub(super) fn mended_by(self, remedy: impl Into<String>) -> Self {
        Self { remedy: remedy.into(), ..self }
    }

    /// The finding as a line of text.
    pub fn line(&self) -> String {
        let remedy =
            if self.remedy.is_empty() { String::new() } else { format!("; {}", self.remedy) };
        format!("{:<7}  {}: {}{remedy}", self.verdict.name(), self.about, self.text)
    }
}
