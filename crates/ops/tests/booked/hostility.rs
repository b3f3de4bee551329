//! `Variant`: a call of an op made hostile.
#![allow(clippy::wildcard_enum_match_arm, reason = "a test knows which dtypes it makes")]

use proto::tensorflow::AttrValue;
use proto::tensorflow::attr_value::Value;
use tensor::{DType, Shape, Strings, Tensor};
use testkit::opcases::Node;

/// Numbers that ask for much, and some that ask for nonsense.
const HOSTILE: &[i64] = &[
    1 << 20,
    1 << 24,
    1 << 27,
    (1 << 31) - 1,
    1 << 33,
    1 << 40,
    1 << 62,
    i64::MAX,
    i64::MIN,
    -(1 << 31),
    -1,
    0,
    5_000_000,
    100_000,
];

/// The most elements of an input that was made larger, and the bytes of a long string.
const GROWN_ELEMENTS: usize = 300_000;
const LONG_BYTES: usize = 1 << 20;

/// A node, its inputs, and what was changed.
pub(crate) struct Variant {
    pub(crate) node: Node,
    pub(crate) inputs: Vec<Tensor>,
    pub(crate) what: String,
}

impl Variant {
    /// A change of the kind that comes at this turn; `None` if there is nothing to change.
    pub(crate) fn new(
        node: &Node,
        inputs: &[Tensor],
        turn: usize,
        random: &mut Random,
    ) -> Option<Self> {
        let (node, inputs) = (node.clone(), inputs.to_vec());
        let mut variant = Self { node, inputs, what: String::new() };
        let changed = match turn % 5 {
            0 => variant.number_of_input(random),
            1 => variant.number_of_attribute(random) || variant.number_of_input(random),
            2 => variant.grow(random),
            3 => variant.lengthen(random) || variant.grow(random),
            _ => variant.grow(random) && variant.number_of_input(random),
        };
        changed.then_some(variant)
    }

    /// Makes one number in a small input hostile.
    fn number_of_input(&mut self, random: &mut Random) -> bool {
        let is_open = |tensor: &Tensor| {
            let dtypes = [DType::I32, DType::I64, DType::F32, DType::F64];
            dtypes.contains(&tensor.dtype()) && (1..=16).contains(&tensor.n_elements())
        };
        let open: Vec<usize> =
            (0..self.inputs.len()).filter(|i| is_open(&self.inputs[*i])).collect();
        let Some(input) = random.pick(&open) else { return false };
        let tensor = &self.inputs[input];
        let (at, value) = (random.below(tensor.n_elements()), random.hostile());
        let changed = match tensor.dtype() {
            DType::I32 => with(tensor, at, i32::try_from(value).unwrap_or(i32::MAX)),
            DType::I64 => with(tensor, at, value),
            DType::F32 => with(tensor, at, value as f32),
            _ => with(tensor, at, value as f64),
        };
        self.what += &format!("element {at} of input {input} is {value}; ");
        self.inputs[input] = changed;
        true
    }

    /// Makes one number of an attribute hostile.
    fn number_of_attribute(&mut self, random: &mut Random) -> bool {
        let names: Vec<String> = self
            .node
            .attrs
            .iter()
            .filter(|(_, attr)| has_number(attr))
            .map(|a| a.0.clone())
            .collect();
        let Some(name) = random.pick(&names) else { return false };
        let value = random.hostile();
        match self.node.attrs.get_mut(&name).and_then(|attr| attr.value.as_mut()) {
            Some(Value::I(number)) => *number = value,
            Some(Value::Shape(shape)) => {
                let at = random.below(shape.dim.len());
                shape.dim[at].size = value;
            }
            Some(Value::List(list)) => {
                let at = random.below(list.i.len());
                list.i[at] = value;
            }
            _ => return false,
        }
        self.what += &format!("{name} is {value}; ");
        true
    }

    /// Makes one size larger wherever it occurs in the inputs, and repeats what is there.
    fn grow(&mut self, random: &mut Random) -> bool {
        let is_open = |tensor: &&Tensor| {
            (tensor.dtype().is_plain() || tensor.dtype() == DType::String)
                && tensor.n_elements() > 0
        };
        let sizes: Vec<usize> = self
            .inputs
            .iter()
            .filter(is_open)
            .flat_map(|tensor| tensor.shape().dims().to_vec())
            .collect();
        let Some(size) = random.pick(&sizes) else { return false };
        let power = |tensor: &Tensor| {
            let n = tensor.shape().iter().filter(|dim| **dim == size).count();
            u32::try_from(n).unwrap()
        };
        let fits = |times: usize| {
            let all = self.inputs.iter().filter(is_open);
            let mut grown = all.map(|tensor| {
                times.checked_pow(power(tensor)).and_then(|t| t.checked_mul(tensor.n_elements()))
            });
            grown.all(|n| n.is_some_and(|n| n <= GROWN_ELEMENTS))
        };
        let Some(times) = [100_000, 10_000, 1000, 100, 10].into_iter().find(|t| fits(*t)) else {
            return false;
        };
        for input in self.inputs.iter_mut().filter(|tensor| is_open(&&**tensor)) {
            *input = grown(input, size, times);
        }
        self.what += &format!("size {size} is {times} times as large; ");
        true
    }

    /// Repeats one string many times over.
    fn lengthen(&mut self, random: &mut Random) -> bool {
        let is_open = |tensor: &Tensor| tensor.dtype() == DType::String && tensor.n_elements() > 0;
        let open: Vec<usize> =
            (0..self.inputs.len()).filter(|i| is_open(&self.inputs[*i])).collect();
        let Some(input) = random.pick(&open) else { return false };
        let tensor = &self.inputs[input];
        let at = random.below(tensor.n_elements());
        let strings = tensor.strings().iter().enumerate().map(|(i, string)| match i == at {
            true => string.repeat(LONG_BYTES / string.len().max(1)),
            false => string.to_vec(),
        });
        let strings = Strings::collect(strings).unwrap();
        self.what += &format!("string {at} of input {input} is long; ");
        self.inputs[input] = Tensor::from_strings(tensor.shape().clone(), strings).unwrap();
        true
    }
}

fn has_number(attr: &AttrValue) -> bool {
    match &attr.value {
        Some(Value::I(_)) => true,
        Some(Value::Shape(shape)) => !shape.dim.is_empty(),
        Some(Value::List(list)) => !list.i.is_empty(),
        _ => false,
    }
}

/// The same tensor with another element at a place.
fn with<T: tensor::Element>(tensor: &Tensor, at: usize, value: T) -> Tensor {
    let mut values = tensor.as_slice::<T>().to_vec();
    values[at] = value;
    Tensor::from_slice(tensor.shape().clone(), &values).unwrap()
}

/// The tensor with each dimension of a size so many times as large: what is there is repeated.
fn grown(tensor: &Tensor, size: usize, times: usize) -> Tensor {
    let mut result = tensor.clone();
    for axis in (0..tensor.shape().rank()).filter(|axis| tensor.shape()[*axis] == size) {
        result = repeated(&result, axis, times);
    }
    result
}

fn repeated(tensor: &Tensor, axis: usize, times: usize) -> Tensor {
    let mut dims = tensor.shape().dims().to_vec();
    let run: usize = dims[axis..].iter().product();
    dims[axis] *= times;
    let shape = Shape::of(&dims);
    if tensor.dtype() == DType::String {
        let strings = tensor.strings();
        let runs = (0..strings.len() / run).flat_map(|i| (0..times).map(move |_| i));
        let places = runs.flat_map(|i| i * run..(i + 1) * run);
        let strings = Strings::copied(places.map(|at| strings.get(at))).unwrap();
        return Tensor::from_strings(shape, strings).unwrap();
    }
    let bytes = tensor.view().bytes().chunks_exact(run * tensor.dtype().size());
    let bytes: Vec<u8> = bytes.flat_map(|run| run.repeat(times)).collect();
    Tensor::from_bytes(tensor.dtype(), shape, &bytes).unwrap()
}

/// Random numbers, the same each time.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: &str) -> Self {
        Self(seed.bytes().fold(7, |seed, byte| seed.wrapping_mul(31).wrapping_add(byte.into())))
    }

    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) as usize % n
    }

    fn pick<T: Clone>(&mut self, all: &[T]) -> Option<T> {
        (!all.is_empty()).then(|| all[self.below(all.len())].clone())
    }

    fn hostile(&mut self) -> i64 {
        HOSTILE[self.below(HOSTILE.len())]
    }
}
