#!/usr/bin/env python3
"""Measures how long others wait while one client sends messages that are slow to decode or encode,
takes no answer, or does not finish what it sends.

    cargo build --release --bin tensord
    tools/bench/neighbours.py [--binary target/release/tensord] [--polls 1000] [--only NAME]

For each attack a client of its own sends such messages, two at a time, one after another; or it
opens connections, and keeps them. Meanwhile `/healthz` and a small Predict of a neighbour model are asked in turn, `--polls` times each. The
first row is the server at rest. The host device is limited to 4 GiB, so that an attack that should be
refused cannot harm the machine.
"""

import argparse
import gzip
import http.client
import multiprocessing
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)

import tfenv
from server import Server

if __name__ == "__main__":
    tfenv.enter()

MODELS = tfenv.ROOT / "models"
NEIGHBOUR = ("POST", "/v1/models/half_plus_two:predict", '{"instances": [1.0, 2.0, 5.0]}')
HEALTH = ("GET", "/healthz", None)
PREDICT = "/tensorflow.serving.PredictionService/Predict"
CLASSIFY = "/tensorflow.serving.PredictionService/Classify"
REST_PREDICT = "/v1/models/half_plus_two:predict"
PATIENCE_SECONDS = 120
CALLS_AT_ONCE = 2


def varint(value):
    """A number as protobuf writes it."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out + bytes([value]))


def field(number, content):
    """A field with a length."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def predict(model, alias, tensor):
    """A PredictRequest with one input."""
    entry = field(1, alias) + field(2, tensor)
    return field(1, field(1, model)) + field(2, entry)


def shape(size):
    """A TensorShapeProto of one dimension, as a field of a tensor."""
    return field(2, field(2, b"\x08" + varint(size)))


def map_entries():
    entries = b"".join(field(2, field(1, n.to_bytes(4, "big"))) for n in range(2_500_000))
    return PREDICT, entries


def empty_strings():
    return PREDICT, predict(b"sentiment", b"text", b"\x08\x07" + field(8, b"") * 10_000_000)


def features():
    feature = b"".join(field(1, field(1, n.to_bytes(4, "big"))) for n in range(2_000_000))
    spec = field(1, b"half_plus_two") + field(3, b"classify_x_to_y")
    return CLASSIFY, field(1, spec) + field(2, field(1, field(1, field(1, feature))))


def long_answer():
    tensor = b"\x08\x01" + shape(20_000_000) + field(5, b"\x00\x00\x80\x3f")
    return PREDICT, predict(b"half_plus_two", b"x", tensor)


def long_tensor():
    tensor = b"\x08\x01" + shape(5_000_000) + field(4, b"\x00\x00\x80\x3f" * 5_000_000)
    return PREDICT, predict(b"half_plus_two", b"x", tensor)


def json_numbers():
    return REST_PREDICT, ('{"instances": [' + "0.1234567," * 2_000_000 + "0]}").encode(), {}


def json_rows():
    return REST_PREDICT, ('{"instances": [' + '{"x":[0]},' * 2_000_000 + "0]}").encode(), {}


def packed_json():
    text = ('{"instances": [' + "1," * 40_000_000 + "1]}").encode()
    return REST_PREDICT, gzip.compress(text, 1), {"Content-Encoding": "gzip"}


GRPC_ATTACKS = {
    "20 MB of map entries": map_entries,
    "20 MB of empty strings": empty_strings,
    "20 MB of features": features,
    "20 MB of floats": long_tensor,
    "an answer of 80 MB": long_answer,
}
REST_ATTACKS = {
    "20 MB of numbers in JSON": json_numbers,
    "20 MB of rows in JSON": json_rows,
    "80 MB of JSON, packed": packed_json,
}


def unread_answers(ports, opened):
    """Sixty small requests for answers of 80 MB, of which nothing is ever taken."""
    message = long_answer()[1]
    frames = headers(PREDICT) + frame(0, 1, 1, b"\0" + len(message).to_bytes(4, "big") + message)
    # A window of no bytes: the server may send the head of an answer and nothing of its body.
    settings = frame(4, 0, 0, b"\0\x04" + bytes(4))
    for _ in range(60):
        opened.append(opening(ports[0], PREFACE + settings + frames))


def unfinished_bodies(ports, opened):
    """Two hundred bodies of 100 MB, of which 1 MB comes."""
    for _ in range(200):
        opened.append(opening(ports[1], BODY_HEAD + b" " * (1 << 20)))


def dripping_bodies(ports, opened):
    """A thousand bodies of which a byte comes every 100 ms."""
    for _ in range(1000):
        opened.append(opening(ports[1], BODY_HEAD))


def lone_heads(ports, opened):
    """Twenty thousand gRPC calls on two hundred connections, of which no message comes."""
    for _ in range(200):
        calls = b"".join(headers(PREDICT, stream) for stream in range(1, 201, 2))
        opened.append(opening(ports[0], PREFACE + frame(4, 0, 0, b"") + calls))


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DRIP_SECONDS = 0.1
BODY_HEAD = f"POST {REST_PREDICT} HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\n".encode()


def frame(kind, flags, stream, payload):
    """A frame of HTTP/2."""
    head = len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big")
    return head + payload


def headers(path, stream=1):
    """The head of a gRPC call, without any compression."""
    block = b"\x83\x86"  # POST and http, from the fixed table.
    for place, value in ((1, b"x"), (4, path.encode())):
        block += bytes([place, len(value)]) + value
    for name, value in ((b"content-type", b"application/grpc"), (b"te", b"trailers")):
        block += bytes([0, len(name)]) + name + bytes([len(value)]) + value
    return frame(1, 4, stream, block)


def opening(port, content):
    """A connection on which something was sent, as far as the server took it."""
    connection = socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS)
    try:
        connection.sendall(content)
    except OSError:
        pass  # Refused and hung up on.
    return connection


KEPT_ATTACKS = {
    "60 unread answers of 80 MB": unread_answers,
    "200 unfinished bodies": unfinished_bodies,
    "1,000 bodies that drip": dripping_bodies,
    "20,000 heads without a message": lone_heads,
}


def send_kept(name, ports, ready, stop):
    """Opens connections, and keeps them until it is told to stop. Each drips if its name says so."""
    opened = []
    KEPT_ATTACKS[name](ports, opened)
    ready.set()
    while not stop.wait(DRIP_SECONDS):
        for connection in opened if "drip" in name else ():
            try:
                connection.send(b" ")
            except OSError:
                pass


def send_grpc(name, port, ready, stop):
    """Sends an attack over gRPC until it is told to stop."""
    import grpc

    path, message = GRPC_ATTACKS[name]()
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]

    def loop():
        with grpc.insecure_channel(f"127.0.0.1:{port}", options) as channel:
            call = channel.unary_unary(path)
            while not stop.is_set():
                try:
                    call(message, timeout=PATIENCE_SECONDS)
                except grpc.RpcError:
                    pass
                ready.set()

    run_all(loop)


def send_rest(name, port, ready, stop):
    """Sends an attack over REST until it is told to stop."""
    path, body, headers = REST_ATTACKS[name]()

    def loop():
        while not stop.is_set():
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)
            try:
                connection.request("POST", path, body, headers)
                connection.getresponse().read()
            except (OSError, http.client.HTTPException):
                pass
            connection.close()
            ready.set()

    run_all(loop)


def run_all(loop):
    """Runs as many loops as calls are sent at once."""
    threads = [threading.Thread(target=loop) for _ in range(CALLS_AT_ONCE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def poll(port, n_polls):
    """Milliseconds of each health check and of each Predict of the neighbour."""
    times = {HEALTH: [], NEIGHBOUR: []}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)
    for _ in range(n_polls):
        for what in times:
            begin = time.monotonic()
            connection.request(*what)
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 200, f"{what[1]}: {answer.status}"
            times[what].append((time.monotonic() - begin) * 1000)
    connection.close()
    return times[HEALTH], times[NEIGHBOUR]


def row(name, health, neighbour):
    """A line of the table."""
    cells = []
    for times in (health, neighbour):
        ordered = sorted(times)
        cells += [ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)], ordered[-1]]
    print(f"| {name} | " + " | ".join(f"{cell:.1f}" for cell in cells) + " |", flush=True)


def start(binary, folder):
    """A server that answers."""
    (folder / "devices").write_text('device { name: "cpu:0" memory_limit: "4GiB" }')
    server = Server(binary, f"--device_config_file={folder / 'devices'}", MODELS / "half_plus_two",
                    MODELS / "sentiment")
    return server.wait(lambda: answers(server.rest))


def answers(port):
    """Whether both calls are answered."""
    try:
        poll(port, 1)
        return True
    except (OSError, AssertionError):
        return False


def measure(name, ports, n_polls):
    """Polls during one attack."""
    if name in KEPT_ATTACKS:
        send, port = send_kept, ports
    else:
        send, port = (send_grpc, ports[0]) if name in GRPC_ATTACKS else (send_rest, ports[1])
    ready, stop = multiprocessing.Event(), multiprocessing.Event()
    attacker = multiprocessing.Process(target=send, args=(name, port, ready, stop))
    attacker.start()
    try:
        assert ready.wait(PATIENCE_SECONDS), f"{name}: no call was answered"
        row(name, *poll(ports[1], n_polls))
    finally:
        stop.set()
        attacker.join(PATIENCE_SECONDS)
        attacker.kill()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", type=Path, default=tfenv.ROOT / "target/release/tensord")
    parser.add_argument("--polls", type=int, default=1000)
    parser.add_argument("--only", help="attacks whose names contain this")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        with start(options.binary, Path(folder)) as server:
            ports = server.grpc, server.rest
            print("| milliseconds | health p50 | p99 | max | neighbour p50 | p99 | max |")
            print("|---|---|---|---|---|---|---|")
            row("at rest", *poll(ports[1], options.polls))
            for name in [*GRPC_ATTACKS, *REST_ATTACKS, *KEPT_ATTACKS]:
                if options.only is None or options.only in name:
                    measure(name, ports, options.polls)


if __name__ == "__main__":
    main()
