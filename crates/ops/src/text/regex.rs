//! `RegexReplace`, `RegexFullMatch` and their static forms.
//!
//! Follows `regex_replace_op.cc` and `regex_full_match_op.cc` of TensorFlow, and `re2.cc` of RE2
//! for what an empty match and a wrong rewrite string mean.

use std::sync::Arc;

use parking_lot::Mutex;
use regex::bytes::{CaptureLocations, Regex};

use super::re2::{self, Pattern};
use crate::prelude::*;

pub(super) const STATIC_REPLACE: OpDef =
    OpDef::pure("StaticRegexReplace", RowRule::Elementwise, |attrs| {
        Ok(Box::new(StaticReplace {
            regex: re2::compile(attrs.bytes("pattern")?)?,
            rewrite: Rewrite::parse(attrs.bytes("rewrite")?),
            global: attrs.bool_or("replace_global", true)?,
        }))
    });
pub(super) const STATIC_FULL_MATCH: OpDef =
    OpDef::pure("StaticRegexFullMatch", RowRule::Elementwise, |attrs| {
        Ok(Box::new(StaticFullMatch(re2::compile_full(attrs.bytes("pattern")?)?)))
    });
pub(super) const REPLACE: OpDef = OpDef::pure("RegexReplace", RowRule::Elementwise, |attrs| {
    let global = attrs.bool_or("replace_global", true)?;
    Ok(Box::new(Replace { global, last: Last::default() }))
});
pub(super) const FULL_MATCH: OpDef = OpDef::pure("RegexFullMatch", RowRule::Elementwise, |_| {
    Ok(Box::new(FullMatch(Last::default())))
});

struct StaticReplace {
    regex: Pattern,
    rewrite: Rewrite,
    global: bool,
}

impl Op for StaticReplace {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [input] = arity(inputs)?;
        input.require_dtype(DType::String)?;
        Ok(vec![input.with_dtype(DType::String)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        replace_all_strings(ctx, &self.regex, &self.rewrite, self.global)
    }
}

struct StaticFullMatch(Pattern);

impl Op for StaticFullMatch {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [input] = arity(inputs)?;
        input.require_dtype(DType::String)?;
        Ok(vec![input.with_dtype(DType::Bool)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        match_all_strings(ctx, &self.0)
    }
}

struct Replace {
    global: bool,
    last: Last,
}

impl Op for Replace {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [input, pattern, rewrite] = arity(inputs)?;
        inputs.iter().try_for_each(|input| input.require_dtype(DType::String))?;
        pattern.require_rank(0)?;
        rewrite.require_rank(0)?;
        Ok(vec![input.with_dtype(DType::String)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let regex = self.last.get(scalar(ctx, 1, "Pattern")?, re2::compile)?;
        let rewrite = scalar(ctx, 2, "Rewrite")?;
        // Each group in it is a piece, and so is the text before.
        let _booked = Booked::new(rewrite.len().saturating_mul(PIECE_BYTES))?;
        let rewrite = Rewrite::parse(rewrite);
        replace_all_strings(ctx, &regex, &rewrite, self.global)
    }
}

/// The bytes that a byte of a rewrite takes at most when it is parsed.
const PIECE_BYTES: usize = 64;

struct FullMatch(Last);

impl Op for FullMatch {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [input, pattern] = arity(inputs)?;
        inputs.iter().try_for_each(|input| input.require_dtype(DType::String))?;
        pattern.require_rank(0)?;
        Ok(vec![input.with_dtype(DType::Bool)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let regex = self.0.get(scalar(ctx, 1, "Pattern")?, re2::compile_full)?;
        match_all_strings(ctx, &regex)
    }
}

/// The pattern of the last run, compiled: most graphs give the same one each time.
#[derive(Default)]
struct Last(Mutex<Option<(Vec<u8>, Arc<Pattern>)>>);

impl Last {
    fn get(&self, pattern: &[u8], compile: fn(&[u8]) -> Result<Pattern>) -> Result<Arc<Pattern>> {
        if let Some((_, regex)) = self.0.lock().as_ref().filter(|(last, _)| last == pattern) {
            return Ok(Arc::clone(regex));
        }
        let regex = Arc::new(compile(pattern)?);
        *self.0.lock() = Some((pattern.to_vec(), Arc::clone(&regex)));
        Ok(regex)
    }
}

fn scalar<'a>(ctx: &Ctx<'a>, index: usize, name: &str) -> Result<&'a [u8]> {
    let view = ctx.input(index);
    if view.shape().rank() != 0 {
        return invalid!("{name} must be scalar, but received {}", view.shape());
    }
    Ok(view.strings().get(0))
}

fn match_all_strings(ctx: &mut Ctx<'_>, regex: &Regex) -> Result<()> {
    let input = ctx.input(0);
    let mut output = ctx.output(0, DType::Bool, input.shape())?;
    for (out, string) in output.as_mut_slice::<u8>().iter_mut().zip(input.strings().iter()) {
        pace(32 + string.len())?;
        *out = u8::from(regex.is_match(string));
    }
    Ok(())
}

fn replace_all_strings(
    ctx: &mut Ctx<'_>,
    regex: &Regex,
    rewrite: &Rewrite,
    global: bool,
) -> Result<()> {
    let input = ctx.input(0);
    let strings = input.strings();
    if !rewrite.fits(regex, global) {
        // RE2 then replaces nothing.
        return ctx.forward(0, input, input.shape().clone());
    }
    let mut out = Strings::with_capacity(strings.len(), strings.n_bytes())?;
    let mut groups = regex.capture_locations();
    for string in strings.iter() {
        ctx.env().cancel.check()?;
        let mut replacement = Replacement { regex, rewrite, groups: &mut groups };
        if global {
            replacement.replace_each(string, &mut out)?;
        } else {
            replacement.replace_first(string, &mut out)?;
        }
        out.end()?;
    }
    ctx.set_output(0, Tensor::from_strings(input.shape().clone(), out)?)
}

/// The replacement of a match: pieces of text, and groups of the match.
struct Rewrite {
    pieces: Vec<RegexPiece>,
    /// Set when the rewrite ended at a backslash that nothing known follows.
    is_malformed: bool,
}

enum RegexPiece {
    Text(Vec<u8>),
    Group(usize),
}

impl Rewrite {
    fn parse(rewrite: &[u8]) -> Self {
        let mut pieces = Vec::new();
        let mut text = Vec::new();
        let mut bytes = rewrite.iter();
        while let Some(byte) = bytes.next() {
            if *byte != b'\\' {
                text.push(*byte);
                continue;
            }
            match bytes.next() {
                Some(digit @ b'0'..=b'9') => {
                    pieces.push(RegexPiece::Text(std::mem::take(&mut text)));
                    pieces.push(RegexPiece::Group(usize::from(digit - b'0')));
                }
                Some(b'\\') => text.push(b'\\'),
                _ => {
                    pieces.push(RegexPiece::Text(text));
                    return Self { pieces, is_malformed: true };
                }
            }
        }
        pieces.push(RegexPiece::Text(text));
        Self { pieces, is_malformed: false }
    }

    /// Returns whether RE2 would replace at all. A malformed string is only cut short when it
    /// replaces all matches, but refused when it replaces one.
    fn fits(&self, regex: &Regex, global: bool) -> bool {
        (global || !self.is_malformed) && self.groups().all(|group| group < regex.captures_len())
    }

    fn groups(&self) -> impl Iterator<Item = usize> {
        self.pieces.iter().filter_map(|piece| match piece {
            RegexPiece::Text(_) => None,
            RegexPiece::Group(group) => Some(*group),
        })
    }

    fn needs_groups(&self) -> bool {
        self.groups().any(|group| group > 0)
    }
}

/// One string being replaced in.
struct Replacement<'r> {
    regex: &'r Regex,
    rewrite: &'r Rewrite,
    groups: &'r mut CaptureLocations,
}

impl Replacement<'_> {
    fn replace_first(&mut self, string: &[u8], out: &mut Strings) -> Result<()> {
        let Some((start, end)) = self.find(string, 0) else {
            return Ok(out.extend_last(string)?);
        };
        out.extend_last(&string[..start])?;
        self.write((start, end), string, out)?;
        Ok(out.extend_last(&string[end..])?)
    }

    fn replace_each(&mut self, string: &[u8], out: &mut Strings) -> Result<()> {
        let mut at = 0;
        let mut last_end = None;
        while at <= string.len() {
            let Some((start, end)) = self.find(string, at) else { break };
            out.extend_last(&string[at..start])?;
            if start == end && last_end == Some(start) {
                // An empty match right after a match does not count: go on behind the character.
                let next = (start + character_len(&string[start..])).min(string.len());
                out.extend_last(&string[start..next])?;
                at = next.max(start + 1);
                continue;
            }
            self.write((start, end), string, out)?;
            at = end;
            last_end = Some(end);
        }
        if at < string.len() {
            out.extend_last(&string[at..])?;
        }
        Ok(())
    }

    fn find(&mut self, string: &[u8], at: usize) -> Option<(usize, usize)> {
        let found = if self.rewrite.needs_groups() {
            self.regex.captures_read_at(self.groups, string, at)
        } else {
            self.regex.find_at(string, at)
        };
        found.map(|found| (found.start(), found.end()))
    }

    fn write(&self, (start, end): (usize, usize), string: &[u8], out: &mut Strings) -> Result<()> {
        for piece in &self.rewrite.pieces {
            match piece {
                RegexPiece::Text(text) => out.extend_last(text)?,
                RegexPiece::Group(0) => out.extend_last(&string[start..end])?,
                RegexPiece::Group(group) => {
                    if let Some((start, end)) = self.groups.get(*group) {
                        out.extend_last(&string[start..end])?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// The bytes of the first character, or 1 where they are no UTF-8.
fn character_len(bytes: &[u8]) -> usize {
    let head = &bytes[..bytes.len().min(4)];
    head.utf8_chunks()
        .next()
        .and_then(|chunk| chunk.valid().chars().next())
        .map_or(1, char::len_utf8)
}
