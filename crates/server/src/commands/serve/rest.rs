//! The REST face's port and settings.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use api::{
    Control, Door, Listener, Metrics, ModelsPage, Page, Protocol, Rest, RestOptions, connections,
};
use config::Config;
use config::flags::Ui;
use dashboard::{ABOUT, About, Home, Site};
use tokio::net::{TcpListener, TcpSocket};
use tracing::{error, info};

use super::Doors;
use crate::external::Pages;
use crate::metrics::Counters;
use crate::scheduler;

/// The most bytes of a request.
const BODY_BYTES_MAX: usize = 1 << 30;

/// The most bytes that a compressed request may unfold to, as in TensorFlow Serving.
const INFLATED_BYTES_MAX: usize = 100 << 20;

/// The time that an idle connection stays open after SIGTERM. A client that is about to send a
/// request has it answered, and is told that the connection closes.
const LINGER: Duration = Duration::from_secs(1);

/// The number of connections that may wait to be taken.
const BACKLOG: u32 = 1024;

/// Serves the REST face of models, if it has a port, and gives its address. Changes may be taken at
/// `managed` too.
pub(super) fn start(doors: &Doors<'_>, managed: Option<&str>) -> Result<Option<SocketAddr>> {
    let Doors { config, tasks, token, .. } = doors;
    let Some(port) = config.rest_port else { return Ok(None) };
    let listener = match listen_at(config.bind_address, port) {
        Ok(listener) => listener,
        // TensorFlow Serving goes on without REST.
        Err(error) if config.must_load_all => {
            error!("Failed to start HTTP Server at localhost:{port}: {error}");
            return Ok(None);
        }
        Err(error) => {
            return Err(error).with_context(|| {
                format!(
                    "cannot listen on REST port {port}: choose another with --rest_api_port, or 0 \
                     for none"
                )
            });
        }
    };
    // Under TensorFlow Serving's name there is no such thing, unless it is asked for.
    let has_control = !config.must_load_all || !config.control.roots.is_empty();
    let control = has_control.then(|| doors.control());
    let rest = face(doors, control, doors.data_door(managed));
    let rest = match doors.flags.ui {
        Ui::On => with_page(rest, about(config, managed), home(config)),
        Ui::Off => rest,
    };
    let address = listener.local_addr()?;
    let listening = doors.listening(Protocol::Http1);
    let connections = connections(Listener::Tcp(listener), listening, (*token).clone());
    tasks.spawn(api::serve_rest(connections, rest, (*token).clone()));
    if config.must_load_all && config.bind_address.is_none() {
        info!("Exporting HTTP/REST API at:localhost:{port} ..."); // TensorFlow Serving's words.
    } else {
        info!("Exporting HTTP/REST API at:{address} ...");
    }
    Ok(Some(address))
}

/// The REST face; with `control`, models can be added and removed where the door is open.
pub(super) fn face(doors: &Doors<'_>, control: Option<Arc<dyn Control>>, door: Door) -> Rest {
    let Doors { config, flags, counters, .. } = doors;
    let timeout = u64::try_from(flags.rest_api_timeout_in_ms).ok().filter(|ms| *ms > 0);
    let options = RestOptions {
        timeout: timeout.map(Duration::from_millis),
        header_timeout: Duration::from_secs(flags.request_head_seconds.max(1)),
        linger: LINGER,
        arrival: doors.arrival(),
        body_bytes_max: BODY_BYTES_MAX,
        inflated_bytes_max: INFLATED_BYTES_MAX,
        has_cors: flags.rest_api_enable_cors_support,
        models_page: if config.must_load_all {
            ModelsPage::NamelessModel
        } else {
            ModelsPage::List
        },
    };
    let counters: Counters = (*counters).clone();
    let context = counters.requests.clone();
    let metrics =
        Metrics { page: Arc::new(move || counters.page()), path: doors.metrics_path.clone() };
    let memory = Arc::new(Pages::new(&doors.devices, &doors.external));
    let (path, scheduler) = scheduler_look(doors);
    let rest = Rest::new(context, options, Some(metrics))
        .with_memory(memory)
        .with_door(door)
        .with_look(path, scheduler);
    match control {
        Some(control) => rest.with_control(control),
        None => rest,
    }
}

/// The same face with the web page.
fn with_page(rest: Rest, about: Page, home: Home) -> Rest {
    let site = Site::new(home);
    rest.with_look(ABOUT, about).with_site(Arc::new(move |parts| site.reply(parts)))
}

/// The paths of the web page: under TensorFlow Serving's name its answers stay what they are
/// elsewhere than at `/ui`.
fn home(config: &Config) -> Home {
    if config.must_load_all { Home::Ui } else { Home::Root }
}

/// The facts about the server, which may be changed at `managed`.
pub(super) fn about(config: &Config, managed: Option<&str>) -> Page {
    let program = if config.must_load_all { "tensorflow_model_server" } else { "tensord" };
    let version = env!("CARGO_PKG_VERSION");
    let about = About { program, version, management: managed.map(str::to_owned) }.json();
    Arc::new(move || about.clone())
}

/// The page of queues and lanes, and its path.
pub(super) fn scheduler_look(doors: &Doors<'_>) -> (&'static str, Page) {
    let scheduler = doors.counters.scheduler.clone();
    ("/v1/scheduler", Arc::new(move || pages::print(&scheduler::page(&scheduler))))
}

/// Listens on an address, or on every address of the machine: over IPv6 with IPv4 within it, else
/// over IPv4 alone.
fn listen_at(address: Option<IpAddr>, port: u16) -> std::io::Result<TcpListener> {
    let listen = |address: SocketAddr| {
        let socket = if address.is_ipv6() { TcpSocket::new_v6() } else { TcpSocket::new_v4() }?;
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    if let Some(address) = address {
        return listen((address, port).into());
    }
    // The error of the second attempt is the one that people can do something about.
    listen((Ipv6Addr::UNSPECIFIED, port).into())
        .or_else(|_| listen((Ipv4Addr::UNSPECIFIED, port).into()))
}
