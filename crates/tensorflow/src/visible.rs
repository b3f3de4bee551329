//! The choice of which GPUs CUDA's programs see.

use crate::nvml::Gpu;

/// The GPUs that `CUDA_VISIBLE_DEVICES` lists, in its order: by number, or by the beginning of what
/// tells them from all others. As in CUDA, the list ends at the first that is not there; without a
/// list, all are seen.
pub fn visible(gpus: Vec<Gpu>, list: Option<&str>) -> Vec<Gpu> {
    let Some(list) = list else { return gpus };
    let mut seen: Vec<Gpu> = Vec::new();
    for entry in list.split(',').map(str::trim) {
        let is_it = |gpu: &&Gpu| match entry.parse::<u32>() {
            Ok(number) => gpu.index == number,
            Err(_) => entry.starts_with("GPU-") && gpu.uuid.starts_with(entry),
        };
        let mut listed = gpus.iter().filter(is_it);
        let (Some(gpu), None) = (listed.next(), listed.next()) else { break };
        if seen.contains(gpu) {
            // CUDA sees none at all then.
            return Vec::new();
        }
        seen.push(gpu.clone());
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(list: Option<&str>, expected: &[u32]) {
        let gpu = |(index, uuid): (u32, &str)| Gpu {
            index,
            name: "GPU".to_owned(),
            uuid: uuid.to_owned(),
            total_bytes: 1,
            used_bytes: 0,
            compute_capability: None,
            processes: Vec::new(),
        };
        let gpus = [(0, "GPU-aa1"), (1, "GPU-ab2"), (2, "GPU-cc3")].map(gpu).to_vec();
        let seen: Vec<u32> = visible(gpus, list).iter().map(|gpu| gpu.index).collect();
        assert_eq!(seen, expected, "{list:?}");
    }

    #[test]
    fn a_list_says_which_gpus_are_seen_and_in_which_order() {
        check(None, &[0, 1, 2]);
        check(Some("2,0"), &[2, 0]);
        check(Some("GPU-cc, 1"), &[2, 1]);
        for nothing in ["", "-1", "NoDevFiles", "7", "GPU-a", "1,1"] {
            check(Some(nothing), &[]);
        }
        check(Some("1,-1,0"), &[1]);
    }
}
