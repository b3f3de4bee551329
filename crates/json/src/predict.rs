//! `Predict` requests: rows (`instances`) and columns (`inputs`). The rules and texts are those of
//! TensorFlow Serving's `json_tensor.cc`.

use std::collections::{BTreeMap, BTreeSet};

use status::{Result, Status};
use tensor::Tensor;

use super::cursor::{Cursor, Kind};
use super::elements::{Elements, Refusal, is_base64_object};
use super::fast;
use super::inputs::{Input, Inputs};
use super::quote::quoted;
use super::scan::{self, Document, INPUTS, INSTANCES};
use super::syntax::Syntax;

/// The most dimensions of a tensor: TensorFlow's own limit.
pub(crate) const RANK_MAX: usize = 254;

/// Tensors by the names of inputs.
pub(crate) type Named = BTreeMap<String, Tensor>;

/// The format in which a request gives its inputs, and so wants its outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A list of instances, each with all inputs.
    Row,
    /// Each input with all instances.
    Columnar,
}

/// A request that was read.
#[derive(Debug)]
pub struct Request<S> {
    /// The signature it is for.
    pub signature: S,
    /// The format of the inputs.
    pub format: Format,
    /// The inputs by name.
    pub inputs: BTreeMap<String, Tensor>,
}

impl<S> Request<S> {
    /// Reads a request. `find` gives the signature of a name, which is empty for the default one,
    /// and its inputs; it is asked only once the text is known to be right, so that its error comes
    /// second.
    pub fn read<'s, E: From<Status>>(
        text: &[u8],
        find: impl Fn(&str) -> Result<(S, Inputs<'s>), E>,
    ) -> Result<Self, E> {
        if let Some((signature, format, inputs)) = fast::read(text, |name| find(name).ok()) {
            return Ok(Self { signature, format, inputs });
        }
        read_carefully(text, find)
    }
}

/// Reads a request in two passes, of which the first knows the syntax and the second the meaning.
pub(crate) fn read_carefully<'s, S, E: From<Status>>(
    text: &[u8],
    find: impl Fn(&str) -> Result<(S, Inputs<'s>), E>,
) -> Result<Request<S>, E> {
    let document = Document::scan(text)?;
    let name = document.signature_name()?;
    let (signature, inputs) = find(&name)?;
    if inputs.is_empty() {
        let name = if name.is_empty() { "DEFAULT" } else { &name };
        let text = format!("Failed to get input map for signature: {name}");
        return Err(Status::invalid(text).into());
    }
    let reader = PredictReader { document: &document, inputs: &inputs };
    let (format, inputs) = reader.read()?;
    Ok(Request { signature, format, inputs })
}

/// Reads tensors out of a document of which the syntax is right.
struct PredictReader<'a, 's> {
    document: &'a Document<'a>,
    inputs: &'a Inputs<'s>,
}

/// An input while it is read: the dimensions are those of one instance.
struct PredictColumn {
    elements: Elements,
    dims: Option<Vec<usize>>,
    n_elements: usize,
}

impl<'s> PredictReader<'_, 's> {
    fn read(&self) -> Result<(Format, Named)> {
        let document = self.document;
        match (document.find(INSTANCES), document.find(INPUTS)) {
            (Some(_), Some(_)) => Err(document.invalid(
                "Not formatted correctly expecting only one of 'inputs' or 'instances' keys to \
                 exist ",
            )),
            (Some(instances), None) => {
                if instances.kind() != Kind::Array {
                    return Err(document.invalid("Expecting 'instances' to be an list/array"));
                }
                if document.size(&instances) == 0 {
                    return Err(document.invalid("No values in 'instances' array"));
                }
                Ok((Format::Row, self.rows(instances)?))
            }
            (None, Some(inputs)) => Ok((Format::Columnar, self.columns(inputs)?)),
            (None, None) => {
                let missing = Status::invalid("Missing 'inputs' or 'instances' key");
                Err(missing.with_hint(document.meant()))
            }
        }
    }

    fn rows(&self, mut cursor: Cursor<'_>) -> Result<Named> {
        cursor.at += 1;
        let is_object = cursor.skip_blanks() == b'{';
        if !is_object && self.inputs.len() > 1 {
            return Err(Status::invalid(
                "instances is a plain list, but expecting list of objects as multiple input \
                 tensors required as per tensorinfo_map",
            ));
        }
        let are_objects = is_object && !is_base64_object(cursor);
        let mut columns: BTreeMap<&str, PredictColumn> = BTreeMap::new();
        let mut n_instances = 0;
        loop {
            cursor.skip_blanks();
            if are_objects {
                self.row_object(&mut cursor, n_instances, &mut columns)?;
            } else {
                self.row_value(&mut cursor, n_instances, &mut columns)?;
            }
            n_instances += 1;
            if scan::end_of_element(&mut cursor)? {
                break;
            }
        }
        let finish = |(name, column): (&str, PredictColumn)| {
            let dims: Vec<usize> =
                std::iter::once(n_instances).chain(column.dims.unwrap_or_default()).collect();
            Ok((name.to_owned(), column.elements.into_tensor(name, &dims)?))
        };
        columns.into_iter().map(finish).collect()
    }

    fn row_value(
        &self,
        cursor: &mut Cursor<'_>,
        number: usize,
        columns: &mut BTreeMap<&'s str, PredictColumn>,
    ) -> Result<()> {
        if cursor.kind() == Kind::Object && !is_base64_object(*cursor) {
            return Err(Status::invalid(format!(
                "Expecting value/list but got object at item {number} of input list"
            )));
        }
        let input = self.inputs.first().expect("the signature has inputs");
        let column = columns.entry(input.name).or_insert_with(|| PredictColumn::new(input));
        self.add(cursor, input, column).map_err(|error| {
            Status::invalid(format!(
                "Failed to process element: {number} of 'instances' list. Error: {}: {}",
                error.code.name(),
                error
            ))
        })
    }

    fn row_object(
        &self,
        cursor: &mut Cursor<'_>,
        number: usize,
        columns: &mut BTreeMap<&'s str, PredictColumn>,
    ) -> Result<()> {
        let start = *cursor;
        if cursor.kind() != Kind::Object || is_base64_object(*cursor) {
            return Err(Status::invalid(format!(
                "Expecting object but got list at item {number} of input list"
            )));
        }
        cursor.at += 1;
        let mut seen = BTreeSet::new();
        let mut is_end = cursor.skip_blanks() == b'}';
        cursor.at += usize::from(is_end);
        while !is_end {
            let name = scan::key(cursor)?.to_text();
            let failed = |error: Status| {
                Status::invalid(format!(
                    "Failed to process element: {number} key: {name} of 'instances' list. Error: \
                     {}: {}",
                    error.code.name(),
                    error
                ))
            };
            let Some(input) = self.inputs.get(&name) else {
                let text = format!("JSON object: does not have named input: {name}");
                return Err(failed(Status::invalid(text)));
            };
            let column = columns.entry(input.name).or_insert_with(|| PredictColumn::new(input));
            self.add(cursor, input, column).map_err(failed)?;
            seen.insert(input.name);
            is_end = scan::end_of_member(cursor)?;
        }
        if seen.len() != self.inputs.len() {
            let names: Vec<&str> = self.inputs.names().collect();
            return Err(Status::invalid(format!(
                "Failed to process element: {number} of 'instances' list. JSON object: {} keys \
                 must be equal to: {}",
                quoted(start),
                names.join(",")
            )));
        }
        Ok(())
    }

    /// Adds the value of one instance to an input.
    fn add(
        &self,
        cursor: &mut Cursor<'_>,
        input: Input<'_>,
        column: &mut PredictColumn,
    ) -> Result<()> {
        let dims = self.dims(*cursor)?;
        let before = column.elements.len();
        self.fill(cursor, input, &dims, &mut column.elements)?;
        let n_elements = column.elements.len() - before;
        let Some(expected) = &column.dims else {
            column.n_elements = n_elements;
            column.dims = Some(dims);
            return Ok(());
        };
        if column.n_elements != n_elements {
            return Err(Status::invalid(format!(
                "Expecting tensor size: {} but got: {n_elements}",
                column.n_elements
            )));
        }
        if *expected != dims {
            let (expected, got) = (bracketed(expected), bracketed(&dims));
            return Err(Status::invalid(format!("Expecting shape {expected} but got: {got}")));
        }
        Ok(())
    }

    fn columns(&self, mut cursor: Cursor<'_>) -> Result<Named> {
        if cursor.kind() != Kind::Object || is_base64_object(cursor) {
            if self.inputs.len() > 1 {
                return Err(Status::invalid(
                    "inputs is a plain value/list, but expecting an object as multiple input \
                     tensors required as per tensorinfo_map",
                ));
            }
            let input = self.inputs.first().expect("the signature has inputs");
            let tensor = self.column(cursor, input)?;
            return Ok([(input.name.to_owned(), tensor)].into());
        }
        let mut places: BTreeMap<&str, Cursor<'_>> = BTreeMap::new();
        cursor.at += 1;
        let mut is_end = cursor.skip_blanks() == b'}';
        while !is_end {
            let name = scan::key(&mut cursor)?.to_text();
            if let Some(input) = self.inputs.get(&name) {
                places.entry(input.name).or_insert(cursor);
            }
            scan::skip(&mut cursor, None)?;
            is_end = scan::end_of_member(&mut cursor)?;
        }
        let mut named = Named::new();
        for input in self.inputs.iter() {
            let name = input.name;
            let missing =
                || Status::invalid(format!("Missing named input: {name} in 'inputs' object."));
            let place = places.get(name).ok_or_else(missing)?;
            named.insert(name.to_owned(), self.column(*place, input)?);
        }
        Ok(named)
    }

    fn column(&self, mut cursor: Cursor<'_>, input: Input<'_>) -> Result<Tensor> {
        let dims = self.dims(cursor)?;
        let mut elements = Elements::new(input.spec.dtype, 0);
        self.fill(&mut cursor, input, &dims, &mut elements)?;
        elements.into_tensor(input.name, &dims)
    }

    /// The shape of nested lists, taken from the first way down.
    fn dims(&self, mut cursor: Cursor<'_>) -> Result<Vec<usize>> {
        let mut dims = Vec::new();
        while cursor.skip_blanks() == b'[' {
            if dims.len() == RANK_MAX {
                let text = format!("a tensor has at most {RANK_MAX} dimensions");
                return Err(Status::invalid(format!("tensor parsing error: {text}")));
            }
            dims.push(self.document.size(&cursor));
            cursor.at += 1;
        }
        Ok(dims)
    }

    /// Reads nested lists of the given shape.
    fn fill(
        &self,
        cursor: &mut Cursor<'_>,
        input: Input<'_>,
        dims: &[usize],
        elements: &mut Elements,
    ) -> Result<()> {
        let mut level = 0;
        loop {
            if cursor.skip_blanks() == b'[' {
                self.check_list(cursor, level, dims)?;
                cursor.at += 1;
                level += 1;
                if cursor.skip_blanks() != b']' {
                    continue;
                }
            } else {
                read_element(cursor, input, (level, dims.len()), elements)?;
            }
            loop {
                if level == 0 {
                    return Ok(());
                }
                if !scan::end_of_element(cursor)? {
                    break;
                }
                level -= 1;
            }
        }
    }

    fn check_list(&self, list: &Cursor<'_>, level: usize, dims: &[usize]) -> Result<()> {
        let Some(expected) = dims.get(level) else {
            return Err(Status::invalid(format!(
                "Encountered list at unexpected level: {level} expected < {}",
                dims.len()
            )));
        };
        let size = self.document.size(list);
        if size != *expected {
            return Err(Status::invalid(format!(
                "Encountered list at unexpected size: {size} at level: {level} expected size: \
                 {expected}"
            )));
        }
        Ok(())
    }
}

impl PredictColumn {
    fn new(input: Input<'_>) -> Self {
        Self { elements: Elements::new(input.spec.dtype, 0), dims: None, n_elements: 0 }
    }
}

/// Reads what is no list, inside `level` lists.
fn read_element(
    cursor: &mut Cursor<'_>,
    input: Input<'_>,
    (level, rank): (usize, usize),
    elements: &mut Elements,
) -> Result<()> {
    let start = *cursor;
    if level != rank {
        return Err(Status::invalid(format!(
            "JSON Value: {} found at incorrect level: {} in the JSON DOM. Expected at \
             level: {rank}",
            quoted(start),
            level + 1
        )));
    }
    elements.read(cursor).map_err(|refusal| refused(refusal, start, input))
}

fn refused(refusal: Refusal, value: Cursor<'_>, input: Input<'_>) -> Status {
    let dtype = input.spec.dtype;
    match refusal {
        Refusal::Syntax(Syntax { text, offset }) => Syntax::new(text, offset).into(),
        Refusal::Type => Status::invalid(format!(
            "JSON Value: {} Type: {} is not of expected type: {dtype}",
            quoted(value),
            value.kind().name()
        )),
        Refusal::NotBase64 => Status::invalid(format!(
            "JSON Value: {} not formatted correctly for base64 data",
            quoted(value)
        )),
        Refusal::Base64 => Status::invalid("Unable to base64 decode"),
        Refusal::Memory => {
            Status::exhausted(format!("there is no memory for the strings of {}", input.tensor))
        }
        Refusal::Unsupported => Status::unimplemented(format!(
            "Conversion of JSON Value: {} to type: {dtype}",
            quoted(value)
        )),
    }
}

fn bracketed(dims: &[usize]) -> String {
    let dims: Vec<String> = dims.iter().map(ToString::to_string).collect();
    format!("[{}]", dims.join(","))
}
