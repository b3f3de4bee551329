//! Small values that flags leave open.

/// The tags between the commas.
pub fn split_tags(tags: &str) -> Vec<String> {
    tags.split(',').filter(|tag| !tag.is_empty()).map(str::to_owned).collect()
}

/// The number of CPUs that this process may use.
pub fn n_cpus() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// The number of plans that a signature keeps.
pub const PLANS_MAX: usize = 32;
