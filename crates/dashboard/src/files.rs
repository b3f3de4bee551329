//! The files of the page, as they were when the program was compiled.

/// A file, and how it is sent.
#[derive(Debug)]
pub(crate) struct File {
    /// The path that it is served at.
    pub(crate) path: &'static str,
    pub(crate) content_type: &'static str,
    pub(crate) bytes: &'static [u8],
    /// Changes with the bytes, for browsers that have an older copy.
    pub(crate) tag: u64,
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// The document; every other file is loaded by it.
pub(crate) static DOCUMENT: File =
    file("/ui", HTML, include_bytes!("../web/index.html").as_slice());

/// The files that the document loads.
pub(crate) static PARTS: &[File] = &[
    file("/ui/style.css", CSS, include_bytes!("../web/style.css").as_slice()),
    file("/ui/layout.css", CSS, include_bytes!("../web/layout.css").as_slice()),
    file("/ui/icon.svg", SVG, include_bytes!("../web/icon.svg").as_slice()),
    file("/ui/app.js", SCRIPT, include_bytes!("../web/app.js").as_slice()),
    file("/ui/chart.js", SCRIPT, include_bytes!("../web/chart.js").as_slice()),
    file("/ui/devices.js", SCRIPT, include_bytes!("../web/devices.js").as_slice()),
    file("/ui/dom.js", SCRIPT, include_bytes!("../web/dom.js").as_slice()),
    file("/ui/explain.js", SCRIPT, include_bytes!("../web/explain.js").as_slice()),
    file("/ui/history.js", SCRIPT, include_bytes!("../web/history.js").as_slice()),
    file("/ui/metrics.js", SCRIPT, include_bytes!("../web/metrics.js").as_slice()),
    file("/ui/models.js", SCRIPT, include_bytes!("../web/models.js").as_slice()),
    file("/ui/pieces.js", SCRIPT, include_bytes!("../web/pieces.js").as_slice()),
    file("/ui/poll.js", SCRIPT, include_bytes!("../web/poll.js").as_slice()),
    file("/ui/sample.js", SCRIPT, include_bytes!("../web/sample.js").as_slice()),
    file("/ui/tip.js", SCRIPT, include_bytes!("../web/tip.js").as_slice()),
    file("/ui/traffic.js", SCRIPT, include_bytes!("../web/traffic.js").as_slice()),
    file("/ui/try.js", SCRIPT, include_bytes!("../web/try.js").as_slice()),
    file("/ui/units.js", SCRIPT, include_bytes!("../web/units.js").as_slice()),
];

const fn file(path: &'static str, content_type: &'static str, bytes: &'static [u8]) -> File {
    File { path, content_type, bytes, tag: digest(bytes) }
}

/// FNV-1a: the tag tells versions of a file apart, and protects nothing.
const fn digest(bytes: &[u8]) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    let mut at = 0;
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u64).wrapping_mul(0x0100_0000_01b3);
        at += 1;
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_folder_is_served_once() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("web");
        let mut there: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name != "index.html")
            .map(|name| format!("/ui/{name}"))
            .collect();
        let mut served: Vec<&str> = PARTS.iter().map(|file| file.path).collect();
        there.sort();
        served.sort_unstable();
        assert_eq!(served, there);
    }

    #[test]
    fn no_file_names_another_site_or_has_code_in_its_markup() {
        for file in PARTS.iter().chain([&DOCUMENT]) {
            let text = std::str::from_utf8(file.bytes).unwrap();
            let elsewhere = text.match_indices("://").filter(|(at, _)| {
                let rest = &text[*at..];
                !rest.starts_with("://www.w3.org/2000/svg") && !rest.starts_with("://${")
            });
            assert_eq!(elsewhere.count(), 0, "{}", file.path);
            for banned in
                ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("]
            {
                assert!(!text.contains(banned), "{banned} in {}", file.path);
            }
        }
        let document = std::str::from_utf8(DOCUMENT.bytes).unwrap();
        assert!(!document.contains(" style=") && !document.contains("<style"), "inline style");
        assert_eq!(document.matches("<script").count(), 1);
        assert_eq!(document.matches("</script>").count(), document.matches("></script>").count());
    }

    #[test]
    fn the_page_calls_nothing_that_changes_the_server() {
        for file in PARTS {
            let text = std::str::from_utf8(file.bytes).unwrap();
            let is_form = file.path == "/ui/try.js";
            let n_posts = usize::from(is_form);
            assert_eq!(text.matches("method:").count(), n_posts, "{}", file.path);
            assert_eq!(text.matches("method: 'POST'").count(), n_posts, "{}", file.path);
            for other in ["XMLHttpRequest", "sendBeacon", "WebSocket"] {
                assert!(!text.contains(other), "{other} in {}", file.path);
            }
        }
    }

    #[test]
    fn tags_follow_the_bytes() {
        assert_ne!(digest(b"a"), digest(b"b"));
        assert_eq!(digest(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(digest(b"a"), 0xaf63_dc4c_8601_ec8c);
    }
}
