//! `docs/schemas` holds what the types say.

use std::path::{Path, PathBuf};

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};

use crate::{DevicesPage, MemoryPage, ModelListPage, PlanPage, SchedulerPage, TrimPage};

/// The version of all pages. A change that a reader of the old page does not understand makes it
/// another.
const VERSION: u32 = 1;

/// The variable that makes the test write the files.
const UPDATE: &str = "UPDATE_SCHEMAS";

fn schema<T: JsonSchema>() -> Schema {
    SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<T>()
}

fn file(page: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas");
    folder.join(format!("{page}.v{VERSION}.json"))
}

/// The file of a page holds this schema.
#[track_caller]
fn check<T: JsonSchema>(page: &str) {
    let text = format!("{:#}\n", schema::<T>().to_value());
    let file = file(page);
    let is_asked = std::env::var_os(UPDATE).is_some();
    if is_asked {
        std::fs::write(&file, &text).expect("the folder of schemas can be written");
    }
    let found = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        found == text,
        "{} is not what the types say: run `{UPDATE}=1 cargo test -p pages` and read the diff",
        file.display()
    );
}

#[test]
fn every_schema_is_what_its_type_says() {
    check::<MemoryPage>("memory");
    check::<TrimPage>("trim");
    check::<DevicesPage>("devices");
    check::<SchedulerPage>("scheduler");
    check::<ModelListPage>("models");
    check::<PlanPage>("plan");
}
