//! The pages of a running server: each is what its schema and its type say.

use std::process::Command;

use pages::{
    Categories, DeviceMemory, DevicesPage, LogicalEntry, MemoryCategory, MemoryPage, ModelListPage,
    PhysicalEntry, PlanEntry, PlanPage, PlannedDevice, SchedulerPage, TrimPage, VersionMemory,
    VersionState,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::memory::{model, predict, start};
use crate::schema::Schema;
use crate::support::{Server, tensord};

/// A page of the server, or of a command.
pub(crate) trait Page: Serialize + DeserializeOwned {
    /// The name of its schema.
    const SCHEMA: &'static str;

    /// Reads a page that is what its schema says, and of which its type leaves nothing out.
    #[track_caller]
    fn read(text: &str) -> Self {
        let value: Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{e} in {text}"));
        assert_eq!(Schema::read(Self::SCHEMA).fault(&value), None, "{text}");
        let page: Self = serde_json::from_str(text).unwrap_or_else(|e| panic!("{e} in {text}"));
        assert_eq!(serde_json::to_value(&page).unwrap(), value);
        page
    }

    /// Reads what a command prints.
    #[track_caller]
    fn of_command(command: &mut Command) -> Self {
        let output = command.output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code().is_some_and(|code| code < 2), "{errors}");
        let page = Self::read(std::str::from_utf8(&output.stdout).unwrap());
        assert_eq!(output.status.success(), page.is_fine(), "{errors}");
        page
    }

    /// Returns whether a command that prints it ends with 0.
    fn is_fine(&self) -> bool {
        true
    }
}

/// A page that a server shows.
pub(crate) trait Shown: Page {
    /// The path of the page.
    const PATH: &'static str;

    /// Asks a server for it.
    #[track_caller]
    fn get(server: &Server) -> Self {
        let (status, body) = server.rest("GET", Self::PATH, "");
        assert_eq!(status, 200, "{body}");
        Self::read(&body)
    }
}

/// An entry of a page with a name.
pub(crate) trait Named: std::fmt::Debug {
    /// The name.
    fn name(&self) -> &str;
}

impl Named for DeviceMemory {
    fn name(&self) -> &str {
        &self.name
    }
}

impl Named for VersionMemory {
    fn name(&self) -> &str {
        &self.name
    }
}

impl Named for PhysicalEntry {
    fn name(&self) -> &str {
        &self.name
    }
}

impl Named for LogicalEntry {
    fn name(&self) -> &str {
        &self.name
    }
}

impl Named for PlannedDevice {
    fn name(&self) -> &str {
        &self.name
    }
}

impl Named for PlanEntry {
    fn name(&self) -> &str {
        self.name()
    }
}

/// The first entry with a name.
#[track_caller]
pub(crate) fn named<'a, T: Named>(all: &'a [T], name: &str) -> &'a T {
    all.iter().find(|one| one.name() == name).unwrap_or_else(|| panic!("no {name} in {all:#?}"))
}

/// The bytes of a category; 0 if there are none.
pub(crate) fn bytes_for(categories: &Categories, category: MemoryCategory) -> u64 {
    categories.get(&category).copied().unwrap_or(0)
}

impl Page for MemoryPage {
    const SCHEMA: &'static str = "memory";
}

impl Page for TrimPage {
    const SCHEMA: &'static str = "trim";
}

impl Page for DevicesPage {
    const SCHEMA: &'static str = "devices";
}

impl Page for SchedulerPage {
    const SCHEMA: &'static str = "scheduler";
}

impl Page for ModelListPage {
    const SCHEMA: &'static str = "models";
}

impl Page for PlanPage {
    const SCHEMA: &'static str = "plan";

    fn is_fine(&self) -> bool {
        self.fits
    }
}

impl Shown for MemoryPage {
    const PATH: &'static str = "/v1/memory";
}

impl Shown for DevicesPage {
    const PATH: &'static str = "/v1/devices";
}

impl Shown for SchedulerPage {
    const PATH: &'static str = "/v1/scheduler";
}

impl Shown for ModelListPage {
    const PATH: &'static str = "/v1/models:list";
}

#[test]
fn every_page_of_a_server_is_what_its_schema_says() {
    let server = start(&["--simulated_gpus=300MiB", &model("digits")], &[]);
    assert_eq!(predict(&server, "half_plus_two").0, 200);
    assert_eq!(server.rest("POST", "/v1/models/half_plus_two:predict", "{").0, 400);

    let list = ModelListPage::get(&server);
    let half = list.models.iter().find(|model| model.name == "half_plus_two").unwrap();
    assert_eq!(half.versions[0].state, VersionState::Available);
    assert_eq!((half.requests.by_code["OK"], half.requests.by_code["INVALID_ARGUMENT"]), (1, 1));
    assert!(half.requests.latency_micros.p99 >= half.requests.latency_micros.p50);
    assert!(half.requests.latency_micros.p50 > 0.0);

    let memory = MemoryPage::get(&server);
    let names: Vec<&str> = memory.devices.iter().map(|device| &*device.name).collect();
    assert_eq!(names, ["cpu:0", "gpu:0"]);
    let loaded = memory.devices.iter().flat_map(|device| &device.models);
    assert!(loaded.clone().count() >= 2, "{memory:?}");
    assert!(loaded.clone().all(|one| one.promised_bytes.is_none()), "all are loaded: {memory:?}");

    let queues = SchedulerPage::get(&server).queues;
    assert!(queues.iter().any(|queue| queue.tasks.asked == 1), "{queues:?}");
    assert_eq!(DevicesPage::get(&server).physical.len(), 2);
    let (status, trimmed) = server.manage("POST", "/v1/memory:trim", "");
    assert_eq!((status, TrimPage::read(&trimmed).devices.len()), (200, 2));
    let (status, changed) =
        server.manage("PUT", "/v1/devices", r#"{"device": [{"name": "gpu:7"}]}"#);
    assert_eq!((status, DevicesPage::read(&changed).warnings.len()), (200, 1), "{changed}");
}

#[test]
fn every_page_of_a_command_is_what_its_schema_says() {
    let dir = tempfile::tempdir().unwrap();
    let broken = dir.path().join("broken/1");
    std::fs::create_dir_all(&broken).unwrap();
    std::fs::write(broken.join("saved_model.pb"), "no model").unwrap();
    let broken = dir.path().join("broken").to_string_lossy().into_owned();
    let gpus = "--simulated_gpus=300MiB";
    let args = ["plan", "--json", gpus, &model("digits"), &broken];
    let plan = PlanPage::of_command(tensord().args(args));
    assert!(!plan.fits && plan.models[1].error().is_some(), "{plan:?}");
    assert_eq!(plan.models[0].planned().unwrap().devices, ["gpu:0"]);
    let devices = DevicesPage::of_command(tensord().args(["devices", gpus]));
    assert_eq!(devices.logical.len(), 2);
}

#[test]
fn the_validator_finds_what_a_schema_forbids() {
    let schema = Schema::read("trim");
    let check = |page: Value, expected: Option<&str>| {
        let fault = schema.fault(&page);
        let is_it = fault.as_deref().zip(expected).is_some_and(|(is, wanted)| is.contains(wanted));
        assert!(is_it || fault.is_none() && expected.is_none(), "{fault:?} of {page}");
    };
    let device = json!({"name": "a", "bytes": 1});
    check(json!({"released_bytes": 1, "devices": [device]}), None);
    check(json!({"devices": []}), Some("required"));
    check(json!({"released_bytes": -1, "devices": []}), Some("minimum"));
    check(json!({"released_bytes": 1.5, "devices": []}), Some("type"));
    check(json!({"released_bytes": 1, "devices": [3]}), Some("$.devices[0]"));
    check(json!({"released_bytes": 1, "devices": [], "more": 1}), Some("$.more is not allowed"));
    let schema = Schema::read("memory");
    let mut page = serde_json::to_value(MemoryPage::default()).unwrap();
    assert_eq!(schema.fault(&page), None);
    let device = pages::DeviceMemory::default();
    page["devices"] = json!([device]);
    assert_eq!(schema.fault(&page), None);
    page["devices"][0]["growth"] = "sideways".into();
    assert!(schema.fault(&page).unwrap().contains("oneOf"));
    page["devices"] = json!([device]);
    page["devices"][0]["categories"] = json!({"sand": 1});
    assert!(schema.fault(&page).is_some());
}
