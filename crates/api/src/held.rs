//! `HeldBytes`: what has come of a message or a body that is not complete.

use std::collections::VecDeque;

use bytes::{Buf, Bytes, BytesMut};

/// Bytes in the pieces that they came in. Small pieces are copied together: each would take as much
/// again for itself, and keep the buffer that it was read into.
#[derive(Debug, Default)]
pub(crate) struct HeldBytes {
    pieces: VecDeque<Bytes>,
    /// Small pieces, behind the others.
    small: BytesMut,
    len: usize,
}

/// Smaller pieces are copied.
const SMALL: usize = 64 << 10;

impl HeldBytes {
    /// A piece as it came, which may be all there is. It is copied when another comes, if it is
    /// small.
    pub(crate) fn first(piece: Bytes) -> Self {
        Self { len: piece.len(), pieces: VecDeque::from([piece]), small: BytesMut::new() }
    }

    /// The number of bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns whether all bytes are in one piece, or there are none.
    pub(crate) fn is_one_piece(&self) -> bool {
        self.pieces.len() + usize::from(!self.small.is_empty()) <= 1
    }

    /// Adds a piece behind the others.
    pub(crate) fn push(&mut self, piece: Bytes) {
        if self.pieces.len() == 1 && self.len < SMALL && self.small.is_empty() {
            let first = self.pieces.pop_front().unwrap_or_default();
            self.small.extend_from_slice(&first);
        }
        self.len += piece.len();
        if self.small.len() + piece.len() > SMALL {
            self.settle();
        }
        if piece.len() >= SMALL {
            self.pieces.push_back(piece);
        } else {
            self.small.extend_from_slice(&piece);
        }
    }

    /// Takes the first bytes that are in one piece, `n_max` at most. None if there are none.
    pub(crate) fn pop(&mut self, n_max: usize) -> Option<Bytes> {
        if self.pieces.is_empty() {
            self.settle();
        }
        let mut first = self.pieces.pop_front()?;
        let taken = first.split_to(first.len().min(n_max));
        if !first.is_empty() {
            self.pieces.push_front(first);
        }
        self.len -= taken.len();
        Some(taken)
    }

    /// All bytes as one piece, which is a copy if they are in several.
    pub(crate) fn into_bytes(mut self) -> Bytes {
        let length = self.len;
        let first = self.pop(length).unwrap_or_default();
        if first.len() == length {
            return first;
        }
        let mut all = BytesMut::with_capacity(length);
        all.extend_from_slice(&first);
        drop(first);
        while let Some(piece) = self.pop(length) {
            all.extend_from_slice(&piece);
        }
        all.freeze()
    }

    /// The last `length` bytes of these and one more piece, but for `n_after` behind them.
    pub(crate) fn message(&self, last: &Bytes, n_after: usize, length: usize) -> impl Buf + use<> {
        let small = (!self.small.is_empty()).then(|| Bytes::copy_from_slice(&self.small));
        let pieces = self.pieces.iter().cloned().chain(small).chain([last.clone()]).collect();
        let mut all = Pieces { pieces, remaining: self.len + last.len() - n_after };
        all.advance(all.remaining - length);
        all
    }

    /// Puts the small pieces behind the others.
    fn settle(&mut self) {
        if !self.small.is_empty() {
            self.pieces.push_back(self.small.split().freeze());
        }
    }
}

/// Pieces read one after another.
struct Pieces {
    pieces: VecDeque<Bytes>,
    remaining: usize,
}

impl Buf for Pieces {
    fn remaining(&self) -> usize {
        self.remaining
    }

    fn chunk(&self) -> &[u8] {
        let first = self.pieces.front().map_or(&[][..], |piece| piece);
        &first[..first.len().min(self.remaining)]
    }

    fn advance(&mut self, mut n_bytes: usize) {
        assert!(n_bytes <= self.remaining, "there are as many bytes");
        self.remaining -= n_bytes;
        while let Some(first) = self.pieces.front_mut() {
            let n_here = first.len().min(n_bytes);
            first.advance(n_here);
            n_bytes -= n_here;
            if !first.is_empty() {
                break;
            }
            self.pieces.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_in_their_order_whatever_pieces_they_came_in() {
        let all: Vec<u8> = (0..=255).cycle().take(1_000_000).collect();
        for step in [1000, SMALL - 1, SMALL, SMALL + 1, 300_000, 1_000_000] {
            let held = |n_left: usize| {
                let mut held = HeldBytes::default();
                let pieces = all[..all.len() - n_left].chunks(step);
                pieces.for_each(|piece| held.push(Bytes::copy_from_slice(piece)));
                held
            };
            assert_eq!(held(0).into_bytes(), all, "{step}");
            let mut held = held(500);
            let last = Bytes::copy_from_slice(&all[all.len() - 500..]);
            let mut message = held.message(&last, 100, 900_000);
            assert_eq!(message.copy_to_bytes(900_000), all[99_900..999_900], "{step}");
            let mut popped = Vec::new();
            while let Some(piece) = held.pop(70_000) {
                popped.extend_from_slice(&piece);
            }
            assert!(popped == all[..999_500] && held.is_empty(), "{step}");
        }
    }
}
