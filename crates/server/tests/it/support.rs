//! A running server, and the few words of HTTP that tests need.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::time::Duration;

pub(crate) use testkit::zoo::python;

/// How long anything may take before a test gives up.
const PATIENCE: Duration = Duration::from_secs(120);

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().expect("the repository is there")
}

/// The binary called `tensord`.
pub(crate) fn tensord() -> Command {
    Command::new(env!("CARGO_BIN_EXE_tensord"))
}

/// The binary under TensorFlow Serving's name.
pub(crate) fn model_server() -> Command {
    Command::new(env!("CARGO_BIN_EXE_tensorflow_model_server"))
}

/// A server that runs until it is dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) grpc: u16,
    pub(crate) rest: u16,
    /// The port of the calls that change the server, once it listens.
    management: Arc<OnceLock<u16>>,
    output: Mutex<mpsc::Receiver<String>>,
    log: Mutex<mpsc::Receiver<String>>,
}

impl Server {
    /// Starts a server with these arguments besides its ports, and waits until it listens.
    pub(crate) fn start(command: Command, args: &[&str]) -> Self {
        let server = Self::spawn(command, args);
        for door in ["Running gRPC ModelServer at", "Exporting HTTP/REST API at"] {
            server.logs(door);
        }
        server
    }

    /// Starts a server with these arguments besides its ports, and does not wait.
    pub(crate) fn spawn(mut command: Command, args: &[&str]) -> Self {
        command.arg("--management_address=127.0.0.1:0");
        Self::spawn_as_it_is(command, args)
    }

    /// Likewise, with the default management address.
    pub(crate) fn spawn_as_it_is(mut command: Command, args: &[&str]) -> Self {
        let (grpc, rest) = (free_port(), free_port());
        let mut child = command
            .arg("--start_when=all")
            .args(args)
            .arg(format!("--port={grpc}"))
            .arg(format!("--rest_api_port={rest}"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let management = Arc::new(OnceLock::new());
        let found = Arc::clone(&management);
        let log = lines(child.stderr.take().expect("it is piped"), move |line| {
            eprintln!("server: {line}");
            if let Some(port) = management_port(line) {
                let _ = found.set(port); // It says so once.
            }
        });
        let output = lines(child.stdout.take().expect("it is piped"), |_| {});
        let (output, log) = (Mutex::new(output), Mutex::new(log));
        Self { child, grpc, rest, management, output, log }
    }

    /// Waits for a line in the log that has `wanted` in it.
    #[track_caller]
    pub(crate) fn logs(&self, wanted: &str) -> String {
        loop {
            let line = self.log.lock().expect("one test").recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|_| panic!("the server never logged {wanted:?}"));
            if line.contains(wanted) {
                return line;
            }
        }
    }

    /// Sends a signal, such as `TERM`.
    pub(crate) fn signal(&self, name: &str) {
        let kill = Command::new("kill").arg(format!("-{name}")).arg(self.id().to_string()).status();
        assert!(kill.expect("kill runs").success());
    }

    /// Waits for a line on standard output that has `wanted` in it.
    pub(crate) fn says(&self, wanted: &str) -> String {
        loop {
            let output = self.output.lock().expect("nobody panicked with it");
            let line = output.recv_timeout(PATIENCE).expect("the server says more");
            drop(output);
            if line.contains(wanted) {
                return line;
            }
        }
    }

    /// The process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the process to end by itself.
    pub(crate) fn wait(&mut self) -> std::process::ExitStatus {
        self.child.wait().expect("it is our child")
    }

    /// Asks over REST; gives the status and the body.
    pub(crate) fn rest(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let (status, _, body) = ask(self.rest, &[method, path, "Host: localhost"], body);
        (status, body)
    }

    /// Asks at the management address; gives the status and the body.
    pub(crate) fn manage(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let headers = ["Host: localhost", "Content-Type: application/json"];
        let (status, _, body) =
            ask(self.management(), &[&[method, path], &headers[..]].concat(), body);
        (status, body)
    }

    /// The port of the management address.
    pub(crate) fn management(&self) -> u16 {
        *self.management.get().expect("the server has said where it is managed")
    }

    /// Asks over REST until the answer has `wanted` in it, or patience ends.
    pub(crate) fn rest_until(&self, path: &str, wanted: &str) -> String {
        let end = std::time::Instant::now() + PATIENCE;
        loop {
            let (_, body) = self.rest("GET", path, "");
            if body.contains(wanted) {
                return body;
            }
            assert!(std::time::Instant::now() < end, "never saw {wanted} in {body}");
            std::thread::yield_now();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Asks a port over HTTP: a method, a path and headers; gives the status, the head and the body.
pub(crate) fn ask(port: u16, head: &[&str], body: &str) -> (u16, String, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
    let [method, path, headers @ ..] = head else { panic!("a method and a path") };
    let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
    let head = format!("{method} {path} HTTP/1.1\r\n{headers}Connection: close\r\n");
    let request = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers in UTF-8");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    (status.expect("a status"), head.to_owned(), body.to_owned())
}

/// The port that a line of the log says is for management.
fn management_port(line: &str) -> Option<u16> {
    let (_, address) = line.split_once("Management at 127.0.0.1:")?;
    address.split_whitespace().next()?.trim_end_matches('"').parse().ok()
}

/// The lines of a stream, read to its end so that the server never waits for its reader.
fn lines(
    stream: impl Read + Send + 'static,
    see: impl Fn(&str) + Send + 'static,
) -> mpsc::Receiver<String> {
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            see(&line);
            // A test need not listen to the end.
            drop(send.send(line));
        }
    });
    receive
}

/// Copies a folder with all that is in it.
pub(crate) fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder can be made");
    for entry in std::fs::read_dir(from).expect("the folder is there") {
        let entry = entry.expect("it can be listed");
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("a file can be copied");
        }
    }
}

/// The demo model that needs least.
pub(crate) fn half_plus_two() -> PathBuf {
    root().join("models/half_plus_two/00000123")
}

/// Makes a folder with versions of the demo model.
pub(crate) fn model_with_versions(folder: &Path, versions: &[i64]) {
    for version in versions {
        copy(&half_plus_two(), &folder.join(version.to_string()));
    }
}

/// Asks a model for half of three numbers, plus two.
#[track_caller]
pub(crate) fn check_half_plus_two(server: &Server, model: &str) {
    let path = format!("/v1/models/{model}:predict");
    let (status, body) = server.rest("POST", &path, r#"{"instances": [1.0, 2.0, 5.0]}"#);
    assert_eq!(status, 200, "{body}");
    assert_eq!(body, "{\n    \"predictions\": [2.5, 3.0, 4.5\n    ]\n}");
}

/// A port that nobody listens on and that no other test takes. It is below those that the system
/// gives to whoever asks for any, and claimed until this process ends by the port of the same
/// number for datagrams, which no server here uses.
fn free_port() -> u16 {
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
