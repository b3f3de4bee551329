//! The reasons why memory is held, and the exact lines that change it: a pure function of the
//! pages. `tensord memory` ends with them.

use serde_json::{Value, json};

use crate::{
    Categories, DeviceKind, DeviceMemory, DevicesPage, EngineName, GrowthMode, IdleBytes, IdleKind,
    LogicalEntry, MemoryCategory, MemoryPage, VersionMemory, WorkerEntry, human_bytes,
};

/// The way to the calls that change a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ManagementRoute {
    /// The address of those calls, `HOST:PORT` or `unix:PATH`; none if the server takes none, or
    /// does not say.
    pub address: Option<String>,
    /// The words of `curl` that present a key; empty for a server without keys.
    pub key_words: String,
}

/// The reason why bytes are held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HoldingReason {
    /// The holder, as in `digits:2 on gpu:0`.
    pub holder: String,
    /// The bytes held.
    pub bytes: u64,
    /// The reason, as sentences.
    pub why: String,
    /// The lines that change it; none for what nobody can change.
    pub remedies: Vec<Remedy>,
}

/// A line that changes what is held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remedy {
    /// The change that the line makes, and where it is written.
    pub does: String,
    /// A command, or a line of a config file.
    pub line: String,
}

/// The reasons for all that is held, the largest first.
pub fn reasons(
    memory: &MemoryPage,
    devices: &DevicesPage,
    route: &ManagementRoute,
) -> Vec<HoldingReason> {
    let mut all: Vec<HoldingReason> = Vec::new();
    for device in &memory.devices {
        all.extend(device.models.iter().map(|model| of_version(device, model, route)));
        all.extend(device.idle.iter().filter_map(|idle| of_idle(device, idle, route)));
        all.extend(of_lanes(device));
        all.extend(of_shared(device));
        all.extend(of_context(device));
    }
    all.extend(memory.workers.iter().map(|worker| of_worker(worker, route)));
    all.retain(|reason| reason.bytes > 0);
    all.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.holder.cmp(&b.holder)));
    all.extend(memory.devices.iter().filter_map(|device| of_limit(device, devices, route)));
    all
}

/// A version that is served.
fn of_version(
    device: &DeviceMemory,
    model: &VersionMemory,
    route: &ManagementRoute,
) -> HoldingReason {
    let VersionMemory { name, version, bytes, .. } = model;
    let largest = largest_category(&model.categories);
    let mut why = format!("Held because version {version} is served{largest}.");
    if let Some(plan) = model.largest_plan_bytes.filter(|plan| *plan > 0) {
        why += &format!(" A run needs up to {} of a lane's memory.", human_bytes(plan));
    }
    if let Some(own) = model.limit_bytes.filter(|own| *own < device.limit_bytes) {
        why += &format!(" Its limit is {}.", human_bytes(own));
    }
    let mut remedies = Vec::new();
    if device.engine.is_none() {
        remedies.push(limit_of_model(name, *bytes));
    }
    remedies.extend(unload(name, route));
    HoldingReason {
        holder: format!("{name}:{version} on {}", device.name),
        bytes: *bytes,
        why,
        remedies,
    }
}

/// A limit that lets a model go on with what it holds, and no more.
fn limit_of_model(name: &str, bytes: u64) -> Remedy {
    let limit = config_size(bytes.saturating_add(MIB));
    Remedy {
        does: "Let it grow no further, in the model config".to_owned(),
        line: format!("config {{ name: {} memory {{ limit: \"{limit}\" }} }}", json!(name)),
    }
}

fn unload(name: &str, route: &ManagementRoute) -> Option<Remedy> {
    let path = format!("/v1/models/{}", percent_encoded(name));
    let does = "Unload it (where --model_roots is set)".to_owned();
    route.curl("DELETE", &path, None).map(|line| Remedy { does, line })
}

/// Bytes that are not in use. Those that are lost to rounding nobody can change.
fn of_idle(
    device: &DeviceMemory,
    idle: &IdleBytes,
    route: &ManagementRoute,
) -> Option<HoldingReason> {
    let reason = |why: String, remedies| HoldingReason {
        holder: format!("idle on {}", device.name),
        bytes: idle.bytes,
        why,
        remedies,
    };
    let trim = || {
        let does = "Give it back now".to_owned();
        route.curl("POST", "/v1/memory:trim", None).map(|line| Remedy { does, line })
    };
    let setting = &device.growth_setting;
    Some(match idle.kind {
        IdleKind::Kept => {
            reason(format!("{}.", sentence(&idle.reason)), trim().into_iter().collect())
        }
        IdleKind::PartlyUsed => {
            let why = format!("{}; they go back with what is in use.", sentence(&idle.reason));
            let largest = device.models.iter().max_by_key(|model| model.bytes);
            let remedy = largest.and_then(|model| {
                let does = "Unload the largest model there (where --model_roots is set)".to_owned();
                Some(Remedy { does, ..unload(&model.name, route)? })
            });
            reason(why, remedy.into_iter().collect())
        }
        IdleKind::Reserved => {
            let why = format!("{} ({setting}).", sentence(&idle.reason));
            reason(why, vec![grow(device)])
        }
        IdleKind::SetAside => {
            let why = format!("{}, and nobody else gets it.", sentence(&idle.reason));
            let does = "Set nothing aside, in the model config".to_owned();
            let line = "memory { limit: \"1GiB\" }  in place of  memory { reservation: … }";
            reason(why, vec![Remedy { does, line: line.to_owned() }])
        }
        IdleKind::Rounding => return None,
    })
}

/// Memory as it is needed, for a device that is reserved.
fn grow(device: &DeviceMemory) -> Remedy {
    match device.growth_setting.contains("device config") {
        true => Remedy {
            does: "Take memory as it is needed, in the device config".to_owned(),
            line: format!("device {{ name: \"{}\" allow_growth: true }}", device.physical),
        },
        false => Remedy {
            does: "Take memory as it is needed, at the start".to_owned(),
            line: "--gpu_memory=grow".to_owned(),
        },
    }
}

/// The memory of lanes.
fn of_lanes(device: &DeviceMemory) -> Option<HoldingReason> {
    let lanes = device.workspaces.as_ref().filter(|lanes| lanes.bytes > 0)?;
    let n = lanes.lanes;
    let noun = if n == 1 { "lane shares" } else { "lanes share" };
    let most = lanes.models.iter().max_by_key(|model| model.largest_plan_bytes);
    let most = most.map_or_else(String::new, |model| {
        let need = human_bytes(model.largest_plan_bytes);
        format!("; {}:{} needs most, {need} each", model.name, model.version)
    });
    let line = format!("device {{ name: \"{}\" lanes: 1 }}", device.physical);
    let does = "Run one batch at a time, in the device config".to_owned();
    Some(HoldingReason {
        holder: format!("lanes of {}", device.name),
        bytes: lanes.bytes,
        why: format!("{n} {noun} it among all models{most}."),
        remedies: if n > 1 { vec![Remedy { does, line }] } else { Vec::new() },
    })
}

/// Weights that versions hold together.
fn of_shared(device: &DeviceMemory) -> Option<HoldingReason> {
    let shared = &device.shared;
    let names: Vec<String> =
        shared.holders.iter().map(|one| format!("{}:{}", one.name, one.version)).collect();
    let saved = human_bytes(shared.saved_bytes);
    (!names.is_empty()).then(|| HoldingReason {
        holder: format!("shared on {}", device.name),
        bytes: shared.bytes,
        why: format!("Equal weights of {}, held once, which saves {saved}.", names.join(", ")),
        remedies: Vec::new(),
    })
}

/// Memory that a driver takes.
fn of_context(device: &DeviceMemory) -> Option<HoldingReason> {
    let bytes = *device.server.categories.get(&MemoryCategory::Context)?;
    Some(HoldingReason {
        holder: format!("driver of {}", device.name),
        bytes,
        why: "The driver takes it for itself as long as the server runs.".to_owned(),
        remedies: Vec::new(),
    })
}

/// A process of TensorFlow.
fn of_worker(worker: &WorkerEntry, route: &ManagementRoute) -> HoldingReason {
    let base = human_bytes(worker.base_bytes);
    let models = worker.models.iter().map(|model| {
        format!("{}:{} (weights {})", model.name, model.version, human_bytes(model.weights_bytes))
    });
    let models: Vec<String> = models.collect();
    let mut why = format!("A process with TensorFlow, {base} of it without a model");
    if !models.is_empty() {
        why += &format!("; it holds {}", models.join(", "));
    }
    let largest = worker.models.iter().max_by_key(|model| model.weights_bytes);
    let mut remedies = Vec::new();
    if let Some(model) = largest {
        remedies.push(Remedy {
            does: "Bound it, in the model config".to_owned(),
            ..limit_of_model(&model.name, worker.resident_bytes)
        });
        remedies.extend(unload(&model.name, route));
    }
    HoldingReason {
        holder: format!("worker {} on {}", worker.name, worker.device),
        bytes: worker.resident_bytes,
        why: format!("{why}."),
        remedies,
    }
}

/// The limit of a device; `None` where it cannot be made lower than what is held.
fn of_limit(
    device: &DeviceMemory,
    devices: &DevicesPage,
    route: &ManagementRoute,
) -> Option<HoldingReason> {
    let least = device.reserved_bytes.saturating_add(device.promised_bytes).saturating_add(MIB);
    let bytes = (device.limit_bytes / 2).max(least).next_multiple_of(MIB);
    let is_grown = device.growth == GrowthMode::OnDemand;
    if bytes >= device.limit_bytes || !is_grown || device.engine == Some(EngineName::TensorFlow) {
        return None;
    }
    let body = config_with(devices, &device.name, bytes);
    let does = format!("Let it hold no more than {}", human_bytes(bytes));
    let remedy = match route.curl("PUT", "/v1/devices", Some(&body)) {
        Some(line) => Remedy { does, line },
        None => Remedy {
            does: format!("{does}, in the device config"),
            line: format!(
                "device {{ name: \"{}\" memory_limit: \"{}\" }}",
                device.physical,
                config_size(bytes)
            ),
        },
    };
    Some(HoldingReason {
        holder: format!("limit of {}", device.name),
        bytes: device.limit_bytes,
        why: format!("The most that it may hold ({}).", device.limit_setting),
        remedies: vec![remedy],
    })
}

/// The device config that is in force, with another limit of one logical device. What a config
/// does not name has no settings of its own, so every device stands in it.
fn config_with(devices: &DevicesPage, name: &str, limit_bytes: u64) -> Value {
    let rules = devices.physical.iter().filter(|physical| physical.engine.is_none());
    let rules = rules.map(|physical| {
        let shares = devices.logical.iter().filter(|one| one.physical == physical.name);
        let shares: Vec<&LogicalEntry> = shares.collect();
        let rule = |share: &LogicalEntry| {
            let is_it = share.name == name;
            let limit_bytes = if is_it { limit_bytes } else { share.limit_bytes };
            let has_limit = is_it || !NOT_SET.contains(&&*share.limit_setting) || shares.len() > 1;
            share_rule(share, has_limit.then_some(limit_bytes))
        };
        let mut rules: Vec<Value> = shares.iter().map(|share| rule(share)).collect();
        let is_split = shares.len() > 1 || shares.iter().any(|share| share.priority != 0);
        match (rules.len(), is_split) {
            (0, _) => json!({ "name": physical.name, "visible": false }),
            (1, false) => {
                let mut rule = rules.remove(0);
                rule["name"] = json!(physical.name);
                rule
            }
            _ => json!({ "name": physical.name, "logical_device": rules }),
        }
    });
    json!({ "device": rules.collect::<Vec<Value>>() })
}

/// The words for a limit that nobody set: of a GPU, and of the host, which follows the system.
const NOT_SET: [&str; 2] = ["default", "the memory that the process may have"];

/// The settings of a logical device.
fn share_rule(share: &LogicalEntry, limit_bytes: Option<u64>) -> Value {
    let mut rule = json!({});
    // The host has no such setting.
    if share.kind == DeviceKind::Gpu {
        rule["allow_growth"] = json!(share.growth == GrowthMode::OnDemand);
    }
    if let Some(bytes) = limit_bytes {
        rule["memory_limit"] = json!(bytes);
    }
    if let Some(lanes) = share.lanes {
        rule["lanes"] = json!(lanes);
    }
    if share.priority != 0 {
        rule["priority"] = json!(share.priority);
    }
    rule
}

impl ManagementRoute {
    /// A call of `curl`; `None` without an address.
    fn curl(&self, method: &str, path: &str, body: Option<&Value>) -> Option<String> {
        let address = self.address.as_deref()?;
        let (host, socket) = match address.strip_prefix("unix:") {
            Some(socket) => ("localhost", format!(" --unix-socket {}", quoted(socket))),
            None => (address, String::new()),
        };
        let key = if self.key_words.is_empty() { "" } else { " " };
        let body = body.map_or_else(String::new, |body| {
            format!(" -H 'Content-Type: application/json' -d {}", quoted(&body.to_string()))
        });
        let key_words = &self.key_words;
        Some(format!("curl -X {method}{socket}{key}{key_words}{body} http://{host}{path}"))
    }
}

const MIB: u64 = 1 << 20;

/// A size that a config file takes, not less than `bytes`: `512MiB`.
fn config_size(bytes: u64) -> String {
    let mib = bytes.div_ceil(MIB).max(1);
    if mib.is_multiple_of(1024) { format!("{}GiB", mib / 1024) } else { format!("{mib}MiB") }
}

/// A word of a shell's command line.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// A name as a part of a path, which no shell takes for anything else.
fn percent_encoded(name: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    let piece = |byte: u8| match is_plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    name.bytes().map(piece).collect()
}

fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// The largest category of a holder of several.
fn largest_category(categories: &Categories) -> String {
    let largest = categories.iter().max_by_key(|(_, bytes)| **bytes);
    match largest {
        Some((category, _)) => format!(", most of it {}", category.name().replace('_', " ")),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests;
