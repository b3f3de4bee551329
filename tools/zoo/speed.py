"""The speed of a real model beside TensorFlow's, one thread each, both taking turns in one run."""

import json
import statistics
import subprocess
import time

from bench.engines import Other

# No further slices are taken of a model whose slices took longer than this.
SECONDS_MAX = 20


def measure(binary, model, seconds, rounds):
    """(our median, TensorFlow's median) in microseconds; None for what did not run."""
    signature = json.loads((model / "names.json").read_text(encoding="utf-8"))["signature"]
    inputs = model / "golden" / signature / "batch1.in.npz"
    if not inputs.exists():
        return None, None
    other = Other("tensorflow", model, 1)
    ours, theirs = [], []
    begin = time.monotonic()
    for _ in range(rounds):
        if ours and time.monotonic() - begin > SECONDS_MAX:
            break
        ours.append(slice_of(binary, model, signature, inputs, seconds))
        found = other.measure(1, seconds)
        theirs.append(found and found["median_us"])
    other.close()
    return middle(ours), middle(theirs)


def slice_of(binary, model, signature, inputs, seconds):
    """The median time of `tensord bench` in a process of its own."""
    command = [binary, "bench", model / "1", "--signature", signature, "--threads", 1, "--seconds",
               seconds, "--inputs", inputs, "--json"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False,
                          timeout=600)
    return None if done.returncode else json.loads(done.stdout)["median_us"]


def middle(times):
    """The median of the slices that worked."""
    known = [time for time in times if time is not None]
    return statistics.median(known) if known else None
