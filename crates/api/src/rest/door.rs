//! `Door`: which calls that change the server a REST face takes, so that no web page can make a
//! browser send one.
//!
//! A browser sends forms, text and bodies without a type to any address it is told, and a name
//! that a page was loaded from may be led to this machine later (DNS rebinding). It cannot leave
//! out `Origin`, nor send JSON elsewhere without asking first, nor load a page from an address
//! that its server does not have.

use std::net::IpAddr;

use http::header::{CONTENT_TYPE, HOST, ORIGIN};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use status::{Code, Status};

use super::reply::Failure;
use crate::listen::Peer;

/// The types of bodies that a change may have. A browser asks before it sends any of them.
const TYPES: [&str; 4] = [
    "application/json",
    "application/protobuf",
    "application/x-protobuf",
    "application/x-textproto",
];

/// The calls that a face takes.
#[derive(Debug, Clone)]
pub enum Door {
    /// Calls that change nothing. The text says where others are taken.
    Closed(String),
    /// All calls. Those that change something must name the host by an address, as `localhost`, or
    /// as one of these.
    Open(Vec<String>),
    /// All calls, each of which must name the host so.
    Management(Vec<String>),
}

impl Door {
    /// Refuses a call to a host that is not ours, where every call must name it.
    pub(super) fn check_call(&self, parts: &Parts, peer: Peer) -> Result<(), Failure> {
        match self {
            Self::Management(hosts) => check_host(parts, peer, hosts),
            Self::Closed(_) | Self::Open(_) => Ok(()),
        }
    }

    /// Refuses a change that is not taken here, or that a page of another site may have sent.
    /// No browser sends a key unless a page knows it, so `is_keyed` calls may name any host.
    pub(super) fn check_change(
        &self,
        parts: &Parts,
        peer: Peer,
        is_keyed: bool,
    ) -> Result<(), Failure> {
        let hosts = match self {
            Self::Closed(instead) => return Err(denied(instead.clone())),
            Self::Open(hosts) | Self::Management(hosts) => hosts,
        };
        if !is_keyed {
            check_host(parts, peer, hosts)?;
        }
        check_origin(parts)?;
        check_type(&parts.headers)
    }
}

/// Refuses a body that does not say what it is.
pub(super) fn check_untyped(headers: &HeaderMap, body: &[u8]) -> Result<(), Failure> {
    if body.is_empty() || headers.contains_key(CONTENT_TYPE) { Ok(()) } else { Err(wrong_type()) }
}

fn check_host(parts: &Parts, peer: Peer, hosts: &[String]) -> Result<(), Failure> {
    if matches!(peer, Peer::Unix { .. } | Peer::Unnamed) {
        return Ok(()); // No browser speaks to a UNIX socket.
    }
    let host = host(parts)?.unwrap_or_default();
    let authority: Option<Authority> = host.parse().ok().filter(|_| !host.contains('@'));
    let name = authority.as_ref().map_or("", Authority::host);
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    let is_listed = hosts.iter().any(|listed| listed.eq_ignore_ascii_case(name));
    if bare.parse::<IpAddr>().is_ok() || name.eq_ignore_ascii_case("localhost") || is_listed {
        return Ok(());
    }
    Err(denied(format!(
        "the host {host:?} is not this server's: call it by its address or as localhost, or start \
         it with --management_hosts={name}"
    )))
}

/// The host that a request is for. Refuses a request that names two: somebody before this server
/// may have looked at the other one.
fn host(parts: &Parts) -> Result<Option<&str>, Failure> {
    let header = only(&parts.headers, &HOST)?.and_then(|host| host.to_str().ok());
    match (parts.uri.authority().map(Authority::as_str), header) {
        (Some(one), Some(other)) if !one.eq_ignore_ascii_case(other) => {
            Err(denied(format!("the request is for two hosts, {one:?} and {other:?}")))
        }
        (authority, header) => Ok(authority.or(header)),
    }
}

/// The value of a header. Refuses a request that has several of it.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a HeaderValue>, Failure> {
    let mut values = headers.get_all(name).iter();
    let first = values.next();
    if values.next().is_some() {
        let text = format!("the request has more than one header {name}");
        return Err(Failure::new(StatusCode::BAD_REQUEST, text));
    }
    Ok(first)
}

/// Refuses a request that a page of another site sent.
fn check_origin(parts: &Parts) -> Result<(), Failure> {
    let Some(origin) = only(&parts.headers, &ORIGIN)? else { return Ok(()) };
    let origin = origin.to_str().unwrap_or("null");
    let from = origin.split_once("://").map(|(_, host)| host);
    if from.is_some()
        && from.map(str::to_ascii_lowercase) == host(parts)?.map(str::to_ascii_lowercase)
    {
        return Ok(());
    }
    Err(denied(format!("a page of {origin} may not change this server")))
}

fn check_type(headers: &HeaderMap) -> Result<(), Failure> {
    let Some(value) = only(headers, &CONTENT_TYPE)? else { return Ok(()) };
    let value = value.to_str().unwrap_or_default();
    let essence = value.split(';').next().unwrap_or_default().trim();
    let is_fine = TYPES.iter().any(|known| essence.eq_ignore_ascii_case(known));
    if is_fine { Ok(()) } else { Err(wrong_type()) }
}

fn wrong_type() -> Failure {
    let text = "calls that change the server take no forms and no text: send Content-Type: \
                application/json";
    Failure::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, text)
}

fn denied(text: String) -> Failure {
    Status::new(Code::PermissionDenied, text).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: Peer =
        Peer::Tcp(std::net::SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 1));

    fn parts(headers: &[(&str, &str)]) -> Parts {
        let mut request = http::Request::put("/v1/devices");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[track_caller]
    fn check(headers: &[(&str, &str)], expected: u16) {
        let door = Door::Management(vec!["models.example".to_owned()]);
        let parts = parts(headers);
        let verdict =
            door.check_call(&parts, PEER).and_then(|()| door.check_change(&parts, PEER, false));
        let code = verdict.map_or_else(|failure| failure.code.as_u16(), |()| 200);
        assert_eq!(code, expected, "{headers:?}");
    }

    #[test]
    fn the_host_must_be_ours() {
        for ours in [
            "localhost",
            "LOCALHOST:8502",
            "127.0.0.1:8502",
            "[::1]:8502",
            "10.1.2.3",
            "[fe80::1]",
            "models.example:1",
        ] {
            check(&[("host", ours)], 200);
        }
        for other in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example:8502",
            "",
            "a b",
            "[::1",
            "evil.example@127.0.0.1",
        ] {
            check(&[("host", other)], 403);
        }
        check(&[], 403);
    }

    #[test]
    fn a_page_of_another_site_changes_nothing() {
        let host = ("host", "localhost:8502");
        check(&[host, ("origin", "http://localhost:8502")], 200);
        check(&[host, ("origin", "http://LocalHost:8502")], 200);
        for origin in ["http://evil.example", "http://localhost:80", "http://localhost", "null", ""]
        {
            check(&[host, ("origin", origin)], 403);
        }
    }

    #[test]
    fn a_change_is_no_form_and_no_text() {
        let host = ("host", "localhost:8502");
        check(&[host, ("content-type", "application/json")], 200);
        check(&[host, ("content-type", "Application/JSON; charset=utf-8")], 200);
        check(&[host, ("content-type", "application/x-protobuf")], 200);
        for kind in [
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=x",
            "text/plain",
            "text/plain; application/json",
            "",
        ] {
            check(&[host, ("content-type", kind)], 415);
        }
        assert!(check_untyped(&HeaderMap::new(), b"").is_ok());
        assert!(check_untyped(&HeaderMap::new(), b"{}").is_err());
    }

    #[test]
    fn a_request_that_says_two_things_is_refused() {
        let (host, other) = (("host", "localhost:8502"), ("host", "evil.example"));
        check(&[host, other], 400);
        check(&[host, host], 400);
        let (origin, foreign) =
            (("origin", "http://localhost:8502"), ("origin", "http://evil.example"));
        check(&[host, origin, foreign], 400);
        let json = ("content-type", "application/json");
        check(&[host, json, ("content-type", "text/plain")], 400);
        let door = Door::Management(Vec::new());
        let check_uri = |uri: &str, expected: bool| {
            let mut parts = parts(&[host]);
            parts.uri = uri.parse().unwrap();
            assert_eq!(door.check_call(&parts, PEER).is_ok(), expected, "{uri}");
        };
        check_uri("http://LocalHost:8502/v1/devices", true);
        check_uri("http://127.0.0.1:8502/v1/devices", false);
        check_uri("http://evil.example/v1/devices", false);
    }

    #[test]
    fn a_closed_door_says_where_the_other_one_is() {
        let door = Door::Closed("elsewhere".to_owned());
        let parts = parts(&[("host", "evil.example")]);
        door.check_call(&parts, PEER).unwrap();
        let refused = door.check_change(&parts, PEER, true).unwrap_err();
        assert_eq!((refused.code.as_u16(), &*refused.status.message), (403, "elsewhere"));
    }

    #[test]
    fn a_unix_socket_and_a_key_may_name_any_host() {
        let (door, parts) = (Door::Management(Vec::new()), parts(&[("host", "x")]));
        door.check_call(&parts, Peer::Unnamed).unwrap();
        door.check_change(&parts, Peer::Unnamed, false).unwrap();
        Door::Open(Vec::new()).check_change(&parts, PEER, true).unwrap();
        Door::Open(Vec::new()).check_change(&parts, PEER, false).unwrap_err();
    }
}
