//! An address to listen on: of a port or of a UNIX socket.

use std::fmt;
use std::path::PathBuf;

use anyhow::{Result, ensure};

/// An address to listen on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// `HOST:PORT`
    Tcp(String),
    /// A path
    Unix(PathBuf),
}

impl Address {
    /// The name of the host, if it has one that clients may call it by.
    pub fn host(&self) -> Option<&str> {
        match self {
            Self::Tcp(address) => address.rsplit_once(':').map(|(host, _)| host),
            Self::Unix(_) => None,
        }
    }

    /// Reads `HOST:PORT`, a port of this machine alone, `unix:PATH` or an absolute path.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(Self::Unix(PathBuf::from(path)));
        }
        if text.starts_with('/') {
            return Ok(Self::Unix(PathBuf::from(text)));
        }
        let (host, port) = text.rsplit_once(':').unwrap_or(("", text));
        ensure!(
            port.parse::<u16>().is_ok(),
            "--management_address={text}: expected HOST:PORT, a port, unix:PATH, or off"
        );
        // Management is for this machine unless somebody says otherwise.
        let host = if host.is_empty() { "127.0.0.1" } else { host };
        Ok(Self::Tcp(format!("{host}:{port}")))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => f.write_str(address),
            Self::Unix(path) => write!(f, "UNIX socket {}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<&str>) {
        let found = Address::parse(text).ok().map(|address| address.to_string());
        assert_eq!(found.as_deref(), expected, "{text}");
    }

    #[test]
    fn an_address_is_a_port_or_a_socket() {
        check("0.0.0.0:8600", Some("0.0.0.0:8600"));
        check("[::1]:8600", Some("[::1]:8600"));
        check(":8600", Some("127.0.0.1:8600"));
        check("8600", Some("127.0.0.1:8600"));
        check("unix:/run/t.sock", Some("UNIX socket /run/t.sock"));
        check("/run/t.sock", Some("UNIX socket /run/t.sock"));
        check("localhost", None);
        check("host:99999", None);
        check("unix:", None);
    }
}
