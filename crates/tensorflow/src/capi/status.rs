//! `Status`: how a call of the library ended.

use status::Code;

use super::functions::{Functions, Opaque};
use super::text;
use crate::error::{Error, Result};

/// The code and the message of the last call that was given it.
pub(super) struct Status<'a> {
    functions: &'a Functions,
    status: Opaque,
}

impl<'a> Status<'a> {
    pub(super) fn new(functions: &'a Functions) -> Self {
        // SAFETY: takes no argument.
        let status = unsafe { (functions.TF_NewStatus)() };
        assert!(!status.is_null(), "the library has no memory for a status");
        Self { functions, status }
    }

    /// For a call to write to.
    pub(super) fn get(&self) -> Opaque {
        self.status
    }

    /// Fails if the last call did.
    pub(super) fn check(&self) -> Result<()> {
        // SAFETY: the status lives until this is dropped.
        let code = unsafe { (self.functions.TF_GetCode)(self.status) };
        if code == 0 {
            return Ok(());
        }
        // SAFETY: as above; the text is copied at once.
        let message = unsafe { (self.functions.TF_Message)(self.status) };
        let code = Code::from_number(code).unwrap_or(Code::Internal);
        Err(Error::TensorFlow { code, text: text(message) })
    }
}

impl Drop for Status<'_> {
    fn drop(&mut self) {
        // SAFETY: it was made by `TF_NewStatus` and is deleted once.
        unsafe { (self.functions.TF_DeleteStatus)(self.status) }
    }
}
