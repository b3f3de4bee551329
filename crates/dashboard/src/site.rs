//! `Site`: the answer to a browser that asks for a file of the page.

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, ETAG, IF_NONE_MATCH, LOCATION};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};

use crate::files::{DOCUMENT, File, PARTS};

/// Scripts and styles are the page's own files, data come from the server alone, and no script can
/// turn text into markup.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
                      connect-src 'self'; img-src 'self' data:; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";

/// Headers of every answer.
const HEADERS: &[(&str, &str)] = &[
    ("content-security-policy", POLICY),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    // A browser keeps its copy, and asks each time whether it is still the one.
    ("cache-control", "no-cache"),
];

/// The paths of the document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Home {
    /// `/` and `/ui`.
    Root,
    /// `/ui` alone, where `/` is another program's to answer.
    Ui,
}

/// The files of the page, ready to be sent.
#[derive(Debug, Clone, Copy)]
pub struct Site {
    home: Home,
}

impl Site {
    /// The page at these paths.
    pub fn new(home: Home) -> Self {
        Self { home }
    }

    /// The answer to a request for a file of the page; `None` if the request is about something
    /// else. Copies nothing.
    pub fn reply(&self, parts: &Parts) -> Option<Response<Bytes>> {
        let path = parts.uri.path();
        if path == "/ui/" {
            // Relative addresses of the document start at its parent. So does this one.
            return is_look(&parts.method).then(|| moved("../ui"));
        }
        let file = self.find(path)?;
        if is_look(&parts.method) {
            return Some(sent(file, &parts.headers));
        }
        // The root belongs to others, but for who looks at it.
        (path != "/").then(not_allowed)
    }

    fn find(&self, path: &str) -> Option<&'static File> {
        let is_document = path == DOCUMENT.path || (path == "/" && self.home == Home::Root);
        if is_document {
            return Some(&DOCUMENT);
        }
        PARTS.iter().find(|file| file.path == path)
    }
}

fn is_look(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

/// A file, or the word that the browser's copy is still right.
fn sent(file: &'static File, asked: &HeaderMap) -> Response<Bytes> {
    let tag = format!("\"{:016x}\"", file.tag);
    let is_known = asked.get_all(IF_NONE_MATCH).iter().any(|known| names(known, &tag));
    let (code, body) = match is_known {
        true => (StatusCode::NOT_MODIFIED, Bytes::new()),
        false => (StatusCode::OK, Bytes::from_static(file.bytes)),
    };
    let mut reply = reply(code, body);
    let tag = HeaderValue::from_str(&tag).expect("quotes and hexadecimal digits are ASCII");
    reply.headers_mut().insert(ETAG, tag);
    if !is_known {
        let content_type = HeaderValue::from_static(file.content_type);
        reply.headers_mut().insert(CONTENT_TYPE, content_type);
    }
    reply
}

/// True if a list of tags names one; proxies that compress call a tag weak.
fn names(list: &HeaderValue, tag: &str) -> bool {
    let tags = list.to_str().unwrap_or_default().split(',');
    tags.map(|one| one.trim().trim_start_matches("W/")).any(|one| one == tag || one == "*")
}

fn moved(to: &'static str) -> Response<Bytes> {
    let mut reply = reply(StatusCode::PERMANENT_REDIRECT, Bytes::new());
    reply.headers_mut().insert(LOCATION, HeaderValue::from_static(to));
    reply
}

fn not_allowed() -> Response<Bytes> {
    let mut reply = reply(StatusCode::METHOD_NOT_ALLOWED, Bytes::new());
    reply.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    reply
}

fn reply(code: StatusCode, body: Bytes) -> Response<Bytes> {
    let mut reply = Response::new(body);
    *reply.status_mut() = code;
    for (name, value) in HEADERS {
        let name = HeaderName::from_static(name);
        reply.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(home: Home, method: &str, path: &str, tag: Option<&str>) -> Option<Response<Bytes>> {
        let mut request = http::Request::builder().method(method).uri(path);
        if let Some(tag) = tag {
            request = request.header(IF_NONE_MATCH, tag);
        }
        Site::new(home).reply(&request.body(()).unwrap().into_parts().0)
    }

    #[track_caller]
    fn check(home: Home, method: &str, path: &str, expected: Option<u16>) {
        let code = ask(home, method, path, None).map(|reply| reply.status().as_u16());
        assert_eq!(code, expected, "{home:?} {method} {path}");
    }

    #[test]
    fn the_root_is_the_page_under_one_name_only() {
        for (home, root) in [(Home::Root, Some(200)), (Home::Ui, None)] {
            check(home, "GET", "/", root);
            check(home, "HEAD", "/", root);
            check(home, "GET", "/ui", Some(200));
            check(home, "GET", "/ui?x=1", Some(200));
            check(home, "GET", "/ui/", Some(308));
            check(home, "GET", "/ui/app.js", Some(200));
            check(home, "GET", "/ui/nothing.js", None);
            check(home, "GET", "/ui/../ui/app.js", None);
            check(home, "GET", "/v1/models", None);
            check(home, "POST", "/", None);
            check(home, "POST", "/ui", Some(405));
        }
    }

    #[test]
    fn files_say_what_they_are_and_what_they_may_do() {
        for (path, content_type) in [
            ("/", "text/html; charset=utf-8"),
            ("/ui/style.css", "text/css; charset=utf-8"),
            ("/ui/app.js", "text/javascript; charset=utf-8"),
            ("/ui/icon.svg", "image/svg+xml"),
        ] {
            let reply = ask(Home::Root, "GET", path, None).unwrap();
            let headers = reply.headers();
            assert_eq!(headers[CONTENT_TYPE], content_type);
            assert!(
                headers["content-security-policy"].to_str().unwrap().starts_with("default-src")
            );
            assert_eq!(headers["x-content-type-options"], "nosniff");
            assert_eq!(headers["referrer-policy"], "no-referrer");
            assert!(!reply.body().is_empty());
        }
    }

    #[test]
    fn a_copy_that_is_still_right_is_not_sent_again() {
        let tag = ask(Home::Root, "GET", "/", None).unwrap().headers()[ETAG].clone();
        let tag = tag.to_str().unwrap();
        for (known, expected) in [
            (tag.to_owned(), 304),
            (format!("\"x\", W/{tag}"), 304),
            ("*".to_owned(), 304),
            ("\"x\"".to_owned(), 200),
        ] {
            let reply = ask(Home::Root, "GET", "/", Some(&known)).unwrap();
            assert_eq!(reply.status().as_u16(), expected, "{known}");
            assert_eq!(reply.body().is_empty(), expected == 304);
        }
    }
}
