//! `Strings`: the elements of a string tensor.

use device::BookedVec;

use crate::error::Result;

/// Byte strings, one after another in one allocation. They need not be UTF-8. Their memory is
/// booked to whom the thread works for before it is taken, so that adding strings may be refused.
#[derive(Debug, PartialEq, Eq, Default)]
pub struct Strings {
    /// The end of each string in `bytes`.
    ends: BookedVec<usize>,
    bytes: BookedVec<u8>,
}

impl Strings {
    /// No strings, with room for `n_strings` strings and `n_bytes` bytes in total.
    ///
    /// # Errors
    /// If a limit or the heap refuses; so all that take memory here.
    pub fn with_capacity(n_strings: usize, n_bytes: usize) -> Result<Self> {
        let ends = BookedVec::with_capacity(n_strings)?;
        Ok(Self { ends, bytes: BookedVec::with_capacity(n_bytes)? })
    }

    /// All strings of an iterator.
    pub fn collect<S: AsRef<[u8]>>(strings: impl IntoIterator<Item = S>) -> Result<Self> {
        let strings = strings.into_iter();
        let mut all = Self::with_capacity(strings.size_hint().0, 0)?;
        for string in strings {
            all.push(string.as_ref())?;
        }
        Ok(all)
    }

    /// All strings of an iterator that is gone through twice, the first time for their lengths: the
    /// memory is taken at once, and no more than they need.
    pub fn copied<'a>(strings: impl Iterator<Item = &'a [u8]> + Clone) -> Result<Self> {
        let lens = strings.clone().map(<[u8]>::len);
        let (n_strings, n_bytes) =
            lens.fold((0, 0usize), |(n, bytes), len| (n + 1, bytes.saturating_add(len)));
        let mut all = Self::with_capacity(n_strings, n_bytes)?;
        for string in strings {
            all.push(string)?;
        }
        Ok(all)
    }

    /// `count` copies of one string.
    pub fn repeated(string: &[u8], count: usize) -> Result<Self> {
        let mut strings = Self::with_capacity(count, string.len().saturating_mul(count))?;
        for _ in 0..count {
            strings.push(string)?;
        }
        Ok(strings)
    }

    /// The number of strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns whether there are no strings.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The bytes held, offsets included.
    pub fn n_bytes(&self) -> usize {
        self.bytes.len() + self.ends.len() * size_of::<usize>()
    }

    /// Appends a string.
    pub fn push(&mut self, string: &[u8]) -> Result<()> {
        self.extend_last(string)?;
        self.end()
    }

    /// Appends bytes to a string that [`Strings::end`] completes.
    pub fn extend_last(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.bytes.extend_from_slice(bytes)?)
    }

    /// Ends the string whose bytes were appended since the last one.
    pub fn end(&mut self) -> Result<()> {
        Ok(self.ends.push(self.bytes.len())?)
    }

    /// Takes memory for just so many more strings and bytes, if there is less.
    pub fn reserve(&mut self, n_strings: usize, n_bytes: usize) -> Result<()> {
        self.ends.reserve_exact(n_strings)?;
        Ok(self.bytes.reserve_exact(n_bytes)?)
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
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> + Clone {
        (0..self.len()).map(|index| self.get(index))
    }

    /// A copy of its own.
    pub fn try_clone(&self) -> Result<Self> {
        Ok(Self { ends: self.ends.try_clone()?, bytes: self.bytes.try_clone()? })
    }

    /// Gives back the memory and the booking of what may still have been added.
    pub fn shrink_to_fit(&mut self) {
        self.ends.shrink_to_fit();
        self.bytes.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_come_back_as_they_were_pushed() {
        let mut strings = Strings::collect(["a", "", "b\0c"]).unwrap();
        assert_eq!(strings.iter().collect::<Vec<_>>(), [&b"a"[..], b"", b"b\0c"]);
        assert_eq!(Strings::copied(strings.iter()).unwrap(), strings);
        strings.extend_last(b"d").unwrap();
        strings.extend_last(b"e").unwrap();
        strings.end().unwrap();
        assert_eq!((strings.len(), strings.get(3)), (4, &b"de"[..]));
        assert_eq!(strings.try_clone().unwrap(), strings);
        let twice = Strings::repeated(b"x", 2).unwrap();
        assert_eq!(twice.iter().collect::<Vec<_>>(), [b"x", b"x"]);
    }

    #[test]
    fn what_no_machine_has_room_for_is_refused() {
        assert!(Strings::repeated(&[0; 1000], 1 << 60).is_err());
        assert!(Strings::with_capacity(1 << 61, 0).is_err());
    }
}
