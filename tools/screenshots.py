"""Makes the pictures of the web page for the docs: starts a server, sends it requests, looks at it.

    tools/screenshots.py [--program target/release/tensord] [--into docs/images] [--many]

Needs Debian's packages `chromium` and `chromium-driver`. `--many` serves sixty models on four
simulated GPUs instead of the demo models.
"""

import argparse
import contextlib
import json
import pathlib
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import urllib.request

from browser import Browser

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODELS = ROOT / "models"
BYTES_MAX = 300_000

# How long requests are sent before the pictures are taken, so that charts have something to show.
SECONDS_OF_LOAD = 20

# Requests that are sent meanwhile: model, body, and how many at once.
LOAD = [
    ("half_plus_two", {"instances": [1.0, 2.0, 5.0]}, 2),
    ("digits", {"instances": [[[[0.5]] * 8] * 8] * 4}, 3),
    ("sentiment", {"instances": ["a good example"]}, 1),
]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def copies(folder):
    """Sixty models of the demo models' versions."""
    for n in range(60):
        of, version = [("half_plus_two", "00000123"), ("digits", "2"), ("sentiment", "1")][n % 3]
        shutil.copytree(MODELS / of / version, folder / f"{of}_{n:02}" / "1")
    return folder


@contextlib.contextmanager
def serving(program, models, gpus):
    rest, management = free_port(), free_port()
    command = [program, "--port=0", f"--rest_api_port={rest}", f"--simulated_gpus={gpus}"]
    command += [f"--management_address=127.0.0.1:{management}", f"--model_roots={ROOT}", *models]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until_ready(rest)
        yield rest, management
    finally:
        server.terminate()
        server.wait(60)


def wait_until_ready(port):
    for _ in range(600):
        with contextlib.suppress(OSError):
            urllib.request.urlopen(f"http://localhost:{port}/readyz").close()
            return
        time.sleep(0.1)
    raise RuntimeError("the server did not become ready")


@contextlib.contextmanager
def load(port, requests):
    """Sends requests until the block ends."""
    stop = threading.Event()

    def send(model, body):
        url = f"http://localhost:{port}/v1/models/{model}:predict"
        data = json.dumps(body).encode()
        while not stop.wait(0.01):
            urllib.request.urlopen(url, data).close()

    jobs = [(model, body) for model, body, n in requests for _ in range(n)]
    threads = [threading.Thread(target=send, args=job) for job in jobs]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def reload_a_model(management, path):
    """Takes a model away and brings it back, for the marks on the charts."""
    url = f"http://localhost:{management}/v1/models/clicks"
    headers = {"Content-Type": "application/json"}
    for method, body in [("DELETE", None), ("POST", json.dumps({"base_path": path}).encode())]:
        time.sleep(SECONDS_OF_LOAD / 4)
        urllib.request.urlopen(urllib.request.Request(url, body, headers, method=method)).close()


def take(browser, into, name, width, scheme, whole=False):
    browser.resize(width, 1000 if width > 500 else 740, is_phone=width < 500)
    browser.prefer(scheme)
    time.sleep(1.5)  # Until the page was drawn at this width.
    path = into / f"{name}.png"
    browser.screenshot(path, whole)
    size = path.stat().st_size
    print(f"{path}: {size} bytes")
    if size > BYTES_MAX:
        print(f"  more than {BYTES_MAX} bytes")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--program", default=str(ROOT / "target/release/tensord"))
    parser.add_argument("--into", type=pathlib.Path, default=ROOT / "docs/images")
    parser.add_argument("--many", action="store_true")
    parser.add_argument("--whole", action="store_true", help="whole pages at all widths")
    options = parser.parse_args()
    options.into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        models = [str(copies(pathlib.Path(folder)))] if options.many else [str(MODELS)]
        gpus = "1GiB,1GiB,512MiB,256MiB" if options.many else "64MiB,32MiB"
        rest, management = stack.enter_context(serving(options.program, models, gpus))
        browser = stack.enter_context(Browser())
        browser.open(f"http://localhost:{rest}/ui")
        names = [("half_plus_two_00", "half_plus_two"), ("digits_01", "digits")]
        renamed = {old: new for new, old in names} if options.many else {}
        requests = [(renamed.get(model, model), body, n) for model, body, n in LOAD]
        requests = [one for one in requests if not options.many or one[0] != "sentiment"]
        stack.enter_context(load(rest, requests))
        if not options.many:
            reload_a_model(management, str(MODELS / "clicks"))
        time.sleep(SECONDS_OF_LOAD / 2)
        name = "dashboard_many" if options.many else "dashboard"
        take(browser, options.into, name, 1440, "light", options.whole)
        take(browser, options.into, f"{name}_dark", 1440, "dark", options.whole)
        if options.whole:
            take(browser, options.into, f"{name}_tablet", 768, "light", True)
        take(browser, options.into, f"{name}_phone", 360, "dark", options.whole)


if __name__ == "__main__":
    main()
