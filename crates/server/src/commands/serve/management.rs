//! The address for those who change the server, apart from the data ports: gRPC's `ModelService`
//! and the REST face, on one listener.

use std::io;

use anyhow::{Context, Result};
use api::{BothFaces, Door, ListenOptions, Listener, Protocol, connections};
use config::Address;
use config::channel_arguments::ChannelArguments;
use tokio::net::{TcpListener, UnixListener};
use tracing::{info, warn};

use super::{Doors, doors, grpc, rest};

/// Serves the management calls, if they have an address of their own, and gives that address. One
/// that is not free and that nobody asked for is done without.
pub(super) async fn start(doors: &Doors<'_>) -> Result<Option<String>> {
    let Doors { config, tasks, token, .. } = doors;
    let management = &config.management;
    let Some(address) = &management.address else { return Ok(None) };
    let listener = match bind(address).await {
        Ok(listener) => listener,
        Err(error) if !management.is_asked => {
            warn!(
                "cannot listen on {address}: {error}: this server takes no calls that change it; \
                 choose another --management_address"
            );
            return Ok(None);
        }
        Err(error) => {
            return Err(error).with_context(|| {
                format!("cannot listen on {address}: choose another --management_address")
            });
        }
    };
    let grpc = grpc::face(doors, &ChannelArguments::default(), Some(doors.control()));
    let door = Door::Management(management.hosts.clone());
    let rest = rest::face(doors, Some(doors.control()), door);
    let address = match &listener {
        Listener::Tcp(listener) => listener.local_addr()?.to_string(),
        Listener::Unix(_) => address.to_string(),
    };
    info!("Management at {address} ...");
    // TLS is for the data ports.
    let listening = ListenOptions { tls: None, ..doors.listening(Protocol::Either) };
    let connections = connections(listener, listening, (*token).clone());
    tasks.spawn(api::serve_both(connections, BothFaces::new(grpc, rest), (*token).clone()));
    Ok(Some(address))
}

async fn bind(address: &Address) -> io::Result<Listener> {
    match address {
        Address::Tcp(address) => TcpListener::bind(address).await.map(Listener::Tcp),
        Address::Unix(path) => {
            doors::clear(path);
            UnixListener::bind(path).map(Listener::Unix)
        }
    }
}
