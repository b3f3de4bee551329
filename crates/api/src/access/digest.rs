//! `Digest`: what a server knows of a key.
//!
//! The digest is a plain SHA-256. Slow hashes (bcrypt, Argon2) protect passwords that people make
//! up, by making guesses expensive. The keys here are 256 random bits, which nobody guesses, and
//! every call would pay for the slowness.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::{SecureRandom as _, SystemRandom};
use subtle::ConstantTimeEq as _;

/// A new key: 256 random bits, as text that headers carry.
///
/// # Panics
/// If the system has no random numbers, without which no key can be made.
pub fn new_key() -> String {
    let mut bytes = [0; BYTES];
    SystemRandom::new().fill(&mut bytes).expect("the system has random numbers");
    format!("tensord_{}", URL_SAFE_NO_PAD.encode(bytes))
}

const BYTES: usize = ring::digest::SHA256_OUTPUT_LEN;

/// The SHA-256 of a key. Digests are compared in constant time.
#[derive(Debug, Clone, Copy)]
pub struct Digest([u8; BYTES]);

impl Digest {
    /// The digest of a key.
    pub fn of(key: &[u8]) -> Self {
        let digest = ring::digest::digest(&ring::digest::SHA256, key);
        Self(digest.as_ref().try_into().expect("a SHA-256 has 32 bytes"))
    }

    /// Reads the hexadecimals of a digest.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() != 2 * BYTES || !text.is_ascii() {
            return None;
        }
        let mut bytes = [0; BYTES];
        for (index, byte) in bytes.iter_mut().enumerate() {
            let digits = &text[2 * index..2 * index + 2];
            if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return None; // A sign would be read as part of a number.
            }
            *byte = u8::from_str_radix(digits, 16).ok()?;
        }
        Some(Self(bytes))
    }
}

impl PartialEq for Digest {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for Digest {}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_keys_are_the_same() {
        let (one, two) = (new_key(), new_key());
        assert_ne!(one, two);
        assert_eq!(one.len(), "tensord_".len() + 43);
        assert!(one.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)));
    }

    #[test]
    fn a_digest_is_the_sha_256_in_hexadecimals() {
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(Digest::of(b"abc").to_string(), abc);
        assert_eq!(Digest::parse(&abc.to_uppercase()), Some(Digest::of(b"abc")));
        let signed = "+1".repeat(32);
        for wrong in ["", "ba78", &abc.replace('b', "g"), &signed, &"é".repeat(32)] {
            assert_eq!(Digest::parse(wrong), None, "{wrong}");
        }
    }
}
