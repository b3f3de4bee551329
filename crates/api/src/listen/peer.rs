//! `Peer`: the other side of a connection, for the log.

use std::fmt;
use std::net::SocketAddr;

use tokio::net::UnixStream;

/// The other side of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// An address.
    Tcp(SocketAddr),
    /// A process of this machine, by its user and, if the system tells, its id.
    Unix {
        /// The user.
        uid: u32,
        /// The process.
        pid: Option<i32>,
    },
    /// A side that the system does not name.
    Unnamed,
}

impl Peer {
    /// The process at the other side of a UNIX socket.
    pub fn of_unix(stream: &UnixStream) -> Self {
        match stream.peer_cred() {
            Ok(credentials) => Self::Unix { uid: credentials.uid(), pid: credentials.pid() },
            Err(_) => Self::Unnamed,
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // A socket for both families says ::ffff:127.0.0.1 of 127.0.0.1.
            Self::Tcp(address) => {
                write!(f, "{}", SocketAddr::new(address.ip().to_canonical(), address.port()))
            }
            Self::Unix { uid, pid: Some(pid) } => write!(f, "unix:uid={uid},pid={pid}"),
            Self::Unix { uid, pid: None } => write!(f, "unix:uid={uid}"),
            Self::Unnamed => f.write_str("unix"),
        }
    }
}
