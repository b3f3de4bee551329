//! The environment variables by which TensorFlow's memory is configured.

/// The environment variables that TensorFlow reads; `None` where one is not set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Environment {
    /// `TF_FORCE_GPU_ALLOW_GROWTH`
    pub force_gpu_allow_growth: Option<String>,
    /// `TF_DEVICE_MIN_SYS_MEMORY_IN_MB`
    pub device_min_sys_memory_in_mb: Option<String>,
    /// `TF_PER_DEVICE_MEMORY_LIMIT_MB`
    pub per_device_memory_limit_mb: Option<String>,
    /// `TF_FORCE_UNIFIED_MEMORY`
    pub force_unified_memory: Option<String>,
    /// `TF_CPU_ALLOCATOR_USE_BFC`
    pub cpu_allocator_use_bfc: Option<String>,
    /// `TF_CPU_BFC_MEM_LIMIT_IN_MB`
    pub cpu_bfc_mem_limit_in_mb: Option<String>,
    /// Those that are set and mean nothing here, as `name=value`, with why.
    pub without_effect: Vec<(String, &'static str)>,
}

/// Variables that choose between parts of TensorFlow that are not here, and what is here instead.
const WITHOUT_EFFECT: [(&str, &str); 5] = [
    ("TF_GPU_ALLOCATOR", "a device's memory always comes from its own arena"),
    ("TF_ENABLE_GPU_GARBAGE_COLLECTION", "memory that nobody uses always goes back"),
    ("TF_GPU_HOST_MEM_LIMIT_IN_MB", "there is no pool of pinned memory"),
    ("TF_BFC_MEMORY_DUMP", "GET /v1/memory says who holds what"),
    ("TF_DETERMINISTIC_ALLOCATOR", "the arena gives the same chunks to the same requests"),
];

impl Environment {
    /// The variables as `variable` knows them.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Environment {
        let without_effect = WITHOUT_EFFECT
            .iter()
            .filter_map(|(name, instead)| Some((format!("{name}={}", variable(name)?), *instead)));
        Environment {
            force_gpu_allow_growth: variable("TF_FORCE_GPU_ALLOW_GROWTH"),
            device_min_sys_memory_in_mb: variable("TF_DEVICE_MIN_SYS_MEMORY_IN_MB"),
            per_device_memory_limit_mb: variable("TF_PER_DEVICE_MEMORY_LIMIT_MB"),
            force_unified_memory: variable("TF_FORCE_UNIFIED_MEMORY"),
            cpu_allocator_use_bfc: variable("TF_CPU_ALLOCATOR_USE_BFC"),
            cpu_bfc_mem_limit_in_mb: variable("TF_CPU_BFC_MEM_LIMIT_IN_MB"),
            without_effect: without_effect.collect(),
        }
    }

    /// An environment without any of them.
    pub fn unset() -> Environment {
        Environment::read(|_| None)
    }

    /// The names of those that configure devices and are set.
    pub fn names(&self) -> Vec<&'static str> {
        let all = [
            ("TF_FORCE_GPU_ALLOW_GROWTH", &self.force_gpu_allow_growth),
            ("TF_DEVICE_MIN_SYS_MEMORY_IN_MB", &self.device_min_sys_memory_in_mb),
            ("TF_PER_DEVICE_MEMORY_LIMIT_MB", &self.per_device_memory_limit_mb),
            ("TF_CPU_BFC_MEM_LIMIT_IN_MB", &self.cpu_bfc_mem_limit_in_mb),
        ];
        all.into_iter().filter(|(_, value)| value.is_some()).map(|(name, _)| name).collect()
    }

    /// Says which have no effect.
    pub(super) fn warn(&self, warnings: &mut Vec<String>) {
        let text = |(set, instead): &(String, &str)| format!("{set} has no effect: {instead}");
        warnings.extend(self.without_effect.iter().map(text));
    }

    /// Returns whether XLA would use unified memory.
    pub(super) fn forces_unified_memory(&self) -> bool {
        matches!(self.force_unified_memory.as_deref(), Some("true" | "1"))
    }

    /// The most the host may hold, if something is said of that.
    pub fn host_limit(&self) -> Option<u64> {
        Some(self.host_limit_bytes(&mut Vec::new())).filter(|limit| *limit < u64::MAX)
    }

    /// The most the host's arena may hold, as `process_state.cc` says: nothing is said of it unless
    /// the host is to have one.
    pub(super) fn host_limit_bytes(&self, warnings: &mut Vec<String>) -> u64 {
        let text = self.cpu_allocator_use_bfc.as_deref().unwrap_or("");
        match text.to_ascii_lowercase().as_str() {
            "1" | "true" => {}
            "" | "0" | "false" => return u64::MAX,
            _ => {
                warnings.push(format!(
                    "Failed to parse the env-var ${{TF_CPU_ALLOCATOR_USE_BFC}} into bool: {text}. \
                     Use the default value: 0"
                ));
                return u64::MAX;
            }
        }
        let text = self.cpu_bfc_mem_limit_in_mb.as_deref().unwrap_or("");
        let mb = match text.trim().parse::<u64>() {
            Ok(mb) => mb,
            Err(_) if text.is_empty() => HOST_LIMIT_MB,
            Err(_) => {
                warnings.push(format!(
                    "Failed to parse the env-var ${{TF_CPU_BFC_MEM_LIMIT_IN_MB}} into int64: \
                     {text}. Use the default value: {HOST_LIMIT_MB}"
                ));
                HOST_LIMIT_MB
            }
        };
        mb.saturating_mul(1 << 20)
    }
}

/// TensorFlow's default for the host's arena, in MiB.
const HOST_LIMIT_MB: u64 = 1 << 16;
