//! Reads a `Predict` request in one pass, straight into typed elements. It knows no errors: at
//! anything out of the ordinary it gives up, and the careful reading (`predict.rs`), which takes
//! two passes, finds out what it is and says so in TensorFlow Serving's words.

use smallvec::SmallVec;
use tensor::{DType, Tensor};

use super::cursor::{Cursor, Kind};
use super::elements::{Elements, Sink, is_base64_object, with_sink};
use super::inputs::{Input, Inputs};
use super::predict::{Format, Named, RANK_MAX};
use super::scan::{self, INPUTS, INSTANCES, SIGNATURE};

/// The inputs of a request, if there is nothing remarkable about it. `find` gives the signature of
/// a name that may be empty, and its inputs.
pub(crate) fn read<'s, S>(
    text: &[u8],
    find: impl Fn(&str) -> Option<(S, Inputs<'s>)>,
) -> Option<(S, Format, Named)> {
    let mut cursor = Cursor::new(text);
    cursor.skip_blanks();
    if !cursor.take(b'{') {
        return None;
    }
    let mut name = None;
    let mut found = None;
    loop {
        let key = scan::key(&mut cursor).ok()?;
        let format = [Format::Row, Format::Columnar].into_iter().find(|f| key.is(f.key()));
        if let Some(format) = format {
            // The signature must be known by now, or be the default one.
            let (signature, inputs) = find(name.as_deref().unwrap_or_default())?;
            let tensors = tensors(&mut cursor, inputs, format)?;
            if found.replace((signature, format, tensors)).is_some() {
                return None;
            }
        } else if key.is(SIGNATURE) {
            let is_late = found.is_some() || name.is_some();
            if is_late || cursor.kind() != Kind::String {
                return None;
            }
            name = Some(cursor.string().ok()?.to_text());
        } else {
            scan::skip(&mut cursor, None).ok()?;
        }
        if scan::end_of_member(&mut cursor).ok()? {
            return found;
        }
    }
}

impl Format {
    fn key(self) -> &'static str {
        match self {
            Self::Row => INSTANCES,
            Self::Columnar => INPUTS,
        }
    }
}

fn tensors(cursor: &mut Cursor<'_>, inputs: Inputs<'_>, format: Format) -> Option<Named> {
    let inputs = FastColumns::new(inputs, cursor.text.len() - cursor.at)?;
    match (format, cursor.kind()) {
        (Format::Row, Kind::Array) => inputs.row(cursor),
        (Format::Row, _) => None,
        (Format::Columnar, _) => inputs.columnar(cursor),
    }
}

/// The inputs of a signature while they are read.
struct FastColumns<'s> {
    inputs: Inputs<'s>,
    tensors: SmallVec<[(Elements, Nest); 4]>,
}

impl<'s> FastColumns<'s> {
    /// Inputs without elements. An element takes at least two bytes, so that `n_bytes` bounds what
    /// is set aside for all of them.
    fn new(inputs: Inputs<'s>, n_bytes: usize) -> Option<Self> {
        let n_expected_max = n_bytes / 2 / inputs.len().max(1);
        let expected = |input: Input<'_>| {
            let Some(dims) = input.spec.dims() else { return n_expected_max / 4 };
            let known = dims.iter().filter_map(tensor::Dim::size);
            known.fold(1usize, usize::saturating_mul).min(n_expected_max)
        };
        let tensors = inputs
            .iter()
            .map(|input| (Elements::new(input.spec.dtype, expected(input)), Nest::default()));
        let tensors: SmallVec<_> = tensors.collect();
        (!tensors.is_empty()).then_some(Self { inputs, tensors })
    }

    /// The only input, if the value here is its value and no object of inputs.
    fn is_plain(&self, value: Cursor<'_>) -> bool {
        let is_string =
            || self.inputs.first().is_some_and(|input| input.spec.dtype == DType::String);
        let is_value = value.kind() != Kind::Object || (is_string() && is_base64_object(value));
        self.tensors.len() == 1 && is_value
    }

    /// A list of instances. Plain values that are alike make up a list like any other.
    fn row(mut self, cursor: &mut Cursor<'_>) -> Option<Named> {
        let mut first = *cursor;
        first.at += 1;
        if first.skip_blanks() == b']' {
            return None;
        }
        if self.is_plain(first) {
            self.fill(0, cursor)?;
            return self.finish(None);
        }
        cursor.at += 1;
        let mut n_instances = 0;
        loop {
            cursor.skip_blanks();
            self.object(cursor)?;
            n_instances += 1;
            if scan::end_of_element(cursor).ok()? {
                return self.finish(Some(n_instances));
            }
        }
    }

    fn columnar(mut self, cursor: &mut Cursor<'_>) -> Option<Named> {
        if self.is_plain(*cursor) {
            self.fill(0, cursor)?;
        } else {
            self.object(cursor)?;
        }
        self.finish(None)
    }

    /// An object with each input once and nothing else.
    fn object(&mut self, cursor: &mut Cursor<'_>) -> Option<()> {
        if !cursor.take(b'{') {
            return None;
        }
        let mut seen: SmallVec<[bool; 8]> = SmallVec::from_elem(false, self.tensors.len());
        loop {
            let key = scan::key(cursor).ok()?;
            let number = self.inputs.names().position(|name| key.is(name))?;
            if std::mem::replace(&mut seen[number], true) {
                return None;
            }
            self.fill(number, cursor)?;
            if scan::end_of_member(cursor).ok()? {
                return seen.iter().all(|seen| *seen).then_some(());
            }
        }
    }

    fn fill(&mut self, number: usize, cursor: &mut Cursor<'_>) -> Option<()> {
        let (elements, nest) = &mut self.tensors[number];
        with_sink!(elements, sink => fill(sink, nest, cursor))
    }

    fn finish(self, n_instances: Option<usize>) -> Option<Named> {
        let mut named = Named::new();
        for (name, (elements, nest)) in self.inputs.names().zip(self.tensors) {
            let dims: SmallVec<[usize; 8]> = n_instances.into_iter().chain(nest.dims).collect();
            let tensor: Tensor = elements.into_tensor(name, &dims).ok()?;
            named.insert(name.to_owned(), tensor);
        }
        Some(named)
    }
}

/// The shape of nested lists, as far as it has been seen.
#[derive(Default)]
struct Nest {
    /// The number of lists around each element, once an element or an empty list was seen.
    rank: Option<usize>,
    /// The size of the lists of each level, outermost first, once `rank` is known and one has
    /// ended.
    dims: SmallVec<[usize; 8]>,
    /// From this level on, inwards, the sizes are known.
    known_from: usize,
}

impl Nest {
    /// Elements are inside this many lists.
    #[inline]
    fn settle_rank(&mut self, rank: usize) -> Option<()> {
        match self.rank {
            Some(known) => (known == rank).then_some(()),
            None => {
                self.rank = Some(rank);
                self.dims.resize(rank, 0);
                self.known_from = rank;
                Some(())
            }
        }
    }

    /// A list of this level ended. Of the first ones, the innermost ends first.
    #[inline]
    fn settle_size(&mut self, level: usize, size: usize) -> Option<()> {
        if level < self.known_from {
            self.known_from = level;
            self.dims[level] = size;
        }
        (self.dims[level] == size).then_some(())
    }
}

/// Reads a value or nested lists of values. All lists of one level must be of one size.
fn fill<S: Sink>(sink: &mut S, nest: &mut Nest, cursor: &mut Cursor<'_>) -> Option<()> {
    let mut counts: SmallVec<[usize; 8]> = SmallVec::new();
    loop {
        if cursor.skip_blanks() == b'[' {
            cursor.at += 1;
            counts.push(0);
            if counts.len() > nest.rank.unwrap_or(RANK_MAX) {
                return None;
            }
            if cursor.skip_blanks() != b']' {
                continue;
            }
            nest.settle_rank(counts.len())?;
        } else {
            nest.settle_rank(counts.len())?;
            if counts.is_empty() {
                return sink.read(cursor).ok();
            }
            lists(sink, nest, &mut counts, cursor)?;
        }
        loop {
            cursor.at += 1; // A list ends here.
            let size = counts.pop().expect("as many lists begin as end");
            nest.settle_size(counts.len(), size)?;
            let Some(outer) = counts.last_mut() else { return Some(()) };
            *outer += 1;
            match cursor.skip_blanks() {
                b',' => {
                    cursor.at += 1;
                    break;
                }
                b']' => {}
                _ => return None,
            }
        }
    }
}

/// Reads the elements of an innermost list, and the further lists beside it as long as they follow
/// each other, up to the bracket that ends the last of them. `counts` then has its size, and the
/// list around it counts all before it.
#[inline(always)]
fn lists<S: Sink>(
    sink: &mut S,
    nest: &mut Nest,
    counts: &mut [usize],
    cursor: &mut Cursor<'_>,
) -> Option<()> {
    let level = counts.len() - 1;
    // The place is kept apart from the cursor, in a register: all that is read waits for it.
    let (text, mut at) = (cursor.text, cursor.at);
    loop {
        let (size, end) = elements(sink, text, at)?;
        let next = beside(text, end).filter(|_| level > 0);
        let Some(next) = next else {
            counts[level] = size;
            cursor.at = end;
            return Some(());
        };
        nest.settle_size(level, size)?;
        counts[level - 1] += 1;
        at = next;
    }
}

/// Returns the place where the elements of the next list begin, if another list follows the end of
/// this one, and it has elements that are no lists.
#[inline(always)]
fn beside(text: &[u8], at: usize) -> Option<usize> {
    match text.get(at..at + 5)? {
        [b']', b',', b' ', b'[', b'0'..=b'9' | b'-'] => Some(at + 4),
        _ => far_beside(Cursor { text, at }),
    }
}

/// The same with other blanks.
#[inline(never)]
fn far_beside(mut cursor: Cursor<'_>) -> Option<usize> {
    for expected in [b']', b',', b'['] {
        if cursor.skip_blanks() != expected {
            return None;
        }
        cursor.at += 1;
    }
    (!matches!(cursor.skip_blanks(), b'[' | b']')).then_some(cursor.at)
}

/// Reads the elements of a list, of which there is at least one, up to its bracket. Gives their
/// number, and where the bracket is.
#[inline(always)]
fn elements<S: Sink>(sink: &mut S, text: &[u8], mut at: usize) -> Option<(usize, usize)> {
    let before = sink.len();
    loop {
        at = match sink.read_common(text, at) {
            Some(end) => end,
            None => read_uncommon(sink, Cursor { text, at })?,
        };
        // This is how most programs separate numbers.
        if text[at..].starts_with(b", ") {
            at += 2;
            continue;
        }
        if text.get(at) == Some(&b']') {
            return Some((sink.len() - before, at));
        }
        let mut behind = Cursor { text, at };
        match behind.skip_blanks() {
            b',' => at = behind.at + 1,
            b']' => return Some((sink.len() - before, behind.at)),
            _ => return None,
        }
    }
}

/// Reads an element of any kind; gives the place behind it.
#[inline(never)]
fn read_uncommon<S: Sink>(sink: &mut S, mut cursor: Cursor<'_>) -> Option<usize> {
    cursor.skip_blanks();
    sink.read(&mut cursor).ok()?;
    Some(cursor.at)
}
