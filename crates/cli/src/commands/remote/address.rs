//! `ServerAddress`: where a server is asked, and over which protocol.

use anyhow::{Context as _, Result, bail};

/// The protocols that a server may be asked over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scheme {
    Http,
    Https,
    Grpc,
    Grpcs,
}

impl Scheme {
    const ALL: [Self; 4] = [Self::Http, Self::Https, Self::Grpc, Self::Grpcs];

    /// The word before `://`.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
            Self::Grpc => "grpc",
            Self::Grpcs => "grpcs",
        }
    }

    /// The port that a server has unless it is told another.
    fn port(self) -> u16 {
        match self {
            Self::Http | Self::Https => 8501,
            Self::Grpc | Self::Grpcs => 8500,
        }
    }
}

/// An address. Without a scheme, both faces are tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ServerAddress {
    pub(super) scheme: Option<Scheme>,
    host: String,
    port: Option<u16>,
}

impl ServerAddress {
    /// Reads `[SCHEME://]HOST[:PORT]`.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let (scheme, rest) = match text.split_once("://") {
            None => (None, text),
            Some((word, rest)) => {
                let scheme = Scheme::ALL.into_iter().find(|scheme| scheme.word() == word);
                let Some(scheme) = scheme else {
                    bail!("{text}: {word} cannot be asked; write http, https, grpc or grpcs");
                };
                (Some(scheme), rest)
            }
        };
        let rest = rest.trim_end_matches('/');
        let authority: http::uri::Authority = rest
            .parse()
            .with_context(|| format!("{text} is no address: write HOST:PORT, as localhost:8501"))?;
        let has_port = rest.rsplit(']').next().is_some_and(|tail| tail.contains(':'));
        let port = authority.port_u16();
        if (has_port && port.is_none()) || authority.host().is_empty() || rest.contains('@') {
            bail!("{text} is no address: write HOST:PORT, as localhost:8501");
        }
        Ok(Self { scheme, host: authority.host().to_owned(), port })
    }

    /// The same place over a scheme.
    pub(super) fn over(&self, scheme: Scheme) -> Self {
        Self { scheme: Some(scheme), ..self.clone() }
    }

    /// The host, without the brackets of an IPv6 address.
    pub(super) fn host(&self) -> &str {
        self.host.trim_start_matches('[').trim_end_matches(']')
    }

    pub(super) fn port(&self) -> u16 {
        self.port.unwrap_or_else(|| self.scheme.unwrap_or(Scheme::Http).port())
    }

    /// `HOST:PORT`.
    pub(super) fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port())
    }

    pub(super) fn is_grpc(&self) -> bool {
        matches!(self.scheme, Some(Scheme::Grpc | Scheme::Grpcs))
    }

    pub(super) fn is_tls(&self) -> bool {
        matches!(self.scheme, Some(Scheme::Https | Scheme::Grpcs))
    }

    /// The scheme of the other face, over TLS as this one.
    pub(super) fn other_face(&self) -> Scheme {
        match (self.is_grpc(), self.is_tls()) {
            (true, true) => Scheme::Https,
            (true, false) => Scheme::Http,
            (false, true) => Scheme::Grpcs,
            (false, false) => Scheme::Grpc,
        }
    }

    /// The scheme of this face over TLS.
    pub(super) fn secured(&self) -> Scheme {
        if self.is_grpc() { Scheme::Grpcs } else { Scheme::Https }
    }

    /// The scheme of this face without TLS.
    pub(super) fn plain(&self) -> Scheme {
        if self.is_grpc() { Scheme::Grpc } else { Scheme::Http }
    }

    /// An error that says what the address does, and under which schemes it answers.
    pub(super) fn advice(&self, does: &str, schemes: &[Scheme]) -> anyhow::Error {
        let authority = self.authority();
        let link = |scheme: &Scheme| format!("{}://{authority}", scheme.word());
        let links: Vec<String> = schemes.iter().map(link).collect();
        anyhow::anyhow!("{authority} {does}: write {}", links.join(" or "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let shown = match ServerAddress::parse(text) {
            Err(error) => format!("{error:#}"),
            Ok(address) => {
                let scheme = address.scheme.map_or("any", Scheme::word);
                format!("{scheme} {} {}", address.host(), address.port())
            }
        };
        assert!(shown.starts_with(expected), "{text}: {shown}");
    }

    #[test]
    fn an_address_may_have_a_scheme_and_a_port() {
        check("localhost", "any localhost 8501");
        check("localhost:80", "any localhost 80");
        check("http://a.b:1/", "http a.b 1");
        check("https://[::1]", "https ::1 8501");
        check("grpc://host", "grpc host 8500");
        check("grpcs://10.0.0.1:443", "grpcs 10.0.0.1 443");
    }

    #[test]
    fn an_address_that_makes_no_sense_is_refused() {
        check("ftp://x", "ftp://x: ftp cannot be asked; write http");
        for text in ["", ":80", "http://", "a:x", "a:99999", "a/b", "user@host"] {
            check(text, &format!("{text} is no address: write HOST:PORT"));
        }
    }
}
