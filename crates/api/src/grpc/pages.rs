//! `tensord.Pages`: the JSON pages that REST shows, for clients that reach only gRPC. The guard has
//! asked for the right to read the whole server before a call comes here.

use std::sync::Arc;

use proto::tensord::pages_server::Pages;
use proto::tensord::{GetPageRequest, GetPageResponse};
use status::{Code, Status};
use tonic::Request;

use super::{Reply, charge, reply};
use crate::context::Context;
use crate::rest::{LIST, Memory, Page, list};

/// The path of the page of memory.
const MEMORY: &str = "/v1/memory";

/// The path of the page of devices.
const DEVICES: &str = "/v1/devices";

/// The service. Cheap to clone.
#[derive(Clone)]
pub struct PageService {
    context: Context,
    memory: Arc<dyn Memory>,
    /// Other pages, by their paths.
    looks: Arc<[(&'static str, Page)]>,
}

impl PageService {
    /// A service that shows what others fill.
    pub(super) fn new(
        context: Context,
        memory: Arc<dyn Memory>,
        looks: Vec<(&'static str, Page)>,
    ) -> Self {
        Self { context, memory, looks: looks.into() }
    }

    /// The page at a path.
    fn page(&self, path: &str) -> Result<Vec<u8>, Status> {
        match path {
            MEMORY => Ok(self.memory.memory()),
            DEVICES => Ok(self.memory.devices()),
            // A key that may read the server is for all models.
            LIST => Ok(list(&self.context, None)),
            _ => match self.looks.iter().find(|(look, _)| *look == path) {
                Some((_, page)) => Ok(page().into_bytes()),
                None => Err(self.missing(path)),
            },
        }
    }

    fn missing(&self, path: &str) -> Status {
        let looks = self.looks.iter().map(|(path, _)| *path);
        let paths: Vec<&str> = [MEMORY, DEVICES, LIST].into_iter().chain(looks).collect();
        Status::new(Code::NotFound, format!("no page {path:?}; there are {}", paths.join(", ")))
    }
}

#[tonic::async_trait]
impl Pages for PageService {
    async fn get_page(&self, request: Request<GetPageRequest>) -> Reply<GetPageResponse> {
        let charge = charge(&request);
        let page = self.page(&request.get_ref().path);
        reply(self.context.hints, page.map(|json| GetPageResponse { json: json.into() }), &charge)
    }
}
