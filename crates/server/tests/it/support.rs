//! A running server, and the few words of HTTP that tests need.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, mpsc};
use std::time::Duration;

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
    output: Mutex<mpsc::Receiver<String>>,
}

impl Server {
    /// Starts a server with these arguments besides its ports, and waits until it listens.
    pub(crate) fn start(mut command: Command, args: &[&str]) -> Self {
        let (grpc, rest) = (free_port(), free_port());
        let mut child = command
            .arg(format!("--port={grpc}"))
            .arg(format!("--rest_api_port={rest}"))
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let log = child.stderr.take().expect("it is piped");
        let (listening, is_listening) = mpsc::channel();
        std::thread::spawn(move || {
            // Reads on to the end, so that the server never waits for its log.
            for line in BufReader::new(log).lines().map_while(Result::ok) {
                if line.contains("Running gRPC ModelServer at") {
                    let _ = listening.send("gRPC");
                }
                if line.contains("Exporting HTTP/REST API at") {
                    let _ = listening.send("REST");
                }
                eprintln!("server: {line}");
            }
        });
        let output = child.stdout.take().expect("it is piped");
        let (said, output_lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _ = said.send(line);
            }
        });
        for _ in 0..2 {
            is_listening.recv_timeout(PATIENCE).expect("the server says that it listens");
        }
        Self { child, grpc, rest, output: Mutex::new(output_lines) }
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
        let mut stream = TcpStream::connect(("127.0.0.1", self.rest)).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
        let length = body.len();
        let head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
        let request = format!("{head}Content-Length: {length}\r\n\r\n{body}");
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers in UTF-8");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        (status.expect("a status"), body.to_owned())
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

/// A port that was free a moment ago.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    listener.local_addr().expect("it is bound").port()
}

/// The Python of the environment that `cargo xtask venv` makes.
pub(crate) fn python() -> Command {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let cache = cache.or_else(home).expect("a cache folder");
    let python = cache.join("tensord/venv/bin/python");
    assert!(python.is_file(), "{} is not there: run `cargo xtask venv`", python.display());
    let mut command = Command::new(python);
    command.env("TF_CPP_MIN_LOG_LEVEL", "2").env("CUDA_VISIBLE_DEVICES", "");
    command
}
