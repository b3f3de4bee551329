//! `Warmup`: requests that come with a model, to be run before it is served
//! (`tensorflow_serving/servables/tensorflow/saved_model_warmup_util.cc`).

use bytes::Bytes;
use prost::Message as _;
use proto::serving::PredictionLog;
use storage::{File, Storage};

use crate::checkpoint::Crc;
use crate::error::{Error, Result};

/// The path where TensorFlow Serving looks for warm-up requests.
const FILE: &str = "assets.extra/tf_serving_warmup_requests";
/// The most records that TensorFlow Serving takes.
const N_RECORDS_MAX: usize = 1000;
/// Protobuf's own limit.
const RECORD_LIMIT_BYTES: u64 = i32::MAX as u64;

/// The records of a warm-up file, one after another. After an error there are no more.
#[derive(Debug)]
pub struct Warmup {
    file: File,
    /// The path as messages show it.
    path: String,
    offset: u64,
    n_records: usize,
}

impl Warmup {
    /// Opens the warm-up file of the model in a directory; `None` if there is none.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn open(dir: &Storage) -> Result<Option<Self>> {
        if !dir.exists(FILE)? {
            return Ok(None);
        }
        let path = dir.path().join(FILE).display().to_string();
        Ok(Some(Self { file: dir.open_file(FILE)?, path, offset: 0, n_records: 0 }))
    }

    fn record(&mut self) -> Result<PredictionLog> {
        if self.n_records == N_RECORDS_MAX {
            return Err(Error::Warmup(format!(
                "Number of warmup records exceeds the maximum ({N_RECORDS_MAX}) at {}",
                self.path
            )));
        }
        let bytes = self.read()?;
        self.n_records += 1;
        PredictionLog::decode(bytes)
            .map_err(|err| Error::Warmup(format!("Failed to parse warmup record: {err}")))
    }

    /// Reads one record of the file, which is in the TFRecord format: a length and its checksum,
    /// then that many bytes and their checksum.
    fn read(&mut self) -> Result<Bytes> {
        let corrupt = |reason: &str| Error::WarmupFile {
            path: self.path.clone(),
            offset: self.offset,
            reason: reason.to_owned(),
        };
        let cut_off = |_| corrupt("truncated record");
        let mut header = [0; 12];
        self.file.read_exact_at(&mut header, self.offset).map_err(cut_off)?;
        let [len, crc] = [&header[..8], &header[8..]];
        if !Crc::of(len).is(little_endian_u32(crc)) {
            return Err(corrupt("checksum mismatch of the length"));
        }
        let len = u64::from_le_bytes(len.try_into().expect("eight of twelve bytes"));
        let start = self.offset + header.len() as u64;
        // Before anything is allocated for it.
        let n_stored = len.saturating_add(4);
        self.file.check_range(start, n_stored).map_err(cut_off)?;
        if len > RECORD_LIMIT_BYTES {
            return Err(corrupt("the record is too long"));
        }
        let mut bytes = vec![0; usize::try_from(n_stored).expect("a few gigabytes fit")];
        self.file.read_exact_at(&mut bytes, start).map_err(cut_off)?;
        let crc = bytes.split_off(bytes.len() - 4);
        if !Crc::of(&bytes).is(little_endian_u32(&crc)) {
            return Err(corrupt("checksum mismatch of the record"));
        }
        self.offset = start + n_stored;
        Ok(bytes.into())
    }
}

impl Iterator for Warmup {
    type Item = Result<PredictionLog>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.offset >= self.file.len() {
            return None;
        }
        let record = self.record();
        if record.is_err() {
            self.offset = self.file.len();
        }
        Some(record)
    }
}

/// A record as it stands in a TFRecord file, to be read again by [`Warmup`].
pub fn tfrecord(bytes: &[u8]) -> Vec<u8> {
    let len = (bytes.len() as u64).to_le_bytes();
    let crc = |bytes| Crc::of(bytes).masked().to_le_bytes();
    [&len[..], &crc(&len), bytes, &crc(bytes)].concat()
}

fn little_endian_u32(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes.try_into().expect("four bytes"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proto::serving::prediction_log::LogType;
    use status::Code;

    use super::*;

    /// Two records, written by `tf.io.TFRecordWriter`: an empty log, and a predict request to `m`.
    const WRITTEN_BY_TENSORFLOW: &[u8] =
        b"\x00\x00\x00\x00\x00\x00\x00\x00\x29\x03\x98\x07\xd8\xea\x82\xa2\
        \x09\x00\x00\x00\x00\x00\x00\x00\x37\xf9\x71\x39\x32\x07\x0a\x05\
        \x0a\x03\x0a\x01\x6d\x6d\x26\x6c\xbe";

    fn open(bytes: &[u8]) -> Vec<Result<PredictionLog>> {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("assets.extra")).unwrap();
        fs::write(dir.path().join(FILE), bytes).unwrap();
        let storage = storage::open(dir.path().to_str().unwrap()).unwrap();
        Warmup::open(&storage).unwrap().unwrap().collect()
    }

    #[track_caller]
    fn check_last(bytes: &[u8], n_good: usize, code: Code, expected: &str) {
        let mut records = open(bytes);
        let error = records.pop().unwrap().unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(error.code(), code);
        assert_eq!(records.iter().filter(|record| record.is_ok()).count(), n_good);
        assert_eq!(records.len(), n_good);
    }

    fn record(bytes: &[u8]) -> Vec<u8> {
        tfrecord(bytes)
    }

    #[test]
    fn records_written_by_tensorflow_are_read() {
        let mut records = open(WRITTEN_BY_TENSORFLOW).into_iter();
        assert_eq!(records.next().unwrap().unwrap(), PredictionLog::default());
        let log = records.next().unwrap().unwrap();
        let Some(LogType::PredictLog(log)) = log.log_type else { panic!("{log:?}") };
        assert_eq!(log.request.unwrap().model_spec.unwrap().name, "m");
        assert!(records.next().is_none());
    }

    #[test]
    fn a_model_need_not_have_a_warm_up_file() {
        let dir = tempfile::tempdir().unwrap();
        let storage = storage::open(dir.path().to_str().unwrap()).unwrap();
        assert!(Warmup::open(&storage).unwrap().is_none());
    }

    #[test]
    fn a_damaged_file_is_refused_wherever_the_damage_is() {
        let advice = "Please verify your warmup data is in TFRecord format.";
        for len in 1..WRITTEN_BY_TENSORFLOW.len() {
            let n_good = usize::from(len > 16);
            if len != 16 {
                check_last(&WRITTEN_BY_TENSORFLOW[..len], n_good, Code::DataLoss, advice);
            }
        }
        for bit in 0..WRITTEN_BY_TENSORFLOW.len() * 8 {
            let mut damaged = WRITTEN_BY_TENSORFLOW.to_vec();
            damaged[bit / 8] ^= 1 << (bit % 8);
            check_last(&damaged, usize::from(bit >= 16 * 8), Code::DataLoss, advice);
        }
        let len = u64::MAX.to_le_bytes();
        let endless = [&len[..], &Crc::of(&len).masked().to_le_bytes()].concat();
        check_last(&endless, 0, Code::DataLoss, "truncated record");
    }

    #[test]
    fn a_record_that_is_no_log_is_refused() {
        let bytes = [record(b""), record(b"\xff")].concat();
        check_last(&bytes, 1, Code::InvalidArgument, "Failed to parse warmup record: ");
    }

    #[test]
    fn only_a_thousand_records_are_taken() {
        assert_eq!(open(&record(b"").repeat(1000)).len(), 1000);
        let expected = "Number of warmup records exceeds the maximum (1000) at ";
        check_last(&record(b"").repeat(1001), 1000, Code::InvalidArgument, expected);
    }
}
