//! Sizes as values: how shapes travel through a graph as small integer tensors, and how kernels
//! and inference read them.

use device::BookedVec;
use smallvec::SmallVec;
use tensor::{DType, Dim, Spec, Value, View};

use crate::error::{Error, Result, invalid};

/// The most elements that are followed one by one.
const FOLLOWED_MAX: usize = 256;

/// Small integers, as `ints` reads them.
pub(crate) type Ints = SmallVec<[i64; 8]>;

/// The dimensions of a spec.
pub(crate) type Dims = SmallVec<[Dim; 5]>;

/// The elements of a small integer tensor of rank 0 or 1, as far as they are known: an element may
/// be a symbol, or unknown.
pub(crate) fn sizes_of(spec: &Spec) -> Option<Vec<Dim>> {
    let small = match &spec.value {
        Value::Unknown | Value::List(_) => false,
        Value::Sizes(_) => true,
        Value::Constant(tensor) => tensor.n_elements() <= FOLLOWED_MAX,
    };
    let followed = matches!(spec.dtype, DType::I32 | DType::I64) && spec.rank()? <= 1;
    if small && followed { spec.sizes() } else { None }
}

/// The elements of a small integer tensor of any rank, if all are numbers.
pub(crate) fn known_ints(spec: &Spec) -> Option<Vec<i64>> {
    match &spec.value {
        Value::Constant(tensor) if tensor.n_elements() > FOLLOWED_MAX => None,
        _ => spec.ints(),
    }
}

/// The only element of an integer scalar (or of a vector of one), if it is a number.
pub(crate) fn known_int(spec: &Spec) -> Option<i64> {
    match known_ints(spec)?[..] {
        [value] => Some(value),
        _ => None,
    }
}

/// `spec` with elements `sizes`, if it is an integer tensor of rank 0 or 1 with as many elements.
pub(crate) fn with_sizes(spec: Spec, sizes: Option<Vec<Dim>>) -> Spec {
    let Some(sizes) = sizes else { return spec };
    let followed = matches!(spec.dtype, DType::I32 | DType::I64)
        && spec.rank().is_some_and(|rank| rank <= 1)
        && sizes.len() <= FOLLOWED_MAX
        && spec.n_elements().known() == i64::try_from(sizes.len()).ok()
        && sizes.iter().any(|size| *size != Dim::Unknown);
    if followed { spec.with_sizes(sizes) } else { spec }
}

/// Returns the known size of a dimension that is both `a` and `b`. Fails if they surely differ.
pub(crate) fn merge_dim(a: &Dim, b: &Dim) -> Result<Dim> {
    if a.differs(b) {
        return invalid!("Dimensions must be equal, but are {a} and {b}");
    }
    Ok(match (a, b) {
        (Dim::Known(_), _) | (_, Dim::Unknown) => a.clone(),
        _ => b.clone(),
    })
}

/// Returns the known sizes of dimensions that are both `a` and `b`. Fails if they surely differ.
pub(crate) fn merge_dims(a: Option<&[Dim]>, b: Option<&[Dim]>) -> Result<Option<Dims>> {
    match (a, b) {
        (None, None) => Ok(None),
        (Some(dims), None) | (None, Some(dims)) => Ok(Some(dims.iter().cloned().collect())),
        (Some(a), Some(b)) if a.len() != b.len() => {
            invalid!("Shapes must be equal rank, but are {} and {}", a.len(), b.len())
        }
        (Some(a), Some(b)) => {
            let dims: Result<Dims> = a.iter().zip(b).map(|(x, y)| merge_dim(x, y)).collect();
            dims.map(Some)
        }
    }
}

/// The dimensions of a partial shape that an attribute holds.
pub(crate) fn dims_of_attr(shape: Option<&[Option<i64>]>) -> Option<Dims> {
    let dim = |size: &Option<i64>| size.map_or(Dim::Unknown, Dim::Known);
    shape.map(|dims| dims.iter().map(dim).collect())
}

/// A tensor of a dtype and perhaps unknown dimensions.
pub(crate) fn spec_of(dtype: DType, dims: Option<Dims>) -> Spec {
    Spec { dtype, dims, value: Value::Unknown }
}

/// A tensor of `rank` unknown dimensions.
pub(crate) fn spec_of_rank(dtype: DType, rank: Option<usize>) -> Spec {
    spec_of(dtype, rank.map(|rank| SmallVec::from_elem(Dim::Unknown, rank)))
}

/// The most elements of an input that says sizes, axes or the like.
const INTS_MAX: usize = 4096;

/// The elements of an integer input that says sizes, axes or the like, as a kernel reads them.
/// Fails for more of them than that.
pub(crate) fn ints(view: &View<'_>) -> Result<Ints> {
    if view.n_elements() > INTS_MAX {
        let n = view.n_elements();
        return invalid!("{n} sizes, axes or the like are more than the {INTS_MAX} that may be");
    }
    match view.dtype() {
        DType::I32 => Ok(view.as_slice::<i32>().iter().map(|x| i64::from(*x)).collect()),
        DType::I64 => Ok(view.as_slice::<i64>().iter().copied().collect()),
        DType::I16 => Ok(view.as_slice::<i16>().iter().map(|x| i64::from(*x)).collect()),
        DType::I8 => Ok(view.as_slice::<i8>().iter().map(|x| i64::from(*x)).collect()),
        other => invalid!("expected int32 or int64 but got {other}"),
    }
}

/// The elements of an `int32` or `int64` input of any size, widened; `None` for other dtypes.
pub(crate) fn booked_i64(view: &View<'_>) -> Result<Option<BookedVec<i64>>> {
    Ok(match view.dtype() {
        DType::I64 => Some(BookedVec::from_slice(view.as_slice())?),
        DType::I32 => {
            Some(BookedVec::collect(view.as_slice::<i32>().iter().map(|x| i64::from(*x)))?)
        }
        _ => None,
    })
}

/// Element `at` of an integer input.
pub(crate) fn int_at(view: &View<'_>, at: usize) -> Result<i64> {
    match view.dtype() {
        DType::I32 => Ok(i64::from(view.as_slice::<i32>()[at])),
        DType::I64 => Ok(view.as_slice::<i64>()[at]),
        DType::I16 => Ok(i64::from(view.as_slice::<i16>()[at])),
        DType::I8 => Ok(i64::from(view.as_slice::<i8>()[at])),
        other => invalid!("expected int32 or int64 but got {other}"),
    }
}

/// The only element of an integer input.
pub(crate) fn int(view: &View<'_>) -> Result<i64> {
    match ints(view)?[..] {
        [value] => Ok(value),
        _ => invalid!("expected a scalar but got shape {}", view.shape()),
    }
}

/// A size that somebody gave us.
pub(crate) fn size(value: i64, what: &str) -> Result<usize> {
    usize::try_from(value)
        .map_err(|_| Error::InvalidArgument(format!("{what} must not be negative but is {value}")))
}
