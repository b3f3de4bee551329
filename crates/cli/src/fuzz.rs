//! Entry point of the fuzz target in `fuzz/`: a NumPy archive that may hold anything.

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

use std::io::Cursor;
use std::path::Path;

use crate::npz as archives;

/// Reads a NumPy archive, and the same bytes as one array.
pub fn npz(bytes: &[u8]) {
    drop(archives::read_from(Cursor::new(bytes), Path::new("fuzz.npz")));
    drop(archives::npy::decode(bytes));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archives_do_no_harm() {
        replay::replay("npz", npz);
    }
}
