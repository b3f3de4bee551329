"""Looks at the web page of a running server in headless Chromium, as a person would.

    tools/clients/dashboard.py page http://localhost:8501 http://localhost:8502 FOLDER
    tools/clients/dashboard.py key http://localhost:8501 KEY
    tools/clients/dashboard.py many http://localhost:8501 N_MODELS N_DEVICES

For `page`, FOLDER is a folder of models: `digits` is served, `spare` can be added, and a model with
a hostile name is served too. Exits with an error at the first thing that is not as expected.
"""

import argparse
import json
import shlex
import sys
import time
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from browser import PATIENCE_SECONDS, Browser

HOSTILE = "<img src=x onerror=alert(1)>"

# What the page draws of memory: the bytes of each category and of each piece, by device.
DRAWN = """
const devices = {};
for (const device of document.querySelectorAll('.device')) {
  const categories = {};
  for (const item of device.querySelectorAll('.device-bars .legend li')) {
    categories[item.dataset.category] = Number(item.dataset.bytes);
  }
  const sum = (selector) => [...device.querySelectorAll(selector)]
    .reduce((total, piece) => total + Number(piece.dataset.bytes), 0);
  const inner = device.querySelector('.pieces.used:not([hidden])');
  const joint = device.querySelector('.pieces.held .piece.of-used');
  const used = inner ? sum('.pieces.used .piece') - Number(joint.dataset.bytes) : 0;
  devices[device.dataset.device] = { categories, held: sum('.pieces.held .piece'), rest: used };
}
return devices;
"""

# The bytes and the state of each version that the page shows.
VERSIONS = """
const versions = {};
for (const version of document.querySelectorAll('#model-table tbody')) {
  versions[version.dataset.model] = {
    bytes: Number(version.querySelector('[data-label=Memory]').dataset.bytes),
    state: version.querySelector('.state').dataset.state,
  };
}
return versions;
"""


def get(url, key=None):
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as answer:
        return json.load(answer)


def manage(method, url, body=None):
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    urllib.request.urlopen(urllib.request.Request(url, data, headers, method=method)).close()


def ask(rest, model, n_rows):
    """Sends a request of so many empty pictures."""
    body = json.dumps({"instances": [[[[0.0]] * 8] * 8] * n_rows}).encode()
    urllib.request.urlopen(f"{rest}/v1/models/{model}:predict", body).close()


def expect(condition, message):
    if not condition:
        raise AssertionError(message)


def eventually(check, what):
    """Calls `check` until it gives nothing to complain about."""
    end = time.monotonic() + PATIENCE_SECONDS
    while (complaint := check()) is not None:
        expect(time.monotonic() < end, f"{what}: {complaint}")


def expected_devices(memory):
    devices = {}
    for device in memory["devices"]:
        categories = {name: n for name, n in device["categories"].items() if n > 0}
        categories["free"] = device["limit_bytes"] - device["reserved_bytes"]
        held = sum(device["categories"].values())
        devices[device["name"]] = {"categories": categories, "held": held, "rest": 0}
    return devices


def draws_what_memory_says(browser, rest):
    def check():
        drawn, said = browser.run(DRAWN), expected_devices(get(f"{rest}/v1/memory"))
        return None if drawn == said else f"drawn {drawn}, said {said}"

    eventually(check, "the page draws what /v1/memory says")


def draws_versions(browser, rest):
    def check():
        memory = get(f"{rest}/v1/memory")
        held = {}
        for device in memory["devices"]:
            for model in device["models"]:
                name = f"{model['name']}:{model['version']}"
                held[name] = held.get(name, 0) + model["bytes"]
        said = {}
        for model in get(f"{rest}/v1/models:list")["models"]:
            for version in model["versions"]:
                name = f"{model['name']}:{version['version']}"
                said[name] = {"bytes": held.get(name, 0), "state": version["state"]}
        drawn = browser.run(VERSIONS)
        return None if drawn == said else f"drawn {drawn}, said {said}"

    eventually(check, "the table shows the versions")


def follows_a_load_and_an_unload(browser, management, folder):
    manage("POST", f"{management}/v1/models/spare", {"base_path": f"{folder}/spare"})
    shown = "return document.querySelector('tbody[data-model=\"spare:1\"] .state')?.dataset.state"
    browser.wait(f"{shown} === 'AVAILABLE'", what="the loaded version is shown")
    browser.wait("return document.querySelector('.mark.load') !== null", what="a mark of the load")
    manage("DELETE", f"{management}/v1/models/spare")
    gone = "return ![undefined, 'END'].includes(" + shown.removeprefix("return ") + ") ? null : 1"
    browser.wait(gone, what="the version is gone")
    browser.wait("return document.querySelector('.mark.unload') !== null", what="its mark")


def marks_growth_and_release(browser, rest, management):
    """Memory that is trimmed goes back, and a large batch makes its GPU grow again."""
    manage("POST", f"{management}/v1/memory:trim")
    browser.wait("return document.querySelector('.mark.release') !== null", what="a release")
    ask(rest, "digits", 64)
    browser.wait("return document.querySelector('.mark.growth') !== null", what="a growth")


def figures_move(browser, rest):
    """The tiles and the line of a queue follow the requests."""
    shown = "return document.getElementById(arguments[0]).innerText"
    for part in ["tiles", "queue-body"]:
        before = browser.run(shown, part)
        end = time.monotonic() + PATIENCE_SECONDS
        while browser.run(shown, part) == before:
            expect(time.monotonic() < end, f"{part} stays at {before!r}")
            ask(rest, "digits", 3)


def keyboard_reaches_the_pieces(browser):
    browser.run("document.querySelector('.limit-bar').focus()")
    browser.press("Tab")
    focused = "return document.activeElement.className"
    expect("piece" in browser.run(focused), "Tab goes to the pieces")
    seen = []
    for _ in range(3):
        words = browser.run("return document.getElementById('tip').innerText")
        expect(not browser.run("return document.getElementById('tip').hidden"), "the tip is open")
        label = browser.run("return document.activeElement.getAttribute('aria-label')")
        expect("bytes)" in words and words.split("\n")[0] in label, f"{words!r} beside {label!r}")
        seen.append(words)
        browser.press("Right")
    expect(len(set(seen)) > 1, f"arrows go from piece to piece: {seen}")
    browser.press("Escape")
    expect(browser.run("return document.getElementById('tip').hidden"), "Escape closes the tip")
    browser.run("document.activeElement.blur()")
    browser.point_at(".piece")
    browser.wait("return !document.getElementById('tip').hidden", what="pointing opens the tip")


def form_answers(browser, target):
    browser.wait("return document.querySelector('#try-model').options.length > 0", what="models")
    choose = """
    const select = document.querySelector('#try-model');
    select.value = arguments[0];
    select.dispatchEvent(new Event('change'));
    """
    browser.run(choose, target)
    sample = "return document.querySelector('#try-body').value.includes('instances')"
    browser.wait(sample, what="a sample body")
    browser.click("#try-send")
    answered = "return /^200 /.test(document.querySelector('#try-status').textContent)"
    browser.wait(answered, what="an answer and its time")
    answer = browser.run("return document.querySelector('#try-answer').textContent")
    expect("predictions" in json.loads(answer), answer)
    browser.clear("#try-body")
    browser.type("#try-body", '{"instances": "wrong"')
    browser.click("#try-send")
    refused = "return /^400 /.test(document.querySelector('#try-status').textContent)"
    browser.wait(refused, what="a mistake is answered")
    answer = browser.run("return document.querySelector('#try-answer').textContent")
    expect("error" in json.loads(answer), answer)
    failed = "return document.querySelector('#error-body').textContent.includes('INVALID_ARGUMENT')"
    browser.wait(failed, what="the mistake is counted by its code")


def hostile_name_is_text(browser):
    name = f"{HOSTILE}:1"
    shown = "return document.querySelector(`tbody[data-model=${CSS.escape(arguments[0])}]`)"
    text = browser.wait(f"{shown}?.querySelector('.disclose').textContent", name)
    expect(text == HOSTILE, text)
    browser.run(f"{shown}.querySelector('.disclose').click()".removeprefix("return "), name)
    browser.wait(f"{shown}.querySelector('.detail-box .why-text').textContent.length > 0", name)
    images = browser.run("return [...document.images].map((image) => image.getAttribute('src'))")
    expect(images == ["ui/icon.svg"], f"the name became an image: {images}")


def shown_line_changes_the_limit(browser, rest):
    """The line that the page shows for a device's limit does what it says."""
    shown = "return document.querySelector('[data-device=\"gpu:1\"] [data-kind=limit] code').textContent"
    line = browser.run(shown)
    limit = {one["name"]: one["limit_bytes"] for one in get(f"{rest}/v1/memory")["devices"]}
    command = shlex.split(line)
    body = json.loads(command[command.index("-d") + 1])
    manage(command[command.index("-X") + 1], command[-1], body)
    changed = {one["name"]: one["limit_bytes"] for one in get(f"{rest}/v1/memory")["devices"]}
    expect(changed["gpu:1"] < limit["gpu:1"], f"{line} changed {limit} to {changed}")
    draws_what_memory_says(browser, rest)


def says_that_the_server_is_gone(browser):
    conditions = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    browser.cdp("Network.enable")
    browser.cdp("Network.emulateNetworkConditions", offline=True, **conditions)
    browser.wait("return !document.getElementById('gone').hidden", what="the server is gone")
    browser.cdp("Network.emulateNetworkConditions", offline=False, **conditions)
    browser.click("#retry")
    browser.wait("return document.getElementById('gone').hidden", what="the server is back")


def is_quiet(browser, rest, allowed=()):
    """Nothing in the console, nothing asked of another site, no policy violated."""
    said = [entry["message"] for entry in browser.console()]
    said = [message for message in said if not any(word in message for word in allowed)]
    expect(said == [], f"the console said {said}")
    elsewhere = [url for url in browser.requests() if not url.startswith((rest, "data:"))]
    expect(elsewhere == [], f"asked of other sites: {elsewhere[:5]}")


def is_narrow(browser):
    """On a phone nothing is wider than the screen."""
    browser.resize(360, 740, is_phone=True)
    wide = """
    const width = document.documentElement.clientWidth;
    if (document.documentElement.scrollWidth <= width) return [];
    return [...document.querySelectorAll('main *')]
      .filter((node) => node.getBoundingClientRect().right > width + 1)
      .map((node) => `${node.tagName}.${node.className}`).slice(0, 5);
    """
    browser.wait("return innerWidth === 360", what="the phone's width")
    eventually(lambda: browser.run(wide) or None, "the page fits a phone")


def page(rest, management, folder):
    with Browser() as browser:
        browser.prefer("light", "reduce")  # A page that scrolls slowly cannot be clicked meanwhile.
        browser.open(f"{rest}/")
        browser.wait("return document.querySelectorAll('.piece').length > 0", what="pieces")
        draws_what_memory_says(browser, rest)
        draws_versions(browser, rest)
        follows_a_load_and_an_unload(browser, management, folder)
        marks_growth_and_release(browser, rest, management)
        figures_move(browser, rest)
        draws_what_memory_says(browser, rest)
        keyboard_reaches_the_pieces(browser)
        hostile_name_is_text(browser)
        is_quiet(browser, rest)
        form_answers(browser, "digits:2")
        # Chromium notes every refused call in the console.
        is_quiet(browser, rest, allowed=["400 (Bad Request)"])
        shown_line_changes_the_limit(browser, rest)
        says_that_the_server_is_gone(browser)
        is_quiet(browser, rest, allowed=["ERR_INTERNET_DISCONNECTED"])
        browser.prefer("dark", "reduce")
        is_narrow(browser)
        draws_what_memory_says(browser, rest)
        is_quiet(browser, rest)


def key(rest, right_key):
    refused = ["401 (Unauthorized)"]
    with Browser() as browser:
        browser.open(f"{rest}/ui")
        shown = "return !document.getElementById('key').hidden && document.getElementById('page').hidden"
        browser.wait(shown, what="the page asks for a key")
        focused = browser.run("return document.activeElement.id")
        expect(focused == "key-input", f"the focus is on {focused}")
        browser.type("#key-input", "wrong")
        browser.press("Enter")
        told = "return document.getElementById('key-message').textContent.includes('not known')"
        browser.wait(told, what="a wrong key is told so")
        browser.type("#key-input", right_key)
        browser.press("Enter")
        browser.wait("return document.querySelectorAll('.piece').length > 0", what="pieces")
        said = expected_devices(get(f"{rest}/v1/memory", right_key))
        expect(browser.run(DRAWN).keys() == said.keys(), "the devices are drawn")
        kept = browser.run("return Object.values(sessionStorage).join() + Object.values(localStorage).join()")
        expect(kept == right_key, "the key is kept in the tab's storage alone")
        expect(browser.run("return document.body.innerText.includes(arguments[0])", right_key) is False,
               "the key is not shown")
        is_quiet(browser, rest, allowed=refused)


def many(rest, n_models, n_devices):
    """With many models, all of them are drawn, and drawing takes a fraction of a second."""
    with Browser() as browser:
        browser.open(f"{rest}/")
        rows = "return document.querySelectorAll('#model-table tbody').length"
        browser.wait(f"{rows} >= arguments[0]", int(n_models), what="a line for each model")
        devices = browser.run("return document.querySelectorAll('.device').length")
        expect(devices == int(n_devices), f"{devices} devices")
        draws_what_memory_says(browser, rest)
        for number in range(int(n_models) // 2):
            ask(rest, f"digits_{number:02}", 2)
        queues = "return document.querySelectorAll('#queue-body tr').length"
        browser.wait(f"{queues} >= arguments[0]", int(n_models) // 2, what="a line for each queue")
        with urllib.request.urlopen(f"{rest}/metrics") as answer:
            n_lines = answer.read().count(b"\n")
        expect(n_lines < 20_000, f"{n_lines} lines of metrics")
        # The whole page is drawn anew, as at each look.
        drawing = """
        const times = [];
        for (let n = 0; n < 20; n += 1) {
          const start = performance.now();
          window.dispatchEvent(new Event('resize'));
          document.body.getBoundingClientRect();
          times.push(performance.now() - start);
        }
        return times.sort((a, b) => a - b)[10];
        """
        took = browser.run(drawing)
        print(f"{n_models} models on {n_devices} devices are drawn in {took:.1f} ms")
        is_quiet(browser, rest)
        is_narrow(browser)


def main():
    scenarios = {"page": page, "key": key, "many": many}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenario", choices=scenarios)
    parser.add_argument("arguments", nargs="*", help="addresses, names and numbers of the scenario")
    given = parser.parse_args()
    scenarios[given.scenario](*given.arguments)
    print(f"{given.scenario}: all as expected")


if __name__ == "__main__":
    main()
