#!/usr/bin/env python3
"""Measures batching and scheduling through a running server, each figure as a ratio within one run.

    cargo build --release -p cli --bin tensord
    tools/bench/batching.py [--bin target/release/tensord] [--seconds 3] [--rounds 3] [--only gain,...]
    tools/bench/batching.py > runs.json && python3 tools/bench/plots.py docs/images runs.json

What is measured, in this order; `--only` picks some:

- gain: `digits`, an MLP and a transformer at 32 clients, batched and not, turn by turn;
- devices: two played GPUs against one, and two of which one computes twice as fast;
- overload: a played GPU at ten times what it can do, and, in slots of 20 ms, what is refused after that;
- neighbour: a light model beside a saturated one, on one played GPU, and on the CPU;
- load: a light model while one of 1 GiB is loaded, on one played GPU.

Played GPUs (`--simulated_gpus`) compute at a given rate, so that these figures depend little on the
machine. The models are made once, by TensorFlow, in the cache folder.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)

import tfenv
from server import Server, cpu_seconds, model_config

if __name__ == "__main__":
    tfenv.enter()

MODELS = tfenv.cache_dir() / "bench-batching"
PATIENCE_SECONDS = 120
CLIENTS = 32
# 1 MFLOP a row: 2.6 ms at this rate.
GPU = "4GiB@400MFLOPS@50us"


def make_models():
    """The models that are not in the project, each in its folder with version 1."""
    if (MODELS / "done").exists():
        return
    import numpy as np
    import tensorflow as tf

    random = np.random.default_rng(1)

    def weights(*shape):
        values = random.standard_normal(shape) / np.sqrt(shape[0])
        return tf.Variable(values.astype(np.float32))

    class Mlp(tf.Module):
        def __init__(self, *sizes):
            self.layers = [weights(a, b) for a, b in zip(sizes, sizes[1:])]

        def __call__(self, x):
            for layer in self.layers[:-1]:
                x = tf.nn.relu(x @ layer)
            return x @ self.layers[-1]

    class Transformer(tf.Module):
        def __init__(self, n_layers, width, n_heads):
            self.n_heads = n_heads
            self.layers = [
                [weights(width, width) for _ in range(4)] + [weights(width, 4 * width), weights(4 * width, width)]
                for _ in range(n_layers)
            ]

        def __call__(self, x):
            n, t, width = tf.shape(x)[0], x.shape[1], x.shape[2]
            for q, k, v, o, up, down in self.layers:
                def heads(w):
                    y = tf.reshape(tf.reshape(x, [-1, width]) @ w, [n, t, self.n_heads, width // self.n_heads])
                    return tf.transpose(y, [0, 2, 1, 3])

                scores = tf.nn.softmax(tf.matmul(heads(q), heads(k), transpose_b=True) / 8.0)
                mixed = tf.transpose(tf.matmul(scores, heads(v)), [0, 2, 1, 3])
                x += tf.reshape(tf.reshape(mixed, [-1, width]) @ o, [n, t, width])
                hidden = tf.nn.relu(tf.reshape(x, [-1, width]) @ up) @ down
                x += tf.reshape(hidden, [n, t, width])
            return tf.reduce_mean(x, axis=1)

    class Large(tf.Module):
        def __init__(self):
            self.table = tf.Variable(tf.random.stateless_uniform([1 << 20, 256], [1, 2]))

        def __call__(self, x):
            return tf.gather(self.table, tf.cast(x, tf.int32))

    def save(name, model, shape):
        spec = tf.TensorSpec([None, *shape], tf.float32, name="x")
        function = tf.function(lambda x: {"y": model(x)}, input_signature=[spec])
        tf.saved_model.save(model, str(MODELS / name / "1"), signatures=function)

    save("mlp", Mlp(784, 1024, 1024, 10), [784])
    save("transformer", Transformer(2, 128, 4), [32, 128])
    save("paced", Mlp(512, 512, 512), [512])
    save("short", Mlp(64, 64), [64])
    save("large", Large(), [1])
    (MODELS / "done").touch()


class Loaded(Server):
    """A server with these models (name to folder and what else its config says)."""

    def __init__(self, binary, models, *flags):
        super().__init__(binary, "--start_when=all", *flags, config=model_config(models))
        self.wait(lambda: all(self.is_available(name) for name in models))

    def scheduler(self):
        return self.ask("GET", "/v1/scheduler")[1]

    def start_bench(self, model, *flags):
        command = [self.binary, "bench", "--target", f"127.0.0.1:{self.grpc}", "--model", model, "--json", *flags]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def bench(self, model, *flags):
        return report(self.start_bench(model, *flags))


def report(process):
    out, _ = process.communicate(timeout=PATIENCE_SECONDS)
    if process.returncode != 0:
        raise SystemExit(f"{process.args} failed")
    return json.loads(out)


def rows_by_device(page, model):
    queues = [queue for queue in page["queues"] if queue["model"] == model]
    return {queue["device"]: queue["rows"]["run"] for queue in queues if queue["is_batched"]}


def busy_by_device(page):
    busy = {}
    for lane in page["lanes"]:
        busy[lane["device"]] = busy.get(lane["device"], 0) + lane["busy_seconds"]
    return busy


def since(after, before):
    return {key: value - before.get(key, 0) for key, value in after.items()}


def gain(args):
    """Batched and not, turn by turn."""
    models = {
        "digits": (tfenv.ROOT / "models" / "digits", ""),
        "mlp": (MODELS / "mlp", ""),
        "transformer": (MODELS / "transformer", ""),
    }
    flags = ["--concurrency", str(CLIENTS), "--duration", str(args.seconds)]
    found = {}
    with Loaded(args.bin, models) as batched, Loaded(args.bin, models, "--enable_batching=false") as single:
        for model in models:
            turns = {"batched": [], "single": []}
            cpu = {"batched": [], "single": []}
            for _ in range(args.rounds):
                for name, server in (("single", single), ("batched", batched)):
                    start = cpu_seconds(server.pid)
                    run = server.bench(model, *flags)
                    turns[name].append(run["answers_per_second"])
                    cpu[name].append((cpu_seconds(server.pid) - start) / max(run["answers"], 1) * 1e6)
            found[model] = {name: statistics.median(values) for name, values in turns.items()}
            found[model]["gain"] = statistics.median(
                b / s for b, s in zip(turns["batched"], turns["single"]))
            found[model]["cpu_micros"] = {name: statistics.median(values) for name, values in cpu.items()}
    return found


def devices(args):
    """One played GPU, two, and two of which one computes twice as fast."""
    def run(gpus):
        models = {"paced": (MODELS / "paced", 'memory { replicas: "all" }')}
        one_lane = "--tensorflow_inter_op_parallelism=1"
        with Loaded(args.bin, models, f"--simulated_gpus={gpus}", one_lane) as server:
            server.bench("paced", "--concurrency", "64", "--duration", "1")
            before = server.scheduler()
            started = time.monotonic()
            rate = server.bench("paced", "--concurrency", "64", "--duration", str(args.seconds))
            seconds, after = time.monotonic() - started, server.scheduler()
            rows = since(rows_by_device(after, "paced"), rows_by_device(before, "paced"))
            busy = since(busy_by_device(after), busy_by_device(before))
            gpus = {device: share / seconds for device, share in busy.items() if device.startswith("gpu")}
            return {"answers_per_second": rate["answers_per_second"], "rows": rows, "busy": gpus}

    one, two = run(GPU), run(f"{GPU},{GPU}")
    unequal = run("4GiB@800MFLOPS@50us,2GiB@400MFLOPS@50us")
    return {"one": one, "two": two, "unequal": unequal,
            "ratio": two["answers_per_second"] / one["answers_per_second"],
            "rows_ratio": unequal["rows"]["gpu:0"] / max(unequal["rows"]["gpu:1"], 1)}


def overload(args):
    """Ten times what a played GPU can do, and what comes after."""
    models = {"paced": (MODELS / "paced", "")}
    with Loaded(args.bin, models, f"--simulated_gpus={GPU}", "--tensorflow_inter_op_parallelism=1") as server:
        server.bench("paced", "--concurrency", "64", "--duration", "1")
        peak = server.bench("paced", "--concurrency", "128", "--duration", str(args.seconds))
        capacity = peak["answers_per_second"]
        flooding = ["--rate", str(10 * capacity), "--timeout_ms", "500"]
        start = cpu_seconds(server.pid)
        flood = server.bench("paced", *flooding, "--duration", str(args.seconds))
        busy = cpu_seconds(server.pid) - start
        queue = next(queue for queue in server.scheduler()["queues"] if queue["is_batched"])
        return {"capacity": capacity, "goodput": flood["answers_per_second"],
                "share": flood["answers_per_second"] / capacity, "asked": 10 * capacity,
                "refused": flood["failed"], "errors": flood["errors"], "unsent": flood["unsent"],
                # From when a request was due, its client's delay included; and from when it was sent.
                "refusal_p50_us": flood["failed_p50_us"], "refusal_p99_us": flood["failed_p99_us"],
                "by_code": flood["failed_by_code"],
                "send_lag_p50_us": flood["send_lag_p50_us"], "send_lag_p99_us": flood["send_lag_p99_us"],
                # On the server's clock, from a request decoded and checked to its refusal, up to a power of two.
                "server_refusal_p50_us": queue["refusal_micros"]["p50"],
                "server_refusal_p99_us": queue["refusal_micros"]["p99"],
                "server_cpu_share": busy / args.seconds,
                "answer_p99_us": flood["latency"]["p99_us"],
                "recovery": [recovery(server, capacity, flooding) for _ in range(args.rounds)]}


def recovery(server, capacity, flooding):
    """A second of flood beside clients at half the capacity: how long after its end these are refused."""
    steady = server.start_bench("paced", "--rate", str(capacity / 2), "--timeout_ms", "500",
                                "--slots_ms", "20", "--duration", "3")
    time.sleep(0.7)
    flood = server.bench("paced", *flooding, "--slots_ms", "20", "--duration", "1")
    end = flood["slots"]["start_unix"] + 1
    slots = report(steady)["slots"]
    begins = [slots["start_unix"] + number * slots["seconds"] for number in range(len(slots["failed"]))]
    late = [begin + slots["seconds"] for begin, failed in zip(begins, slots["failed"]) if failed]
    line = [[begin - flood["slots"]["start_unix"], answered, failed]
            for begin, answered, failed in zip(begins, slots["answered"], slots["failed"])]
    return {"ms": max(0.0, max(late, default=end) - end) * 1e3,
            "failed_in_flood": sum(slots["failed"]), "line": line,
            "slots_after": sum(begin > end for begin in begins)}


def neighbour(args):
    """A light model alone and beside a saturated one, on one played GPU, and on the CPU."""
    played, light = {"paced": (MODELS / "paced", ""), "short": (MODELS / "short", "")}, ("paced", "short")
    real = {"transformer": (MODELS / "transformer", ""), "mlp": (MODELS / "mlp", "")}
    gpu = f"--simulated_gpus={GPU}"
    cases = [
        ("lanes: 1", played, light, [gpu, "--tensorflow_inter_op_parallelism=1"]),
        ("lanes: 2", played, light, [gpu, "--tensorflow_inter_op_parallelism=2"]),
        ("CPU", real, ("transformer", "mlp"), []),
    ]
    found = []
    for name, models, (light, heavy), flags in cases:
        asking = ["--rate", "20", "--duration", str(2 * args.seconds)]
        with Loaded(args.bin, models, *flags) as server:
            alone = server.bench(light, *asking)
            noisy = server.start_bench(heavy, "--concurrency", "64", "--duration", str(2 * args.seconds + 1))
            time.sleep(0.5)
            beside = server.bench(light, *asking)
            noise = report(noisy)
            ratio = {p: beside["latency"][p] / alone["latency"][p] for p in ("p50_us", "p90_us", "p99_us")}
            found.append({"where": name, "alone": alone["latency"], "beside": beside["latency"],
                          "ratio": ratio, "noise_per_second": noise["answers_per_second"]})
    return found


def load(args):
    """A light model at a steady rate, alone and while one of 1 GiB is loaded again and again."""
    models = {"paced": (MODELS / "paced", "")}
    with tempfile.TemporaryDirectory() as folder:
        versions = Path(folder) / "large"
        versions.mkdir()
        (versions / "1").symlink_to(MODELS / "large" / "1")
        models["large"] = (versions, "")
        flags = f"--simulated_gpus={GPU}", "--file_system_poll_wait_seconds=1"
        with Loaded(args.bin, models, *flags) as server:
            light = ["--rate", "100", "--duration", str(args.seconds)]
            server.bench("paced", *light)
            ratios, alones, besides, loads = [], [], [], []
            for turn in range(args.rounds):
                alone = server.bench("paced", *light)
                (versions / str(turn + 2)).symlink_to(MODELS / "large" / "1")
                started = time.monotonic()
                beside = server.bench("paced", *light)
                while f'"version": "{turn + 2}",\n   "state": "AVAILABLE"' not in server.get("/v1/models/large"):
                    time.sleep(0.05)
                loads.append(time.monotonic() - started)
                alones.append(alone["latency"]["p99_us"])
                besides.append(beside["latency"]["p99_us"])
                ratios.append(besides[-1] / alones[-1])
            return {"alone_p99_us": alones, "beside_p99_us": besides, "load_seconds": loads,
                    "ratio": statistics.median(ratios)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=tfenv.ROOT / "target" / "release" / "tensord", type=Path)
    parser.add_argument("--seconds", default=3.0, type=float)
    parser.add_argument("--rounds", default=3, type=int)
    parser.add_argument("--only", default="gain,devices,overload,neighbour,load")
    parser.add_argument("--prepare", action="store_true", help="make the models and end")
    args = parser.parse_args()
    args.bin = str(args.bin.resolve())
    make_models()
    if args.prepare:
        return
    found = {}
    for name in args.only.split(","):
        found[name] = globals()[name](args)
        print(f"{name}: {json.dumps(found[name])}", file=sys.stderr)
    json.dump(found, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
