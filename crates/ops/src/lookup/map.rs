//! `Map`: keys and their values, as a table holds them.

use crate::hash::{self, Index};
use crate::moves::rearranged;
use crate::prelude::*;

/// A value that is not there.
const MISSING: usize = usize::MAX;

/// Keys with a row of values each, in the order they were first added.
#[derive(Debug)]
pub(super) struct Map {
    keys: MapKeys,
    index: Index,
    /// One row a key.
    values: Tensor,
}

#[derive(Debug)]
enum MapKeys {
    /// `int32` or `int64`.
    Ints(DType, BookedVec<i64>),
    Strings(Strings),
    /// Keys that are tensors themselves, each as its bytes (`row_of`).
    Rows(DType, Shape, Strings),
}

/// The treatment of a key that is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Again {
    /// Replace its value.
    Replace,
    /// Refuse another value than the one it has.
    Refuse,
}

impl Map {
    /// An empty map. Fails for dtypes that no table has.
    pub(super) fn new(
        key: DType,
        key_shape: &Shape,
        value: DType,
        value_shape: &Shape,
    ) -> Result<Self> {
        let keys = match key {
            DType::I32 | DType::I64 | DType::String if key_shape.rank() > 0 => {
                MapKeys::Rows(key, key_shape.clone(), Strings::default())
            }
            DType::I32 | DType::I64 => MapKeys::Ints(key, BookedVec::new()),
            DType::String => MapKeys::Strings(Strings::default()),
            other => return invalid!("a table has no keys of {other}"),
        };
        let dims = std::iter::once(0).chain(value_shape.to_i64());
        let values = Tensor::zeros(value, Shape::checked(dims)?)?;
        Ok(Self { keys, index: Index::default(), values })
    }

    /// A copy of its own. Fails without memory.
    pub(super) fn try_clone(&self) -> Result<Self> {
        let keys = match &self.keys {
            MapKeys::Ints(dtype, keys) => MapKeys::Ints(*dtype, keys.try_clone()?),
            MapKeys::Strings(keys) => MapKeys::Strings(keys.try_clone()?),
            MapKeys::Rows(dtype, shape, keys) => {
                MapKeys::Rows(*dtype, shape.clone(), keys.try_clone()?)
            }
        };
        Ok(Self { keys, index: self.index.try_clone()?, values: self.values.clone() })
    }

    /// The number of keys.
    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    /// The bytes held.
    pub(super) fn n_bytes(&self) -> usize {
        let keys = match &self.keys {
            MapKeys::Ints(_, keys) => keys.len() * size_of::<i64>(),
            MapKeys::Strings(keys) | MapKeys::Rows(_, _, keys) => keys.n_bytes(),
        };
        keys + self.index.n_bytes() + self.values.n_bytes()
    }

    /// The row of each key in the values, as a move that reads `[values, default]`.
    pub(super) fn find<'a>(&self, keys: &View<'_>, scratch: &mut Scratch<'a>) -> Result<Rows<'a>> {
        let mut rows = scratch.part(keys.n_elements() / self.keys.width())?;
        match &self.keys {
            MapKeys::Rows(DType::String, shape, known) => {
                let width = shape.n_elements();
                for (i, row) in rows.iter_mut().enumerate() {
                    pace(16)?;
                    let key = || (i * width..(i + 1) * width).map(|at| keys.strings().get(at));
                    let found =
                        self.index.find(hash_of_texts(key()), |at| texts(known.get(at)).eq(key()));
                    *row = found.unwrap_or(MISSING);
                }
            }
            MapKeys::Rows(dtype, shape, known) => {
                let size = dtype.size() * shape.n_elements();
                for (i, row) in rows.iter_mut().enumerate() {
                    pace(16)?;
                    let key = &keys.bytes()[i * size..][..size];
                    let found = self.index.find(hash::of_bytes(key), |at| known.get(at) == key);
                    *row = found.unwrap_or(MISSING);
                }
            }
            MapKeys::Strings(known) => {
                let find =
                    |key: &[u8]| self.index.find(hash::of_bytes(key), |at| known.get(at) == key);
                let found = keys.strings().iter().map(|key| find(key).unwrap_or(MISSING));
                rows.iter_mut().zip(found).for_each(|(row, found)| *row = found);
            }
            MapKeys::Ints(_, known) => {
                let find =
                    |key: i64| self.index.find(hash::of_u64(key as u64), |at| known[at] == key);
                for (i, row) in rows.iter_mut().enumerate() {
                    pace(16)?;
                    *row = find(int_at(keys, i)?).unwrap_or(MISSING);
                }
            }
        }
        Ok(Rows { rows })
    }

    /// The values, one row a key.
    pub(super) fn values(&self) -> &Tensor {
        &self.values
    }

    /// The keys, one behind another.
    pub(super) fn keys(&self) -> Result<Tensor> {
        let shape = Shape::of(&[self.len()]);
        Ok(match &self.keys {
            MapKeys::Rows(dtype, inner, rows) => {
                let dims = std::iter::once(self.len() as i64).chain(inner.to_i64());
                tensor_of(*dtype, Shape::checked(dims)?, rows)?
            }
            MapKeys::Strings(keys) => Tensor::from_strings(shape, keys.try_clone()?)?,
            MapKeys::Ints(DType::I64, keys) => Tensor::from_slice(shape, keys)?,
            MapKeys::Ints(_, keys) => {
                let narrow = BookedVec::collect(keys.iter().map(|key| *key as i32))?;
                Tensor::from_slice(shape, &narrow)?
            }
        })
    }

    /// The same map with more keys: `keys` and `values` have as many rows, of its dtypes.
    pub(super) fn with(self, keys: &View<'_>, values: &View<'_>, again: Again) -> Result<Self> {
        let n_keys = keys.n_elements() / self.keys.width();
        self.with_rows(keys, values, 0..n_keys, again)
    }

    /// The same map with some rows of keys and values.
    pub(super) fn with_rows(
        mut self,
        keys: &View<'_>,
        values: &View<'_>,
        new_rows: impl Iterator<Item = usize>,
        again: Again,
    ) -> Result<Self> {
        let old = self.len();
        if let MapKeys::Strings(known) = &mut self.keys {
            let strings = keys.strings();
            known.reserve(strings.len(), strings.iter().map(<[u8]>::len).sum())?;
        }
        // The row of each key in the old values, then the new ones.
        let mut rows = BookedVec::collect(0..old)?;
        for i in new_rows {
            let row = old + i;
            let (at, is_new) = self.keys.add(&mut self.index, keys, i)?;
            if is_new {
                rows.push(row)?;
            } else if again == Again::Replace {
                rows[at] = row;
            } else if !same_row(&self.values, values, old, (rows[at], row)) {
                let has = match rows[at].checked_sub(old) {
                    None => element(&self.values.view(), rows[at]),
                    Some(new) => element(values, new),
                };
                return different(&element(keys, i), &has, &element(values, i));
            }
        }
        self.keys.shrink_to_fit();
        let mut dims = self.values.shape().to_i64();
        dims[0] = rows.len() as i64;
        let stacked = Rows { rows: Part::Own(rows) };
        self.values = rearranged(&[self.values.view(), *values], &Shape::checked(dims)?, &stacked)?;
        Ok(self)
    }
}

impl MapKeys {
    fn shrink_to_fit(&mut self) {
        match self {
            Self::Ints(_, keys) => keys.shrink_to_fit(),
            Self::Strings(keys) | Self::Rows(_, _, keys) => keys.shrink_to_fit(),
        }
    }

    /// The elements of a key.
    fn width(&self) -> usize {
        match self {
            Self::Rows(_, shape, _) => shape.n_elements().max(1),
            Self::Ints(..) | Self::Strings(_) => 1,
        }
    }

    /// The number of key number `i` of `keys`, and whether it is new.
    fn add(&mut self, index: &mut Index, keys: &View<'_>, i: usize) -> Result<(usize, bool)> {
        let width = matches!(self, Self::Rows(..)).then(|| self.width());
        let mut spare = BookedVec::new();
        let has_texts = matches!(self, Self::Rows(DType::String, ..));
        let hash_of = |key: &[u8]| match has_texts {
            true => hash_of_texts(texts(key)),
            false => hash::of_bytes(key),
        };
        match self {
            Self::Strings(known) | Self::Rows(_, _, known) => {
                let key = match &width {
                    None => keys.strings().get(i),
                    Some(width) => row_of(keys, *width, i, &mut spare)?,
                };
                let hash = hash_of(key);
                if let Some(at) = index.find(hash, |at| known.get(at) == key) {
                    return Ok((at, false));
                }
                let at = index.add(hash, |at| hash_of(known.get(at)))?;
                known.push(key)?;
                Ok((at, true))
            }
            Self::Ints(dtype, known) => {
                let key = match dtype {
                    DType::I64 => keys.as_slice::<i64>()[i],
                    _ => i64::from(keys.as_slice::<i32>()[i]),
                };
                let hash = hash::of_u64(key as u64);
                if let Some(at) = index.find(hash, |at| known[at] == key) {
                    return Ok((at, false));
                }
                let at = index.add(hash, |at| hash::of_u64(known[at] as u64))?;
                known.push(key)?;
                Ok((at, true))
            }
        }
    }
}

/// The bytes of key number `i`, which is of `width` elements. Strings stand behind their lengths.
fn row_of<'a>(
    keys: &'a View<'_>,
    width: usize,
    i: usize,
    spare: &'a mut BookedVec<u8>,
) -> Result<&'a [u8]> {
    if keys.dtype() != DType::String {
        let size = keys.dtype().size() * width;
        return Ok(&keys.bytes()[i * size..][..size]);
    }
    spare.clear();
    for place in i * width..(i + 1) * width {
        let text = keys.strings().get(place);
        spare.extend_from_slice(&(text.len() as u64).to_le_bytes())?;
        spare.extend_from_slice(text)?;
    }
    Ok(spare)
}

/// The tensor whose rows `row_of` made bytes.
fn tensor_of(dtype: DType, shape: Shape, rows: &Strings) -> Result<Tensor> {
    if dtype != DType::String {
        let mut tensor = Tensor::zeros(dtype, shape)?;
        let mut view = tensor.view_mut().expect("a new tensor has one owner");
        let bytes = rows.iter().flatten();
        view.bytes().iter_mut().zip(bytes).for_each(|(to, byte)| *to = *byte);
        return Ok(tensor);
    }
    Ok(Tensor::from_strings(shape, Strings::collect(rows.iter().flat_map(texts))?)?)
}

/// The strings that `row_of` put one behind another.
fn texts(row: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut row = row;
    std::iter::from_fn(move || {
        let (len, rest) = row.split_first_chunk::<8>()?;
        let (text, rest) = rest.split_at(u64::from_le_bytes(*len) as usize);
        row = rest;
        Some(text)
    })
}

fn hash_of_texts<'a>(texts: impl Iterator<Item = &'a [u8]>) -> u64 {
    texts.fold(0, |hash, text| hash::of_u64(hash ^ hash::of_bytes(text)))
}

/// Rows picked from two tensors that are seen one behind another; a row that is missing is the
/// whole of the second, or the row of it at the same place.
pub(super) struct Rows<'a> {
    rows: Part<'a, usize>,
}

impl Move for Rows<'_> {
    fn apply<T: bytemuck::Pod + Send + Sync>(
        &self,
        inputs: &[&[T]],
        output: &mut [T],
    ) -> Result<()> {
        let (first, second) = (inputs[0], inputs[1]);
        let width = output.len() / self.rows.len().max(1);
        if width == 0 {
            return Ok(());
        }
        let n_first = first.len() / width;
        for (i, (row, to)) in self.rows.iter().zip(output.chunks_exact_mut(width)).enumerate() {
            pace(width)?;
            let from = match *row {
                MISSING if second.len() == width => second,
                MISSING => &second[i * width..(i + 1) * width],
                row if row < n_first => &first[row * width..(row + 1) * width],
                row => &second[(row - n_first) * width..(row - n_first + 1) * width],
            };
            to.copy_from_slice(from);
        }
        Ok(())
    }
}

/// Returns whether two rows, counted through the old values and then the new ones, are equal.
fn same_row(old: &Tensor, new: &View<'_>, n_old: usize, rows: (usize, usize)) -> bool {
    let width = old.shape()[1..].iter().product::<usize>();
    let place = |row: usize| {
        if row < n_old { (old.view(), row * width) } else { (*new, (row - n_old) * width) }
    };
    let ((a, at), (b, bt)) = (place(rows.0), place(rows.1));
    if a.dtype() == DType::String {
        return (0..width).all(|i| a.strings().get(at + i) == b.strings().get(bt + i));
    }
    let size = a.dtype().size();
    a.bytes()[at * size..][..width * size] == b.bytes()[bt * size..][..width * size]
}

fn different<T>(key: &str, has: &str, new: &str) -> Result<T> {
    // The text is TensorFlow's (`lookup_table_op.h`).
    Err(Error::FailedPrecondition(format!(
        "HashTable has different value for same key. Key {key} has {has} and trying to add value \
         {new}"
    )))
}

/// An element for a message.
fn element(view: &View<'_>, at: usize) -> String {
    match view.dtype() {
        DType::String => String::from_utf8_lossy(view.strings().get(at)).into_owned(),
        DType::I64 => view.as_slice::<i64>()[at].to_string(),
        DType::I32 => view.as_slice::<i32>()[at].to_string(),
        DType::F32 => view.as_slice::<f32>()[at].to_string(),
        DType::F64 => view.as_slice::<f64>()[at].to_string(),
        DType::Bool => (view.as_slice::<u8>()[at] != 0).to_string(),
        other => format!("a {other}"),
    }
}
