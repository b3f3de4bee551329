"""A server of a script's own: started on loopback, waited for, stopped."""

import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PATIENCE_SECONDS = 300
STOP_SECONDS = 60
LOOK_SECONDS = 0.02


def free_port():
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def cpu_seconds(pid):
    """The CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def model_config(models):
    """The text of a --model_config_file: model name to its folder and what else its entry says."""
    entries = "".join(f'config {{ name: "{name}" base_path: "{path}" {more} }}\n'
                      for name, (path, more) in models.items())
    return f"model_config_list {{\n{entries}}}\n"


class Process:
    """A process that listens on a port of loopback until it is stopped; what it prints is kept."""

    def __init__(self, command, port, environment=None, folder=None):
        self.port = port
        self.folder = folder or tempfile.TemporaryDirectory()
        self.log = Path(self.folder.name) / "log"
        with open(self.log, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(list(map(str, command)), stdout=log, stderr=log,
                                            env={**os.environ, **(environment or {})})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    @property
    def pid(self):
        """The process id."""
        return self.process.pid

    def listens(self):
        """Whether a connection can be made."""
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            return True
        except OSError:
            return False

    def wait(self, until=None, look_seconds=LOOK_SECONDS):
        """Waits until it listens, or until something else holds; ends the script if that takes too long."""
        until = until or self.listens
        end = time.monotonic() + PATIENCE_SECONDS
        while not until():
            if time.monotonic() > end or self.process.poll() is not None:
                text = self.log.read_text(encoding="utf-8", errors="replace")
                self.stop()
                sys.exit(f"{self.process.args[0]} does not answer:\n{text}")
            time.sleep(look_seconds)
        return self

    def stop(self):
        """Ends the process, with force if it does not end by itself."""
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.folder.cleanup()


class Server(Process):
    """A tensord with a gRPC, a REST and a management port of its own, and the text of a
    --model_config_file if it is given one."""

    def __init__(self, binary, *arguments, config=None, environment=None):
        self.binary = binary
        self.grpc, self.rest, self.management = free_port(), free_port(), free_port()
        ports = [f"--port={self.grpc}", f"--rest_api_port={self.rest}",
                 f"--management_address=127.0.0.1:{self.management}"]
        folder = tempfile.TemporaryDirectory()
        if config is not None:
            file = Path(folder.name) / "models.config"
            file.write_text(config, encoding="utf-8")
            ports.append(f"--model_config_file={file}")
        super().__init__([binary, *ports, *arguments], self.rest, environment, folder)

    def ask(self, method, path, body=None, port=None):
        """The status and the JSON of an answer; 0 while nobody listens."""
        link = http.client.HTTPConnection("127.0.0.1", port or self.rest, timeout=PATIENCE_SECONDS)
        try:
            link.request(method, path, body, {"Content-Type": "application/json"} if body else {})
            answer = link.getresponse()
            return answer.status, json.loads(answer.read() or b"{}")
        except (OSError, ValueError, http.client.HTTPException):
            return 0, {}
        finally:
            link.close()

    def manage(self, method, path, body=None):
        """Likewise, at the address for what changes the server."""
        return self.ask(method, path, body, self.management)

    def is_available(self, model):
        """Whether a version of the model is served."""
        _, page = self.ask("GET", f"/v1/models/{model}")
        return any(row["state"] == "AVAILABLE" for row in page.get("model_version_status", []))
