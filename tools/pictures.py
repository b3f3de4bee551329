#!/usr/bin/env python3
"""Draws the memory of simulated GPUs for the book, from `GET /v1/memory` of servers that it starts:

    tools/pictures.py [--program target/release/tensord] [--into docs/images]
"""

import argparse
import contextlib
import json
import os
import pathlib
import socket
import subprocess
import tempfile
import time
import urllib.request
from xml.sax.saxutils import escape

ROOT = pathlib.Path(__file__).resolve().parent.parent
WIDTH, LEFT, BAR, GAP = 760, 190, 30, 26
COLORS = {
    "weights": "#2a6fbb",
    "packed_weights": "#6fa3da",
    "activations": "#e08a1e",
    "requests": "#8e44ad",
    "context": "#7f8c8d",
    "fragmentation": "#c0392b",
    "reserve": "#bcd9c2",
    "not held": "#f4f4f4",
}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def ask(url, method="GET", body=None):
    headers = {"Content-Type": "application/json"} if body else {}
    data = body.encode() if body else None
    request = urllib.request.Request(url, data=data, method=method, headers=headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read() or b"{}")


@contextlib.contextmanager
def serving(program, gpus, models, flags=(), environment=()):
    """A server of these demo models; gives the addresses of REST and of management."""
    rest, management = free_port(), free_port()
    command = [program, "serve", "--port=0", f"--rest_api_port={rest}", "--start_when=all"]
    command += [f"--management_address=127.0.0.1:{management}", f"--simulated_gpus={gpus}"]
    command += [*flags, *(str(ROOT / "models" / model) for model in models)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = subprocess.Popen(command, env={**os.environ, **dict(environment)}, **quiet)
    try:
        url = f"http://127.0.0.1:{rest}"
        for _ in range(300):
            with contextlib.suppress(OSError):
                ask(f"{url}/v1/memory")
                break
            time.sleep(0.05)
        yield url, f"http://127.0.0.1:{management}"
    finally:
        server.terminate()
        server.wait()


def gpus_of(url):
    """The page's GPUs: name, limit, and bytes by category in the order of the legend."""
    rows = []
    for device in ask(f"{url}/v1/memory")["devices"]:
        if device["name"].startswith("gpu"):
            found = device["categories"]
            parts = [(name, found.get(name, 0)) for name in COLORS if found.get(name, 0)]
            rows.append((device["name"], device["limit_bytes"], parts, device["growth"]))
    return rows


def mib(n_bytes):
    return f"{n_bytes / 2**20:.1f} MiB" if n_bytes >= 2**20 else f"{n_bytes / 2**10:.0f} KiB"


def picture(title, rows):
    """A bar for each row: a label, a limit, and parts of it; all bars are drawn to one scale."""
    most = max(limit for _, limit, _, _ in rows)
    height = 44 + len(rows) * (BAR + GAP) + 40
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="12" y="22" font-size="14">{escape(title)}</text>',
    ]
    used = set()
    for number, (label, limit, parts, note) in enumerate(rows):
        y = 40 + number * (BAR + GAP)
        scale = (WIDTH - LEFT - 20) / most
        out.append(f'<text x="12" y="{y + 14}">{escape(label)}</text>')
        out.append(f'<text x="12" y="{y + 29}" fill="#555">{escape(note)}</text>')
        width = limit * scale
        out.append(
            f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR}" '
            f'fill="{COLORS["not held"]}" stroke="#888"/>'
        )
        x = float(LEFT)
        for name, n_bytes in parts:
            used.add(name)
            width = max(n_bytes * scale, 1.5)
            out.append(
                f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{BAR}" '
                f'fill="{COLORS[name]}"><title>{name}: {mib(n_bytes)}</title></rect>'
            )
            x += width
        held = sum(n_bytes for _, n_bytes in parts)
        text = f"{mib(held)} of {mib(limit)} held"
        out.append(f'<text x="{LEFT}" y="{y + BAR + 14}" fill="#555">{text}</text>')
    x, y = LEFT, height - 14
    for name in [name for name in COLORS if name in used] + ["not held"]:
        out.append(
            f'<rect x="{x}" y="{y - 10}" width="11" height="11" fill="{COLORS[name]}" '
            f'stroke="#888"/><text x="{x + 15}" y="{y}">{name.replace("_", " ")}</text>'
        )
        x += 28 + 7 * len(name)
    return "\n".join(out + ["</svg>"]) + "\n"


def growth(program):
    models = ["digits", "half_plus_two"]
    reserved = {"TF_FORCE_GPU_ALLOW_GROWTH": "false"}
    rows = []
    with serving(program, "8MiB", models, environment=reserved.items()) as (url, _):
        rows += [("reserved", *row[1:3], "ALLOW_GROWTH=false") for row in gpus_of(url)]
    roots = [f"--model_roots={ROOT}"]
    with serving(program, "8MiB", models, roots) as (url, management):
        rows += [("grows as needed", *row[1:3], "the default") for row in gpus_of(url)]
        ask(f"{management}/v1/models/digits", "DELETE")
        time.sleep(1)
        ask(f"{management}/v1/memory:trim", "POST")
        rows += [("digits unloaded", *row[1:3], "and trimmed") for row in gpus_of(url)]
    return picture("One simulated GPU of 8 MiB with two models", rows)


def held(program):
    body = json.dumps({"instances": [[[[0.5]] * 8] * 8] * 64})
    with serving(program, "8MiB", ["digits", "clicks", "sentiment"]) as (url, _):
        ask(f"{url}/v1/models/digits:predict", "POST", body)
        rows = [(name, limit, parts, "all models") for name, limit, parts, _ in gpus_of(url)]
        for device in ask(f"{url}/v1/memory")["devices"]:
            if device["name"] == "gpu:0":
                for model in device["models"]:
                    found = model["categories"]
                    parts = [(name, found[name]) for name in COLORS if found.get(name)]
                    rows.append((model["name"], device["limit_bytes"], parts, "its part"))
    return picture("Who holds the memory of a GPU of 8 MiB", rows)


def unequal(program):
    config = """
        device { name: "gpu:0" memory_limit: "16MiB" allow_growth: true }
        device { name: "gpu:1" allow_growth: false }
        device { name: "gpu:2" logical_device { memory_limit: "24MiB" }
                               logical_device { memory_limit: "0.25" allow_growth: true } }
    """
    with tempfile.NamedTemporaryFile("w", suffix=".config") as file:
        file.write(config)
        file.flush()
        flags = [f"--device_config_file={file.name}"]
        with serving(program, "24MiB,64MiB,48MiB", ["digits", "clicks"], flags) as (url, _):
            said = {"on_demand": "grows", "reserved": "reserved"}
            rows = [(*row[:3], said.get(row[3], row[3])) for row in gpus_of(url)]
    return picture("GPUs of 24, 64 and 48 MiB, each with its own rule", rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", default=ROOT / "target/release/tensord", type=pathlib.Path)
    parser.add_argument("--into", default=ROOT / "docs/images", type=pathlib.Path)
    args = parser.parse_args()
    for name, draw in [("growth", growth), ("held", held), ("unequal_gpus", unequal)]:
        (args.into / f"{name}.svg").write_text(draw(str(args.program.resolve())))
        print(args.into / f"{name}.svg")


if __name__ == "__main__":
    main()
