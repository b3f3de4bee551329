//! Memory and devices: looking at them, which the server answers. How they are changed is in
//! `manage`.

use http::Method;
use status::Status;

use super::pages;

/// The server's reports and actions about memory; the answers are JSON.
pub trait Memory: Send + Sync {
    /// Returns the holders of the bytes of each device.
    fn memory(&self) -> Vec<u8>;

    /// Returns the devices that were found, and the logical devices made of them.
    fn devices(&self) -> Vec<u8>;

    /// Changes limits, growth and logical devices; answers as [`Memory::devices`] does then.
    ///
    /// # Errors
    /// If the change is malformed, or what it changes is in use.
    fn change_devices(&self, change: &[u8]) -> Result<Vec<u8>, Status>;

    /// Gives back all memory that nobody uses; answers how much that was.
    fn trim(&self) -> Vec<u8>;
}

/// Something that can be asked of a [`Memory`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ask {
    Memory,
    Devices,
}

impl Ask {
    /// Parses the question of a request; `None` if it is about something else.
    pub(super) fn parse(method: &Method, path: &str) -> Option<Ask> {
        match (method, pages::plain(path)) {
            (&Method::GET, "/v1/memory") => Some(Ask::Memory),
            (&Method::GET, "/v1/devices") => Some(Ask::Devices),
            _ => None,
        }
    }

    pub(super) fn answer(self, memory: &dyn Memory) -> Vec<u8> {
        match self {
            Ask::Memory => memory.memory(),
            Ask::Devices => memory.devices(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_there_is_can_be_asked() {
        let ask = |method: Method, path: &str| Ask::parse(&method, path);
        assert_eq!(ask(Method::GET, "/v1/memory"), Some(Ask::Memory));
        assert_eq!(ask(Method::GET, "/v1/devices?pretty"), Some(Ask::Devices));
        assert_eq!(ask(Method::PUT, "/v1/devices"), None);
        assert_eq!(ask(Method::POST, "/v1/memory"), None);
        assert_eq!(ask(Method::GET, "/v1/models/memory"), None);
    }
}
