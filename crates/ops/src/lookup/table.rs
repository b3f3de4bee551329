//! `Table`: the object behind a table's handle, and the ops that make handles.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tensor::Handle;

use super::map::{Again, Map, Rows};
use crate::prelude::*;

pub(super) const HASH_TABLE: OpDef =
    OpDef::of_kind("HashTable", Kind::Handle, RowRule::Mixed, |attrs| {
        TableHandle::build(attrs, Form::Fixed)
    });
pub(super) const HASH_TABLE_V2: OpDef =
    OpDef::of_kind("HashTableV2", Kind::Handle, RowRule::Mixed, |attrs| {
        TableHandle::build(attrs, Form::Fixed)
    });
pub(super) const MUTABLE: OpDef =
    OpDef::of_kind("MutableHashTable", Kind::Handle, RowRule::Mixed, |attrs| {
        TableHandle::build(attrs, Form::Mutable)
    });
pub(super) const MUTABLE_V2: OpDef =
    OpDef::of_kind("MutableHashTableV2", Kind::Handle, RowRule::Mixed, |attrs| {
        TableHandle::build(attrs, Form::Mutable)
    });
pub(super) const MUTABLE_OF_TENSORS: OpDef =
    OpDef::of_kind("MutableHashTableOfTensors", Kind::Handle, RowRule::Mixed, |attrs| {
        TableHandle::build(attrs, Form::Mutable)
    });
pub(super) const MUTABLE_DENSE_V2: OpDef =
    OpDef::of_kind("MutableDenseHashTableV2", Kind::Handle, RowRule::Mixed, |attrs| {
        Ok(Box::new(DenseTable(TableHandle::new(attrs, Form::Mutable)?)))
    });
pub(super) const MUTABLE_OF_TENSORS_V2: OpDef =
    OpDef::of_kind("MutableHashTableOfTensorsV2", Kind::Handle, RowRule::Mixed, |attrs| {
        TableHandle::build(attrs, Form::Mutable)
    });

/// The form of a table: filled once, or changed at any time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Filled once.
    Fixed,
    /// Changed at any time.
    Mutable,
}

/// A lookup table of a servable. Lookups see one state of it; a change makes another.
#[derive(Debug)]
pub struct Table {
    key: DType,
    /// The shape of one key: a dense table's may be tensors.
    key_shape: Shape,
    value: DType,
    value_shape: Shape,
    form: Form,
    /// The keys that stand for empty and deleted places in a dense table, and for nothing else.
    reserved: Vec<Tensor>,
    /// `None` until a fixed table is filled.
    map: Mutex<Option<Arc<Map>>>,
}

impl Table {
    /// The table that a mutable table's node declares with its attributes and inputs, still empty.
    /// Only a dense table has inputs: its empty key and its deleted key.
    pub fn mutable(attrs: &Attrs<'_>, inputs: Vec<Tensor>) -> Result<Self> {
        let handle = TableHandle::new(attrs, Form::Mutable)?;
        check_reserved(&inputs, handle.key)?;
        Ok(handle.make(inputs))
    }

    /// The bytes it holds.
    pub fn n_bytes(&self) -> usize {
        self.map.lock().as_ref().map_or(0, |map| map.n_bytes())
    }

    /// The dtypes of keys and values.
    pub(super) fn dtypes(&self) -> (DType, DType) {
        (self.key, self.value)
    }

    /// The shape of one key.
    pub(super) fn key_shape(&self) -> &Shape {
        &self.key_shape
    }

    /// The dimensions of some keys without those of a key itself. Fails if they do not end so.
    pub(super) fn outer<'a>(&self, keys: &'a Shape) -> Result<&'a [usize]> {
        let n_keys = keys.first().copied().unwrap_or(1);
        let is_list = keys.n_elements() == n_keys * self.key_shape.n_elements();
        if !self.reserved.is_empty() && !is_list {
            return invalid!("a dense table is asked for a list of keys, not for shape {keys}");
        }
        match keys.strip_suffix(&self.key_shape[..]) {
            Some(outer) => Ok(outer),
            // The text is TensorFlow's (`lookup_interface.cc`).
            None => invalid!(
                "Input key shape {keys} must end with the table's key shape {}",
                self.key_shape
            ),
        }
    }

    /// The shape of the value of one key.
    pub(super) fn value_shape(&self) -> &Shape {
        &self.value_shape
    }

    /// The number of its keys; none if it was not filled.
    pub(super) fn n_keys(&self) -> usize {
        self.map.lock().as_ref().map_or(0, |map| map.len())
    }

    /// Returns the table's entries now. Fails if it was not filled.
    pub(super) fn map(&self) -> Result<Arc<Map>> {
        // The text is TensorFlow's (`initializable_lookup_table.cc`).
        let empty = || Error::FailedPrecondition("Table not initialized.".to_owned());
        self.map.lock().clone().ok_or_else(empty)
    }

    /// Adds keys with their values. A fixed table that was filled takes only
    /// as many again, and stays as it is.
    pub(super) fn insert(&self, keys: &View<'_>, values: &View<'_>) -> Result<()> {
        self.check(keys, values)?;
        self.refuse_reserved(keys)?;
        let mut guard = self.map.lock();
        if self.form == Form::Mutable {
            let old = guard.as_ref().map_or_else(|| self.empty(), |map| map.try_clone())?;
            *guard = Some(Arc::new(old.with(keys, values, Again::Replace)?));
            return Ok(());
        }
        match &*guard {
            None => {
                *guard = Some(Arc::new(self.empty()?.with(keys, values, Again::Refuse)?));
                Ok(())
            }
            // As TensorFlow, only the number is compared.
            Some(old) if old.len() == self.n_keys_of(keys) => Ok(()),
            // The text is TensorFlow's (`initializable_lookup_table.cc`).
            Some(_) => Err(Error::FailedPrecondition(
                "Table was already initialized with different data.".to_owned(),
            )),
        }
    }

    /// Replaces everything that a mutable table holds; fills a fixed one. A dense table is saved
    /// with its empty places, which are left out. Fails unless there is a value of the right dtype
    /// and shape for each key.
    pub fn import(&self, keys: &View<'_>, values: &View<'_>) -> Result<()> {
        if self.form == Form::Fixed {
            return self.insert(keys, values);
        }
        if self.reserved.is_empty() {
            self.check(keys, values)?;
        } else {
            self.check_places(keys, values)?;
        }
        let rows = (0..self.n_keys_of(keys)).filter(|row| self.reserved_at(keys, *row).is_none());
        let map = self.empty()?.with_rows(keys, values, rows, Again::Replace)?;
        *self.map.lock() = Some(Arc::new(map));
        Ok(())
    }

    fn empty(&self) -> Result<Map> {
        Map::new(self.key, &self.key_shape, self.value, &self.value_shape)
    }

    /// Returns the number of keys in a tensor.
    fn n_keys_of(&self, keys: &View<'_>) -> usize {
        keys.n_elements() / self.key_shape.n_elements()
    }

    /// Returns the reserved key that is in a place, if one is.
    fn reserved_at(&self, keys: &View<'_>, place: usize) -> Option<usize> {
        self.reserved.iter().position(|reserved| same_key(keys, place, &reserved.view()))
    }

    /// Fails if one of the keys stands for an empty or a deleted place.
    pub(super) fn refuse_reserved(&self, keys: &View<'_>) -> Result<()> {
        if self.reserved.is_empty() {
            return Ok(());
        }
        for place in 0..self.n_keys_of(keys) {
            pace(16)?;
            if let Some(number) = self.reserved_at(keys, place) {
                // The text is TensorFlow's (`lookup_table_op.cc`).
                let which = ["empty_key", "deleted_key"][number];
                return invalid!("Using the {which} as a table key is not allowed");
            }
        }
        Ok(())
    }

    /// Fails unless these are the places of a dense table, as it is saved: a row of one key and a
    /// row of one value each.
    fn check_places(&self, keys: &View<'_>, values: &View<'_>) -> Result<()> {
        self.check_dtypes(keys, values)?;
        let n_places = keys.shape().first().copied().unwrap_or(0);
        let width = self.value_shape.n_elements();
        let key = self.key_shape.n_elements();
        for (what, got, width) in [("key", keys.shape(), key), ("value", values.shape(), width)] {
            if got[..] != [n_places, width] {
                return invalid!("Expected shape [{n_places},{width}] for {what}, got {got}");
            }
        }
        Ok(())
    }

    /// Fails unless there is a value of the right dtype and shape for each key.
    fn check(&self, keys: &View<'_>, values: &View<'_>) -> Result<()> {
        self.check_dtypes(keys, values)?;
        let expected: Vec<usize> =
            self.outer(keys.shape())?.iter().chain(self.value_shape.iter()).copied().collect();
        if values.shape()[..] != expected[..] {
            let (expected, got) = (Shape::of(&expected), values.shape());
            return invalid!("Expected shape {expected} for value, got {got}");
        }
        Ok(())
    }

    fn check_dtypes(&self, keys: &View<'_>, values: &View<'_>) -> Result<()> {
        // The texts are TensorFlow's (`lookup_interface.cc`).
        if keys.dtype() != self.key {
            return invalid!("Key must be type {} but got {}", self.key, keys.dtype());
        }
        if values.dtype() != self.value {
            return invalid!("Value must be type {} but got {}", self.value, values.dtype());
        }
        Ok(())
    }
}

/// Finds a table by container and name. Without a name it is the node's own.
struct TableHandle {
    container: String,
    name: String,
    key: DType,
    value: DType,
    value_shape: Shape,
    form: Form,
    own: OnceLock<Arc<Table>>,
}

impl TableHandle {
    fn build(attrs: &Attrs<'_>, form: Form) -> Result<Box<dyn Op>> {
        Ok(Box::new(Self::new(attrs, form)?))
    }

    fn new(attrs: &Attrs<'_>, form: Form) -> Result<Self> {
        let load = attrs.float_or("max_load_factor", 0.8)?;
        if !(load > 0. && load < 1.) {
            // The text is TensorFlow's (`lookup_table_op.cc`).
            return invalid!("max_load_factor must be between 0 and 1, got: {load}");
        }
        let n_buckets = attrs.int_or("initial_num_buckets", 1 << 17)?;
        if n_buckets < 4 || n_buckets & (n_buckets - 1) != 0 {
            return invalid!(
                "Number of buckets must be at least 4 and a power of 2, got: {n_buckets}"
            );
        }
        let value_shape = match attrs.shape_or_unknown("value_shape")? {
            None => Shape::scalar(),
            Some(dims) => Shape::checked(dims.into_iter().map(|dim| dim.unwrap_or(-1)))?,
        };
        Ok(Self {
            container: attrs.str_or("container", "")?.to_owned(),
            name: attrs.str_or("shared_name", "")?.to_owned(),
            key: attrs.dtype("key_dtype")?,
            value: attrs.dtype("value_dtype")?,
            value_shape,
            form,
            own: OnceLock::new(),
        })
    }

    fn make(&self, reserved: Vec<Tensor>) -> Table {
        let (key, value, form) = (self.key, self.value, self.form);
        let value_shape = self.value_shape.clone();
        let key_shape = reserved.first().map_or_else(Shape::scalar, |key| key.shape().clone());
        let empty = Map::new(key, &key_shape, value, &value_shape).ok();
        let map = Mutex::new(empty.filter(|_| form == Form::Mutable).map(Arc::new));
        Table { key, key_shape, value, value_shape, form, reserved, map }
    }
}

impl Op for TableHandle {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [] = arity(inputs)?;
        Ok(vec![Spec::scalar(DType::Resource)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        self.give(ctx, Vec::new())
    }
}

impl TableHandle {
    /// Makes the handle of the table the op's output.
    fn give(&self, ctx: &mut Ctx<'_>, reserved: Vec<Tensor>) -> Result<()> {
        let make = || self.make(reserved);
        let table = if self.name.is_empty() {
            Arc::clone(self.own.get_or_init(|| Arc::new(make())))
        } else {
            ctx.env().resources.get_or_create(&self.container, &self.name, make)?
        };
        if (table.key, table.value) != (self.key, self.value) {
            let (name, key, value) = (&self.name, table.key, table.value);
            return invalid!("table {name} leads from {key} to {value}, not as declared here");
        }
        ctx.set_output(0, Tensor::from_handle(DType::Resource, Handle::shared(table)))
    }
}

/// A table whose inputs are the keys that stand for empty and deleted places. Ours has no such
/// places, but refuses these keys all the same.
struct DenseTable(TableHandle);

impl Op for DenseTable {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [empty, deleted] = arity(inputs)?;
        if let (Some(empty), Some(deleted)) = (empty.shape(), deleted.shape())
            && empty != deleted
        {
            // The text is TensorFlow's (`lookup_table_op.cc`).
            return invalid!(
                "Empty and deleted keys must have same shape, got shapes: {empty} and {deleted}"
            );
        }
        self.0.infer(&[])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let reserved = vec![ctx.input(0).to_tensor()?, ctx.input(1).to_tensor()?];
        check_reserved(&reserved, self.0.key)?;
        self.0.give(ctx, reserved)
    }
}

/// Fails unless these are no keys, or an empty and a deleted one.
fn check_reserved(keys: &[Tensor], dtype: DType) -> Result<()> {
    let (empty, deleted) = match keys {
        [] => return Ok(()),
        [empty, deleted] => (empty, deleted),
        more => return invalid!("a table has an empty and a deleted key, not {} keys", more.len()),
    };
    for key in keys {
        if key.dtype() != dtype {
            return invalid!("Key must be type {dtype} but got {}", key.dtype());
        }
    }
    let (shape, other) = (empty.shape(), deleted.shape());
    // The texts are TensorFlow's (`lookup_table_op.cc`).
    if shape != other {
        return invalid!(
            "Empty and deleted keys must have same shape, got shapes: {shape} and {other}"
        );
    }
    if shape.rank() > 1 || shape.n_elements() == 0 {
        return invalid!("Empty key must be a scalar or a vector, got shape {shape}");
    }
    if same_key(&empty.view(), 0, &deleted.view()) {
        return invalid!("Empty and deleted keys cannot be equal");
    }
    Ok(())
}

/// Returns whether a key, in its place among others, is `key`.
fn same_key(keys: &View<'_>, place: usize, key: &View<'_>) -> bool {
    let width = key.n_elements();
    if keys.dtype() == DType::String {
        let (keys, key) = (keys.strings(), key.strings());
        return (0..width).all(|i| keys.get(place * width + i) == key.get(i));
    }
    let size = keys.dtype().size() * width;
    keys.bytes()[place * size..][..size] == *key.bytes()
}

/// The table that input 0 of a kernel points to.
pub(super) fn table<'a>(ctx: &Ctx<'a>) -> Result<&'a Table> {
    let view = ctx.input(0);
    if view.dtype() != DType::Resource {
        return invalid!("expected a table but got {}", view.dtype());
    }
    match view.handles() {
        [handle] => handle.get().map_or_else(|| invalid!("the resource is no table"), Ok),
        _ => invalid!("expected a scalar resource but got shape {}", view.shape()),
    }
}

/// The table that a handle points to, if the handle is known.
pub(super) fn known_table(handle: &Spec) -> Option<&Table> {
    let known = handle.as_constant().filter(|tensor| tensor.dtype() == DType::Resource)?;
    known.view().handles().first()?.get()
}

impl Rows<'_> {
    /// Makes output 0 of the values of `map` and of the default for keys that are not there.
    pub(super) fn write(
        &self,
        ctx: &mut Ctx<'_>,
        map: &Map,
        default: View<'_>,
        shape: &Shape,
    ) -> Result<()> {
        rearrange(ctx, 0, &[map.values().view(), default], shape, self)
    }
}
