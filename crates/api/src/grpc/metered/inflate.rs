//! Messages that are packed: unpacked within limits, to see what is in them.

use std::io::Read;

use bytes::Buf;
use flate2::read::{GzDecoder, ZlibDecoder};
use http::HeaderMap;
use status::{Code, Status};

/// So many bytes are unpacked before there must be room for more.
const STEP: usize = 256 << 10;

/// The compression of the messages of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    Gzip,
    Deflate,
}

impl Encoding {
    /// The way that the headers of a call name; none if there is none that we know.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        match headers.get("grpc-encoding")?.as_bytes() {
            b"gzip" => Some(Self::Gzip),
            b"deflate" => Some(Self::Deflate),
            _ => None,
        }
    }

    /// Unpacks a message, asking for room before it takes any. What is broken ends where it breaks:
    /// whoever unpacks it next will say so.
    pub(super) fn inflate(
        self,
        message: &mut impl Buf,
        max: usize,
        room: impl FnMut(usize) -> Result<(), Status>,
    ) -> Result<Vec<u8>, Status> {
        let reader = message.reader();
        match self {
            Self::Gzip => unpack(&mut GzDecoder::new(reader), max, room),
            Self::Deflate => unpack(&mut ZlibDecoder::new(reader), max, room),
        }
    }
}

fn unpack(
    packed: &mut impl Read,
    max: usize,
    mut room: impl FnMut(usize) -> Result<(), Status>,
) -> Result<Vec<u8>, Status> {
    let mut all = Vec::new();
    loop {
        // A vector grows to twice its size beside what it was.
        room(3 * STEP)?;
        let before = all.len();
        let read = packed.by_ref().take(STEP as u64).read_to_end(&mut all);
        if all.len() > max {
            let text = format!(
                "Error decompressing: size limit, of {max} bytes, exceeded while decompressing \
                 message"
            );
            return Err(Status::new(Code::ResourceExhausted, text)); // As tonic's own text.
        }
        if read.is_err() || all.len() == before {
            return Ok(all);
        }
    }
}
