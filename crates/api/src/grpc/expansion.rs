//! How much memory a message will take when it is decoded, told from its bytes.
//!
//! Most of a message takes about as much decoded as it does on the wire. But an empty string, a
//! dimension or an entry of a map takes two bytes there and dozens here, and a message may hold a
//! billion of them. So these are counted before anything is decoded.

use bytes::Buf;

/// A type of messages: what its fields hold that is larger decoded than encoded.
#[derive(Debug)]
pub(crate) struct Shape {
    fields: &'static [Field],
}

#[derive(Debug)]
struct Field {
    number: u64,
    /// The bytes that each of them takes besides those on the wire.
    cost: usize,
    inside: Option<&'static Shape>,
}

const fn field(number: u64, cost: usize, inside: Option<&'static Shape>) -> Field {
    Field { number, cost, inside }
}

/// `PredictRequest`
pub(crate) static PREDICT: Shape =
    Shape { fields: &[field(2, ENTRY_COST, Some(&TENSOR_ENTRY)), field(3, STRING_COST, None)] };
/// `ClassificationRequest`, `RegressionRequest`
pub(crate) static EXAMPLES: Shape = Shape { fields: &[field(2, 0, Some(&INPUT))] };
/// `MultiInferenceRequest`
pub(crate) static TASKS: Shape =
    Shape { fields: &[field(1, ENTRY_COST, None), field(2, 0, Some(&INPUT))] };
/// Messages of which no more than the number of their parts counts.
pub(crate) static PLAIN: Shape = Shape { fields: &[field(2, STRING_COST, None)] };

static TENSOR_ENTRY: Shape = Shape { fields: &[field(2, 0, Some(&TENSOR))] };
static TENSOR: Shape = Shape {
    fields: &[
        field(2, 0, Some(&DIMS)),
        field(8, STRING_COST, None),
        field(14, ENTRY_COST, None),
        field(15, ENTRY_COST, None),
    ],
};
static DIMS: Shape = Shape { fields: &[field(2, STRING_COST, None)] };
static INPUT: Shape =
    Shape { fields: &[field(1, 0, Some(&LIST)), field(2, 0, Some(&LIST_WITH_CONTEXT))] };
static LIST: Shape = Shape { fields: &[field(1, STRING_COST, Some(&EXAMPLE))] };
static LIST_WITH_CONTEXT: Shape =
    Shape { fields: &[field(1, STRING_COST, Some(&EXAMPLE)), field(2, 0, Some(&EXAMPLE))] };
static EXAMPLE: Shape = Shape { fields: &[field(1, 0, Some(&FEATURES))] };
static FEATURES: Shape = Shape { fields: &[field(1, FEATURE_COST, Some(&FEATURE_ENTRY))] };
static FEATURE_ENTRY: Shape = Shape { fields: &[field(2, 0, Some(&FEATURE))] };
static FEATURE: Shape = Shape { fields: &[field(1, 0, Some(&BYTES))] };
static BYTES: Shape = Shape { fields: &[field(1, STRING_COST, None)] };

/// A string or a dimension.
const STRING_COST: usize = 40;
/// A feature and its place in a map.
const FEATURE_COST: usize = 128;
/// A tensor and its place in a map.
const ENTRY_COST: usize = 640;

/// The bytes that a message takes decoded, besides those it takes encoded. What is malformed is not
/// counted: decoding it will fail at the same place.
pub(crate) fn expansion(message: &mut impl Buf, shape: &Shape) -> usize {
    let length = message.remaining();
    skim(message, length, shape).0
}

/// Counts within `length` bytes. The second result is whether all of them were understood.
fn skim(buf: &mut impl Buf, length: usize, shape: &Shape) -> (usize, bool) {
    let end = buf.remaining().saturating_sub(length);
    let mut cost = 0usize;
    while buf.remaining() > end {
        let Some(key) = varint(buf) else { return (cost, false) };
        let skipped = match key & 7 {
            0 => varint(buf).map(|_| 0),
            1 => Some(8),
            5 => Some(4),
            2 => varint(buf),
            _ => None, // Groups: nothing of ours has them.
        };
        let Some(n_bytes) = skipped.and_then(|n_bytes| usize::try_from(n_bytes).ok()) else {
            return (cost, false);
        };
        if n_bytes > buf.remaining().saturating_sub(end) {
            return (cost, false);
        }
        let field = shape.fields.iter().find(|field| field.number == key >> 3 && key & 7 == 2);
        let after = buf.remaining() - n_bytes;
        if let Some(field) = field {
            cost = cost.saturating_add(field.cost);
            if let Some(inside) = field.inside {
                let (more, is_whole) = skim(buf, n_bytes, inside);
                cost = cost.saturating_add(more);
                if !is_whole {
                    return (cost, false);
                }
            }
        }
        buf.advance(buf.remaining() - after);
    }
    (cost, true)
}

fn varint(buf: &mut impl Buf) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        if !buf.has_remaining() {
            return None;
        }
        let byte = buf.get_u8();
        value |= u64::from(byte & 0x7F) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message as _;
    use proto::serving::PredictRequest;
    use proto::tensorflow::TensorProto;

    #[track_caller]
    fn check(request: &PredictRequest, expected: usize) {
        let bytes = request.encode_to_vec();
        assert_eq!(expansion(&mut &bytes[..], &PREDICT), expected);
        for length in 0..bytes.len() {
            assert!(expansion(&mut &bytes[..length], &PREDICT) <= expected);
        }
    }

    #[test]
    fn parts_that_grow_are_counted_wherever_they_are() {
        let strings = TensorProto { string_val: vec![Default::default(); 3], ..Default::default() };
        let mut request = PredictRequest::default();
        check(&request, 0);
        request.inputs.insert("x".to_owned(), strings.clone());
        check(&request, ENTRY_COST + 3 * STRING_COST);
        request.inputs.insert("y".to_owned(), strings);
        request.output_filter.push("z".to_owned());
        check(&request, 2 * ENTRY_COST + 7 * STRING_COST);
        let floats = TensorProto { float_val: vec![1.0; 1000], ..Default::default() };
        request.inputs = [("x".to_owned(), floats)].into();
        check(&request, ENTRY_COST + STRING_COST);
    }

    #[test]
    fn nonsense_is_counted_to_its_first_mistake() {
        for bytes in [&[0xFFu8; 20][..], &[0x12, 0x7F], &[0x0B], &[0x12, 0x02, 0x12, 0x05, 0x12]] {
            assert!(expansion(&mut &*bytes, &PREDICT) <= ENTRY_COST, "{bytes:?}");
        }
    }
}
