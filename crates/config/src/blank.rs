//! Texts that say nothing.

/// Returns whether a text says nothing: it has only blanks and comments. A file that is being
/// replaced is often empty for a moment.
pub(crate) fn is_blank(text: &str) -> bool {
    text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_blanks_say_nothing() {
        for text in ["", "\n", "  \n\t\n", "# a comment", "# one\n\n  # two\n"] {
            assert!(is_blank(text), "{text:?}");
        }
        for text in ["model_config_list {}", "{}", "# a comment\nmodel_config_list {}"] {
            assert!(!is_blank(text), "{text:?}");
        }
    }
}
