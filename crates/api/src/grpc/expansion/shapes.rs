//! The messages that requests are made of: which of their fields take memory of their own when they
//! are decoded. All of it is told by the descriptors that clients ask for too.
#![expect(clippy::wildcard_enum_match_arm, reason = "the kinds not named are numbers")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use prost::Message as _;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorSet, MessageOptions};

use super::first_bytes;

/// A type of messages: its fields that take memory of their own.
#[derive(Debug, Default)]
pub(crate) struct Shape {
    /// By their numbers.
    fields: Vec<Field>,
}

/// A field that takes memory of its own.
#[derive(Debug)]
pub(super) struct Field {
    number: u32,
    /// The bytes that the first of them in a message takes besides.
    pub(super) first: usize,
    pub(super) part: Part,
}

/// The kind of value that a field holds.
#[derive(Debug)]
pub(super) enum Part {
    /// Bytes that stay where they are.
    Shared { each: usize },
    /// Bytes that are copied.
    Copied { each: usize },
    /// Numbers, packed or one by one.
    Numbers { width: usize, fixed: Option<Fixed> },
    /// A message, by the place of its shape.
    Message { each: usize, inside: usize },
}

/// Numbers that take so many bytes each on the wire.
#[derive(Debug)]
pub(super) struct Fixed(pub(super) usize);

impl Shape {
    /// The field of this number, and its place.
    pub(super) fn find(&self, number: u32) -> Option<(usize, &Field)> {
        let place = self.fields.binary_search_by_key(&number, |field| field.number).ok()?;
        Some((place, &self.fields[place]))
    }
}

/// The shapes of all messages that requests are made of.
#[derive(Debug)]
pub(crate) struct Shapes {
    all: Vec<Shape>,
    /// The requests of methods, by the method's path.
    requests: BTreeMap<String, usize>,
}

/// The shapes, which are made when the first is asked for.
pub(crate) fn shapes() -> &'static Shapes {
    static SHAPES: LazyLock<Shapes> = LazyLock::new(|| {
        let set = FileDescriptorSet::decode(proto::FILE_DESCRIPTOR_SET);
        Shapes::new(&set.expect("the descriptors are our own"))
    });
    &SHAPES
}

impl Shapes {
    /// The shape of the requests of a method, by its path.
    pub(crate) fn request(&self, path: &str) -> Option<&Shape> {
        self.requests.get(path).map(|place| self.get(*place))
    }

    pub(super) fn get(&self, place: usize) -> &Shape {
        &self.all[place]
    }

    fn new(set: &FileDescriptorSet) -> Self {
        let mut types = Types::default();
        for file in &set.file {
            types.collect(&format!(".{}", file.package()), &file.message_type);
        }
        let mut shapes = Self { all: Vec::new(), requests: BTreeMap::new() };
        let mut places = BTreeMap::new();
        for file in &set.file {
            for service in &file.service {
                for method in &service.method {
                    let place = shapes.add(&types, method.input_type(), &mut places);
                    let (package, service) = (file.package(), service.name());
                    let path = format!("/{package}.{service}/{}", method.name());
                    shapes.requests.insert(path, place);
                }
            }
        }
        shapes
    }

    /// Adds the shape of a type, and of all that is in it, unless it is there. Gives its place.
    fn add<'a>(
        &mut self,
        types: &Types<'a>,
        name: &'a str,
        places: &mut BTreeMap<&'a str, usize>,
    ) -> usize {
        if let Some(place) = places.get(name) {
            return *place;
        }
        let place = self.all.len();
        places.insert(name, place);
        self.all.push(Shape::default());
        let mut fields = Vec::new();
        for field in &types.get(name).field {
            let is_message = field.r#type() == Type::Message;
            let inside = if is_message { self.add(types, field.type_name(), places) } else { 0 };
            fields.extend(types.field(name, field, inside));
        }
        fields.sort_by_key(|field| field.number);
        self.all[place] = Shape { fields };
        place
    }
}

/// All types of messages, by their full names.
#[derive(Default)]
struct Types<'a>(BTreeMap<String, &'a DescriptorProto>);

/// Bytes of a string, a buffer, a vector or a map where they stand, and of anything smaller.
const TEXT: usize = size_of::<String>();
const BUFFER: usize = size_of::<bytes::Bytes>();
const LIST: usize = size_of::<Vec<u8>>();
const WORD: usize = size_of::<u64>();

/// A node of a map has room for so many entries, and its links.
const NODE_ENTRIES: usize = 11;
const NODE_LINKS: usize = 128;

impl<'a> Types<'a> {
    fn collect(&mut self, around: &str, messages: &'a [DescriptorProto]) {
        for message in messages {
            let name = format!("{around}.{}", message.name());
            self.collect(&name, &message.nested_type);
            self.0.insert(name, message);
        }
    }

    fn get(&self, name: &str) -> &'a DescriptorProto {
        self.0.get(name).expect("the descriptors are complete")
    }

    /// Returns the bytes that a field of the type `around` takes; none if those are only its place.
    fn field(&self, around: &str, field: &FieldDescriptorProto, inside: usize) -> Option<Field> {
        let is_repeated = field.label() == Label::Repeated;
        let many = |bytes: usize| if is_repeated { 4 * bytes } else { 0 };
        // Google's own messages have vectors where ours share what was sent.
        let is_copied = around.starts_with(".google.");
        let mut first = 0;
        let part = match field.r#type() {
            Type::String => Part::Copied { each: many(TEXT) + WORD },
            Type::Bytes if is_copied => Part::Copied { each: many(LIST) + WORD },
            // A tensor of strings is made from a list of where they are.
            Type::Bytes => Part::Shared { each: many(BUFFER) + many(2 * WORD) / 4 },
            Type::Message | Type::Group => {
                let message = self.get(field.type_name());
                let bytes = self.size(field.type_name(), &mut BTreeSet::new());
                let is_entry = message.options.as_ref().is_some_and(MessageOptions::map_entry);
                if is_entry {
                    first = NODE_ENTRIES * bytes + NODE_LINKS;
                    Part::Message { each: 3 * bytes + NODE_LINKS / 4, inside }
                } else {
                    Part::Message { each: many(bytes), inside }
                }
            }
            number if is_repeated => numbers(number),
            _ => return None,
        };
        Some(Field { number: field.number().unsigned_abs(), first, part })
    }

    /// The bytes of a message where it stands, at most: those of its fields, and a word for each
    /// that says whether it is there.
    fn size<'n>(&'n self, name: &'n str, around: &mut BTreeSet<&'n str>) -> usize {
        if !around.insert(name) {
            return WORD; // It is in a box.
        }
        let field = |field: &'a FieldDescriptorProto, around: &mut BTreeSet<&'n str>| {
            WORD + match field.r#type() {
                _ if field.label() == Label::Repeated => LIST,
                Type::String => TEXT,
                Type::Bytes => BUFFER,
                Type::Message | Type::Group => {
                    let (name, _) = self.0.get_key_value(field.type_name()).expect("complete");
                    self.size(name, around)
                }
                _ => WORD,
            }
        };
        let bytes = self.get(name).field.iter().map(|one| field(one, around)).sum();
        around.remove(name);
        bytes
    }
}

fn numbers(number: Type) -> Part {
    let (width, fixed) = match number {
        Type::Double | Type::Fixed64 | Type::Sfixed64 => (8, Some(Fixed(8))),
        Type::Float | Type::Fixed32 | Type::Sfixed32 => (4, Some(Fixed(4))),
        Type::Int64 | Type::Uint64 | Type::Sint64 => (8, None),
        Type::Bool => (1, None),
        Type::Int32 | Type::Uint32 | Type::Sint32 | Type::Enum => (4, None),
        Type::String | Type::Bytes | Type::Message | Type::Group => {
            unreachable!("the caller keeps these types away")
        }
    };
    assert!(first_bytes(width) >= width);
    Part::Numbers { width, fixed }
}
