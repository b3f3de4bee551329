//! The 64-bit fingerprint of FarmHash, which TensorFlow's hash buckets and fingerprints use.
//!
//! The function is fixed for all time (`farmhash::Fingerprint64`): models depend on its values.

const K0: u64 = 0xc3a5_c85c_97cb_3127;
const K1: u64 = 0xb492_b66f_be98_f273;
const K2: u64 = 0x9ae1_6a3b_2f90_404f;

/// The fingerprint of `bytes`.
pub(crate) fn fingerprint64(bytes: &[u8]) -> u64 {
    match bytes.len() {
        0..=16 => up_to_16(bytes),
        17..=32 => up_to_32(bytes),
        33..=64 => up_to_64(bytes),
        _ => longer(bytes),
    }
}

/// TensorFlow's `FingerprintCat64`: a fingerprint of a sequence, one element at a time.
pub(crate) fn concatenate(a: u64, b: u64) -> u64 {
    const MUL: u64 = 0xc6a4_a793_5bd1_e995;
    let mut hash = a ^ MUL;
    hash ^= shift_mix(b.wrapping_mul(MUL)).wrapping_mul(MUL);
    hash = hash.wrapping_mul(MUL);
    hash = shift_mix(hash).wrapping_mul(MUL);
    shift_mix(hash)
}

fn up_to_16(s: &[u8]) -> u64 {
    let len = s.len();
    if len >= 8 {
        let mul = K2.wrapping_add(len as u64 * 2);
        let a = word(s, 0).wrapping_add(K2);
        let b = word(s, len - 8);
        let c = b.rotate_right(37).wrapping_mul(mul).wrapping_add(a);
        let d = a.rotate_right(25).wrapping_add(b).wrapping_mul(mul);
        return mix_pair(c, d, mul);
    }
    if len >= 4 {
        let mul = K2.wrapping_add(len as u64 * 2);
        let a = half_word(s, 0);
        return mix_pair((len as u64).wrapping_add(a << 3), half_word(s, len - 4), mul);
    }
    if len == 0 {
        return K2;
    }
    let [a, b, c] = [s[0], s[len / 2], s[len - 1]].map(u32::from);
    let y = a.wrapping_add(b << 8);
    let z = (len as u32).wrapping_add(c << 2);
    shift_mix(u64::from(y).wrapping_mul(K2) ^ u64::from(z).wrapping_mul(K0)).wrapping_mul(K2)
}

fn up_to_32(s: &[u8]) -> u64 {
    let len = s.len();
    let mul = K2.wrapping_add(len as u64 * 2);
    let a = word(s, 0).wrapping_mul(K1);
    let b = word(s, 8);
    let c = word(s, len - 8).wrapping_mul(mul);
    let d = word(s, len - 16).wrapping_mul(K2);
    mix_pair(
        rotated_sum(a, b, c, d),
        a.wrapping_add(b.wrapping_add(K2).rotate_right(18)).wrapping_add(c),
        mul,
    )
}

fn up_to_64(s: &[u8]) -> u64 {
    let len = s.len();
    let mul = K2.wrapping_add(len as u64 * 2);
    let a = word(s, 0).wrapping_mul(K2);
    let b = word(s, 8);
    let c = word(s, len - 8).wrapping_mul(mul);
    let d = word(s, len - 16).wrapping_mul(K2);
    let y = rotated_sum(a, b, c, d);
    let z = mix_pair(y, a.wrapping_add(b.wrapping_add(K2).rotate_right(18)).wrapping_add(c), mul);
    let e = word(s, 16).wrapping_mul(mul);
    let f = word(s, 24);
    let g = y.wrapping_add(word(s, len - 32)).wrapping_mul(mul);
    let h = z.wrapping_add(word(s, len - 24)).wrapping_mul(mul);
    mix_pair(
        rotated_sum(e, f, g, h),
        e.wrapping_add(f.wrapping_add(a).rotate_right(18)).wrapping_add(g),
        mul,
    )
}

fn longer(s: &[u8]) -> u64 {
    const SEED: u64 = 81;
    let y = SEED.wrapping_mul(K1).wrapping_add(113);
    let mut state = FarmhashState {
        x: SEED.wrapping_mul(K2).wrapping_add(word(s, 0)),
        y,
        z: shift_mix(y.wrapping_mul(K2).wrapping_add(113)).wrapping_mul(K2),
        v: (0, 0),
        w: (0, 0),
    };
    // All blocks of 64 bytes but the last, which may overlap the one before it.
    let rest = (s.len() - 1) % 64;
    for block in s[..s.len() - 1 - rest].chunks_exact(64) {
        state.absorb(block, K1, 1);
    }
    let mul = K1.wrapping_add((state.z & 0xff) << 1);
    state.w.0 = state.w.0.wrapping_add(rest as u64);
    state.v.0 = state.v.0.wrapping_add(state.w.0);
    state.w.0 = state.w.0.wrapping_add(state.v.0);
    state.absorb(&s[s.len() - 64..], mul, 9);
    let FarmhashState { x, y, z, v, w } = state;
    mix_pair(
        mix_pair(v.0, w.0, mul).wrapping_add(shift_mix(y).wrapping_mul(K0)).wrapping_add(z),
        mix_pair(v.1, w.1, mul).wrapping_add(x),
        mul,
    )
}

/// The state that is carried from block to block of a long string.
struct FarmhashState {
    x: u64,
    y: u64,
    z: u64,
    v: (u64, u64),
    w: (u64, u64),
}

impl FarmhashState {
    fn absorb(&mut self, block: &[u8], mul: u64, weight: u64) {
        let Self { x, y, z, v, w } = self;
        *x = x.wrapping_add(*y).wrapping_add(v.0).wrapping_add(word(block, 8));
        *x = x.rotate_right(37).wrapping_mul(mul) ^ w.1.wrapping_mul(weight);
        *y = y.wrapping_add(v.1).wrapping_add(word(block, 48)).rotate_right(42).wrapping_mul(mul);
        *y = y.wrapping_add(v.0.wrapping_mul(weight)).wrapping_add(word(block, 40));
        *z = z.wrapping_add(w.0).rotate_right(33).wrapping_mul(mul);
        *v = weak_pair(&block[..32], v.1.wrapping_mul(mul), x.wrapping_add(w.0));
        let seed = y.wrapping_add(word(block, 16));
        *w = weak_pair(&block[32..], z.wrapping_add(w.1), seed);
        std::mem::swap(z, x);
    }
}

fn weak_pair(block: &[u8], a: u64, b: u64) -> (u64, u64) {
    let [w, x, y, z] = [word(block, 0), word(block, 8), word(block, 16), word(block, 24)];
    let a = a.wrapping_add(w);
    let b = b.wrapping_add(a).wrapping_add(z).rotate_right(21);
    let sum = a.wrapping_add(x).wrapping_add(y);
    (sum.wrapping_add(z), b.wrapping_add(sum.rotate_right(44)).wrapping_add(a))
}

fn rotated_sum(a: u64, b: u64, c: u64, d: u64) -> u64 {
    a.wrapping_add(b).rotate_right(43).wrapping_add(c.rotate_right(30)).wrapping_add(d)
}

fn mix_pair(u: u64, v: u64, mul: u64) -> u64 {
    let a = shift_mix((u ^ v).wrapping_mul(mul));
    shift_mix((v ^ a).wrapping_mul(mul)).wrapping_mul(mul)
}

fn shift_mix(value: u64) -> u64 {
    value ^ (value >> 47)
}

fn word(s: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(s[at..at + 8].try_into().expect("eight bytes"))
}

fn half_word(s: &[u8], at: usize) -> u64 {
    u64::from(u32::from_le_bytes(s[at..at + 4].try_into().expect("four bytes")))
}
