//! Rules on crates: who may know whom, where `unsafe` may stand, and where nothing is looked up.

use std::collections::BTreeSet;

use super::Finding;
use super::tree::Tree;

/// The file of these tables.
const TABLES: &str = "xtask/src/tidy/rooms.rs";

/// A crate and the ones next below it. A crate may use those and anything below them.
const ROOMS: &[(&str, &[&str])] = &[
    ("proto", &[]),
    ("status", &[]),
    ("metrics", &[]),
    ("storage", &[]),
    ("pool", &[]),
    ("heap", &[]),
    ("offsets", &[]),
    ("device", &["heap", "offsets"]),
    ("placement", &["device"]),
    ("tensor", &["device", "proto"]),
    ("jpeg", &[]),
    ("kernels", &["pool"]),
    ("ops", &["tensor", "kernels", "jpeg"]),
    ("graph", &["ops"]),
    ("savedmodel", &["tensor", "storage"]),
    ("batch", &["tensor"]),
    ("schedule", &["batch", "device", "heap"]),
    ("session", &["savedmodel", "schedule"]),
    ("native", &["session", "graph"]),
    ("tensorflow", &["session"]),
    ("lifecycle", &["storage"]),
    ("json", &["tensor"]),
    ("pages", &[]),
    ("api", &["session", "lifecycle", "json", "pages"]),
    ("dashboard", &[]),
    ("config", &["api", "native", "placement", "tensorflow"]),
    ("banner", &["api"]),
    ("server", &["banner", "config", "dashboard"]),
    ("cli", &["server"]),
    ("testkit", &["cli"]),
    ("servertest", &["proto"]),
    ("fakecuda", &[]),
];

/// Crates that any crate may use.
const FOR_ALL: &[&str] = &["status", "metrics"];

/// Crates that only tests may use.
const FOR_TESTS: &[&str] = &["testkit", "servertest", "fakecuda"];

/// The crates in which `unsafe` may stand, and below which folder of theirs.
const UNSAFE_ROOMS: &[(&str, &str)] = &[
    ("device", ""),
    ("heap", ""),
    ("pool", ""),
    ("kernels", ""),
    ("tensorflow", ""),
    ("testkit", "fakecuda"),
];

/// Crates that only those who talk to a person may use.
const AT_THE_EDGE: &[(&str, &[&str])] = &[("anyhow", &["config", "server", "cli", "testkit"])];

/// The files that run between the steps of a plan: all that they need was found when it was made.
const STEPS: &[&str] = &[
    "crates/graph/src/plan.rs",
    "crates/graph/src/run.rs",
    "crates/graph/src/wide.rs",
    "crates/ops/src/control/",
    "crates/ops/src/ctx.rs",
    "crates/ops/src/scratch.rs",
    "crates/device/src/workspace.rs",
];

/// The types that look something up by a name or a number.
const MAPS: &[&str] = &["HashMap", "FxHashMap", "HashSet", "FxHashSet", "BTreeMap", "BTreeSet"];

/// Every crate is in the table, and knows only those below it.
pub(super) fn graph(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts() {
        let Some(room) = room_of_manifest(path) else { continue };
        if !ROOMS.iter().any(|(name, _)| *name == room) {
            findings.push(Finding::new(path, 0, format!("`{room}` is not in the table of rooms")));
            continue;
        }
        let allowed = below(room);
        for (line, is_dev, dependency) in dependencies(text) {
            let is_ours = ROOMS.iter().any(|(name, _)| *name == dependency);
            let is_known = allowed.contains(dependency)
                || FOR_ALL.contains(&dependency)
                || (is_dev && FOR_TESTS.contains(&dependency));
            if is_ours && !is_known {
                let message = format!("`{room}` must not know `{dependency}`");
                findings.push(Finding::new(path, line, message));
            }
            let edge = AT_THE_EDGE.iter().find(|(name, _)| *name == dependency);
            if edge.is_some_and(|(_, users)| !is_dev && !users.contains(&room)) {
                let message = format!("`{dependency}` is for the edge; `{room}` has its own Error");
                findings.push(Finding::new(path, line, message));
            }
        }
    }
    findings
}

/// Every crate and path that the tables here name exists.
pub(super) fn missing(tree: &Tree) -> Vec<Finding> {
    let is_manifest_of = |path: &str, room: &str| room_of_manifest(path) == Some(room);
    let rooms = ROOMS
        .iter()
        .map(|(room, _)| *room)
        .filter(|room| !tree.texts().any(|(path, _)| is_manifest_of(path, room)))
        .map(|room| format!("there is no crate `{room}`"));
    let folders = UNSAFE_ROOMS.iter().map(|(room, folder)| format!("crates/{room}/{folder}"));
    let paths = folders
        .chain(STEPS.iter().map(|path| (*path).to_owned()))
        .filter(|path| !tree.has(path.trim_end_matches('/')))
        .map(|path| format!("there is no `{path}`"));
    rooms.chain(paths).map(|message| Finding::new(TABLES, 0, message)).collect()
}

/// Crates without `unsafe` say so; in the others it stands where it may.
pub(super) fn unsafety(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, source) in tree.sources() {
        let Some((room, inner)) =
            path.strip_prefix("crates/").and_then(|tail| tail.split_once('/'))
        else {
            continue;
        };
        match UNSAFE_ROOMS.iter().find(|(name, _)| *name == room) {
            None if inner == "src/lib.rs" || inner == "src/main.rs" => {
                if !source.text().contains("#![forbid(unsafe_code)]") {
                    let message = "`#![forbid(unsafe_code)]` is missing";
                    findings.push(Finding::new(path, 0, message));
                }
            }
            Some((_, folder)) if !inner.starts_with(folder) => {
                let found = source.lines().find(|(_, line)| has_word(&line.code, "unsafe"));
                if let Some((number, _)) = found {
                    let message = format!("`unsafe` in `{room}` stands below {folder}");
                    findings.push(Finding::new(path, number, message));
                }
            }
            None | Some(_) => {}
        }
    }
    findings
}

/// Nothing is hashed or looked up between steps.
pub(super) fn lookups(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, source) in tree.sources() {
        let is_steps = STEPS.iter().any(|steps| path.starts_with(steps));
        if !is_steps || path.ends_with("tests.rs") {
            continue;
        }
        for (number, line) in source.lines() {
            if let Some(map) = MAPS.iter().find(|map| has_word(&line.code, map)) {
                let message = format!("`{map}`: steps look nothing up, a plan knows it beforehand");
                findings.push(Finding::new(path, number, message));
            }
        }
    }
    findings
}

fn has_word(code: &str, word: &str) -> bool {
    code.split(|c: char| !c.is_alphanumeric() && c != '_').any(|found| found == word)
}

/// The crate whose manifest this is; some are in the folder of the crate that they belong to.
fn room_of_manifest(path: &str) -> Option<&str> {
    let folder = path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml")?;
    folder.rsplit('/').next()
}

/// Everything below a crate.
fn below(room: &str) -> BTreeSet<&'static str> {
    let next = ROOMS.iter().find(|(name, _)| *name == room).map_or(&[][..], |(_, next)| next);
    let mut all: BTreeSet<&str> = next.iter().copied().collect();
    for room in next {
        all.append(&mut below(room));
    }
    all
}

/// The dependencies in a manifest: line, whether only tests have it, name.
pub(super) fn dependencies(manifest: &str) -> Vec<(usize, bool, &str)> {
    let mut found = Vec::new();
    // Whether the section lists dependencies, and if so whether they are for tests.
    let mut section: Option<bool> = None;
    for (index, line) in manifest.lines().enumerate() {
        let line = line.trim();
        if let Some(title) = line.strip_prefix('[') {
            let title = title.trim_end_matches(']');
            let is_dev = title.contains("dev-dependencies");
            section = title.ends_with("dependencies").then_some(is_dev);
            if let Some((_, name)) = title.rsplit_once("dependencies.") {
                found.push((index + 1, is_dev, name));
            }
        } else if let Some(is_dev) = section {
            let name = line.split(['.', '=', ' ']).next().unwrap_or_default();
            if !name.is_empty() && !name.starts_with('#') {
                found.push((index + 1, is_dev, name));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(room: &str, manifest: &str, expected: &[&str]) {
        let path = format!("crates/{room}/Cargo.toml");
        let tree = Tree::of(vec![(path, manifest.to_owned())]);
        let found: Vec<String> = graph(&tree).into_iter().map(|finding| finding.message).collect();
        assert_eq!(found, expected, "{manifest}");
    }

    #[test]
    fn a_crate_may_use_anything_below_it() {
        check(
            "graph",
            "[dependencies]\nops.workspace = true\ndevice = { workspace = true }\n",
            &[],
        );
        check("server", "[dependencies]\nops.workspace = true\nanyhow.workspace = true\n", &[]);
    }

    #[test]
    fn a_crate_may_not_use_what_stands_beside_or_above_it() {
        let beside = "[dependencies]\nsession.workspace = true\n";
        check("lifecycle", beside, &["`lifecycle` must not know `session`"]);
        let table = "[dependencies.session]\nworkspace = true\n";
        check("lifecycle", table, &["`lifecycle` must not know `session`"]);
        let build = "[build-dependencies]\ntensor.workspace = true\n";
        check("proto", build, &["`proto` must not know `tensor`"]);
    }

    #[test]
    fn any_crate_may_use_status_and_metrics() {
        let both = "[dependencies]\nstatus.workspace = true\nmetrics.workspace = true\n";
        check("jpeg", both, &[]);
        let above = "[dependencies]\nops.workspace = true\n";
        check("status", above, &["`status` must not know `ops`"]);
    }

    #[test]
    fn tests_may_use_the_testkit() {
        check("ops", "[dev-dependencies]\ntestkit.workspace = true\n", &[]);
        let product = "[dependencies]\ntestkit.workspace = true\n";
        check("ops", product, &["`ops` must not know `testkit`"]);
        check("device", "[dev-dependencies]\nfakecuda.workspace = true\n", &[]);
        let product = "[dependencies]\nfakecuda.workspace = true\n";
        check("device", product, &["`device` must not know `fakecuda`"]);
    }

    #[test]
    fn an_unknown_crate_is_found() {
        check("attic", "", &["`attic` is not in the table of rooms"]);
        check("testkit/attic", "", &["`attic` is not in the table of rooms"]);
    }

    #[test]
    fn a_room_that_does_not_exist_is_found() {
        let crates: Vec<&str> =
            ROOMS.iter().map(|(name, _)| *name).filter(|name| *name != "storage").collect();
        let mut files: Vec<(String, String)> = crates
            .iter()
            .map(|name| (format!("crates/{name}/Cargo.toml"), String::new()))
            .collect();
        files.extend(UNSAFE_ROOMS.iter().map(|(room, folder)| {
            (format!("crates/{room}/{folder}/x.rs").replace("//", "/"), String::new())
        }));
        files.extend(STEPS.iter().skip(1).map(|path| {
            (
                if path.ends_with('/') { format!("{path}x.rs") } else { (*path).to_owned() },
                String::new(),
            )
        }));
        let found: Vec<String> =
            missing(&Tree::of(files)).into_iter().map(|finding| finding.message).collect();
        let step = format!("there is no `{}`", STEPS[0]);
        assert_eq!(found, ["there is no crate `storage`".to_owned(), step]);
    }

    #[test]
    fn unsafe_stands_where_it_may() {
        let check = |path: &str, text: &str, n_findings: usize| {
            let tree = Tree::of(vec![(path.to_owned(), text.to_owned())]);
            assert_eq!(unsafety(&tree).len(), n_findings, "{path} {text}");
        };
        check("crates/api/src/lib.rs", "", 1);
        check("crates/api/src/lib.rs", "#![forbid(unsafe_code)]", 0);
        check("crates/device/src/lib.rs", "unsafe {}", 0);
        check("crates/kernels/src/dot.rs", "unsafe {}", 0);
        check("crates/testkit/src/lib.rs", "unsafe {}", 1);
        check("crates/testkit/fakecuda/src/lib.rs", "unsafe {}", 0);
    }

    #[test]
    fn nothing_is_looked_up_between_steps() {
        let check = |path: &str, n_findings: usize| {
            let text = "fn f(map: &FxHashMap<u32, u32>) {}".to_owned();
            let tree = Tree::of(vec![(path.to_owned(), text)]);
            assert_eq!(lookups(&tree).len(), n_findings, "{path}");
        };
        check("crates/graph/src/run.rs", 1);
        check("crates/ops/src/control/repeat.rs", 1);
        check("crates/ops/src/control/tests.rs", 0);
        check("crates/graph/src/trace.rs", 0);
    }
}
