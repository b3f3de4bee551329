"""What differs in a folder of random op calls, by op and kind; `opsuite/fuzz.py FOLDER --summary` asks.

The suite runs the folder; each call that differs is one of these kinds:

    value      both answer, and not alike
    refused    TensorFlow answers, this engine refuses
    answered   TensorFlow refuses, this engine answers
    code       both refuse, with different codes
    broken     a panic, an end for lack of memory, or a shape that was inferred and is not made

`testdata/op_fuzz_accepted.txt` lists what stays as it is: `OP KIND PATTERN : reason`. OP may be `*`;
PATTERN is a regular expression, sought in what the test says, in TensorFlow's words and in the lines
of the call, or nothing for any.
"""

import json
import os
import re
import resource
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import tfenv

ACCEPTED = tfenv.ROOT / "testdata" / "op_fuzz_accepted.txt"
KINDS = ["value", "refused", "answered", "code", "broken"]
TEST = "suite::every_case_gives_what_tensorflow_gives"
MEMORY_BYTES = 8 << 30
SECONDS_MAX = 60
FAILURE = re.compile(r"^(\w+): (.+? of seed \d+) \((\w+)\): (.*)$")
RULE = re.compile(rf"^(\S+) ({'|'.join(KINDS)})(?: (.+?))? : (.+)$")


def kind_of(why):
    """The kind of a difference, by what the test says of it."""
    if "panicked" in why or "died" in why or why.startswith(("failed: Internal(\"inferred", "failed: Internal(\"of ")):
        return "broken"
    if why.startswith("failed: "):
        return "refused"
    if why.endswith("but it ran"):
        return "answered"
    return "code" if re.match(r"expected [A-Z_]+ ", why) else "value"


def build():
    """Builds the suite and returns its program."""
    command = ["cargo", "test", "-q", "-p", "ops", "--test", "it", "--no-run",
               "--message-format=json"]
    built = subprocess.run(command, cwd=tfenv.ROOT, text=True, stdout=subprocess.PIPE, check=True)
    messages = map(json.loads, built.stdout.splitlines())
    return next(m["executable"] for m in messages
                if m.get("executable") and m["target"]["name"] == "it")


def limit_memory():
    """Lets a call that takes too much memory end the suite, not the machine."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


def run_calls(program, op, blocks):
    """What the suite prints for some calls of an op; they run one by one if it dies of them."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, f"{op}.txt").write_text("".join(f"case {block}" for block in blocks))
        env = {**os.environ, "OPS_FOLDER": folder}
        try:
            ended = subprocess.run([program, "--exact", TEST], env=env, text=True,
                                   errors="replace", stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, preexec_fn=limit_memory,
                                   cwd=tfenv.ROOT, timeout=SECONDS_MAX)
            text, is_dead = ended.stdout + ended.stderr, ended.returncode not in (0, 101)
        except subprocess.TimeoutExpired:
            text, is_dead = "", True
    if not is_dead:
        return text
    if len(blocks) > 1:
        return "".join(run_calls(program, op, [block]) for block in blocks)
    return f"{op}: {blocks[0].partition(chr(10))[0].strip()} (Planned): died or took too long\n"


def run_suite(folder, program):
    """What the suite prints for a folder, each op in a process of its own."""
    program = program or build()
    return "".join(run_calls(program, path.stem, blocks_of(path))
                   for path in sorted(folder.glob("*.txt")) if blocks_of(path))


def blocks_of(path):
    """The calls of a file: title and lines."""
    return re.split(r"^case ", path.read_text(), flags=re.M)[1:]


def failures(text):
    """(op, title) → what the test says first, of the lines that it prints."""
    found = {}
    for line in text.splitlines():
        match = FAILURE.match(line)
        if match:
            op, title, memory, why = match.groups()
            found.setdefault((op, title), f"({memory}) {why}")
    return found


def calls(folder):
    """(op, title) → the lines of a call."""
    found = {}
    for path in sorted(folder.glob("*.txt")):
        for block in blocks_of(path):
            title, _, lines = block.partition("\n")
            found[path.stem, title.strip()] = lines
    return found


def rules():
    """The accepted differences: op, kind, pattern and reason."""
    found = []
    for number, line in enumerate(ACCEPTED.read_text().splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            match = RULE.match(line)
            if not match:
                sys.exit(f"{ACCEPTED}:{number}: not OP KIND PATTERN : reason")
            op, kind, pattern, reason = match.groups()
            found.append((op, kind, re.compile(pattern or "", re.S), reason))
    return found


def reason_for(op, kind, text, accepted):
    """Why a difference stays, or None."""
    for rule_op, rule_kind, pattern, reason in accepted:
        if rule_op in (op, "*") and rule_kind == kind and pattern.search(text):
            return reason
    return None


def table(counts):
    """A table op × kind; each cell counts what is not explained."""
    rows = [["op", *KINDS]]
    for op in sorted({op for op, _ in counts}):
        rows.append([op, *(str(counts[op, kind] or ".") for kind in KINDS)])
    rows.append(["sum", *(str(sum(n for (_, k), n in counts.items() if k == kind))
                          for kind in KINDS)])
    width = max(len(row[0]) for row in rows)
    return [row[0].ljust(width) + "".join(cell.rjust(10) for cell in row[1:]) for row in rows]


def summary(folder, program=None, details=False):
    """Prints what differs; returns how many differences have no reason."""
    all_calls, accepted = calls(folder), rules()
    found = failures(run_suite(folder, program))
    open_counts, reasons = Counter(), Counter()
    for (op, title), why in sorted(found.items()):
        said = why.partition(") ")[2]
        kind = kind_of(said)
        lines = all_calls.get((op, title), "")
        reason = reason_for(op, kind, f"{said}\n{lines}", accepted)
        if reason:
            reasons[kind, reason] += 1
            continue
        open_counts[op, kind] += 1
        if details:
            print(f"{kind} {op}: {title} {why}\n{lines}")
    print("\n".join(table(open_counts)))
    print("\naccepted:")
    for (kind, reason), n in sorted(reasons.items()):
        print(f"{n:6} {kind:9} {reason}")
    print(f"\n{len(all_calls)} calls, {len(found)} differ, "
          f"{sum(open_counts.values())} without a reason")
    return sum(open_counts.values())
