//! The other hashes of `StringToHashBucket…`: Murmur's 64-bit hash and SipHash-2-4.

/// MurmurHash64A with the seed of TensorFlow's `Hash64` (`hash.cc`).
pub(super) fn murmur64(bytes: &[u8]) -> u64 {
    const MUL: u64 = 0xc6a4_a793_5bd1_e995;
    const SEED: u64 = 0x00de_cafc_affe;
    let mix = |value: u64| value ^ (value >> 47);
    let mut hash = SEED ^ (bytes.len() as u64).wrapping_mul(MUL);
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        let word = mix(u64::from_le_bytes(*word).wrapping_mul(MUL)).wrapping_mul(MUL);
        hash = (hash ^ word).wrapping_mul(MUL);
    }
    if !rest.is_empty() {
        hash = (hash ^ little_endian(rest)).wrapping_mul(MUL);
    }
    mix(mix(hash).wrapping_mul(MUL))
}

/// SipHash with two rounds a word and four at the end.
pub(crate) fn siphash(key: [u64; 2], bytes: &[u8]) -> u64 {
    let mut state = [
        key[0] ^ 0x736f_6d65_7073_6575,
        key[1] ^ 0x646f_7261_6e64_6f6d,
        key[0] ^ 0x6c79_6765_6e65_7261,
        key[1] ^ 0x7465_6462_7974_6573,
    ];
    let mut absorb = |word: u64| {
        state[3] ^= word;
        (0..2).for_each(|_| sip_round(&mut state));
        state[0] ^= word;
    };
    let (words, rest) = bytes.as_chunks::<8>();
    words.iter().for_each(|word| absorb(u64::from_le_bytes(*word)));
    absorb(little_endian(rest) | ((bytes.len() as u64) << 56));
    state[2] ^= 0xff;
    (0..4).for_each(|_| sip_round(&mut state));
    state[0] ^ state[1] ^ state[2] ^ state[3]
}

fn sip_round([a, b, c, d]: &mut [u64; 4]) {
    *a = a.wrapping_add(*b);
    *c = c.wrapping_add(*d);
    *b = b.rotate_left(13) ^ *a;
    *d = d.rotate_left(16) ^ *c;
    *a = a.rotate_left(32);
    *c = c.wrapping_add(*b);
    *a = a.wrapping_add(*d);
    *b = b.rotate_left(17) ^ *c;
    *d = d.rotate_left(21) ^ *a;
    *c = c.rotate_left(32);
}

/// Up to seven bytes as a number.
fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}
