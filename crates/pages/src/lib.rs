//! The JSON pages of the server as types: `GET /v1/memory`, `/v1/devices`, `/v1/scheduler` and
//! `/v1/models:list`, the answer to `POST /v1/memory:trim`, and `tensord plan --json`.
//!
//! The server fills these types, and commands and tests read them. The crate knows nothing of how
//! a page is filled; [`reasons`] says why the memory on a page is held, and what changes it.
//! `docs/schemas` holds a JSON schema for each page, made from the types.
//!
//! Reading is strict: a key that a type does not have is an error. A figure that does not apply to
//! an entry is left out or null, as the documentation of its field says.
#![forbid(unsafe_code)]

mod devices;
mod explain;
mod human;
mod memory;
mod models;
mod plan;
mod scheduler;
#[cfg(test)]
mod schemas;
mod workers;

use serde::Serialize;

pub use devices::{
    DeviceKind, DevicesPage, EngineName, GrowthMode, LogicalEntry, PhysicalEntry, SimulationRates,
};
pub use explain::{HoldingReason, ManagementRoute, Remedy, reasons};
pub use human::human_bytes;
pub use memory::{
    Categories, DeviceMemory, HeapBytes, IdleBytes, IdleKind, MemoryCategory, MemoryPage,
    PlanBytes, ServerMemory, SharedBytes, SharedMemory, TensorBytes, TrimPage, TrimmedDevice,
    VersionMemory, WorkspaceMemory,
};
pub use models::{
    FailureEntry, LoadProgress, ModelEntry, ModelListPage, RequestCounts, RequestLatency,
    VersionEntry, VersionState,
};
pub use plan::{
    BatchPlan, CopiesAlone, PlanEntry, PlanPage, PlannedDevice, PlannedModel, PlannedWorker,
    UnplannedModel,
};
pub use scheduler::{
    BatchCounts, Distribution, LaneEntry, LeftCounts, MixedPolicy, PredictedMicros, PriorityLimits,
    QueueEntry, RowCounts, SchedulerPage, TaskCounts, WaitingTasks,
};
pub use workers::{GpuBytes, WorkerEntry, WorkerModel, WorkerModelPhase, WorkerPhase};

/// Prints a page as it is sent: indented, keys in alphabetical order, a line feed at the end.
pub fn print<T: Serialize>(page: &T) -> String {
    // A tree of values has its keys in order; pages are small and seldom asked for.
    let value = serde_json::to_value(page).expect("pages have strings and enums as keys");
    format!("{value:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_printed_with_its_keys_in_order_and_read_strictly() {
        let bytes = |name: &str| TrimmedDevice { name: name.to_owned(), bytes: 3 };
        let page = TrimPage { released_bytes: 6, devices: vec![bytes("a"), bytes("b")] };
        let device =
            |name| format!("    {{\n      \"bytes\": 3,\n      \"name\": \"{name}\"\n    }}");
        let devices = format!("[\n{},\n{}\n  ]", device("a"), device("b"));
        let text = format!("{{\n  \"devices\": {devices},\n  \"released_bytes\": 6\n}}\n");
        assert_eq!(print(&page), text);
        assert_eq!(serde_json::from_str::<TrimPage>(&text).ok(), Some(page));
        let more = text.replace("released_bytes", "lost_bytes");
        assert!(serde_json::from_str::<TrimPage>(&more).is_err());
    }
}
