//! Reads the rows of a trace: `id,lower,upper,size`, with half-open times and bytes.

use std::fs;

/// A buffer that lives from `lower` until just before `upper`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    /// The time of its allocation.
    pub(crate) lower: u64,
    /// The time of its release.
    pub(crate) upper: u64,
    /// Its bytes.
    pub(crate) size: u64,
}

/// Reads a file whose columns are named in its first line.
pub(crate) fn read(path: &str) -> Result<Vec<Row>, String> {
    let text = fs::read_to_string(path).map_err(|e| format!("{path}: {e}"))?;
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let header = lines.next().ok_or_else(|| format!("{path}: no header"))?;
    let column = |name: &str| {
        let found = header.split(',').position(|column| column.trim() == name);
        found.ok_or_else(|| format!("{path}: no column {name}"))
    };
    let (lower, upper, size) = (column("lower")?, column("upper")?, column("size")?);
    let row = |line: &str| -> Result<Row, String> {
        let field = |at: usize| -> Result<u64, String> {
            let field = line.split(',').nth(at).unwrap_or_default().trim();
            field.parse().map_err(|e| format!("{path}: {line}: {e}"))
        };
        let row = Row { lower: field(lower)?, upper: field(upper)?, size: field(size)? };
        if row.lower < row.upper { Ok(row) } else { Err(format!("{path}: {line}: ends too early")) }
    };
    lines.map(row).collect()
}
