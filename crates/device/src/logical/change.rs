//! Changes of devices that are allowed while serving.

use std::collections::BTreeSet;

use status::Code;

use super::LogicalDevice;
use crate::error::Error;

/// Checks that the devices may become others while those that `is_in_use` names are in use. Limits,
/// growth, priorities and lanes may change at any time; the set of devices may not.
///
/// # Errors
/// [`Error::Config`] with TensorFlow's message if a device in use would be gone, or a share of
/// another device.
pub fn check_change(
    before: &[LogicalDevice],
    after: &[LogicalDevice],
    is_in_use: impl Fn(&str) -> bool,
) -> Result<(), Error> {
    for device in before.iter().filter(|device| is_in_use(&device.name)) {
        let same = after.iter().find(|other| other.name == device.name);
        if same.is_some_and(|other| other.physical == device.physical) {
            continue;
        }
        let is_same = visible(before) == visible(after);
        let what = if is_same { "Virtual" } else { "Visible" };
        let message = format!("{what} devices cannot be modified after being initialized");
        return Err(Error::Config { code: Code::FailedPrecondition, message });
    }
    Ok(())
}

/// The physical devices that some share is of.
fn visible(devices: &[LogicalDevice]) -> BTreeSet<usize> {
    devices.iter().map(|device| device.physical).collect()
}
