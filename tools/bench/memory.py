#!/usr/bin/env python3
"""Measures the memory of a running tensord for docs/benchmarks/memory.md; one JSON object a line.

    tools/bench/memory.py unload  [--models 22] [--mb 200] [--cycles 1000]   what unloading gives back
    tools/bench/memory.py density [--limit_mb 2048] DIR                      models in equal memory
    tools/bench/memory.py idle    DIR                                        what an idle server holds
    tools/bench/memory.py growth  DIR                                        growth against reservation
    tools/bench/memory.py limits  DIR                                        limits that change while serving

All take --binary target/release/tensord. Models with weights of their own are made with TensorFlow,
once, in the cache folder. `density` fills TensorFlow's own allocator (BFC, with the same limit) beside
tensord. Servers listen on loopback only, and are stopped at the end.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)

import tfenv
from server import PATIENCE_SECONDS, Server, model_config

if __name__ == "__main__":
    tfenv.enter()

CACHE = tfenv.cache_dir() / "memory-models"
REST_SECONDS = 3


class Loaded(Server):
    """A tensord without models of its own, which are put into it one list after another."""

    def __init__(self, binary, *flags, environment=None):
        super().__init__(binary, "--max_num_load_retries=0", *flags, config=model_config({}),
                         environment=environment)
        self.wait(lambda: self.ask("GET", "/v1/memory")[0] == 200)

    def serve(self, models):
        """Puts a list of models, as names and folders, in place of what is served; whether all
        are there then."""
        import grpc
        from google.protobuf import text_format
        from tensorflow_serving.apis import model_management_pb2, model_service_pb2_grpc
        rows = [f'config {{ name: "{name}" base_path: "{path}" model_platform: "tensorflow" }}'
                for name, path in models]
        request = model_management_pb2.ReloadConfigRequest()
        text_format.Parse("model_config_list { " + " ".join(rows) + " }", request.config)
        with grpc.insecure_channel(f"127.0.0.1:{self.grpc}") as channel:
            stub = model_service_pb2_grpc.ModelServiceStub(channel)
            try:
                answer = stub.HandleReloadConfigRequest(request, timeout=PATIENCE_SECONDS)
            except grpc.RpcError:
                return False
            return answer.status.error_code == 0

    def predict(self, model, inputs):
        """The status of a prediction."""
        body = json.dumps({"inputs": inputs})
        return self.ask("POST", f"/v1/models/{model}:predict", body)

    def device(self, name):
        """A device as /v1/memory shows it, and the resident bytes of the process."""
        _, memory = self.ask("GET", "/v1/memory")
        found = [device for device in memory["devices"] if device["name"] == name]
        return found[0], memory["resident_bytes"]

    def released(self, name, n_models):
        """Waits until a device holds nothing but these many models."""
        def is_released():
            self.manage("POST", "/v1/memory:trim")
            device, _ = self.device(name)
            return len(device["models"]) == n_models and device["workspaces"]["bytes"] == 0
        self.wait(is_released)

    def settled(self, name, n_models):
        """What a device holds when all that nobody uses went back."""
        self.released(name, n_models)
        # Threads that loaded and unloaded end, and the heap gives back what they had kept.
        time.sleep(REST_SECONDS)
        self.manage("POST", "/v1/memory:trim")
        device, resident = self.device(name)
        return device["reserved_bytes"], device["in_use_bytes"], resident


def say(**row):
    """Prints a row."""
    print(json.dumps(row), flush=True)


def make_dense(count, megabytes):
    """Folders of models with one matrix each, all different, made once."""
    side = int((megabytes * 1e6 / 4) ** 0.5)
    folders = [CACHE / f"dense{megabytes}" / f"m{number:02}" for number in range(count)]
    missing = [(n, folder) for n, folder in enumerate(folders) if not (folder / "1" / "made").exists()]
    if missing:
        import numpy as np
        import tensorflow as tf
        for number, folder in missing:
            class Dense(tf.Module):
                """Takes a row to the sum of its product."""

                def __init__(self, values):
                    super().__init__()
                    self.w = tf.Variable(values)

                @tf.function(input_signature=[tf.TensorSpec([None, side], tf.float32, name="x")])
                def run(self, x):
                    return {"y": tf.reduce_sum(x @ self.w, 1)}

            values = np.random.default_rng(number).standard_normal((side, side), dtype=np.float32)
            module = Dense(values * side**-0.5)
            tf.saved_model.save(module, str(folder / "1"), signatures={"serving_default": module.run})
            (folder / "1" / "made").write_text("")
    return side, folders


def come_and_go(server, side, models):
    """Loads models, asks each of them, looks at memory and unloads them; what was seen of it."""
    loaded = server.serve(models)
    failed = [name for name, _ in models if server.predict(name, [[1.0] * side])[0] != 200]
    device, resident = server.device("cpu:0")
    start = time.monotonic()
    server.serve([])
    server.released("cpu:0", 0)
    took = time.monotonic() - start
    return {"all_loaded": loaded, "failed": failed, "held_loaded": device["reserved_bytes"],
            "resident_loaded": resident, "seconds": took, "after": server.settled("cpu:0", 0)}


def unload(args):
    """TensorFlow Serving's issue 1664: models loaded, asked, unloaded; then many times over."""
    side, folders = make_dense(args.models, args.mb)
    server = Loaded(args.binary)
    try:
        # One model comes and goes first, in the same way: code that never ran is not in memory yet.
        before = come_and_go(server, side, [("warm", folders[0])])["after"]
        models = [(folder.name, folder) for folder in folders]
        # Once from a server that has not had so many, once from one that has.
        for passed in ("first", "second"):
            seen = come_and_go(server, side, models)
            after = seen.pop("after")
            say(what="unload", models=len(models), passed=passed, **seen,
                held_before=before[0], held_after=after[0], resident_before=before[2],
                resident_after=after[2], resident_ratio=after[2] / before[2])
            before = after
        side, folders = make_dense(4, 1)
        asked = [(folder.name, folder) for folder in folders]
        small = asked + [(path.name, path) for path in map(Path, args.small)]
        reference = None
        for cycle in range(args.cycles):
            server.serve(small)
            for name, _ in asked:
                if server.predict(name, [[1.0] * side])[0] != 200:
                    raise SystemExit(f"{name} does not answer in cycle {cycle}")
            server.serve([])
            if cycle in (args.cycles // 10, args.cycles - 1):
                now = server.settled("cpu:0", 0)
                reference = reference or now
        if reference:
            say(what="cycles", cycles=args.cycles, models=[name for name, _ in small],
                held_drift=now[0] - reference[0], resident_ratio=now[2] / reference[2])
    finally:
        server.stop()


def make_copies(source, count):
    """Copies of a SavedModel whose weights all differ, made once."""
    source = Path(source).resolve()
    name = source.parent.name if source.name.isdigit() else source.name
    folders = [CACHE / "copies" / name / f"c{number:02}" for number in range(count)]
    missing = [(n, folder) for n, folder in enumerate(folders) if not (folder / "1" / "made").exists()]
    if missing:
        import tensorflow as tf
        version = source if source.name.isdigit() else max(source.glob("[0-9]*"))
        model = tf.saved_model.load(str(version))
        for number, folder in missing:
            shutil.rmtree(folder, ignore_errors=True)
            for variable in model.variables:
                if variable.dtype.is_floating:
                    variable.assign(variable * (1 + 1e-3 * (number + 1)))
            tf.saved_model.save(model, str(folder / "1"), signatures=model.signatures)
            (folder / "1" / "made").write_text("")
    return folders


def example_inputs(folder, rows):
    """Made-up inputs of the default signature, by name."""
    import numpy as np
    import tensorflow as tf
    model = tf.saved_model.load(str(folder / "1"))
    specs = model.signatures["serving_default"].structured_input_signature[1]
    sizes = {name: [rows if i == 0 else size or 16 for i, size in enumerate(spec.shape)]
             for name, spec in specs.items()}
    return {name: np.ones(size, specs[name].dtype.as_numpy_dtype) for name, size in sizes.items()}


TENSORFLOW = """
import sys, json, numpy as np, tensorflow as tf
inputs = {name: tf.constant(np.array(value, dtype)) for name, (value, dtype) in json.load(open(sys.argv[1])).items()}
held = []
for folder in sys.argv[2:]:
    try:
        model = tf.saved_model.load(folder + "/1")
        for one in held + [model]:
            one.signatures["serving_default"](**inputs)
    except (tf.errors.ResourceExhaustedError, MemoryError):
        break
    held.append(model)
    print(len(held), flush=True)
"""


def density(args):
    """How many models with weights of their own fit, all answering at batch 8."""
    folders = make_copies(args.model, args.count)
    inputs = example_inputs(folders[0], 8)
    listed = {name: value.tolist() for name, value in inputs.items()}
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "devices"
        config.write_text(f'device {{ name: "cpu:0" memory_limit: "{args.limit_mb}MiB" }}')
        server = Loaded(args.binary, f"--device_config_file={config}")
        try:
            served = []
            for one in folders:
                if not server.serve([*served, (one.name, one)]) or server.predict(one.name, listed)[0] != 200:
                    break
                served.append((one.name, one))
            server.serve(served)
            answers = [server.predict(name, listed)[0] for name, _ in served]
            held = server.device("cpu:0")[0]["reserved_bytes"]
        finally:
            server.stop()
        data = Path(folder) / "inputs.json"
        data.write_text(json.dumps({n: (v.tolist(), v.dtype.name) for n, v in inputs.items()}))
        limits = {"TF_CPU_ALLOCATOR_USE_BFC": "1", "TF_CPU_BFC_MEM_LIMIT_IN_MB": str(args.limit_mb),
                  "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
        run = subprocess.run([sys.executable, "-c", TENSORFLOW, str(data), *map(str, folders)],
                             env={**os.environ, **limits}, capture_output=True, text=True, check=False)
        beside = [int(line) for line in run.stdout.split() if line.isdigit()]
    say(what="density", model=args.model, limit_mb=args.limit_mb, tensord=len(served),
        all_answer=answers == [200] * len(served), held=held, tensorflow=max(beside, default=0),
        tried=len(folders))


def percentile(values, share):
    """The least value that this share of all does not exceed."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def timed(server, model, inputs):
    """The seconds that a prediction takes."""
    start = time.perf_counter()
    assert server.predict(model, inputs)[0] == 200
    return time.perf_counter() - start


def idle(args):
    """What is held five seconds after the last request, and how long the next one takes; the same
    beside it on a server that holds its device whole, whose next request is slower only by what a
    rest does to caches and clocks."""
    inputs = {n: v.tolist() for n, v in example_inputs(Path(args.model), args.rows).items()}
    servers = {name: Loaded(args.binary, "--simulated_gpus=2GiB",
                            environment={"TF_FORCE_GPU_ALLOW_GROWTH": allow})
               for name, allow in (("growth", "true"), ("reserved", "false"))}
    warm, late, over = {name: [] for name in servers}, {name: [] for name in servers}, []
    try:
        for name, server in servers.items():
            server.serve([("m", Path(args.model).resolve())])
            warm[name] = [timed(server, "m", inputs) for _ in range(60)][20:]
        for number in range(args.rounds):
            busy = servers["growth"].device("gpu:0")[0]["reserved_bytes"]
            time.sleep(5)
            gpu, _ = servers["growth"].device("gpu:0")
            kept = sum(gpu["categories"].get(c, 0) for c in ("weights", "packed_weights", "plans"))
            over.append(gpu["reserved_bytes"] - kept)
            # In turn, so that neither is always the first after the rest.
            for name, server in list(servers.items())[::(-1) ** number]:
                late[name].append(timed(server, "m", inputs))
                warm[name] += [timed(server, "m", inputs) for _ in range(5)]
    finally:
        for server in servers.values():
            server.stop()
    def ratio(part, below):
        return percentile(late["growth"], part) / percentile(below, part)
    times = {f"{name}_{kind}_p{int(part * 100)}": percentile(rows[name], part)
             for name in servers for kind, rows in (("warm", warm), ("next", late))
             for part in (0.5, 0.99)}
    say(what="idle", rounds=args.rounds, held_busy=busy, held_over_weights=max(over), **times,
        p50_ratio=ratio(0.5, warm["growth"]), p99_ratio=ratio(0.99, warm["growth"]),
        p50_ratio_of_next=ratio(0.5, late["reserved"]),
        p99_ratio_of_next=ratio(0.99, late["reserved"]))


def drive(args, server, seconds):
    """What `tensord bench` says of a server under load."""
    command = [args.binary, "bench", "--target", f"127.0.0.1:{server.grpc}", "--model", "m",
               "--batch", args.rows, "--concurrency", 4, "--duration", seconds, "--json"]
    run = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True)
    return json.loads(run.stdout)


def growth(args):
    """The same load on a device that grows and on one that is held whole; beside them another of
    these, which differs from it by what servers differ without a reason."""
    servers = {}
    for name, allow in (("growth", "true"), ("reserved", "false"), ("control", "false")):
        servers[name] = Loaded(args.binary, "--simulated_gpus=2GiB",
                               environment={"TF_FORCE_GPU_ALLOW_GROWTH": allow})
        servers[name].serve([("m", Path(args.model).resolve())])
    totals = {name: {"throughput": [], "p99": []} for name in servers}
    try:
        for number in range(args.rounds + 1):
            # In turn, so that neither is always the second.
            for name, server in list(servers.items())[::(-1) ** number]:
                # What grows gave its memory back while the other had its turn: `idle` measures that.
                drive(args, server, 1)
                report = drive(args, server, 3)
                if number:
                    totals[name]["throughput"].append(report["answers_per_second"])
                    totals[name]["p99"].append(report["latency"]["p99_us"])
    finally:
        for server in servers.values():
            server.stop()
    middle = {name: {key: percentile(values, 0.5) for key, values in rows.items()}
              for name, rows in totals.items()}
    def ratio(name, key):
        return middle[name][key] / middle["reserved"][key]
    say(what="growth", rounds=args.rounds, **middle,
        throughput_ratio=ratio("growth", "throughput"), p99_ratio=ratio("growth", "p99"),
        control_throughput_ratio=ratio("control", "throughput"),
        control_p99_ratio=ratio("control", "p99"))


def limits(args):
    """How long it takes until another limit of a device is in force, with a model on it."""
    server = Loaded(args.binary, "--simulated_gpus=1GiB",
                    environment={"TF_FORCE_GPU_ALLOW_GROWTH": "true"})
    seconds = []
    try:
        server.serve([("m", Path(args.model).resolve())])
        for number in range(args.rounds):
            limit = 512 + number << 20
            rule = json.dumps({"device": [{"name": "gpu:0", "memory_limit": limit}]})
            start = time.perf_counter()
            assert server.manage("PUT", "/v1/devices", rule)[0] == 200
            seconds.append(time.perf_counter() - start)
            gpu, _ = server.device("gpu:0")
            assert gpu["limit_bytes"] == limit and gpu["reserved_bytes"] <= limit
        say(what="limits", rounds=args.rounds, p50=percentile(seconds, 0.5), worst=max(seconds))
    finally:
        server.stop()


def main():
    """Runs what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--binary", default=tfenv.ROOT / "target" / "release" / "tensord")
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("unload")
    one.add_argument("--models", type=int, default=22)
    one.add_argument("--mb", type=int, default=200)
    one.add_argument("--cycles", type=int, default=1000)
    demo = [str(tfenv.ROOT / "models" / name) for name in ("digits", "sentiment", "clicks")]
    one.add_argument("--small", nargs="*", default=demo)
    one.set_defaults(run=unload)
    one = commands.add_parser("density")
    one.add_argument("--limit_mb", type=int, default=2048)
    one.add_argument("--count", type=int, default=26)
    one.add_argument("model")
    one.set_defaults(run=density)
    for name, run in (("idle", idle), ("growth", growth), ("limits", limits)):
        one = commands.add_parser(name)
        one.add_argument("--rows", type=int, default=8)
        one.add_argument("--rounds", type=int, default=100 if name == "limits" else 10)
        one.add_argument("model")
        one.set_defaults(run=run)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
