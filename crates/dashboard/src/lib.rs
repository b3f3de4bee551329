//! The web page: what the server holds and does, drawn in a browser from the server's JSON pages.
//!
//! The page is a handful of static files, compiled into the program. They load nothing from
//! elsewhere and call nothing that changes the server. This crate only hands the files out; the
//! scripts in `web/` ask the same pages that programs ask.

#![forbid(unsafe_code)]

mod about;
mod files;
mod site;

pub use about::{ABOUT, About};
pub use site::{Home, Site};
