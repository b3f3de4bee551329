//! `Strings`: the elements of a string tensor.

/// Byte strings, one after another in one allocation. They need not be UTF-8.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Strings {
    /// Where each string ends in `bytes`.
    ends: Vec<usize>,
    bytes: Vec<u8>,
}

impl Strings {
    /// No strings, with room for `n_strings` strings and `n_bytes` bytes in total.
    pub fn with_capacity(n_strings: usize, n_bytes: usize) -> Self {
        Self { ends: Vec::with_capacity(n_strings), bytes: Vec::with_capacity(n_bytes) }
    }

    /// The number of strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The bytes held, offsets included.
    pub fn n_bytes(&self) -> usize {
        self.bytes.len() + self.ends.len() * size_of::<usize>()
    }

    /// Appends a string.
    pub fn push(&mut self, string: &[u8]) {
        self.bytes.extend_from_slice(string);
        self.ends.push(self.bytes.len());
    }

    /// The string at `index`.
    ///
    /// # Panics
    /// If there is none.
    pub fn get(&self, index: usize) -> &[u8] {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.bytes[start..self.ends[index]]
    }

    /// All strings in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        (0..self.len()).map(|index| self.get(index))
    }

    /// `count` copies of one string.
    pub fn repeated(string: &[u8], count: usize) -> Self {
        let mut strings = Self::with_capacity(count, string.len().saturating_mul(count));
        (0..count).for_each(|_| strings.push(string));
        strings
    }
}

impl<S: AsRef<[u8]>> FromIterator<S> for Strings {
    fn from_iter<I: IntoIterator<Item = S>>(strings: I) -> Self {
        let mut all = Self::default();
        strings.into_iter().for_each(|string| all.push(string.as_ref()));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_come_back_as_they_were_pushed() {
        let strings: Strings = ["a", "", "b\0c"].iter().collect();
        assert_eq!(strings.iter().collect::<Vec<_>>(), [&b"a"[..], b"", b"b\0c"]);
        assert_eq!(Strings::repeated(b"x", 2).iter().collect::<Vec<_>>(), [b"x", b"x"]);
    }
}
