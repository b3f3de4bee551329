//! `About`: facts about the running server that no other page has, for the page's own scripts.

use serde_json::json;

/// The path of [`About`] as JSON. Looking at it needs the same right as the memory page.
pub const ABOUT: &str = "/ui/server.json";

/// Facts that the page shows, and puts into the commands that it suggests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    /// The name of the program, such as `tensord`.
    pub program: &'static str,
    /// The version of the program.
    pub version: &'static str,
    /// The address of the calls that change the server: `HOST:PORT` or `unix:PATH`, if there is
    /// one.
    pub management: Option<String>,
}

impl About {
    /// The facts as JSON.
    pub fn json(&self) -> String {
        let Self { program, version, management } = self;
        let page = json!({ "program": program, "version": version, "management": management });
        format!("{page:#}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_without_a_management_address_says_so() {
        let about = About { program: "tensord", version: "1", management: None };
        let read: serde_json::Value = serde_json::from_str(&about.json()).unwrap();
        assert_eq!(read, json!({ "program": "tensord", "version": "1", "management": null }));
    }
}
