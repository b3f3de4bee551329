//! `Access`: the API keys of a server, and the right that each call needs.
//!
//! Both faces ask here before they do anything, and the decision is one pure function: keys, the
//! key that was presented, the call and the time in; an admission or a refusal out. A server
//! without keys has no `Access`, and asks nothing.

mod action;
mod digest;

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::ArcSwap;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use status::{Code, Status};

pub(crate) use action::{Action, Scope};
pub use digest::{Digest, new_key};

/// The header of a key, beside `Authorization: Bearer`.
const API_KEY: &str = "x-api-key";

/// A right that a key may give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Right {
    /// To run models.
    Infer,
    /// To look at models, metrics, memory and devices.
    Read,
    /// To change what the server serves, and with which memory.
    Manage,
}

impl Right {
    /// All rights.
    pub const ALL: [Self; 3] = [Self::Infer, Self::Read, Self::Manage];

    /// The word for it in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Infer => "infer",
            Self::Read => "read",
            Self::Manage => "manage",
        }
    }

    /// The right that a word names.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|right| right.name() == word)
    }
}

/// A key, known by its digest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// The name of the key's holder, for the log and for messages.
    pub name: String,
    /// The digest of the key itself, which the server does not know.
    pub digest: Digest,
    /// The rights that the key gives its holder.
    pub rights: Vec<Right>,
    /// The names of models that it is for; a `*` stands for any characters.
    pub models: Vec<String>,
    /// The time at which the key expires, if it does.
    pub expires: Option<SystemTime>,
}

impl Key {
    /// Returns whether the key is for `model`.
    pub(crate) fn covers(&self, model: &str) -> bool {
        self.models.iter().any(|pattern| matches(pattern, model))
    }

    fn covers_all(&self) -> bool {
        self.models.iter().any(|pattern| pattern == "*")
    }
}

/// The keys in use, which may be replaced while calls are answered.
#[derive(Debug)]
pub struct Access {
    keys: ArcSwap<Vec<Arc<Key>>>,
}

impl Access {
    /// Lets the holders of these keys in.
    pub fn new(keys: Vec<Key>) -> Self {
        Self { keys: ArcSwap::from_pointee(shared(keys)) }
    }

    /// Lets the holders of other keys in from now on.
    pub fn replace(&self, keys: Vec<Key>) {
        self.keys.store(Arc::new(shared(keys)));
    }

    /// Admits a call, or says why not. Calls that need no right have no key.
    pub(crate) fn admit(
        &self,
        presented: Option<&Digest>,
        action: Action,
        scope: Scope<'_>,
    ) -> Result<Option<Arc<Key>>, Status> {
        match action.right() {
            None => Ok(None),
            Some(right) => {
                let call = Call { right, scope };
                judge(&self.keys.load(), presented, &call, SystemTime::now()).map(Some)
            }
        }
    }
}

fn shared(keys: Vec<Key>) -> Vec<Arc<Key>> {
    keys.into_iter().map(Arc::new).collect()
}

/// The digest of the key that a request presents: `Authorization: Bearer KEY`, or `x-api-key: KEY`.
/// An empty key is none, and a request with two keys in the same header has none: somebody before
/// this server may have looked at the other one.
pub(crate) fn presented(headers: &HeaderMap) -> Option<Digest> {
    fn bearer(value: &HeaderValue) -> Option<&[u8]> {
        let (scheme, key) = value.as_bytes().split_at_checked(b"Bearer ".len())?;
        scheme.eq_ignore_ascii_case(b"Bearer ").then_some(key)
    }
    let mut bearers = headers.get_all(AUTHORIZATION).iter().filter_map(bearer).peekable();
    let key = match bearers.peek() {
        Some(_) => single(bearers),
        None => single(headers.get_all(API_KEY).iter().map(HeaderValue::as_bytes)),
    };
    key.map(Digest::of)
}

/// The key, if there is one and no other.
fn single<'a>(mut keys: impl Iterator<Item = &'a [u8]>) -> Option<&'a [u8]> {
    let key = keys.next()?.trim_ascii();
    (!key.is_empty() && keys.next().is_none()).then_some(key)
}

/// A call, as far as keys are concerned.
struct Call<'a> {
    right: Right,
    scope: Scope<'a>,
}

/// Decides whether the holder of a key may make a call at a time.
fn judge(
    keys: &[Arc<Key>],
    presented: Option<&Digest>,
    call: &Call<'_>,
    now: SystemTime,
) -> Result<Arc<Key>, Status> {
    let unknown = |text: String| Status::new(Code::Unauthenticated, text);
    let denied = |text: String| Status::new(Code::PermissionDenied, text);
    let Some(presented) = presented else {
        let text = "an API key is needed: send Authorization: Bearer KEY, or x-api-key: KEY";
        return Err(unknown(text.to_owned()));
    };
    // Every key is compared, so that the time it takes tells nothing.
    let mut found = None;
    for key in keys {
        if key.digest == *presented {
            found = Some(key);
        }
    }
    let key = found.ok_or_else(|| unknown("this API key is not known".to_owned()))?;
    let name = &key.name;
    if key.expires.is_some_and(|end| end <= now) {
        return Err(unknown(format!("the API key {name} has expired")));
    }
    if !key.rights.contains(&call.right) {
        let right = call.right.name();
        return Err(denied(format!("the API key {name} does not have the right {right:?}")));
    }
    match call.scope {
        Scope::Model(model) if !key.covers(model) => {
            Err(denied(format!("the API key {name} is not for the model {model:?}")))
        }
        Scope::Server if !key.covers_all() => {
            let text = format!("the API key {name} is not for all models, which this call needs");
            Err(denied(text))
        }
        Scope::Model(_) | Scope::Server | Scope::Unread => Ok(Arc::clone(key)),
    }
}

/// Returns whether a name fits a pattern, in which each `*` stands for any characters.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(start) else { return false };
    let mut middle: Vec<&str> = rest.split('*').collect();
    let end = middle.pop().unwrap_or_default();
    for part in middle {
        let Some(at) = name.find(part) else { return false };
        name = &name[at + part.len()..];
    }
    name.ends_with(end)
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests;
