//! `Facts`: properties of an op that others arrange it by, beside its meaning: rows, functions,
//! cost, home. Plain data in the op's line, read when a model is loaded and never between steps.

use device::Home;

use crate::attrs::Attrs;
use crate::error::Result;

/// The properties of an op. All but `rows` have a usual value, which an op changes where it is
/// another: `OpDef::pure(…).costs(Cost::Filter)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// The way it treats the rows of a batch.
    pub rows: RowRule,
    /// The functions that it calls; usually none.
    pub calls: FunctionCall,
    /// The measure of its floating-point operations; usually one for each element it makes.
    pub cost: Cost,
    /// The home of the op's objects. Usually the device; the host for tables. Strings are on the
    /// host whatever is said here.
    pub home: Home,
    /// The inputs that it hands on; usually none.
    pub passes: PassThrough,
    /// Its use of a variable; usually unknown.
    pub variable: VariableAccess,
    /// It does nothing but fail where its first input does not hold.
    pub is_check: bool,
}

/// The way an op treats the rows of a batch: the first dimension of what has rows.
///
/// A rule says what may be asked of attributes and shapes, so that each row of the outputs depends
/// on its own row of the inputs alone. Requests are run together only where all rules of a
/// signature hold: a wrong one makes wrong answers, and [`RowRule::Mixed`] is always right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowRule {
    /// No rule is known: rows are mixed.
    Mixed,
    /// Mixed: as many pieces as all rows have together.
    Pieces,
    /// Mixed: results as wide as the longest row.
    Widest,

    /// Each element of the outputs comes from the elements at its place, after broadcasting.
    Elementwise,
    /// The first input has a row for each image, the others are the same for all.
    Images,
    /// As `Images`, and inputs with rows are added to the result.
    FusedImages,
    /// The first input has rows, to each of which a vector is added.
    Bias,
    /// Works along the last dimension of the first input.
    LastAxis,
    /// Works on the last two dimensions of the first input.
    Matrices,
    /// Each element of the first input becomes a row of elements.
    DecodeRaw,
    /// The elements of the first input in the shape that the second says.
    Reshape,
    /// The elements of the first input in another shape.
    SameElements,

    /// Depends on the shape of its input alone.
    Shape,
    /// As `Shape`, of several inputs.
    ShapeN,
    /// Fills a shape, its first input, with its second.
    Fill,
    /// Repeats the first input up to the shape in its second.
    BroadcastTo,
    /// Repeats the first input as often as its second says.
    Tile,

    /// A matrix product; the attribute `transpose_a` may turn the left operand.
    MatMul,
    /// Products of stacks of matrices, which are broadcast.
    BatchMatMul,
    /// As the attribute `equation` says.
    Einsum,
    /// Rows times a matrix, and inputs with rows are added to the result.
    Linear,
    /// A transposed convolution: a shape, a filter, the images.
    ConvTranspose,
    /// The rows of an image are those of its cells, taken apart.
    SpaceToBatch,
    /// Cells that were taken apart are put together.
    BatchToSpace,
    /// Boxes and scores of each image; the other inputs are the same for all.
    Suppression,
    /// Statistics are given, or taken over the batch if the attribute `is_training` says so.
    BatchNorm,

    /// A choice, whose condition may have one element for each row.
    Select,
    /// Inputs side by side along the axis that is the first input.
    Concat,
    /// Inputs side by side along the axis that is the last input.
    ConcatV2,
    /// Inputs one behind another along the attribute `axis`.
    Pack,
    /// The reverse of `Pack`.
    Unpack,
    /// Works along dimensions that are an input, on another input.
    Along {
        /// The number of the input that has rows.
        value: usize,
        /// The number of the input that says the dimensions.
        axes: usize,
    },
    /// Turns the first input around along the dimensions in the second.
    Reverse,
    /// The dimensions of the first input in the order that the second says.
    Transpose,
    /// As `Transpose`, of complex numbers.
    ConjugateTranspose,
    /// Rows of a table, the first input, at indices.
    Gather,
    /// As `Gather`, along the axis that is the third input.
    GatherV2,
    /// As `Gather`, at indices of several dimensions.
    GatherNd,
    /// The values of keys, the second input, in a table that is filled before anything is served.
    Lookup,
    /// A slice by masks, begins, ends and strides.
    StridedSlice,
    /// A slice by begins and sizes.
    Slice,
    /// Adds to each dimension as the second input says.
    Pad,
    /// As `Pad`, with the elements beside.
    MirrorPad,
    /// A vector for each element, along the attribute `axis`.
    OneHot,

    /// The list of a tensor's steps.
    ListFromTensor,
    /// An item of a list.
    ListGet,
    /// A list with another item: the last input.
    ListPut,
    /// All items of a list, one behind another.
    ListStack,
    /// The number of items of a list.
    ListLength,

    /// Features of examples: dense ones have a row each, sparse ones entries.
    ParseExample {
        /// The attribute that counts the sparse features.
        n_sparse: &'static str,
    },
    /// Another shape of a sparse tensor.
    SparseReshape,
    /// A sparse tensor whose every row has an entry.
    SparseFillEmptyRows,
    /// The places of what is true.
    Where,
    /// Each different element, and for each element which one it is.
    Unique,
    /// Reduces the elements of each segment, the second input.
    Segments,
    /// As `Segments`, of the rows at the indices in the second input; segments are the third.
    SparseSegments,
}

/// The functions that an op calls, by its attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FunctionCall {
    /// None.
    Nothing,
    /// `f`, with all inputs.
    Plain,
    /// `cond` and `body` in turn, with all inputs.
    Loop,
    /// `then_branch` or `else_branch`, as the first input says, with the others.
    Branch,
    /// One of `branches`, as the first input says, with the others.
    Choice,
}

impl FunctionCall {
    /// Names of the functions, in the order above. Fails where an attribute is missing.
    pub fn functions<'a>(self, attrs: &Attrs<'a>) -> Result<Vec<&'a str>> {
        let named = |names: &[&str]| names.iter().map(|name| attrs.function(name)).collect();
        match self {
            Self::Nothing => Ok(Vec::new()),
            Self::Plain => named(&["f"]),
            Self::Loop => named(&["cond", "body"]),
            Self::Branch => named(&["then_branch", "else_branch"]),
            Self::Choice => attrs.functions("branches"),
        }
    }

    /// The number of the first input that the functions are given.
    pub fn first_arg(self) -> usize {
        match self {
            Self::Nothing | Self::Plain | Self::Loop => 0,
            Self::Branch | Self::Choice => 1,
        }
    }

    /// True for loops and branches: their functions run as often as a tensor says.
    pub fn is_control_flow(self) -> bool {
        matches!(self, Self::Loop | Self::Branch | Self::Choice)
    }
}

/// The measure of an op's floating-point operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cost {
    /// One for each element that it makes.
    Elements,
    /// A product with the matrices in its second input.
    Product,
    /// A convolution with the filter in its second input.
    Filter,
    /// As `Filter`, of each channel alone.
    DepthwiseFilter,
    /// A contraction of two inputs.
    Contraction,
}

/// The inputs that an op hands on unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PassThrough {
    /// None.
    Nothing,
    /// Its input, be it a tensor or a handle.
    Anything,
    /// Its input, a tensor.
    Tensor,
    /// Each input, as the output of the same number.
    Each,
}

/// The use that an op makes of the variable whose handle it gives or reads first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VariableAccess {
    /// Any: it may write it.
    Unknown,
    /// It gives the handle.
    Handle,
    /// It gives the value.
    Value,
    /// It gives rows of the value at indices.
    Gather,
    /// As `Gather`, at indices of several dimensions.
    GatherNd,
    /// It reads something else, such as the shape.
    Look,
}

impl VariableAccess {
    /// True for what leaves the variable as it is.
    pub fn is_reading(self) -> bool {
        matches!(self, Self::Value | Self::Gather | Self::GatherNd | Self::Look)
    }
}

impl Facts {
    /// The usual facts of an op that treats rows so.
    pub const fn usual(rows: RowRule) -> Self {
        Self {
            rows,
            calls: FunctionCall::Nothing,
            cost: Cost::Elements,
            home: Home::Device,
            passes: PassThrough::Nothing,
            variable: VariableAccess::Unknown,
            is_check: false,
        }
    }
}
