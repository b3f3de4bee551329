//! Rules on the shape of types and functions: how many methods, and what parameters.

use std::collections::BTreeMap;

use super::Finding;
use super::source::Source;
use super::tree::Tree;

const METHODS_MAX: usize = 40;
const PARAMETERS_MAX: usize = 5;

/// No type has more than 40 methods, those of all its own `impl` blocks in a crate together.
pub(super) fn methods(tree: &Tree) -> Vec<Finding> {
    let mut n_methods: BTreeMap<(&str, String), (usize, &str, usize)> = BTreeMap::new();
    for (path, source) in tree.sources() {
        let Some(room) = room(path) else { continue };
        for (line, name, n) in own_impls(&Code::of(source)) {
            n_methods.entry((room, name)).or_insert((0, path, line)).0 += n;
        }
    }
    let mut findings = Vec::new();
    for ((_, name), (n, path, line)) in n_methods {
        if n > METHODS_MAX {
            let message = format!("`{name}` has {n} methods; make parts of it at {METHODS_MAX}");
            findings.push(Finding::new(path, line, message));
        }
    }
    findings
}

/// No parameter is a tuple that stands for several: none of three or more, none of two unlike
/// things where there are five parameters already, and no two tuples in one function. A pair of
/// like things, such as a height and a width, is one thing.
pub(super) fn tuples(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, source) in tree.sources().filter(|(path, _)| room(path).is_some()) {
        for function in functions(&Code::of(source)) {
            if let Some(complaint) = complaint(&function) {
                let message = format!("`{}` takes {complaint} as a struct", function.name);
                findings.push(Finding::new(path, function.line, message));
            }
        }
    }
    findings
}

fn complaint(function: &Function) -> Option<String> {
    let n = function.parameters.len();
    let tuples: Vec<Vec<String>> =
        function.parameters.iter().filter_map(|parameter| tuple(parameter)).collect();
    let stands_for_several = |types: &&Vec<String>| {
        types.len() > 2 || (types.len() == 2 && n >= PARAMETERS_MAX && types[0] != types[1])
    };
    if let Some(types) = tuples.iter().find(stands_for_several) {
        return Some(format!("a tuple of {} among {n} parameters; name it", types.len()));
    }
    let n_tuples = tuples.iter().filter(|types| types.len() > 1).count();
    (n_tuples > 1).then(|| format!("{n_tuples} tuples; name each"))
}

/// The crate of a path below `crates/`; fakes in a crate's folder belong to it.
fn room(path: &str) -> Option<&str> {
    let (room, inner) = path.strip_prefix("crates/")?.split_once('/')?;
    inner.contains("src/").then_some(room)
}

/// The product code of a file as one text, without comments and quoted text.
struct Code {
    text: Vec<u8>,
    /// The number of the line that each byte stands on.
    lines: Vec<usize>,
}

impl Code {
    fn of(source: &Source) -> Code {
        let (mut text, mut lines) = (Vec::new(), Vec::new());
        for (number, line) in source.product_lines() {
            text.extend_from_slice(line.code.as_bytes());
            text.push(b'\n');
            lines.resize(text.len(), number);
        }
        Code { text, lines }
    }

    /// The positions at which a keyword stands as a word of its own.
    fn words<'a>(&'a self, word: &'a str) -> impl Iterator<Item = usize> + 'a {
        let starts = self.text.windows(word.len()).enumerate();
        starts
            .filter(move |(_, found)| *found == word.as_bytes())
            .map(|(at, _)| at)
            .filter(move |at| !is_word(at.checked_sub(1).and_then(|before| self.text.get(before))))
            .filter(move |at| !is_word(self.text.get(at + word.len())))
    }

    fn find(&self, from: usize, wanted: u8) -> Option<usize> {
        self.text[from..].iter().position(|c| *c == wanted).map(|at| from + at)
    }

    /// Behind the bracket that closes the one at `open`.
    fn close(&self, open: usize) -> usize {
        let mut depth = Depth::default();
        for at in open..self.text.len() {
            depth.step(at.checked_sub(1).map(|before| self.text[before]), self.text[at]);
            if depth.is_outside() {
                return at + 1;
            }
        }
        self.text.len()
    }

    fn slice(&self, from: usize, to: usize) -> String {
        String::from_utf8_lossy(&self.text[from..to]).into_owned()
    }
}

fn is_word(c: Option<&u8>) -> bool {
    c.is_some_and(|c| c.is_ascii_alphanumeric() || *c == b'_')
}

/// The depth of a reader in brackets. Angles count only outside of braces, where they are generics.
#[derive(Default)]
struct Depth {
    brackets: usize,
    angles: usize,
    braces: usize,
}

impl Depth {
    fn step(&mut self, before: Option<u8>, c: u8) {
        match c {
            b'(' | b'[' => self.brackets += 1,
            b')' | b']' => self.brackets = self.brackets.saturating_sub(1),
            b'{' => self.braces += 1,
            b'}' => self.braces = self.braces.saturating_sub(1),
            b'<' if self.braces == 0 => self.angles += 1,
            b'>' if self.braces == 0 && !matches!(before, Some(b'-' | b'=')) => {
                self.angles = self.angles.saturating_sub(1);
            }
            _ => {}
        }
    }

    fn is_outside(&self) -> bool {
        self.brackets == 0 && self.angles == 0 && self.braces == 0
    }
}

/// The `impl` blocks of types themselves: line, name of the type, number of functions.
fn own_impls(code: &Code) -> Vec<(usize, String, usize)> {
    let mut found = Vec::new();
    for at in code.words("impl") {
        let line_start = code.text[..at].iter().rposition(|c| *c == b'\n').map_or(0, |end| end + 1);
        let before = code.slice(line_start, at);
        if !matches!(before.trim(), "" | "unsafe") {
            continue;
        }
        let Some(open) = code.find(at, b'{') else { continue };
        let head = code.slice(at + "impl".len(), open);
        if let Some(name) = own_name(&head) {
            let body = Code {
                text: code.text[open..code.close(open)].to_vec(),
                lines: code.lines[open..code.close(open)].to_vec(),
            };
            found.push((code.lines[at], name, n_functions(&body)));
        }
    }
    found
}

/// The name of the type in the head of an `impl` without a trait.
fn own_name(head: &str) -> Option<String> {
    let parts = split(head.split("\nwhere").next().unwrap_or(head), char::is_whitespace);
    let words: Vec<&str> = parts.iter().map(|part| part.trim()).filter(|p| !p.is_empty()).collect();
    if words.contains(&"for") {
        return None;
    }
    let path = words.into_iter().find(|word| !word.starts_with('<'))?;
    let path = path.split('<').next().unwrap_or(path);
    let name = path.rsplit("::").next().unwrap_or(path);
    name.starts_with(|c: char| c.is_alphabetic()).then(|| name.to_owned())
}

/// The functions directly in the block that the text is.
fn n_functions(body: &Code) -> usize {
    let mut braces = vec![0usize; body.text.len()];
    let mut depth = 0;
    for (at, c) in body.text.iter().enumerate() {
        match c {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        braces[at] = depth;
    }
    functions(body).iter().filter(|function| braces[function.at] == 1).count()
}

/// A function as its head shows it.
struct Function {
    at: usize,
    line: usize,
    name: String,
    parameters: Vec<String>,
}

fn functions(code: &Code) -> Vec<Function> {
    let mut found = Vec::new();
    for at in code.words("fn") {
        let rest = code.slice(at + 2, code.text.len().min(at + 120));
        let name: String =
            rest.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        if name.is_empty() || !rest.starts_with(char::is_whitespace) {
            continue; // The type of a function pointer.
        }
        let mut from = at + 2 + (rest.len() - rest.trim_start().len()) + name.len();
        if code.text.get(from) == Some(&b'<') {
            from = code.close(from);
        }
        if code.text.get(from) != Some(&b'(') {
            continue;
        }
        let inner = code.slice(from + 1, code.close(from).saturating_sub(1).max(from + 1));
        let parameters = split(&inner, |c| c == ',')
            .into_iter()
            .filter(|parameter| !parameter.trim().is_empty())
            .map(str::to_owned)
            .collect();
        found.push(Function { at, line: code.lines[at], name, parameters });
    }
    found
}

/// The parts of a text between what separates them outside of brackets.
fn split(text: &str, separates: impl Fn(char) -> bool) -> Vec<&str> {
    let (mut parts, mut start) = (Vec::new(), 0);
    let (mut depth, mut before) = (Depth::default(), None);
    for (at, c) in text.char_indices() {
        let byte = u8::try_from(c).unwrap_or(b'_');
        if depth.is_outside() && separates(c) {
            parts.push(&text[start..at]);
            start = at + c.len_utf8();
        }
        depth.step(before, byte);
        before = Some(byte);
    }
    parts.push(&text[start..]);
    parts
}

/// The types of the values that a parameter holds, if it is a tuple or refers to one.
fn tuple(parameter: &str) -> Option<Vec<String>> {
    let sides = split(parameter, |c| c == ':');
    let [_, kind] = sides[..] else { return None };
    let mut kind = kind.trim().trim_start_matches('&').trim_start();
    if kind.starts_with('\'') {
        kind = kind.split_once(' ').map_or("", |(_, kind)| kind);
    }
    let kind = kind.trim_start_matches("mut ").trim();
    let inner = kind.strip_prefix('(')?.strip_suffix(')')?;
    let types = split(inner, |c| c == ',').into_iter().map(|part| part.trim().to_owned());
    Some(types.filter(|part| !part.is_empty()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> Tree {
        let own = |(path, text): &(&str, &str)| ((*path).to_owned(), (*text).to_owned());
        Tree::of(files.iter().map(own).collect())
    }

    #[track_caller]
    fn check(text: &str, lines: &[usize]) {
        let found = tuples(&tree(&[("crates/x/src/a.rs", text)]));
        assert_eq!(found.iter().map(|f| f.line).collect::<Vec<_>>(), lines, "{text}");
    }

    #[test]
    fn a_tuple_of_three_is_found() {
        check("fn f(a: u8, (b, c, d): (u8, u8, u8)) {}", &[1]);
        check(
            "struct S;\nimpl S {\n  fn f<T: Into<u8>>(&self, b: &'a mut (T, u8, u8)) {}\n}",
            &[3],
        );
        check("fn f(a: (u8, u8)) {}\nfn g(a: &[(u8, u8, u8)], b: [u8; 3]) {}", &[]);
        check("fn f(a: impl Fn((u8, u8, u8)) -> (u8, u8, u8), b: fn(u8, u8, u8) -> u8) {}", &[]);
        check("fn f() { let g = |(a, b, c): (u8, u8, u8)| a; }", &[]);
    }

    #[test]
    fn an_unlike_pair_is_found_beside_four_others() {
        check("fn f(a: u8, b: u8, c: u8, d: u8, (e, f): (u8, &[u8])) {}", &[1]);
        check("fn f(a: u8, b: u8, c: u8, (e, f): (u8, &[u8])) {}", &[]);
        check("fn f(a: u8, b: u8, c: u8, d: u8, (height, width): (usize, usize)) {}", &[]);
        check("#[cfg(test)]\nmod tests {\n fn f(a: (u8, u8, u8)) {}\n}", &[]);
    }

    #[test]
    fn two_tuples_in_a_function_are_found() {
        check("fn f(a: (u8, &[u8]), b: (u8, &[u8])) {}", &[1]);
        check("fn f((a, b): (u8, u8), c: u8, d: &(u8, u8)) {}", &[1]);
        check("fn f((a, b): (u8, u8), c: &[(u8, u8)], d: ()) -> (u8, u8) {}", &[]);
    }

    #[test]
    fn methods_of_all_files_of_a_crate_count_together() {
        let block = |n: usize| {
            let methods: String =
                (0..n).map(|i| format!("fn m{i}(f: fn(u8)) {{ f(1) }}\n")).collect();
            format!("impl<'a, T: Into<u8>> Big<'a, T>\nwhere\n T: Copy,\n{{\n{methods}}}\n")
        };
        let others = "impl Clone for Big<'_, u8> { fn clone(&self) -> Self { todo() } }\n";
        let check = |a: usize, b: usize, n_findings: usize| {
            let (a, b) = (block(a), format!("{others}{}", block(b)));
            let files = [("crates/x/src/a.rs", &*a), ("crates/x/src/b/c.rs", &*b)];
            assert_eq!(methods(&tree(&files)).len(), n_findings, "{a}\n{b}");
        };
        check(20, 20, 0);
        check(20, 21, 1);
        check(41, 0, 1);
    }
}
