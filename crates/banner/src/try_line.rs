//! `Entrance`: the address that requests are sent to, and the lines that send them.

use std::fmt::Write as _;
use std::net::SocketAddr;

/// The longest body that stands in the line itself.
const BODY_CHARS_MAX: usize = 300;

/// The address of REST, and what a caller has to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entrance {
    pub(super) address: SocketAddr,
    pub(super) tls: Encryption,
    pub(super) keys: Keys,
}

/// The encryption of the way in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encryption {
    None,
    /// The server shows a certificate.
    Server,
    /// Clients show one too.
    Mutual,
}

/// The keys that callers need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keys {
    None,
    Needed,
}

impl Entrance {
    /// The beginning of all URLs, as one calls it on this machine.
    pub(super) fn base(&self) -> String {
        let scheme = if self.tls == Encryption::None { "http" } else { "https" };
        format!("{scheme}://{}", near(self.address))
    }

    /// The line that sends a body to a model. One that is long is put in a file by `save`, which
    /// gives the file's path; without a file there is no line.
    pub(super) fn line(
        &self,
        model: &str,
        body: &str,
        save: impl FnOnce(&str) -> Option<String>,
    ) -> Option<String> {
        let mut line = "curl".to_owned();
        if self.address.is_ipv6() && !self.address.ip().is_unspecified() {
            line += " -g";
        }
        match self.tls {
            Encryption::None => {}
            Encryption::Server => line += " -k",
            Encryption::Mutual => line += " -k --cert CLIENT.pem --key CLIENT.key",
        }
        if self.keys == Keys::Needed {
            line += " -H \"Authorization: Bearer $TENSORD_KEY\"";
        }
        let text = match body.len() > BODY_CHARS_MAX {
            true => format!("@{}", save(body)?),
            false => body.to_owned(),
        };
        let url = format!("{}/v1/models/{}:predict", self.base(), encoded(model));
        let _ = write!(line, " -d {} {}", quoted(&text), bare(&url));
        Some(line)
    }

    /// Remarks that explain what the lines have beside body and URL.
    pub(super) fn remarks(&self) -> Vec<&'static str> {
        let mut remarks = Vec::new();
        if self.tls != Encryption::None {
            remarks.push("-k takes any certificate of the server; --cacert FILE checks it");
        }
        if self.tls == Encryption::Mutual {
            remarks.push("CLIENT.pem and CLIENT.key are a certificate that custom_ca has signed");
        }
        if self.keys == Keys::Needed {
            remarks.push("TENSORD_KEY is to be one of the keys in --api_keys_file");
        }
        remarks
    }
}

/// The address as one calls it on this machine.
pub(super) fn near(address: SocketAddr) -> String {
    match address.ip().is_unspecified() {
        true => format!("localhost:{}", address.port()),
        false => address.to_string(),
    }
}

/// A name as a part of a URL's path, and of a file's name.
pub(super) fn encoded(name: &str) -> String {
    let mut text = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

/// A text as a shell takes it for one word, as it stands.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// The same, without quotes where no shell needs them.
fn bare(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.~/:%@".contains(c);
    if text.chars().all(is_plain) { text.to_owned() } else { quoted(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entrance(address: &str, tls: Encryption, keys: Keys) -> Entrance {
        Entrance { address: address.parse().unwrap(), tls, keys }
    }

    #[track_caller]
    fn check(entrance: &Entrance, model: &str, expected: &str) {
        let line = entrance.line(model, r#"{"inputs": "it's"}"#, |_| None);
        assert_eq!(line.as_deref(), Some(expected));
    }

    #[test]
    fn a_line_has_the_scheme_the_address_and_the_name_of_its_model() {
        let (no_tls, no_keys) = (Encryption::None, Keys::None);
        let body = r#"'{"inputs": "it'\''s"}'"#;
        let plain = entrance("[::]:8501", no_tls, no_keys);
        check(&plain, "m", &format!("curl -d {body} http://localhost:8501/v1/models/m:predict"));
        let path = "http://localhost:8501/v1/models/a%20b%2Fc:predict";
        check(&plain, "a b/c", &format!("curl -d {body} {path}"));
        let v4 = entrance("10.0.0.1:80", no_tls, no_keys);
        check(&v4, "m", &format!("curl -d {body} http://10.0.0.1:80/v1/models/m:predict"));
        let v6 = entrance("[::1]:80", no_tls, no_keys);
        check(&v6, "m", &format!("curl -g -d {body} 'http://[::1]:80/v1/models/m:predict'"));
    }

    #[test]
    fn a_line_shows_what_the_server_wants_to_see() {
        let url = "https://localhost:1/v1/models/m:predict";
        let body = r#"'{"inputs": "it'\''s"}'"#;
        let tls = entrance("0.0.0.0:1", Encryption::Server, Keys::None);
        check(&tls, "m", &format!("curl -k -d {body} {url}"));
        assert!(tls.remarks()[0].contains("--cacert"));
        let mutual = entrance("0.0.0.0:1", Encryption::Mutual, Keys::Needed);
        let shown = "--cert CLIENT.pem --key CLIENT.key -H \"Authorization: Bearer $TENSORD_KEY\"";
        check(&mutual, "m", &format!("curl -k {shown} -d {body} {url}"));
        assert_eq!(mutual.remarks().len(), 3);
    }

    #[test]
    fn a_long_body_is_named_by_its_file() {
        let plain = entrance("[::]:8501", Encryption::None, Keys::None);
        let long = "1".repeat(BODY_CHARS_MAX + 1);
        let line = plain.line("m", &long, |body| {
            assert_eq!(body, long);
            Some("/tmp/it's/m.json".to_owned())
        });
        let expected = r"curl -d '@/tmp/it'\''s/m.json' http://localhost:8501/v1/models/m:predict";
        assert_eq!(line.as_deref(), Some(expected));
        assert_eq!(plain.line("m", &long, |_| None), None);
    }
}
