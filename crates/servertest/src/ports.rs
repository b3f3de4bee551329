//! Ports that no other test takes.

use std::net::{TcpListener, UdpSocket};
use std::sync::Mutex;

/// A port that nobody listens on and that no other test takes. The system cannot be asked for any
/// port, because `--port=0` turns a door off, as in TensorFlow Serving. The port is below those
/// that the system gives to others. It is claimed until this process ends by the port of the same
/// number for datagrams, which no server here uses.
pub(crate) fn free_port() -> u16 {
    static CLAIMS: Mutex<Vec<UdpSocket>> = Mutex::new(Vec::new());
    let mut claims = CLAIMS.lock().expect("nobody panicked with it");
    let first = std::process::id();
    let port = |n: u32| u16::try_from(12_000 + (first * 16 + n) % 20_000).expect("it is small");
    let claimed = (0..20_000).map(port).find_map(|port| {
        let claim = UdpSocket::bind(("127.0.0.1", port)).ok()?;
        TcpListener::bind(("0.0.0.0", port)).ok().map(|_| (port, claim))
    });
    let (port, claim) = claimed.expect("a port is free");
    claims.push(claim);
    port
}
