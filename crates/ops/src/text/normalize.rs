//! `NormalizeUTF8` and `CaseFoldUTF8` of TensorFlow Text: Unicode normalization forms, and text
//! folded so that texts which differ only in case compare equal.
//!
//! Follows `normalize_kernels.cc` of TensorFlow Text: bytes that are no UTF-8 stay as they are, and
//! nothing is composed across them. Folding is Unicode's `NFKC_Casefold`; its table is that of
//! TensorFlow Text's ICU, and `tools/opsuite/unicode_casefold.py` writes it.

use std::sync::OnceLock;

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::decompose_compatible;

use crate::prelude::*;

pub(super) const NORMALIZE: OpDef = OpDef::pure("NormalizeUTF8", RowRule::Elementwise, |attrs| {
    Ok(Box::new(Normalize { form: NormalizeForm::parse(attrs.str("normalization_form")?)? }))
});
pub(super) const CASE_FOLD: OpDef = OpDef::pure("CaseFoldUTF8", RowRule::Elementwise, |_| {
    Ok(Box::new(Normalize { form: NormalizeForm::CaseFold }))
});

/// Bytes of scratch memory for each byte of text: composing keeps marks that follow each other
/// until the next letter, with their classes, in vectors that double.
const SCRATCH_FACTOR: usize = 40;

struct Normalize {
    form: NormalizeForm,
}

/// The form that a text is brought to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NormalizeForm {
    Nfc,
    Nfd,
    Nfkc,
    Nfkd,
    CaseFold,
}

impl NormalizeForm {
    fn parse(name: &str) -> Result<Self> {
        match name.to_ascii_uppercase().as_str() {
            "NFC" => Ok(Self::Nfc),
            "NFD" => Ok(Self::Nfd),
            "NFKC" => Ok(Self::Nfkc),
            "NFKD" => Ok(Self::Nfkd),
            // The spelling is TensorFlow's.
            _ => invalid!("Unknown normalization form requrested: {name}"),
        }
    }
}

impl Op for Normalize {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [input] = arity(inputs)?;
        input.require_dtype(DType::String)?;
        Ok(vec![input.with_dtype(DType::String)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let input = ctx.input(0);
        let strings = input.strings();
        let mut out = Strings::with_capacity(strings.len(), strings.n_bytes())?;
        let mut text = BookedVec::new();
        for string in strings.iter() {
            ctx.env().cancel.check()?;
            text.clear();
            if string.is_ascii() {
                text.extend_from_slice(string)?;
                if self.form == NormalizeForm::CaseFold {
                    text.make_ascii_lowercase();
                }
            } else {
                let _booked = Booked::new(string.len().saturating_mul(SCRATCH_FACTOR))?;
                convert(self.form, string, &mut text)?;
            }
            out.push(&text)?;
        }
        ctx.set_output(0, Tensor::from_strings(input.shape().clone(), out)?)
    }
}

/// Appends what becomes of a text. Bytes that are no UTF-8 are appended as they are.
fn convert(form: NormalizeForm, bytes: &[u8], out: &mut BookedVec<u8>) -> Result<()> {
    for chunk in bytes.utf8_chunks() {
        let valid = chunk.valid();
        match form {
            NormalizeForm::Nfc => append(valid.nfc(), out)?,
            NormalizeForm::Nfd => append(valid.nfd(), out)?,
            NormalizeForm::Nfkc => append(valid.nfkc(), out)?,
            NormalizeForm::Nfkd => append(valid.nfkd(), out)?,
            NormalizeForm::CaseFold => append(fold(valid)?.iter().copied().nfc(), out)?,
        }
        out.extend_from_slice(chunk.invalid())?;
    }
    Ok(())
}

fn append(chars: impl Iterator<Item = char>, out: &mut BookedVec<u8>) -> Result<()> {
    for char in chars {
        out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes())?;
    }
    Ok(())
}

/// The characters of a text, each folded by itself, as `NFKC_Casefold` maps them; composing them
/// comes next.
fn fold(text: &str) -> Result<BookedVec<char>> {
    let mut folded = BookedVec::new();
    for char in text.chars() {
        if let Some(to) = folded_char(char) {
            folded.extend_from_slice(to)?;
            continue;
        }
        let mut outcome = Ok(());
        decompose_compatible(char, |part| {
            let to = folded_char(part).unwrap_or(std::slice::from_ref(&part));
            if outcome.is_ok() {
                outcome = folded.extend_from_slice(to);
            }
        });
        outcome?;
    }
    Ok(folded)
}

/// The characters that folding makes of one beyond its compatibility decomposition; `None` if it
/// makes nothing else of it.
fn folded_char(char: char) -> Option<&'static [char]> {
    let table = table();
    let behind = table.partition_point(|folds| folds.first <= char);
    let folds = table[..behind].last().filter(|folds| char <= folds.last)?;
    Some(&folds.to[..folds.n])
}

/// Characters that become the same.
#[derive(Debug, Clone, Copy)]
struct Folds {
    first: char,
    last: char,
    /// The characters that they become, in the first `n` places.
    to: [char; 2],
    n: usize,
}

/// The lines of the table, in order.
fn table() -> &'static [Folds] {
    static TABLE: OnceLock<Vec<Folds>> = OnceLock::new();
    TABLE.get_or_init(|| {
        let text = include_str!("casefold.txt");
        // The exact capacity: a vector that grows would take twice of what it needs meanwhile.
        let mut table = Vec::with_capacity(text.lines().count());
        table.extend(text.lines().filter_map(parse_line));
        table
    })
}

/// Reads `point point...`, or `first-last` for characters that are left out.
fn parse_line(line: &str) -> Option<Folds> {
    let char = |hex: &str| u32::from_str_radix(hex, 16).ok().and_then(char::from_u32);
    let mut words = line.split(' ');
    let from = words.next()?;
    let (first, last) = from.split_once('-').unwrap_or((from, from));
    let mut folds = Folds { first: char(first)?, last: char(last)?, to: ['\0'; 2], n: 0 };
    for word in words {
        *folds.to.get_mut(folds.n)? = char(word)?;
        folds.n += 1;
    }
    Some(folds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_read() {
        assert_eq!(table().len(), include_str!("casefold.txt").lines().count());
        assert!(table().windows(2).all(|pair| pair[0].last < pair[1].first));
        assert_eq!(folded_char('A'), Some(&['a'][..]));
        assert_eq!(folded_char('ß'), Some(&['s', 's'][..]));
        assert_eq!(folded_char('\u{e0fff}'), Some(&[][..]));
        assert_eq!(folded_char('a'), None);
    }
}
