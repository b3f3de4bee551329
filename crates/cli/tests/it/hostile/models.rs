//! Hostile models: graphs that take any amount of memory from one small number
//! (`tools/fixtures/hostile.py`).

use crate::support::Server;

/// The sizes that each graph is asked for: a little, then far beyond the limit, and nonsense.
const SIZES: [&str; 5] = ["3", "2000000", "1000000000", "2147483647", "-1"];

/// The signatures of `giants`, and the first of the sizes that cannot be answered.
const SIGNATURES: &[(&str, usize)] = &[
    ("fill", 1),
    ("tile", 1),
    ("broadcast", 1),
    ("gather", 1),
    ("join", 1),
    ("pad", 2),
    ("segment_sum", 2),
    ("one_hot", 2),
    ("eye", 1),
    ("outer", 1),
    ("resize", 1),
    ("sequence", 2),
    ("normal", 2),
    ("accumulate", 1),
    ("double", 1),
    ("split", 1),
    ("format_all", 1),
];

pub(super) fn giant_results(server: &Server) {
    for (signature, first_refused) in SIGNATURES {
        for (number, size) in SIZES.iter().enumerate() {
            let body = format!("{{\"signature_name\": \"{signature}\", \"inputs\": {size}}}");
            let (code, text) = server.rest("POST", "/v1/models/giants:predict", &body);
            let shown = &text[..text.len().min(300)];
            let is_refused = matches!(code, 400 | 429 | 504);
            let may_be_answered = number < *first_refused || *size == "-1";
            assert!(
                is_refused || code == 200 && may_be_answered,
                "{signature} of {size}: {code} {shown}"
            );
        }
        let body = format!("{{\"signature_name\": \"{signature}\", \"inputs\": 3}}");
        let (code, text) = server.rest("POST", "/v1/models/giants:predict", &body);
        assert_eq!(code, 200, "{signature} afterwards: {text}");
    }
}

pub(super) fn giant_constant(server: &Server) {
    let (code, text) = server.rest("GET", "/v1/models/giant_const", "");
    assert!(code == 200 && !text.contains("AVAILABLE"), "{code} {text}");
    assert!(text.contains("RESOURCE_EXHAUSTED"), "{text}");
}
