//! `AskError`: the ways in which asking for a page fails.

use std::io;
use std::time::Duration;

use anyhow::anyhow;

use super::address::ServerAddress;

/// A question that got no page.
#[derive(Debug)]
pub(super) enum AskError {
    /// Nobody listens there.
    Unreachable(io::Error),
    /// The server accepts, and says nothing for so long.
    Silent(Duration),
    /// The server speaks something else.
    Foreign(String),
    /// Over TLS, the server speaks the protocol of its other face.
    OtherFace,
    /// The server does not speak TLS.
    NoTls,
    /// No TLS came about; the text says why and what to do.
    Untrusted(String),
    /// The server refuses.
    Answered { code: String, text: String, is_about_keys: bool },
}

impl AskError {
    /// Returns whether another protocol would be answered no better.
    pub(super) fn is_final(&self) -> bool {
        matches!(self, Self::Answered { is_about_keys: true, .. } | Self::Silent(_))
    }

    /// The error of asking at an address.
    pub(super) fn into_error(self, address: &ServerAddress) -> anyhow::Error {
        let at = address.authority();
        match self {
            Self::Unreachable(error) => {
                anyhow!("no server answers at {}: {error}", places(address))
            }
            Self::Silent(waited) => anyhow!("no server answers at {at} within {waited:?}"),
            Self::Foreign(why) => {
                anyhow!("no tensord answers at {at}, neither over REST nor over gRPC: {why}")
            }
            Self::OtherFace => address.advice("answers another protocol", &[address.other_face()]),
            Self::NoTls => address.advice("speaks no TLS", &[address.plain()]),
            Self::Untrusted(why) => anyhow!("{at} is not trusted: {why}"),
            Self::Answered { code, text, is_about_keys } => {
                let hint = if is_about_keys { " (--api_key or TENSORD_API_KEY)" } else { "" };
                anyhow!("{at} answers {code}: {text}{hint}")
            }
        }
    }
}

/// The places where a server was looked for: two if an address has neither scheme nor port.
fn places(address: &ServerAddress) -> String {
    use super::address::Scheme;
    let (rest, grpc) = (address.over(Scheme::Http), address.over(Scheme::Grpc));
    match address.scheme {
        None if rest.port() != grpc.port() => {
            format!("{} (REST) or {} (gRPC)", rest.authority(), grpc.authority())
        }
        _ => address.authority(),
    }
}
