//! The frames of an HTTP/2 connection (RFC 9113), as they pass: which bytes belong to header
//! blocks.

use super::fields::Fields;

/// The first bytes that a client of HTTP/2 sends.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const HEAD_BYTES: usize = 9;

const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;

const END_HEADERS: u8 = 0x04;
const PADDED: u8 = 0x08;
const PRIORITY: u8 = 0x20;

/// The number of bytes that the priority in a frame of headers takes.
const PRIORITY_BYTES: usize = 5;

/// A place in the stream of a client's bytes.
#[derive(Debug)]
pub(super) struct Frames {
    at: At,
    fields: Fields,
    /// The block ends with this frame.
    is_last: bool,
}

#[derive(Debug, Clone, Copy)]
enum At {
    Preface {
        n_seen: usize,
    },
    Head {
        bytes: [u8; HEAD_BYTES],
        n_seen: usize,
    },
    PadLength {
        n_left: usize,
        n_priority: usize,
    },
    Priority {
        n_left: usize,
        n_priority: usize,
        n_pad: usize,
    },
    Block {
        n_left: usize,
        n_pad: usize,
    },
    Rest {
        n_left: usize,
    },
    /// The protocol spoken is not HTTP/2.
    Foreign,
}

const HEAD: At = At::Head { bytes: [0; HEAD_BYTES], n_seen: 0 };

impl Frames {
    pub(super) fn new() -> Self {
        Self { at: At::Preface { n_seen: 0 }, fields: Fields::new(), is_last: true }
    }

    /// Passes the next bytes of the stream, however it is cut up.
    pub(super) fn pass(&mut self, bytes: &mut [u8]) {
        let mut bytes = bytes;
        while !bytes.is_empty() {
            let n_taken = match self.at {
                At::Foreign => return,
                At::Rest { n_left } => self.skip(n_left, bytes.len()),
                At::Block { n_left, n_pad } => self.block(n_left, n_pad, bytes),
                At::Preface { .. }
                | At::Head { .. }
                | At::PadLength { .. }
                | At::Priority { .. } => {
                    self.one(bytes[0]);
                    1
                }
            };
            bytes = &mut bytes[n_taken..];
        }
    }

    fn skip(&mut self, n_left: usize, n_bytes: usize) -> usize {
        let n_taken = n_left.min(n_bytes);
        self.at = rest(n_left - n_taken);
        n_taken
    }

    fn block(&mut self, n_left: usize, n_pad: usize, bytes: &mut [u8]) -> usize {
        let n_taken = n_left.min(bytes.len());
        bytes[..n_taken].iter_mut().for_each(|byte| self.fields.pass(byte));
        self.enter_block(n_left - n_taken, n_pad);
        n_taken
    }

    /// Passes a byte of the parts that are never changed.
    fn one(&mut self, byte: u8) {
        match self.at {
            At::Preface { n_seen } if PREFACE[n_seen] != byte => self.at = At::Foreign,
            At::Preface { n_seen } if n_seen + 1 == PREFACE.len() => self.at = HEAD,
            At::Preface { n_seen } => self.at = At::Preface { n_seen: n_seen + 1 },
            At::Head { mut bytes, n_seen } => {
                bytes[n_seen] = byte;
                if n_seen + 1 == HEAD_BYTES {
                    self.frame(bytes);
                } else {
                    self.at = At::Head { bytes, n_seen: n_seen + 1 };
                }
            }
            At::PadLength { n_left, n_priority } => {
                self.enter_priority(n_left - 1, n_priority, usize::from(byte));
            }
            At::Priority { n_left, n_priority, n_pad } => {
                self.enter_priority(n_left - 1, n_priority - 1, n_pad);
            }
            At::Block { .. } | At::Rest { .. } | At::Foreign => unreachable!("passed in bulk"),
        }
    }

    /// Begins a frame.
    fn frame(&mut self, head: [u8; HEAD_BYTES]) {
        let [a, b, c, kind, flags, ..] = head;
        let n_left = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        match kind {
            HEADERS => {
                self.fields = Fields::new();
                self.is_last = flags & END_HEADERS != 0;
                let n_priority = if flags & PRIORITY == 0 { 0 } else { PRIORITY_BYTES };
                if flags & PADDED == 0 {
                    self.enter_priority(n_left, n_priority, 0);
                } else if n_left > 0 {
                    self.at = At::PadLength { n_left, n_priority };
                } else {
                    self.at = HEAD;
                }
            }
            CONTINUATION if !self.is_last => {
                self.is_last = flags & END_HEADERS != 0;
                self.enter_block(n_left, 0);
            }
            _ => self.at = rest(n_left),
        }
    }

    fn enter_priority(&mut self, n_left: usize, n_priority: usize, n_pad: usize) {
        if n_priority > 0 && n_left > 0 {
            self.at = At::Priority { n_left, n_priority, n_pad };
        } else {
            self.enter_block(n_left.saturating_sub(n_pad), n_pad.min(n_left));
        }
    }

    fn enter_block(&mut self, n_left: usize, n_pad: usize) {
        self.at = if n_left > 0 { At::Block { n_left, n_pad } } else { rest(n_pad) };
    }
}

/// In the rest of a frame, if there is any.
fn rest(n_left: usize) -> At {
    if n_left > 0 { At::Rest { n_left } } else { HEAD }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, flags, 0, 0, 0, 1], payload].concat()
    }

    /// Passes the frames in pieces of every size.
    #[track_caller]
    fn check(frames: &[Vec<u8>], expected: &[Vec<u8>]) {
        let stream = [PREFACE, &frames.concat()].concat();
        let expected = [PREFACE, &expected.concat()].concat();
        for width in 1..=stream.len() {
            let (mut got, mut place) = (stream.clone(), Frames::new());
            got.chunks_mut(width).for_each(|piece| place.pass(piece));
            assert_eq!(got, expected, "in pieces of {width}");
        }
    }

    const BEFORE: &[u8] = b"\x82\x41\x06%2Frun\x86";
    const AFTER: &[u8] = b"\x82\x41\x06.2Frun\x86";

    #[test]
    fn finds_the_blocks_between_other_frames() {
        let data = frame(0, 0, BEFORE);
        let settings = frame(4, 0, b"\x00\x03\x00\x00\x00\x64");
        check(
            &[
                settings.clone(),
                frame(HEADERS, END_HEADERS, BEFORE),
                data.clone(),
                frame(HEADERS, END_HEADERS, BEFORE),
            ],
            &[
                settings,
                frame(HEADERS, END_HEADERS, AFTER),
                data,
                frame(HEADERS, END_HEADERS, AFTER),
            ],
        );
    }

    #[test]
    fn padding_and_priority_are_no_fields() {
        let padded = |block: &[u8]| [&[3], block, b"%%%"].concat();
        let both = |block: &[u8]| [&[2, 0x41, 1, b'%', 0, 9], block, b"%%"].concat();
        let frames = |block: &[u8]| {
            vec![
                frame(HEADERS, END_HEADERS | PADDED, &padded(block)),
                frame(HEADERS, END_HEADERS | PADDED | PRIORITY, &both(block)),
                frame(HEADERS, END_HEADERS | PRIORITY, &[&[0; 5], block].concat()),
            ]
        };
        check(&frames(BEFORE), &frames(AFTER));
    }

    #[test]
    fn a_block_goes_on_in_further_frames() {
        for cut in 0..BEFORE.len() {
            let frames = |block: &[u8]| {
                vec![
                    frame(HEADERS, 0, &block[..cut]),
                    frame(CONTINUATION, 0, &[]),
                    frame(CONTINUATION, END_HEADERS, &block[cut..]),
                    // Without a block before it, this is a mistake and left as it is.
                    frame(CONTINUATION, END_HEADERS, BEFORE),
                ]
            };
            check(&frames(BEFORE), &frames(AFTER));
        }
    }

    #[test]
    fn frames_that_say_less_than_they_hold_are_passed_over() {
        let frames = vec![
            frame(HEADERS, END_HEADERS | PADDED, &[]),
            frame(HEADERS, END_HEADERS | PADDED, &[200, 0x41, 1, b'%']),
            frame(HEADERS, END_HEADERS | PRIORITY, &[0, 0]),
            frame(HEADERS, END_HEADERS | PADDED | PRIORITY, &[1]),
        ];
        check(&frames, &frames);
    }

    #[test]
    fn other_protocols_pass_as_they_are() {
        let mut bytes = b"GET /%2F HTTP/1.1\r\nHost: %2F\r\n\r\n".to_vec();
        let before = bytes.clone();
        Frames::new().pass(&mut bytes);
        assert_eq!(bytes, before);
    }
}
