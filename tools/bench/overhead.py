#!/usr/bin/env python3
"""Measures what a small Predict costs, beside a gRPC server that does nothing and Python's TensorFlow.

    cargo build --release -p cli --bin tensord && cargo build --release -p api --example overhead
    tools/bench/overhead.py [--bin target/release] [--connections 8] [--seconds 3] [--rounds 5]

Three servers stand side by side: tensord on `models/half_plus_two`; an echo that answers any call
with the same bytes and does not look at them; and TensorFlow, held by a Python gRPC server as people
write it. The same client asks each in turn. The CPU time is the server process' own, for each answer.
"""

import argparse
import statistics
import subprocess
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)

import tfenv
from server import Process, Server, cpu_seconds, free_port

if __name__ == "__main__":
    tfenv.enter()

MODEL = tfenv.ROOT / "models" / "half_plus_two"
PYTHON = """
import sys
from concurrent import futures
import grpc, tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc as services

run = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]

class Service(services.PredictionServiceServicer):
    def Predict(self, request, context):
        inputs = {k: tf.constant(tf.make_ndarray(v)) for k, v in request.inputs.items()}
        reply = predict_pb2.PredictResponse()
        for name, value in run(**inputs).items():
            reply.outputs[name].CopyFrom(tf.make_tensor_proto(value.numpy()))
        return reply

server = grpc.server(futures.ThreadPoolExecutor(max_workers=8))
services.add_PredictionServiceServicer_to_server(Service(), server)
server.add_insecure_port(f"127.0.0.1:{sys.argv[2]}")
server.start()
server.wait_for_termination()
"""


class Measured:
    """A server, and what was measured of it."""

    def __init__(self, name, server, port):
        self.name, self.server, self.port = name, server, port
        self.cpu_micros, self.rates = [], []

    def measure(self, client, connections, seconds, keep=True):
        """Asks for some time."""
        before = cpu_seconds(self.server.pid)
        command = [client, "load", str(self.port), str(connections), str(seconds)]
        n = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        if keep and n:
            self.cpu_micros.append((cpu_seconds(self.server.pid) - before) / n * 1e6)
            self.rates.append(n / seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=Path, default=tfenv.ROOT / "target" / "release")
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    client = args.bin / "examples" / "overhead"
    ours, ports = Server(args.bin / "tensord", MODEL), [free_port(), free_port()]
    echo = Process([client, "echo", ports[0]], ports[0])
    saved = next(MODEL.glob("*/saved_model.pb")).parent
    python = Process([sys.executable, "-c", PYTHON, saved, ports[1]], ports[1])
    servers = [Measured("tensord", ours, ours.grpc), Measured("echo", echo, ports[0]),
               Measured("TensorFlow in Python", python, ports[1])]
    try:
        for server in servers:
            server.server.wait()
            server.measure(client, args.connections, 1, keep=False)
        for _ in range(args.rounds):
            for server in servers:
                server.measure(client, args.connections, args.seconds)
    finally:
        for server in servers:
            server.server.stop()
    ours, echo, python = servers
    print(f"{'':22}{'CPU for each answer':>22}{'answers each second':>22}")
    for server in servers:
        cpu, rate = statistics.median(server.cpu_micros), statistics.median(server.rates)
        print(f"{server.name:22}{cpu:19.1f} µs{rate:22.0f}")
    pairs = zip(ours.cpu_micros, echo.cpu_micros)
    print(f"CPU beside the echo: {statistics.median(a / b for a, b in pairs):.2f} ×")
    pairs = zip(ours.rates, python.rates)
    print(f"throughput beside Python: {statistics.median(a / b for a, b in pairs):.1f} ×")


if __name__ == "__main__":
    main()
