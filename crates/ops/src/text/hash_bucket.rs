//! `StringToHashBucket`, `StringToHashBucketFast` and `StringToHashBucketStrong`: a string's hash
//! modulo a number of buckets.

use super::farmhash::fingerprint64;
use super::hashes::{murmur64, siphash};
use crate::prelude::*;

pub(super) const PLAIN: OpDef =
    OpDef::pure("StringToHashBucket", RowRule::Elementwise, |attrs| build(attrs, Hash::Murmur));
pub(super) const FAST: OpDef =
    OpDef::pure("StringToHashBucketFast", RowRule::Elementwise, |attrs| build(attrs, Hash::Farm));
pub(super) const STRONG: OpDef =
    OpDef::pure("StringToHashBucketStrong", RowRule::Elementwise, |attrs| {
        let &[a, b] = attrs.ints("key")? else {
            return invalid!("Key must have 2 elements");
        };
        build(attrs, Hash::Sip([a as u64, b as u64]))
    });

fn build(attrs: &Attrs<'_>, hash: Hash) -> Result<Box<dyn Op>> {
    match u64::try_from(attrs.int("num_buckets")?) {
        Ok(n_buckets) if n_buckets > 0 => Ok(Box::new(HashBucket { n_buckets, hash })),
        _ => invalid!("num_buckets must be at least 1"),
    }
}

struct HashBucket {
    n_buckets: u64,
    hash: Hash,
}

#[derive(Clone, Copy)]
enum Hash {
    Murmur,
    Farm,
    Sip([u64; 2]),
}

impl Op for HashBucket {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [strings] = arity(inputs)?;
        strings.require_dtype(DType::String)?;
        Ok(vec![strings.with_dtype(DType::I64)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let input = ctx.input(0);
        let mut output = ctx.output(0, DType::I64, input.shape())?;
        let buckets = output.as_mut_slice::<i64>();
        for (bucket, string) in buckets.iter_mut().zip(input.strings().iter()) {
            pace(8 + string.len())?;
            let hash = match self.hash {
                Hash::Murmur => murmur64(string),
                Hash::Farm => fingerprint64(string),
                Hash::Sip(key) => siphash(key, string),
            };
            *bucket = (hash % self.n_buckets) as i64;
        }
        Ok(())
    }
}
