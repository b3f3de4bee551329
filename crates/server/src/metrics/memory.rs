//! The memory of devices and of the models on them.

use device::{EventTotal, Holder, Row};
use metrics::{Point, Value};

use super::Snapshot;

/// The bytes of each device, by kind.
pub(super) fn devices(snapshot: &Snapshot<'_>) -> Vec<Point> {
    let of_device = |space: &device::Snapshot| {
        let kinds = [
            ("limit", space.limit_bytes),
            ("reserved", space.held_bytes),
            ("in_use", space.in_use_bytes),
            ("peak_in_use", space.peak_in_use_bytes),
        ];
        kinds.map(|(kind, bytes)| {
            let labels = vec![("device", space.name.clone()), ("kind", kind.to_owned())];
            Point::new(labels, Value::Count(bytes))
        })
    };
    snapshot.spaces.iter().flat_map(of_device).collect()
}

/// The bytes of each holder on each device, by category.
pub(super) fn holders(snapshot: &Snapshot<'_>) -> Vec<Point> {
    let of_device = |space: &device::Snapshot| {
        let point = |row: &Row| {
            let (model, version) = match &row.holder {
                Holder::Version { model, version } => (model.to_string(), version.to_string()),
                Holder::Server | Holder::Shared => (String::new(), row.holder.to_string()),
            };
            let category = ("category", row.category.name().to_owned());
            let device = ("device", space.name.clone());
            let labels = vec![device, ("model_name", model), ("version", version), category];
            Point::new(labels, Value::Count(row.bytes))
        };
        space.rows.iter().map(point).collect::<Vec<_>>()
    };
    snapshot.spaces.iter().flat_map(of_device).collect()
}

/// A count of each device.
pub(super) fn count(snapshot: &Snapshot<'_>, count: fn(&device::Snapshot) -> u64) -> Vec<Point> {
    let point = |space: &device::Snapshot| {
        Point::new(vec![("device", space.name.clone())], Value::Count(count(space)))
    };
    snapshot.spaces.iter().map(point).collect()
}

/// A value of the growths and releases of each device, by cause.
pub(super) fn changes(snapshot: &Snapshot<'_>, value: fn(&EventTotal) -> Value) -> Vec<Point> {
    let of_device = |space: &device::Snapshot| {
        let point = |total: &EventTotal| {
            let labels = vec![
                ("device", space.name.clone()),
                ("change", total.change.name().to_owned()),
                ("cause", total.cause.to_owned()),
            ];
            Point::new(labels, value(total))
        };
        space.events.iter().map(point).collect::<Vec<_>>()
    };
    snapshot.spaces.iter().flat_map(of_device).collect()
}
