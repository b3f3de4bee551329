//! The REST face: routes, bodies, error pages, and the JSON of tensors. The rules are those of
//! TensorFlow Serving's `http_server.cc` and `http_rest_api_handler.cc`.

mod body;
mod compress;
mod door;
mod manage;
mod memory;
mod pages;
mod reply;
mod routes;
pub(crate) mod serve;
pub(crate) mod target;
mod wait;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http::request::Parts;

pub use door::Door;
pub use memory::Memory;
pub(crate) use pages::{LIST, list};
pub use reply::Reply;
pub use serve::serve;

use crate::arrival::ArrivalLimits;
use crate::context::Context;
use crate::control::Control;

/// The settings of the REST face.
#[derive(Debug, Clone, Copy)]
pub struct RestOptions {
    /// The longest time that a request may run; no limit without one.
    pub timeout: Option<Duration>,
    /// The longest time that a client may take to send the head of a request.
    pub header_timeout: Duration,
    /// The time that a connection without a request stays open while the server drains.
    pub linger: Duration,
    /// The limits on how slowly a body may arrive.
    pub arrival: ArrivalLimits,
    /// The most bytes of a request's body.
    pub body_bytes_max: usize,
    /// The most bytes that a compressed body may unfold to.
    pub inflated_bytes_max: usize,
    /// `true` if answers carry CORS headers.
    pub has_cors: bool,
    /// The content of `GET /v1/models`.
    pub models_page: ModelsPage,
}

/// The content of `GET /v1/models`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelsPage {
    /// All models, as `GET /v1/models:list` does.
    List,
    /// TensorFlow Serving's complaint that no model is named.
    NamelessModel,
}

/// Makes a page, such as that of the metrics, when it is asked for.
pub type Page = Arc<dyn Fn() -> String + Send + Sync>;

/// Answers requests for static files, which browsers load without a key; `None` if a request is
/// about something else.
pub type Site = Arc<dyn Fn(&Parts) -> Option<Response<Bytes>> + Send + Sync>;

/// The metrics page, and where it is shown besides `/metrics`.
#[derive(Clone)]
pub struct Metrics {
    /// Makes the page.
    pub page: Page,
    /// The path that the monitoring config names, if it enables one.
    pub path: Option<String>,
}

/// The REST face of some models. Cheap to clone.
#[derive(Clone)]
pub struct Rest {
    shared: Arc<Shared>,
}

struct Shared {
    context: Context,
    options: RestOptions,
    metrics: Option<Metrics>,
    control: Option<Arc<dyn Control>>,
    memory: Option<Arc<dyn Memory>>,
    door: Door,
    /// Other pages that are only looked at, by their paths.
    looks: Vec<(&'static str, Page)>,
    site: Option<Site>,
}

impl Rest {
    /// The face of some models. Without `metrics` there is no page of them. Nothing can be changed.
    pub fn new(context: Context, options: RestOptions, metrics: Option<Metrics>) -> Self {
        let door = Door::Closed("this server takes no changes".to_owned());
        let (control, memory, looks, site) = (None, None, Vec::new(), None);
        let shared = Shared { context, options, metrics, control, memory, door, looks, site };
        Self { shared: Arc::new(shared) }
    }

    /// Sets the door, which says which calls the server takes.
    #[must_use]
    pub fn with_door(mut self, door: Door) -> Self {
        self.set_up(|shared| shared.door = door);
        self
    }

    /// Adds a page of JSON at a path, which is made when a request asks for it.
    #[must_use]
    pub fn with_look(mut self, path: &'static str, page: Page) -> Self {
        self.set_up(|shared| shared.looks.push((path, page)));
        self
    }

    /// Sets the static files.
    #[must_use]
    pub fn with_site(mut self, site: Site) -> Self {
        self.set_up(|shared| shared.site = Some(site));
        self
    }

    /// With `POST` and `DELETE /v1/models/NAME`, which change the models that are served, where the
    /// door is open.
    #[must_use]
    pub fn with_control(mut self, control: Arc<dyn Control>) -> Self {
        self.set_up(|shared| shared.control = Some(control));
        self
    }

    /// The settings.
    pub(crate) fn options(&self) -> RestOptions {
        self.shared.options
    }

    /// With pages about memory and devices, which change them where the door is open.
    #[must_use]
    pub fn with_memory(mut self, memory: Arc<dyn Memory>) -> Self {
        self.set_up(|shared| shared.memory = Some(memory));
        self
    }

    /// Changes a face that is not in use yet.
    fn set_up(&mut self, change: impl FnOnce(&mut Shared)) {
        change(Arc::get_mut(&mut self.shared).expect("a face is put together before it serves"));
    }
}
