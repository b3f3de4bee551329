//! The files that records are written to: as many records in each as a warm-up file may have.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::time::{SystemTime, UNIX_EPOCH};

use tracing::{error, info};

/// The most records that TensorFlow Serving takes from a warm-up file.
const RECORDS_MAX: usize = 1000;

/// The number of files that are written with one prefix; then no more is logged.
const FILES_MAX: usize = 100;

/// The files of all prefixes.
#[derive(Default)]
pub(super) struct Files {
    by_prefix: BTreeMap<String, Series>,
}

/// The files with one prefix, of which the last is open.
#[derive(Default)]
struct Series {
    file: Option<File>,
    n_records: usize,
    n_files: usize,
    has_failed: bool,
}

impl Files {
    /// Writes a record behind the others of its prefix. What goes wrong is logged once.
    pub(super) fn append(&mut self, prefix: &str, record: &[u8]) -> io::Result<()> {
        let series = self.by_prefix.entry(prefix.to_owned()).or_default();
        let outcome = series.append(prefix, record);
        if let Err(problem) = &outcome {
            if !series.has_failed {
                error!("requests are not logged to {prefix}: {problem}");
            }
            // Half a record would spoil all behind it.
            series.file = None;
        }
        series.has_failed = outcome.is_err();
        outcome
    }
}

impl Series {
    fn append(&mut self, prefix: &str, record: &[u8]) -> io::Result<()> {
        if self.n_records == RECORDS_MAX {
            self.file = None;
        }
        let file = match &mut self.file {
            Some(file) => file,
            none => {
                if self.n_files == FILES_MAX {
                    let text = format!("{FILES_MAX} files are written, and no more");
                    return Err(io::Error::other(text));
                }
                let file = create(prefix, self.n_files)?;
                (self.n_files, self.n_records) = (self.n_files + 1, 0);
                none.insert(file)
            }
        };
        file.write_all(record)?;
        self.n_records += 1;
        Ok(())
    }
}

/// Makes a file that is not there yet.
fn create(prefix: &str, number: usize) -> io::Result<File> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let path = format!("{prefix}-{now}-{number:05}");
    let file = File::create_new(&path)?;
    info!("requests are logged to {path}");
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_holds_as_many_records_as_a_warm_up_file_may() {
        let folder = tempfile::tempdir().unwrap();
        let prefix = folder.path().join("log").to_string_lossy().into_owned();
        let mut files = Files::default();
        for _ in 0..=RECORDS_MAX {
            files.append(&prefix, b"r").unwrap();
        }
        let mut sizes: Vec<u64> = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().metadata().unwrap().len())
            .collect();
        sizes.sort_unstable();
        assert_eq!(sizes, [1, 1000]);
    }

    #[test]
    fn a_folder_that_is_not_there_stops_nothing() {
        let mut files = Files::default();
        files.append("/no/such/folder/log", b"r").unwrap_err();
        assert!(files.by_prefix["/no/such/folder/log"].has_failed);
    }
}
