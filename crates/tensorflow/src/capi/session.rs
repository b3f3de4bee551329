//! `Session`: a SavedModel that the library loaded.

use std::ffi::{CString, c_char};
use std::ptr::{null, null_mut};

use status::Code;

use super::functions::{Bytes, Opaque, Output};
use super::status::Status;
use super::tensor::TfTensor;
use super::{Api, text};
use crate::error::{Error, Result};

/// A SavedModel to load.
pub(crate) struct Loading<'a> {
    /// The folder of the SavedModel.
    pub(crate) dir: &'a str,
    /// The tags of the meta graph.
    pub(crate) tags: &'a [String],
    /// A serialised `ConfigProto`.
    pub(crate) config: &'a [u8],
}

/// A run of a session.
pub(crate) struct SessionRun<'a> {
    /// The endpoints that the inputs go to.
    pub(crate) feeds: &'a Endpoints,
    pub(crate) inputs: &'a [TfTensor<'a>],
    /// The endpoints that outputs come from.
    pub(crate) fetches: &'a Endpoints,
    /// The numbers of those that are wanted.
    pub(crate) outputs: &'a [u32],
    /// A serialised `RunOptions`.
    pub(crate) options: &'a [u8],
}

/// A loaded meta graph: variables restored, init op run.
pub(crate) struct Session<'a> {
    api: &'a Api,
    session: Opaque,
    graph: Graph<'a>,
}

/// The tensors of one signature in the graph.
#[derive(Debug, Clone, Default)]
pub(crate) struct Endpoints(Vec<Output>);

// SAFETY: an operation lives as long as its graph, and is only read.
unsafe impl Send for Endpoints {}
// SAFETY: as above.
unsafe impl Sync for Endpoints {}
// SAFETY: sessions and graphs of the library may be used from any thread.
unsafe impl Send for Session<'_> {}
// SAFETY: `TF_SessionRun` may be called by many threads at once; so may the look-up of operations.
unsafe impl Sync for Session<'_> {}

impl<'a> Session<'a> {
    /// Loads a SavedModel, restores its variables and runs its init op. Takes as long as it takes.
    pub(crate) fn load(api: &'a Api, loading: &Loading<'_>) -> Result<Self> {
        let status = Status::new(&api.functions);
        let options = Options::new(api);
        let (start, len) = (loading.config.as_ptr().cast(), loading.config.len());
        // SAFETY: the options live, and the config is copied.
        unsafe { (api.functions.TF_SetConfig)(options.options, start, len, status.get()) };
        status.check()?;
        let graph = Graph::new(api);
        let dir = c_string(loading.dir)?;
        let tags: Vec<CString> =
            loading.tags.iter().map(|tag| c_string(tag)).collect::<Result<_>>()?;
        let tags: Vec<*const c_char> = tags.iter().map(|tag| tag.as_ptr()).collect();
        let n_tags = i32::try_from(tags.len()).map_err(|_| too_many("tags"))?;
        let load = api.functions.TF_LoadSessionFromSavedModel;
        // SAFETY: all that is pointed to lives until the call returns, and the counts are those of
        // the lists; no meta graph is asked for.
        let session = unsafe {
            load(
                options.options,
                null(),
                dir.as_ptr(),
                tags.as_ptr(),
                n_tags,
                graph.graph,
                null_mut(),
                status.get(),
            )
        };
        status.check()?;
        assert!(!session.is_null(), "a load that succeeds gives a session");
        Ok(Self { api, session, graph })
    }

    /// Finds tensors by their names, such as `x:0`.
    pub(crate) fn endpoints(&self, names: &[String]) -> Result<Endpoints> {
        let outputs = names.iter().map(|name| self.graph.output(name));
        Ok(Endpoints(outputs.collect::<Result<_>>()?))
    }

    /// Runs the graph from the inputs to some of its outputs.
    pub(crate) fn run(&self, run: &SessionRun<'_>) -> Result<Vec<TfTensor<'a>>> {
        let SessionRun { feeds, inputs, fetches, outputs, options } = *run;
        if feeds.0.len() != inputs.len() {
            let text = format!("{} inputs for {} feeds", inputs.len(), feeds.0.len());
            return Err(Error::Malformed(text));
        }
        let chosen = outputs.iter().map(|number| fetches.0.get(*number as usize).copied());
        let unknown = || Error::Malformed("an output that the signature does not have".to_owned());
        let fetches: Vec<Output> = chosen.collect::<Option<_>>().ok_or_else(unknown)?;
        let values: Vec<Opaque> = inputs.iter().map(TfTensor::get).collect();
        let mut results: Vec<Opaque> = vec![null_mut(); fetches.len()];
        let n_inputs = i32::try_from(values.len()).map_err(|_| too_many("inputs"))?;
        let n_outputs = i32::try_from(fetches.len()).map_err(|_| too_many("outputs"))?;
        let status = Status::new(&self.api.functions);
        let options =
            Bytes { start: options.as_ptr().cast(), len: options.len(), deallocate: None };
        // SAFETY: all that is pointed to lives until the call returns; feeds and values are equally
        // many (checked above), and so are fetches and results.
        unsafe {
            (self.api.functions.TF_SessionRun)(
                self.session,
                &raw const options,
                feeds.0.as_ptr(),
                values.as_ptr(),
                n_inputs,
                fetches.as_ptr(),
                results.as_mut_ptr(),
                n_outputs,
                null(),
                0,
                null_mut(),
                status.get(),
            );
        }
        let made = results.iter().filter(|tensor| !tensor.is_null());
        let made: Vec<TfTensor<'a>> = made.map(|tensor| TfTensor::own(self.api, *tensor)).collect();
        status.check()?;
        Ok(made)
    }

    /// The names of the devices that it may use.
    pub(crate) fn devices(&self) -> Vec<String> {
        let functions = &self.api.functions;
        let status = Status::new(functions);
        // SAFETY: the session lives.
        let list = unsafe { (functions.TF_SessionListDevices)(self.session, status.get()) };
        if list.is_null() {
            return Vec::new();
        }
        // SAFETY: the list is there.
        let count = unsafe { (functions.TF_DeviceListCount)(list) };
        // SAFETY: the list is there, and the index below its count.
        let name = |i| unsafe { (functions.TF_DeviceListName)(list, i, status.get()) };
        let names = (0..count).map(|i| text(name(i))).collect();
        // SAFETY: it is ours, and deleted once; the names were copied.
        unsafe { (functions.TF_DeleteDeviceList)(list) };
        names
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        let status = Status::new(&self.api.functions);
        // SAFETY: the session is ours and lives.
        unsafe { (self.api.functions.TF_CloseSession)(self.session, status.get()) };
        // SAFETY: it is deleted once.
        unsafe { (self.api.functions.TF_DeleteSession)(self.session, status.get()) };
    }
}

struct Graph<'a> {
    api: &'a Api,
    graph: Opaque,
}

impl<'a> Graph<'a> {
    fn new(api: &'a Api) -> Self {
        // SAFETY: takes no argument.
        let graph = unsafe { (api.functions.TF_NewGraph)() };
        assert!(!graph.is_null(), "the library has no memory for a graph");
        Self { api, graph }
    }

    fn output(&self, name: &str) -> Result<Output> {
        let (operation, index) = name.rsplit_once(':').unwrap_or((name, "0"));
        let missing = || Error::TensorFlow {
            code: Code::NotFound,
            text: format!("tensor {name} of a signature is not in the graph"),
        };
        let index: i32 = index.parse().map_err(|_| missing())?;
        let operation = c_string(operation)?;
        let find = self.api.functions.TF_GraphOperationByName;
        // SAFETY: the graph lives, and the name ends with a zero.
        let operation = unsafe { find(self.graph, operation.as_ptr()) };
        if operation.is_null() {
            return Err(missing());
        }
        // SAFETY: the operation is there.
        let n_outputs = unsafe { (self.api.functions.TF_OperationNumOutputs)(operation) };
        if !(0..n_outputs).contains(&index) {
            return Err(missing());
        }
        Ok(Output { operation, index })
    }
}

impl Drop for Graph<'_> {
    fn drop(&mut self) {
        // SAFETY: it is ours, and deleted once; the session that used it was dropped before.
        unsafe { (self.api.functions.TF_DeleteGraph)(self.graph) }
    }
}

struct Options<'a> {
    api: &'a Api,
    options: Opaque,
}

impl<'a> Options<'a> {
    fn new(api: &'a Api) -> Self {
        // SAFETY: takes no argument.
        let options = unsafe { (api.functions.TF_NewSessionOptions)() };
        assert!(!options.is_null(), "the library has no memory for options");
        Self { api, options }
    }
}

impl Drop for Options<'_> {
    fn drop(&mut self) {
        // SAFETY: they are ours, and deleted once.
        unsafe { (self.api.functions.TF_DeleteSessionOptions)(self.options) }
    }
}

fn c_string(text: &str) -> Result<CString> {
    let bad = |_| Error::TensorFlow {
        code: Code::InvalidArgument,
        text: "a name has a zero byte in it".to_owned(),
    };
    CString::new(text).map_err(bad)
}

fn too_many(what: &str) -> Error {
    Error::TensorFlow { code: Code::InvalidArgument, text: format!("too many {what}") }
}
