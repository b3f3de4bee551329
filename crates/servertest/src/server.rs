//! A server process.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock, mpsc};

use proto::serving::model_service_client::ModelServiceClient;
use proto::serving::prediction_service_client::PredictionServiceClient;
use tonic::transport::Channel;

use crate::http::ask;
use crate::ports::free_port;
use crate::{PATIENCE, until_some};

/// A server that runs until it is dropped.
pub struct Server {
    child: Child,
    /// The port of gRPC.
    pub grpc: u16,
    /// The port of REST.
    pub rest: u16,
    /// The port of the calls that change the server, once it listens.
    management: Arc<OnceLock<u16>>,
    output: Mutex<mpsc::Receiver<String>>,
    log: Mutex<mpsc::Receiver<String>>,
}

impl Server {
    /// Starts a server with these arguments besides its ports, and waits until it listens.
    ///
    /// # Panics
    /// If it does not start or never listens.
    pub fn start(command: Command, args: &[&str]) -> Self {
        let server = Self::spawn(command, args);
        for door in ["Running gRPC ModelServer at", "Exporting HTTP/REST API at"] {
            server.logs(door);
        }
        server
    }

    /// Starts a server with these arguments besides its ports, and does not wait.
    ///
    /// # Panics
    /// If it does not start.
    pub fn spawn(mut command: Command, args: &[&str]) -> Self {
        command.arg("--management_address=127.0.0.1:0");
        Self::spawn_as_it_is(command, args)
    }

    /// Likewise, with the default management address.
    ///
    /// # Panics
    /// If it does not start.
    pub fn spawn_as_it_is(mut command: Command, args: &[&str]) -> Self {
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
    ///
    /// # Panics
    /// If it never does.
    #[track_caller]
    pub fn logs(&self, wanted: &str) -> String {
        loop {
            let line = self.log.lock().expect("one test").recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|_| panic!("the server never logged {wanted:?}"));
            if line.contains(wanted) {
                return line;
            }
        }
    }

    /// Sends a signal, such as `TERM`.
    ///
    /// # Panics
    /// If the process is gone.
    pub fn signal(&self, name: &str) {
        let kill = Command::new("kill").arg(format!("-{name}")).arg(self.id().to_string()).status();
        assert!(kill.expect("kill runs").success());
    }

    /// Waits for a line on standard output that has `wanted` in it.
    ///
    /// # Panics
    /// If it never does.
    pub fn says(&self, wanted: &str) -> String {
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
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the process to end by itself.
    ///
    /// # Panics
    /// If somebody else waited for it.
    pub fn wait(&mut self) -> std::process::ExitStatus {
        self.child.wait().expect("it is our child")
    }

    /// Asks over REST; gives the status and the body.
    ///
    /// # Panics
    /// If the server does not answer.
    pub fn rest(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let (status, _, body) = ask(self.rest, &[method, path, "Host: localhost"], body);
        (status, body)
    }

    /// Asks at the management address; gives the status and the body.
    ///
    /// # Panics
    /// If the server does not answer.
    pub fn manage(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let headers = ["Host: localhost", "Content-Type: application/json"];
        let (status, _, body) =
            ask(self.management(), &[&[method, path], &headers[..]].concat(), body);
        (status, body)
    }

    /// The port of the management address.
    ///
    /// # Panics
    /// If the server has not said it yet.
    pub fn management(&self) -> u16 {
        *self.management.get().expect("the server has said where it is managed")
    }

    /// Asks over REST until the answer has `wanted` in it. A state or the code of an error on the
    /// page of a model is waited for by the server; other pages are looked at again, with a pause.
    ///
    /// # Panics
    /// If it is not there before `PATIENCE` ends.
    #[track_caller]
    pub fn rest_until(&self, path: &str, wanted: &str) -> String {
        let word = wanted.trim_matches('"');
        let is_word = word.bytes().all(|c| c.is_ascii_uppercase() || c == b'_');
        let path = match path.starts_with("/v1/models/") && is_word {
            true => format!("{path}?wait={word}"),
            false => path.to_owned(),
        };
        until_some(&format!("{path} shows {wanted}"), || {
            let (_, body) = self.rest("GET", &path, "");
            body.contains(wanted).then_some(body)
        })
    }

    /// A client of the prediction service.
    ///
    /// # Panics
    /// If the server does not listen.
    pub async fn prediction_client(&self) -> PredictionServiceClient<Channel> {
        let client = PredictionServiceClient::connect(self.grpc_address()).await;
        client.expect("it listens").max_decoding_message_size(usize::MAX)
    }

    /// A client of the model service.
    ///
    /// # Panics
    /// If the server does not listen.
    pub async fn model_client(&self) -> ModelServiceClient<Channel> {
        ModelServiceClient::connect(self.grpc_address()).await.expect("it listens")
    }

    fn grpc_address(&self) -> String {
        format!("http://127.0.0.1:{}", self.grpc)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.child.kill());
        drop(self.child.wait());
    }
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
