//! Decides which versions are loaded, and hands out handles to them; generic over what a servable
//! is.
#![forbid(unsafe_code)]
