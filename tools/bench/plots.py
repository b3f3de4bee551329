#!/usr/bin/env python3
"""Draws the pictures of docs/batching.md and docs/benchmarks/batching.md.

What the scheduler does in virtual time, from what `cargo run -p schedule --example promises` prints:

    cargo run -p schedule --example promises | python3 tools/bench/plots.py docs/images

What a server does, from what `tools/bench/batching.py` prints:

    tools/bench/batching.py > runs.json && python3 tools/bench/plots.py docs/images runs.json
"""

import argparse
import json
import pathlib
import sys

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 720, 260, 60, 40, 30
COLORS = ["#2a6fbb", "#c0392b", "#7f8c8d"]


def frame(title, x_label, y_label, x_max, y_max, marks):
    """A picture with axes; `marks` gets functions from values to places."""
    plot_width, plot_height = WIDTH - LEFT - 20, HEIGHT - BOTTOM - TOP

    def x(value):
        return LEFT + value / x_max * plot_width

    def y(value):
        return TOP + plot_height - value / y_max * plot_height

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="18" font-size="14">{title}</text>',
    ]
    for step in range(5):
        value = y_max * step / 4
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - 20}" y1="{y(value):.1f}" y2="{y(value):.1f}" '
            'stroke="#ddd"/>'
            f'<text x="{LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g}</text>'
        )
        value = x_max * step / 4
        parts.append(
            f'<text x="{x(value):.1f}" y="{HEIGHT - 22}" text-anchor="middle">{value:g}</text>'
        )
    parts.append(
        f'<text x="{WIDTH - 20}" y="{HEIGHT - 6}" text-anchor="end">{x_label}</text>'
        f'<text x="{WIDTH - 20}" y="18" text-anchor="end">{y_label}</text>'
    )
    parts.extend(marks(x, y))
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def line(points, color, x, y):
    places = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in points)
    return f'<polyline points="{places}" fill="none" stroke="{color}" stroke-width="1.5"/>'


def legend(names):
    return "".join(
        f'<text x="{LEFT + 10 + 170 * i}" y="{TOP + 14}" fill="{color}">{name}</text>'
        for i, (name, color) in enumerate(zip(names, COLORS))
    )


def batch_sizes(report):
    def marks(x, y):
        for at, rows in report["sizes"]:
            yield f'<circle cx="{x(at / 1000):.1f}" cy="{y(rows):.1f}" r="1.6" fill="{COLORS[0]}"/>'
        for at, text in [(0, "2 clients"), (1, "16"), (2, "64"), (3, "16"), (4, "2")]:
            yield f'<text x="{x(at) + 4:.1f}" y="{TOP + 12}" fill="{COLORS[2]}">{text}</text>'

    return frame("Rows of each batch as clients come and go", "seconds", "rows", 5, 36, marks)


def overload(report):
    lines = report["overload"]["line"]
    top = max(max(good, refused) for _, good, refused in lines)

    def marks(x, y):
        yield line([(at / 1000, good) for at, good, _ in lines], COLORS[0], x, y)
        yield line([(at / 1000, refused) for at, _, refused in lines], COLORS[1], x, y)
        yield legend(["answered in time", "refused at once"])

    title = "Ten times the capacity from second 1 to second 3"
    return frame(title, "seconds", "a second", 5, top * 1.15, marks)


def neighbour(report):
    shares = [10, 25, 50, 75, 90, 95, 99, 100]
    case = report["neighbour"][0]

    def marks(x, y):
        yield line(list(zip(shares, case["alone"])), COLORS[0], x, y)
        yield line(list(zip(shares, case["beside"])), COLORS[1], x, y)
        yield legend(["alone", "beside a saturated model"])

    title = "Latency of a light model, one lane"
    return frame(title, "per cent of requests", "ms", 100, max(case["beside"]) * 1.3, marks)


def bars(title, y_label, groups, names):
    """Groups of bars: for each a label, and a value for each of the names."""
    top = max(value for _, values in groups for value in values) * 1.25
    wide = 0.8 / len(names)

    def marks(x, y):
        for place, (label, values) in enumerate(groups):
            for number, value in enumerate(values):
                left = x(place + 0.1 + number * wide)
                width = x(place + 0.1 + (number + 1) * wide) - left - 2
                yield (f'<rect x="{left:.1f}" y="{y(value):.1f}" width="{width:.1f}" '
                       f'height="{y(0) - y(value):.1f}" fill="{COLORS[number]}"/>')
                yield (f'<text x="{left + width / 2:.1f}" y="{y(value) - 4:.1f}" '
                       f'text-anchor="middle" font-size="11">{value:.4g}</text>')
            yield (f'<rect x="{x(place):.1f}" y="{HEIGHT - BOTTOM + 1}" width="{x(1) - x(0):.1f}" '
                   'height="22" fill="white"/>')
            yield f'<text x="{x(place + 0.5):.1f}" y="{HEIGHT - 22}" text-anchor="middle">{label}</text>'
        yield legend(names)

    return frame(title, "", y_label, len(groups), top, marks)


def server_gain(runs):
    if "gain" not in runs:
        return None
    groups = [(model, [run["single"], run["batched"]]) for model, run in runs["gain"].items()]
    return bars("Answers a second at 32 clients", "answers/s", groups, ["one by one", "batched"])


def server_devices(runs):
    if "devices" not in runs:
        return None
    found = runs["devices"]
    label = {"one": "one GPU", "two": "two", "unequal": "2 : 1"}
    groups = [(label[key], [found[key]["answers_per_second"]]) for key in label]
    return bars("Answers a second on played GPUs, 64 clients", "answers/s", groups, ["answers"])


def server_neighbour(runs):
    if "neighbour" not in runs:
        return None
    groups = []
    for case in runs["neighbour"]:
        for percent in ("p50_us", "p99_us"):
            values = [case[key][percent] / 1000 for key in ("alone", "beside")]
            groups.append((f'{percent[:3]}, {case["where"]}', values))
    return bars("A light model on a played GPU, and on the CPU", "ms", groups, ["alone", "beside a saturated model"])


def server_overload(runs):
    if "overload" not in runs:
        return None
    lines = runs["overload"]["recovery"][0]["line"]
    start = min(at for at, _, _ in lines)
    end = max(at for at, _, _ in lines) - start
    top = max(answered + failed for _, answered, failed in lines)

    def marks(x, y):
        for at, text in [(-start, "flood begins"), (1 - start, "and ends")]:
            yield (f'<line x1="{x(at):.1f}" x2="{x(at):.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" '
                   f'stroke="{COLORS[2]}" stroke-dasharray="4 3"/>'
                   f'<text x="{x(at) + 4:.1f}" y="{TOP + 30}" fill="{COLORS[2]}">{text}</text>')
        yield line([(at - start, answered) for at, answered, _ in lines], COLORS[0], x, y)
        yield line([(at - start, failed) for at, _, failed in lines], COLORS[1], x, y)
        yield legend(["answered in time", "refused"])

    title = "Clients at half the capacity, beside ten times the capacity for a second"
    return frame(title, "seconds", "requests in 20 ms", end, top * 1.4, marks)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path, help="of the pictures")
    parser.add_argument("runs", type=pathlib.Path, nargs="?", help="of a server; else standard input")
    args = parser.parse_args()
    folder = args.folder
    folder.mkdir(parents=True, exist_ok=True)
    if args.runs:
        report = json.loads(args.runs.read_text())
        draws = [server_gain, server_devices, server_overload, server_neighbour]
    else:
        report = json.load(sys.stdin)
        draws = [batch_sizes, overload, neighbour]
    for draw in draws:
        picture = draw(report)
        if picture:
            (folder / f"{draw.__name__}.svg").write_text(picture)


if __name__ == "__main__":
    main()
