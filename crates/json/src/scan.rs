//! Reads past values, checking their syntax; and the outline of a document that a careful reading
//! needs: where the members of its object are, and how long its lists are.

use status::{Result, Status, nearest};

use super::cursor::{Cursor, Kind};
use super::quote::quoted;
use super::syntax::{self, Syntax};

/// Lists inside more lists than this are not measured: no tensor has so many dimensions.
const LISTS_MAX: usize = 260;

/// A document of which the syntax is right, and whose root is an object.
#[derive(Debug)]
pub(crate) struct Document<'a> {
    text: &'a [u8],
    start: usize,
    /// Members that somebody may ask for, by name; the first of each name.
    members: Vec<(&'static str, usize)>,
    sizes: Sizes,
    /// The first key that nobody asks for, if it is short.
    stranger: Option<String>,
}

/// A key as long as this is not compared with those that are known.
const STRANGER_MAX: usize = 32;

/// The number of elements of each list, by the place of its bracket.
#[derive(Debug, Default)]
pub(crate) struct Sizes(Vec<(usize, u32)>);

/// The members of requests.
pub(crate) const SIGNATURE: &str = "signature_name";
pub(crate) const INSTANCES: &str = "instances";
pub(crate) const INPUTS: &str = "inputs";
pub(crate) const CONTEXT: &str = "context";
pub(crate) const EXAMPLES: &str = "examples";
const KNOWN: [&str; 5] = [SIGNATURE, INSTANCES, INPUTS, CONTEXT, EXAMPLES];

impl<'a> Document<'a> {
    /// Checks a text from its beginning to the end of the first value. What comes behind that is
    /// ignored.
    pub(crate) fn scan(text: &'a [u8]) -> Result<Self> {
        if text.is_empty() {
            return Err(Status::invalid("JSON Parse error: The document is empty"));
        }
        let mut cursor = Cursor::new(text);
        let first = cursor.skip_blanks();
        if matches!(first, 0 | b']' | b'}' | b',' | b':') {
            return Err(Syntax::new(syntax::EMPTY, cursor.at).into());
        }
        let start = cursor.at;
        let mut document =
            Self { text, start, members: Vec::new(), sizes: Sizes::default(), stranger: None };
        if first != b'{' {
            skip(&mut cursor, None)?;
            return Err(document.invalid("Is not object"));
        }
        cursor.at += 1;
        if cursor.skip_blanks() == b'}' {
            return Ok(document);
        }
        loop {
            let name = key(&mut cursor)?;
            let known = KNOWN.iter().find(|known| name.is(known));
            if let Some(known) = known
                && document.find(known).is_none()
            {
                document.members.push((known, cursor.at));
            }
            if known.is_none() && document.stranger.is_none() {
                document.stranger = Some(name.to_text()).filter(|key| key.len() < STRANGER_MAX);
            }
            skip(&mut cursor, Some(&mut document.sizes))?;
            if end_of_member(&mut cursor)? {
                return Ok(document);
            }
        }
    }

    /// The value of a member.
    pub(crate) fn find(&self, name: &str) -> Option<Cursor<'a>> {
        let (_, at) = self.members.iter().find(|member| member.0 == name)?;
        Some(Cursor { text: self.text, at: *at })
    }

    /// A hint about the keys of a request, for one that lacks them.
    pub(crate) fn meant(&self) -> String {
        let taken = "a request is {\"instances\": [...]}, a list with one entry for each row, or \
                     {\"inputs\": {...}}, a tensor for each input";
        let nearest = self.stranger.as_deref().and_then(|key| nearest(key, KNOWN));
        let meant = nearest.map(|name| format!("did you mean the key \"{name}\"? "));
        meant.unwrap_or_default() + taken
    }

    /// The signature that the request names; empty if it names none.
    pub(crate) fn signature_name(&self) -> Result<String> {
        match self.find(SIGNATURE) {
            None => Ok(String::new()),
            Some(mut value) if value.kind() == Kind::String => Ok(value.string()?.to_text()),
            Some(_) => Err(self
                .invalid("not formatted correctly. 'signature_name' key must be a string value.")),
        }
    }

    /// The number of elements of the list at a cursor.
    pub(crate) fn size(&self, list: &Cursor<'_>) -> usize {
        self.sizes.get(list.at)
    }

    /// The request is wrong as a whole.
    pub(crate) fn invalid(&self, what: &str) -> Status {
        let root = Cursor { text: self.text, at: self.start };
        Status::invalid(format!("JSON Value: {} {what}", quoted(root)))
    }
}

impl Sizes {
    /// The number of elements of the list whose bracket is at a place. 0 if it was not measured.
    fn get(&self, at: usize) -> usize {
        let found = self.0.binary_search_by_key(&at, |list| list.0);
        found.map_or(0, |number| self.0[number].1 as usize)
    }
}

/// The lists and objects around a place. Takes a bit for each, whatever is in them.
#[derive(Default)]
struct Nesting {
    /// A set bit is a list.
    bits: Vec<u64>,
    depth: usize,
}

impl Nesting {
    fn push(&mut self, is_list: bool) {
        let (word, bit) = (self.depth / 64, self.depth % 64);
        if word == self.bits.len() {
            self.bits.push(0);
        }
        self.bits[word] = self.bits[word] & !(1 << bit) | (u64::from(is_list) << bit);
        self.depth += 1;
    }

    fn pop(&mut self) {
        self.depth -= 1;
    }

    /// Returns whether the innermost container is a list; `None` outside of all.
    fn is_list(&self) -> Option<bool> {
        let last = self.depth.checked_sub(1)?;
        Some(self.bits[last / 64] >> (last % 64) & 1 == 1)
    }
}

/// Measures lists while a value is read past.
struct Measure<'s> {
    sizes: Option<&'s mut Sizes>,
    /// The measured lists around this place, as indices into the sizes.
    open: Vec<usize>,
    /// The number of lists around this place that are too deep to be measured.
    n_deeper: usize,
}

impl Measure<'_> {
    fn open(&mut self, at: usize) {
        let Some(sizes) = &mut self.sizes else { return };
        if self.open.len() < LISTS_MAX {
            self.open.push(sizes.0.len());
            sizes.0.push((at, 0));
        } else {
            self.n_deeper += 1;
        }
    }

    fn element(&mut self) {
        let Some(sizes) = &mut self.sizes else { return };
        if self.n_deeper == 0
            && let Some(list) = self.open.last()
        {
            sizes.0[*list].1 = sizes.0[*list].1.saturating_add(1);
        }
    }

    fn close(&mut self) {
        if self.n_deeper > 0 {
            self.n_deeper -= 1;
        } else {
            self.open.pop();
        }
    }
}

/// Goes past the value at a cursor, whatever it is, and notes the sizes of its lists. Needs no
/// stack, however deep the value is.
pub(crate) fn skip(cursor: &mut Cursor<'_>, sizes: Option<&mut Sizes>) -> Result<(), Syntax> {
    let mut nesting = Nesting::default();
    let mut measure = Measure { sizes, open: Vec::new(), n_deeper: 0 };
    loop {
        match Kind::of(cursor.skip_blanks()) {
            Kind::Array => {
                nesting.push(true);
                measure.open(cursor.at);
                cursor.at += 1;
                if cursor.skip_blanks() != b']' {
                    continue;
                }
            }
            Kind::Object => {
                nesting.push(false);
                cursor.at += 1;
                if cursor.skip_blanks() != b'}' {
                    key(cursor)?;
                    continue;
                }
            }
            scalar => {
                skip_scalar(cursor, scalar)?;
                match nesting.is_list() {
                    None => return Ok(()),
                    Some(true) => measure.element(),
                    Some(false) => {}
                }
            }
        }
        if close(cursor, &mut nesting, &mut measure)? {
            return Ok(());
        }
    }
}

fn skip_scalar(cursor: &mut Cursor<'_>, kind: Kind) -> Result<(), Syntax> {
    match kind {
        Kind::Null => cursor.word(b"null"),
        Kind::False => cursor.word(b"false"),
        Kind::True => cursor.word(b"true"),
        Kind::String => cursor.string().map(drop),
        Kind::Number | Kind::Array | Kind::Object => cursor.number().map(drop),
    }
}

/// Goes past the ends of lists and objects and the comma behind them, up to the next value.
/// Whether that was the end of all.
fn close(
    cursor: &mut Cursor<'_>,
    nesting: &mut Nesting,
    measure: &mut Measure<'_>,
) -> Result<bool, Syntax> {
    loop {
        let Some(is_list) = nesting.is_list() else { return Ok(true) };
        match (cursor.skip_blanks(), is_list) {
            (b',', true) => {
                cursor.at += 1;
                return Ok(false);
            }
            (b',', false) => {
                cursor.at += 1;
                key(cursor)?;
                return Ok(false);
            }
            (b']', true) => measure.close(),
            (b'}', false) => {}
            (_, true) => return Err(Syntax::new(syntax::ARRAY_COMMA, cursor.at)),
            (_, false) => return Err(Syntax::new(syntax::OBJECT_COMMA, cursor.at)),
        }
        cursor.at += 1;
        nesting.pop();
        if nesting.is_list() == Some(true) {
            measure.element();
        }
    }
}

/// Goes past the name of a member and its colon, up to the value.
pub(crate) fn key<'a>(cursor: &mut Cursor<'a>) -> Result<super::cursor::Raw<'a>, Syntax> {
    if cursor.skip_blanks() != b'"' {
        return Err(Syntax::new(syntax::NAME, cursor.at));
    }
    let name = cursor.string()?;
    if cursor.skip_blanks() != b':' {
        return Err(Syntax::new(syntax::COLON, cursor.at));
    }
    cursor.at += 1;
    cursor.skip_blanks();
    Ok(name)
}

/// Goes past a comma or the end of an object. Whether it was the end.
pub(crate) fn end_of_member(cursor: &mut Cursor<'_>) -> Result<bool, Syntax> {
    let is_end = match cursor.skip_blanks() {
        b'}' => true,
        b',' => false,
        _ => return Err(Syntax::new(syntax::OBJECT_COMMA, cursor.at)),
    };
    cursor.at += 1;
    Ok(is_end)
}

/// Goes past a comma or the end of a list. Whether it was the end.
pub(crate) fn end_of_element(cursor: &mut Cursor<'_>) -> Result<bool, Syntax> {
    let is_end = match cursor.skip_blanks() {
        b']' => true,
        b',' => false,
        _ => return Err(Syntax::new(syntax::ARRAY_COMMA, cursor.at)),
    };
    cursor.at += 1;
    Ok(is_end)
}
