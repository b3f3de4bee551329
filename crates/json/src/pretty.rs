//! `Pretty`: JSON in the layout of RapidJSON's `PrettyWriter`, byte for byte.

/// The lines of lists: one for each element, or one in all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lists {
    OneLine,
    ManyLines,
}

/// Writes JSON, indented by four blanks for each list and object around.
pub(crate) struct Pretty {
    out: Vec<u8>,
    levels: Vec<PrettyLevel>,
    lists: Lists,
}

struct PrettyLevel {
    is_list: bool,
    /// Names and values both count.
    n_values: usize,
}

const INDENT: usize = 4;

impl Pretty {
    pub(crate) fn new(lists: Lists) -> Self {
        Self { out: Vec::new(), levels: Vec::new(), lists }
    }

    /// The same with room for so many bytes.
    pub(crate) fn with_capacity(lists: Lists, n_bytes: usize) -> Self {
        Self { out: Vec::with_capacity(n_bytes), levels: Vec::new(), lists }
    }

    /// Changes how lists are laid out, from here on.
    pub(crate) fn set_lists(&mut self, lists: Lists) {
        self.lists = lists;
    }

    /// The number of bytes written.
    pub(crate) fn len(&self) -> usize {
        self.out.len()
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.out
    }

    pub(crate) fn start_list(&mut self) {
        self.prefix();
        self.levels.push(PrettyLevel { is_list: true, n_values: 0 });
        self.out.push(b'[');
    }

    pub(crate) fn end_list(&mut self) {
        let level = self.levels.pop().expect("every end has a start");
        if level.n_values > 0 && self.lists == Lists::ManyLines {
            self.new_line();
        }
        self.out.push(b']');
    }

    pub(crate) fn start_object(&mut self) {
        self.prefix();
        self.levels.push(PrettyLevel { is_list: false, n_values: 0 });
        self.out.push(b'{');
    }

    pub(crate) fn end_object(&mut self) {
        let level = self.levels.pop().expect("every end has a start");
        if level.n_values > 0 {
            self.new_line();
        }
        self.out.push(b'}');
    }

    /// A string, or the name of a member. It need not be UTF-8.
    pub(crate) fn string(&mut self, string: &[u8]) {
        self.prefix();
        self.out.push(b'"');
        let mut rest = string;
        while let Some(special) = rest.iter().position(|b| *b < 0x20 || *b == b'"' || *b == b'\\') {
            self.out.extend_from_slice(&rest[..special]);
            self.escape(rest[special]);
            rest = &rest[special + 1..];
        }
        self.out.extend_from_slice(rest);
        self.out.push(b'"');
    }

    /// A value that is already JSON.
    #[inline]
    pub(crate) fn raw(&mut self, json: &[u8]) {
        self.prefix();
        self.out.extend_from_slice(json);
    }

    /// A value that `write` appends.
    #[inline]
    pub(crate) fn value(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        self.prefix();
        write(&mut self.out);
    }

    /// Values of a list, one after another, each of which `write` appends.
    #[inline]
    pub(crate) fn values<T: Copy>(&mut self, values: &[T], write: impl Fn(T, &mut Vec<u8>)) {
        let is_one_line = self.lists == Lists::OneLine;
        let Some((first, rest)) = values.split_first() else { return };
        self.value(|out| write(*first, out));
        match self.levels.last_mut() {
            Some(level) if level.is_list && is_one_line => {
                level.n_values += rest.len();
                for value in rest {
                    self.out.extend_from_slice(b", ");
                    write(*value, &mut self.out);
                }
            }
            _ => rest.iter().for_each(|value| self.value(|out| write(*value, out))),
        }
    }

    fn escape(&mut self, byte: u8) {
        let short = match byte {
            0x08 => b'b',
            0x0C => b'f',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            b'"' | b'\\' => byte,
            _ => {
                let hex = |digit: u8| b"0123456789ABCDEF"[usize::from(digit)];
                self.out.extend_from_slice(&[
                    b'\\',
                    b'u',
                    b'0',
                    b'0',
                    hex(byte >> 4),
                    hex(byte & 15),
                ]);
                return;
            }
        };
        self.out.extend_from_slice(&[b'\\', short]);
    }

    /// Writes the characters between the value before and the next one.
    #[inline]
    fn prefix(&mut self) {
        let Some(level) = self.levels.last_mut() else { return };
        let n_before = level.n_values;
        level.n_values += 1;
        if level.is_list && self.lists == Lists::OneLine {
            if n_before > 0 {
                self.out.extend_from_slice(b", ");
            }
        } else if !level.is_list && n_before % 2 == 1 {
            self.out.extend_from_slice(b": ");
        } else {
            if n_before > 0 {
                self.out.push(b',');
            }
            self.new_line();
        }
    }

    fn new_line(&mut self) {
        self.out.push(b'\n');
        self.out.resize(self.out.len() + INDENT * self.levels.len(), b' ');
    }
}
