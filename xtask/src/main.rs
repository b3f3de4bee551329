//! The chores of the workspace: `cargo xtask ci`, `cargo xtask tidy`.

fn main() {}
