//! `GET /v1/models/M?wait=WORD`: the states of a model as soon as they show a word.

use std::pin::pin;
use std::time::Duration;

use http::Method;
use lifecycle::Target;

use super::pages;
use crate::Models;
use status::Status;

/// The longest time that a reader waits; the page is then answered as it is.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// The path of a page without the word that its reader waits for, and that word: a state, such as
/// `AVAILABLE`, or the code of an error. Any other query is a part of the path, as in TensorFlow
/// Serving.
pub(super) fn split<'a>(method: &Method, path: &'a str) -> (&'a str, Option<&'a str>) {
    let is_word =
        |word: &str| !word.is_empty() && word.bytes().all(|c| c.is_ascii_uppercase() || c == b'_');
    match path.split_once("?wait=") {
        Some((page, word)) if *method == Method::GET && is_word(word) => (page, Some(word)),
        _ => (path, None),
    }
}

/// The states of a model's versions. If `word` is given, once they show it, else as they are after
/// `WAIT_MAX`. A model that is not there yet is waited for too.
pub(super) async fn status(
    models: &Models,
    target: &Target,
    word: Option<&str>,
) -> Result<Vec<u8>, Status> {
    let Some(word) = word else { return pages::status(models, target) };
    // A change after this line ends a wait, also one before the page is looked at.
    let mut changes = models.changes();
    let mut end = pin!(tokio::time::sleep(WAIT_MAX));
    loop {
        let page = pages::status(models, target);
        if page.as_ref().is_ok_and(|page| shows(page, word)) {
            return page;
        }
        tokio::select! {
            changed = changes.changed() => {
                if changed.is_err() {
                    return page; // Nothing changes any more.
                }
            }
            () = &mut end => return page,
        }
    }
}

/// Returns whether a page has the word as a value. Quotes within texts are escaped, so that no
/// message of an error is taken for one.
fn shows(page: &[u8], word: &str) -> bool {
    let value = format!("\"{word}\"");
    page.windows(value.len()).any(|found| found == value.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_word_is_waited_for() {
        let check =
            |path: &str, expected| assert_eq!(split(&Method::GET, path), expected, "{path}");
        check("/v1/models/m?wait=AVAILABLE", ("/v1/models/m", Some("AVAILABLE")));
        check("/v1/models/m?wait=", ("/v1/models/m?wait=", None));
        check("/v1/models/m?wait=1", ("/v1/models/m?wait=1", None));
        check("/v1/models/m?x=1", ("/v1/models/m?x=1", None));
        let posted = split(&Method::POST, "/v1/models/m?wait=END");
        assert_eq!(posted, ("/v1/models/m?wait=END", None));
    }

    #[test]
    fn a_word_in_a_message_is_no_state() {
        assert!(shows(br#"{"state": "END"}"#, "END"));
        assert!(!shows(br#"{"error_message": "the \"END\" of it"}"#, "END"));
        assert!(!shows(br#"{"error_message": "END of it"}"#, "END"));
    }
}
