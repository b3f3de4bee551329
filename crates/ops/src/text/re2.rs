//! Patterns in RE2's syntax, rewritten for the `regex` crate.
//!
//! The two agree on what a regular expression means, and both take linear time. They differ in
//! spelling: in RE2 `\d`, `\s`, `\w` and `\b` know ASCII only, a class has no operators (`&&`,
//! `--`, nesting), a brace that counts nothing is a brace, and any punctuation may be escaped.
//! Every literal is therefore written as a number, so that only what RE2 takes for an operator is
//! one.

use std::iter::Peekable;
use std::ops::Deref;
use std::str::Chars;

use regex::bytes::{Regex, RegexBuilder};

use crate::prelude::*;

/// The most bytes that a compiled pattern may take; the limit of RE2 is 8 MiB.
const SIZE_LIMIT_BYTES: usize = 10 << 20;

/// The bytes that a compiled pattern and what it keeps from match to match are booked as: so many,
/// and so many more for each byte of the pattern. The `regex` crate does not say what it takes.
const BOOKED_BYTES: usize = 512 << 10;
const BOOKED_BYTES_PER_BYTE: usize = 512;

/// The highest count in `{n,m}`, which is RE2's.
const REPEAT_MAX: u32 = 1000;

/// A parsed part of a pattern, or the error in it.
type Re2Parsed<T> = std::result::Result<T, String>;

/// A compiled pattern, with its bytes in the books.
pub(super) struct Pattern {
    regex: Regex,
    /// Kept for its drop.
    _booked: Booked,
}

impl Deref for Pattern {
    type Target = Regex;

    fn deref(&self) -> &Regex {
        &self.regex
    }
}

/// Compiles a pattern that is searched for.
pub(super) fn compile(pattern: &[u8]) -> Result<Pattern> {
    build(pattern, "", "")
}

/// Compiles a pattern that must match a whole string.
pub(super) fn compile_full(pattern: &[u8]) -> Result<Pattern> {
    build(pattern, r"\A(?:", r")\z")
}

fn build(pattern: &[u8], before: &str, after: &str) -> Result<Pattern> {
    let n_bytes = pattern.len().saturating_mul(BOOKED_BYTES_PER_BYTE).saturating_add(BOOKED_BYTES);
    let booked = Booked::new(n_bytes)?;
    let refuse = |why: &str| {
        let pattern = String::from_utf8_lossy(pattern);
        Error::InvalidArgument(format!("Invalid pattern: {pattern}, error: {why}"))
    };
    let text = std::str::from_utf8(pattern).map_err(|_| refuse("invalid UTF-8"))?;
    let translated = translate(text).map_err(|why| refuse(&why))?;
    let whole = format!("{before}{translated}{after}");
    let built = RegexBuilder::new(&whole).size_limit(SIZE_LIMIT_BYTES).build();
    let regex = built.map_err(|error| refuse(&error.to_string()))?;
    Ok(Pattern { regex, _booked: booked })
}

/// The pattern in the syntax of the `regex` crate, or what is wrong with it.
fn translate(pattern: &str) -> Re2Parsed<String> {
    let mut translator = Translator { rest: pattern.chars().peekable(), out: String::new() };
    while let Some(c) = translator.rest.next() {
        translator.item(c)?;
    }
    Ok(translator.out)
}

struct Translator<'p> {
    rest: Peekable<Chars<'p>>,
    out: String,
}

/// The meaning of an escape.
enum Escape {
    Literal(char),
    /// A class in the `regex` crate's syntax.
    Class(String),
    /// Anything else outside of a class.
    Assertion(&'static str),
}

impl Translator<'_> {
    fn item(&mut self, c: char) -> Re2Parsed<()> {
        match c {
            '\\' if self.rest.next_if_eq(&'Q').is_some() => self.quoted(),
            '\\' => match self.escape()? {
                Escape::Literal(c) => literal(c, &mut self.out),
                Escape::Class(class) => self.out.push_str(&class),
                Escape::Assertion(text) => self.out.push_str(text),
            },
            '[' => self.class()?,
            '(' => self.group()?,
            '*' | '+' | '?' => {
                self.out.push(c);
                self.after_repeat()?;
            }
            '{' => match self.count()? {
                Some(count) => {
                    self.out.push_str(&count);
                    self.after_repeat()?;
                }
                None => literal(c, &mut self.out),
            },
            '.' | '^' | '$' | '|' | ')' => self.out.push(c),
            _ => literal(c, &mut self.out),
        }
        Ok(())
    }

    /// `\Q…\E`, the end of which may be missing.
    fn quoted(&mut self) {
        while let Some(c) = self.rest.next() {
            if c == '\\' && self.rest.next_if_eq(&'E').is_some() {
                return;
            }
            literal(c, &mut self.out);
        }
    }

    /// `(`, with flags or a name.
    fn group(&mut self) -> Re2Parsed<()> {
        self.out.push('(');
        if self.rest.next_if_eq(&'?').is_none() {
            return Ok(());
        }
        self.out.push('?');
        if let Some(c) = self.rest.next_if(|c| matches!(c, 'P' | '<')) {
            self.out.push(c);
            return Ok(());
        }
        loop {
            match self.rest.next() {
                Some(c @ ('i' | 'm' | 's' | 'U' | '-')) => self.out.push(c),
                Some(c @ (':' | ')')) => {
                    self.out.push(c);
                    return Ok(());
                }
                other => return Err(format!("invalid perl operator: (?{}", show(other))),
            }
        }
    }

    /// Reads the text that may follow a repetition: a mark that it is lazy, and no other
    /// repetition.
    fn after_repeat(&mut self) -> Re2Parsed<()> {
        if self.rest.next_if_eq(&'?').is_some() {
            self.out.push('?');
        }
        let mut ahead = Translator { rest: self.rest.clone(), out: String::new() };
        let again = match ahead.rest.next() {
            Some('*' | '+' | '?') => true,
            Some('{') => ahead.count()?.is_some(),
            _ => false,
        };
        if again { Err("bad repetition operator".to_owned()) } else { Ok(()) }
    }

    /// `{n}`, `{n,}` or `{n,m}` behind its brace; `None`, and nothing taken, if it is none of them.
    fn count(&mut self) -> Re2Parsed<Option<String>> {
        let mut ahead = self.rest.clone();
        let mut inner = String::new();
        loop {
            match ahead.next() {
                Some('}') => break,
                Some(c) if c == ',' || c.is_ascii_digit() => inner.push(c),
                _ => return Ok(None),
            }
        }
        let (low, high) = inner.split_once(',').unwrap_or((&inner, ""));
        if low.is_empty() || high.contains(',') {
            return Ok(None);
        }
        let too_large = |n: &str| !n.is_empty() && n.parse().map_or(true, |n: u32| n > REPEAT_MAX);
        if too_large(low) || too_large(high) {
            return Err("invalid repetition size".to_owned());
        }
        self.rest = ahead;
        Ok(Some(format!("{{{inner}}}")))
    }

    /// `[…]` behind its bracket.
    fn class(&mut self) -> Re2Parsed<()> {
        self.out.push('[');
        if self.rest.next_if_eq(&'^').is_some() {
            self.out.push('^');
        }
        let mut is_first = true;
        loop {
            let c = self.rest.next().ok_or("missing ]")?;
            if c == ']' && !is_first {
                self.out.push(']');
                return Ok(());
            }
            is_first = false;
            if c == '[' && self.rest.peek() == Some(&':') && self.named_class()? {
                continue;
            }
            match self.class_member(c)? {
                Escape::Literal(low) => self.range(low)?,
                Escape::Class(class) => self.out.push_str(&class),
                Escape::Assertion(_) => return Err("invalid escape sequence".to_owned()),
            }
        }
    }

    fn class_member(&mut self, c: char) -> Re2Parsed<Escape> {
        if c == '\\' { self.escape() } else { Ok(Escape::Literal(c)) }
    }

    /// A character of a class, or a range that starts with it.
    fn range(&mut self, low: char) -> Re2Parsed<()> {
        let mut ahead = self.rest.clone();
        let is_range = ahead.next() == Some('-') && ahead.next().is_some_and(|c| c != ']');
        literal(low, &mut self.out);
        if !is_range {
            return Ok(());
        }
        self.rest.next();
        let c = self.rest.next().ok_or("missing ]")?;
        let Escape::Literal(high) = self.class_member(c)? else {
            return Err("invalid character class range".to_owned());
        };
        if low > high {
            return Err("invalid character class range".to_owned());
        }
        self.out.push('-');
        literal(high, &mut self.out);
        Ok(())
    }

    /// `[:alpha:]` behind its first bracket; false, and nothing taken, if it is not closed.
    fn named_class(&mut self) -> Re2Parsed<bool> {
        const NAMES: &[&str] = &[
            "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print",
            "punct", "space", "upper", "word", "xdigit",
        ];
        let rest: String = self.rest.clone().skip(1).take_while(|c| *c != ']').collect();
        let Some(name) = rest.strip_suffix(':') else { return Ok(false) };
        if !NAMES.contains(&name.strip_prefix('^').unwrap_or(name)) {
            return Err(format!("invalid character class range: [:{name}:]"));
        }
        self.out.push_str(&format!("[:{name}:]"));
        // The colon in front, the name, the colon behind and the bracket.
        self.rest.nth(rest.len() + 1);
        Ok(true)
    }

    /// An escape behind its backslash.
    fn escape(&mut self) -> Re2Parsed<Escape> {
        let c = self.rest.next().ok_or("trailing \\")?;
        let class = |text: &str| Ok(Escape::Class(text.to_owned()));
        match c {
            'd' => class("[0-9]"),
            'D' => class("[^0-9]"),
            'w' => class("[0-9A-Za-z_]"),
            'W' => class("[^0-9A-Za-z_]"),
            's' => class(r"[\t\n\f\r\x20]"),
            'S' => class(r"[^\t\n\f\r\x20]"),
            'p' | 'P' => self.property(c == 'P').map(Escape::Class),
            'b' => Ok(Escape::Assertion(r"(?-u:\b)")),
            'B' => Ok(Escape::Assertion(r"(?-u:\B)")),
            'A' => Ok(Escape::Assertion(r"\A")),
            'z' => Ok(Escape::Assertion(r"\z")),
            'C' => Ok(Escape::Assertion("(?s-u:.)")),
            _ => self.escaped_literal(c).map(Escape::Literal),
        }
    }

    fn escaped_literal(&mut self, c: char) -> Re2Parsed<char> {
        match c {
            'a' => Ok('\x07'),
            'f' => Ok('\x0c'),
            't' => Ok('\t'),
            'n' => Ok('\n'),
            'r' => Ok('\r'),
            'v' => Ok('\x0b'),
            'x' => self.hexadecimal(),
            '0' => Ok(self.octal(0)),
            // A single digit would refer back to a group, which RE2 does not do.
            '1'..='7' if self.rest.peek().is_some_and(|d| d.is_digit(8)) => {
                Ok(self.octal(c.to_digit(8).unwrap_or(0)))
            }
            c if c.is_ascii() && !c.is_ascii_alphanumeric() => Ok(c),
            c => Err(format!("invalid escape sequence: \\{c}")),
        }
    }

    /// Up to two more octal digits.
    fn octal(&mut self, first: u32) -> char {
        let mut value = first;
        for _ in 0..2 {
            let Some(digit) = self.rest.peek().and_then(|d| d.to_digit(8)) else { break };
            value = value * 8 + digit;
            self.rest.next();
        }
        char::from_u32(value).unwrap_or('\0')
    }

    /// `\xHH` or `\x{H…}` behind the x.
    fn hexadecimal(&mut self) -> Re2Parsed<char> {
        let digits: String = if self.rest.next_if_eq(&'{').is_some() {
            self.rest.by_ref().take_while(|c| *c != '}').collect()
        } else {
            self.rest.by_ref().take(2).collect()
        };
        let value = u32::from_str_radix(&digits, 16).ok().filter(|_| !digits.starts_with('+'));
        value
            .and_then(char::from_u32)
            .ok_or_else(|| format!("invalid escape sequence: \\x{digits}"))
    }

    /// `\pN`, `\p{Greek}` or `\p{^Greek}` behind the p.
    fn property(&mut self, is_negated: bool) -> Re2Parsed<String> {
        let name: String = match self.rest.next() {
            Some('{') => self.rest.by_ref().take_while(|c| *c != '}').collect(),
            Some(c) => c.to_string(),
            None => return Err("invalid character class range".to_owned()),
        };
        let (name, inner_negated) = name.strip_prefix('^').map_or((&*name, false), |n| (n, true));
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphabetic() || c == '_') {
            return Err(format!("invalid character class range: \\p{{{name}}}"));
        }
        let letter = if is_negated == inner_negated { 'p' } else { 'P' };
        Ok(format!("\\{letter}{{{name}}}"))
    }
}

/// Writes a character so that it stands for itself, in a class and outside of it.
fn literal(c: char, out: &mut String) {
    if c.is_ascii_alphanumeric() || !c.is_ascii() {
        out.push(c);
    } else {
        out.push_str(&format!("\\x{:02X}", u32::from(c)));
    }
}

fn show(c: Option<char>) -> String {
    c.map(String::from).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pattern: &str, matches: &[&str], others: &[&str]) {
        let regex = compile_full(pattern.as_bytes()).unwrap();
        for text in matches {
            assert!(regex.is_match(text.as_bytes()), "{pattern} should match {text:?}");
        }
        for text in others {
            assert!(!regex.is_match(text.as_bytes()), "{pattern} should not match {text:?}");
        }
    }

    #[test]
    fn classes_have_no_operators() {
        check("[a&&b]", &["a", "&", "b"], &["&&"]);
        check("[[a]", &["[", "a"], &["]"]);
        check("[]a]", &["]", "a"], &["["]);
        check("[^]a]", &["b"], &["]", "a"]);
        check("[a~~b-]", &["~", "-"], &["c"]);
        check("[[:alpha:]_]+", &["aB_"], &["1"]);
        check("[+-z]", &["-", "a", "+"], &["{"]);
    }

    #[test]
    fn perl_classes_are_ascii() {
        check(r"\w+", &["a1_"], &["é"]);
        check(r"\d\s", &["1\t"], &["١ ", "1\x0b"]);
        check(r"[\W\d]", &["é", "1"], &["a"]);
    }

    #[test]
    fn braces_and_escapes_mean_what_they_mean_in_re2() {
        check("a{,2}", &["a{,2}"], &["aa"]);
        check("a{2,}", &["aaa"], &["a"]);
        check(r"\<a\>\-\ \_", &["<a>- _"], &["a"]);
        check(r"\Qa.b*\E.", &["a.b*c"], &["axb*c"]);
        check(r"\101\x42\x{43}\0", &["ABC\0"], &[]);
    }

    #[test]
    fn wrong_patterns_are_refused() {
        let wrong =
            ["a**", "a{1001}", "(", "[", "[b-a]", r"\1", r"\y", "(?=a)", "(?x)a", r"\", "*a"];
        for pattern in wrong {
            assert!(compile(pattern.as_bytes()).is_err(), "{pattern}");
        }
        assert!(compile(b"\xff").is_err());
    }
}
