//! The asset files of a model, as its graph reads them.

use ops::Files;
use savedmodel::Asset;
use storage::Storage;

/// The largest asset that is read.
const LIMIT_BYTES: u64 = 4 << 30;

/// The assets that a model lists; nothing else is readable.
pub(crate) struct Assets<'a> {
    pub(crate) dir: &'a Storage,
    pub(crate) assets: &'a [Asset],
}

impl Files for Assets<'_> {
    fn read(&self, name: &[u8]) -> ops::Result<Vec<u8>> {
        let known = self.assets.iter().find(|asset| asset.path.as_bytes() == name);
        let shown = String::from_utf8_lossy(name);
        let Some(asset) = known else {
            let text = format!("file {shown} is not an asset of the model");
            return Err(ops::Error::NotFound(text));
        };
        let bytes = self.dir.read(&asset.path, LIMIT_BYTES);
        bytes.map_err(|error| ops::Error::NotFound(format!("asset {shown}: {error}")))
    }
}
