"""Headless Chromium, driven over WebDriver with nothing but the standard library.

ChromeDriver speaks plain HTTP and JSON. Debian's packages `chromium` and `chromium-driver` have both
programs.
"""

import base64
import json
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

CHROMIUM_FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
]

PATIENCE_SECONDS = 60

KEYS = {"Tab": "\ue004", "Enter": "\ue007", "Escape": "\ue00c", "Left": "\ue012", "Right": "\ue014"}

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


class Browser:
    """A browser with one tab, until it is closed."""

    def __init__(self, width=1440, height=900):
        self.profile = tempfile.mkdtemp(prefix="tensord-chromium-")
        command = [require("chromedriver"), "--port=0"]
        self.driver = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.port = self._port()
        flags = [*CHROMIUM_FLAGS, f"--user-data-dir={self.profile}"]
        flags += [f"--window-size={width},{height}", "about:blank"]
        options = {"binary": require("chromium"), "args": flags}
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        body = {"capabilities": {"alwaysMatch": wanted}}
        self.session = self._call("POST", "/session", body)["sessionId"]
        # The browser's own first page is not what anybody asks about.
        self.open("about:blank")
        self.requests()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        try:
            self._ask("DELETE", "")
        except (OSError, RuntimeError):
            pass  # It may have ended by itself.
        self.driver.terminate()
        self.driver.wait(PATIENCE_SECONDS)
        shutil.rmtree(self.profile, ignore_errors=True)

    def open(self, url):
        self._ask("POST", "/url", {"url": url})

    def run(self, script, *args):
        """Runs a script in the page and gives what it returns."""
        return self._ask("POST", "/execute/sync", {"script": script, "args": list(args)})

    def wait(self, script, *args, what=""):
        """Runs a script until it returns something true, and gives that."""
        end = time.monotonic() + PATIENCE_SECONDS
        while True:
            found = self.run(script, *args)
            if found:
                return found
            if time.monotonic() > end:
                raise AssertionError(f"never came true: {what or script}")

    def find(self, selector):
        found = self._ask("POST", "/element", {"using": "css selector", "value": selector})
        return found[ELEMENT]

    def click(self, selector):
        self._ask("POST", f"/element/{self.find(selector)}/click", {})

    def type(self, selector, text):
        self._ask("POST", f"/element/{self.find(selector)}/value", {"text": text})

    def clear(self, selector):
        self._ask("POST", f"/element/{self.find(selector)}/clear", {})

    def press(self, key):
        """Presses a key where the focus is."""
        strokes = [{"type": "keyDown", "value": KEYS[key]}, {"type": "keyUp", "value": KEYS[key]}]
        actions = [{"type": "key", "id": "keyboard", "actions": strokes}]
        self._ask("POST", "/actions", {"actions": actions})

    def point_at(self, selector):
        """Moves the pointer over an element."""
        origin = {ELEMENT: self.find(selector)}
        move = {"type": "pointerMove", "duration": 0, "x": 0, "y": 0, "origin": origin}
        actions = [{"type": "pointer", "id": "mouse", "actions": [move]}]
        self._ask("POST", "/actions", {"actions": actions})

    def cdp(self, command, **params):
        """A command of the DevTools protocol."""
        body = {"cmd": command, "params": params}
        return self._ask("POST", "/goog/cdp/execute", body)

    def resize(self, width, height, is_phone=False):
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": is_phone}
        self.cdp("Emulation.setDeviceMetricsOverride", **metrics)

    def prefer(self, scheme, motion="no-preference"):
        features = [
            {"name": "prefers-color-scheme", "value": scheme},
            {"name": "prefers-reduced-motion", "value": motion},
        ]
        self.cdp("Emulation.setEmulatedMedia", features=features)

    def console(self):
        """What the console said since it was asked last."""
        return self._ask("POST", "/se/log", {"type": "browser"})

    def requests(self):
        """The addresses that were asked for since this was called last."""
        entries = self._ask("POST", "/se/log", {"type": "performance"})
        messages = [json.loads(entry["message"])["message"] for entry in entries]
        sent = [one for one in messages if one["method"] == "Network.requestWillBeSent"]
        return [one["params"]["request"]["url"] for one in sent]

    def screenshot(self, path, whole=False):
        """Writes a PNG of what is seen, or of the whole page."""
        options = {"format": "png", "optimizeForSpeed": False}
        if whole:
            options["captureBeyondViewport"] = True
            size = self.cdp("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
            options["clip"] = clip
        data = self.cdp("Page.captureScreenshot", **options)["data"]
        pathlib.Path(path).write_bytes(base64.b64decode(data))

    def _port(self):
        for line in self.driver.stdout:
            found = re.search(r"started successfully on port (\d+)", line)
            if found:
                return int(found[1])
        raise RuntimeError("ChromeDriver did not start")

    def _ask(self, method, path, body=None):
        return self._call(method, f"/session/{self.session}{path}", body)

    def _call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        url = f"http://127.0.0.1:{self.port}{path}"
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(url, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=2 * PATIENCE_SECONDS) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            value = json.load(error)["value"]
            raise RuntimeError(f"{path}: {value['error']}: {value['message']}") from None


def require(program):
    found = shutil.which(program)
    if found is None:
        raise RuntimeError(f"{program} is missing: apt-get install chromium chromium-driver")
    return found
