#!/usr/bin/env python3
"""Jobs of three nodes and a broker under faults: is each result delivered, and is none done by two workers at once?

Starts a nats-server, three nodes of the built binary that all accept and work, and a receiver. While jobs are submitted, a
node is killed (SIGKILL) every `--kill-every` seconds and started again on its state directory. At a quarter of the jobs the
broker is killed and started again, at a half its disk is emptied as well, and at three quarters it stands still for
`--pause` seconds (SIGSTOP). Clients go on to another node after any answer but 200.

In the end, of every job that was acknowledged: the receiver has its result; all copies of it are the same bytes; the words
are those of the others. From the nodes' logs: the times in which workers had a job, up to the moment a worker was killed, do
not overlap. Ends with 1 if any of that does not hold.

    python3 benches/cluster.py --binary target/release/verbatim --model tiny.en --audio ~/.cache/verbatim/speech/en_hello_world.wav
"""

import argparse
import collections
import datetime
import http.client
import http.server
import itertools
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
from pathlib import Path

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
# A job that has not come so long after the last fault is lost.
PATIENCE_SECONDS = 600.0
NODES = 3


def free_port() -> int:
    """Outside the range that the system hands out: nobody gets it while its server is down."""
    while True:
        port = random.randrange(15000, 32000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                pass


class Receiver:
    """Keeps the hashes and the words of what was delivered, by `webhook-id`."""

    def __init__(self):
        self.lock, self.bodies, self.deliveries, self.words = threading.Lock(), {}, collections.Counter(), {}
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                with receiver.lock:
                    name = self.headers["webhook-id"]
                    receiver.bodies.setdefault(name, set()).add(body)
                    receiver.deliveries[name] += 1
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            request_queue_size = 256
            daemon_threads = True

        self.server = Server(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


class Broker:
    def __init__(self, program: str, folder: Path):
        self.program, self.folder, self.port = program, folder, free_port()
        self.start()

    def start(self):
        command = [self.program, "-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd", str(self.folder)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                with socket.create_connection(("127.0.0.1", self.port), 1) as connection:
                    if connection.recv(4) == b"INFO":
                        return
            except OSError:
                time.sleep(0.05)
        sys.exit("nats-server does not listen")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def empty(self):
        shutil.rmtree(self.folder / "jetstream")

    def stand_still(self, seconds: float):
        self.process.send_signal(19)
        time.sleep(seconds)
        self.process.send_signal(18)


class Node:
    """A node, with the log of all its processes."""

    def __init__(self, number: int, options, broker: Broker, receiver: Receiver, keys: Path):
        self.name, self.options, self.broker, self.receiver = f"node-{number}", options, broker, receiver
        self.state = keys.with_name(self.name)
        shutil.copytree(keys, self.state)
        # Of each process: its claims and ends, and when it was killed.
        self.lives, self.port, self.process = [], None, None
        self.start()

    def start(self):
        settings = {
            "VERBATIM_STATE_DIR": str(self.state), "XDG_CONFIG_HOME": str(self.state),
            "VERBATIM_FETCH_ALLOW": f"127.0.0.1:{self.receiver.port}",
            "VERBATIM_CLUSTER__NATS": f"nats://127.0.0.1:{self.broker.port}", "VERBATIM_CLUSTER__NODE": self.name,
            "VERBATIM_CLUSTER__LEASE_MS": str(self.options.lease_ms), "VERBATIM_JOBS__SECRET": SECRET,
            "VERBATIM_JOBS__CONCURRENCY": str(self.options.concurrency),
            "VERBATIM_JOBS__RETRY_DELAYS_SECONDS": "1,1,1,1,1,1,1,1,1,1",
            "VERBATIM_LOG__FORMAT": "json", "VERBATIM_LOG__LEVEL": "info", "VERBATIM_CONSOLE__ENABLED": "false",
            "VERBATIM_STS__ENABLED": "false", "VERBATIM_SPEAK__ENABLED": "false", "VERBATIM_SPEAKERS__MODELS": "off",
        }
        command = [self.options.binary, "serve", "--listen", "127.0.0.1:0", "--threads", "1", "--device", "cpu",
                   "--model", self.options.model, *self.options.more]
        self.process = subprocess.Popen(command, env=os.environ | settings, stderr=subprocess.PIPE, text=True)
        life = {"events": [], "killed": None, "ready": threading.Event(), "last": "", "warnings": collections.Counter()}
        self.lives.append(life)
        threading.Thread(target=self.read, args=(self.process, life), daemon=True).start()

    def read(self, process, life):
        for line in process.stderr:
            life["last"] = line
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            message = entry.get("message")
            if message == "listening":
                self.port = int(entry["address"].rsplit(":", 1)[1])
                life["ready"].set()
            elif message in ("job claimed", "job run"):
                at = datetime.datetime.fromisoformat(entry["timestamp"].replace("Z", "+00:00")).timestamp()
                life["events"].append((at, message, entry["id"], entry["epoch"], entry.get("outcome")))
            elif entry.get("level") in ("WARN", "ERROR"):
                life["warnings"][message] += 1

    def is_up(self) -> bool:
        return self.lives[-1]["ready"].is_set() and self.process.poll() is None

    def wait(self, seconds=120):
        if not self.lives[-1]["ready"].wait(seconds):
            sys.exit(f"{self.name} does not start: {self.lives[-1]['last']}")

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.lives[-1]["killed"] = time.time()


def submit(node: Node, key: str, receiver: Receiver, audio: bytes, number: int):
    """The id of the job, or a reason why there is none."""
    callback = urllib.parse.urlencode({"callback": f"http://127.0.0.1:{receiver.port}/", "tag": f"job-{number}"})
    connection = http.client.HTTPConnection("127.0.0.1", node.port or 1, timeout=30)
    try:
        connection.request("POST", f"/v1/listen?{callback}", audio, {"authorization": f"Bearer {key}"})
        answer = connection.getresponse()
        body = answer.read()
        if answer.status == 200:
            return json.loads(body)["request_id"], None
        wait = answer.getheader("retry-after")
        return None, f"{answer.status}" + ("" if wait else " without Retry-After")
    except (OSError, http.client.HTTPException, ValueError) as error:
        return None, type(error).__name__
    finally:
        connection.close()


def overlaps(nodes: list) -> tuple:
    """How often two workers had one job at once, and how often a job was begun."""
    runs = collections.defaultdict(list)
    for node in nodes:
        for life in node.lives:
            begun = {}
            for at, message, name, epoch, _ in life["events"]:
                if message == "job claimed":
                    begun[name, epoch] = at
                elif (name, epoch) in begun:
                    runs[name].append((begun.pop((name, epoch)), at))
            for (name, _), at in begun.items():
                runs[name].append((at, life["killed"] or time.time()))
    twice = 0
    for spans in runs.values():
        spans.sort()
        twice += sum(later[0] < earlier[1] for earlier, later in itertools.pairwise(spans))
    return twice, sum(map(len, runs.values()))


def words_of(body: bytes):
    answer = json.loads(body)
    try:
        return answer["results"]["channels"][0]["alternatives"][0]["transcript"]
    except (KeyError, TypeError):
        return f"error: {answer.get('error', {}).get('err_code')}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--nats-server", default=str(Path.home() / ".cache/verbatim/nats-server/nats-server"))
    parser.add_argument("--model", default="tiny.en")
    parser.add_argument("--more", nargs="*", default=[], help="further arguments of `serve`")
    parser.add_argument("--audio", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--concurrency", type=int, default=2)
    parser.add_argument("--lease-ms", type=int, default=5000)
    parser.add_argument("--kill-every", type=float, default=2.0)
    parser.add_argument("--pause", type=float, default=30.0)
    parser.add_argument("--ahead", type=int, default=100, help="undelivered jobs at which clients wait")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    audio = options.audio.read_bytes()
    folder = Path(tempfile.mkdtemp(prefix="cluster-"))
    keys = folder / "keys"
    make = [options.binary, "keys", "create", "--label", "bench"]
    environment = os.environ | {"VERBATIM_STATE_DIR": str(keys), "XDG_CONFIG_HOME": str(keys)}
    made = subprocess.run(make, env=environment, capture_output=True, text=True, check=True)
    key = next(word for word in made.stdout.split() if word.startswith("org_"))
    receiver, broker = Receiver(), Broker(options.nats_server, folder / "broker")
    nodes = [Node(number, options, broker, receiver, keys) for number in range(NODES)]
    for node in nodes:
        node.wait()

    acknowledged, lock, refusals = {}, threading.Lock(), collections.Counter()
    numbers, stop, begun = itertools.count(), threading.Event(), time.monotonic()

    def client(seed: int) -> None:
        mine = random.Random(seed)
        while True:
            with lock:
                number = next(numbers)
            if number >= options.jobs:
                return
            while not stop.is_set():
                while len(acknowledged) - len(receiver.bodies) > options.ahead and not stop.is_set():
                    time.sleep(0.05)
                up = [node for node in nodes if node.is_up()]
                name, reason = submit(mine.choice(up), key, receiver, audio, number) if up else (None, "no node")
                if name:
                    with lock:
                        acknowledged[name] = number
                    break
                with lock:
                    refusals[reason] += 1
                time.sleep(0.2)

    clients = [threading.Thread(target=client, args=(options.seed + number,)) for number in range(options.clients)]
    for thread in clients:
        thread.start()

    kills = 0
    killing = threading.Event()

    def killer() -> None:
        nonlocal kills
        while not killing.wait(options.kill_every):
            node = chance.choice(nodes)
            if node.is_up():
                node.kill()
                kills += 1
                node.start()

    thread = threading.Thread(target=killer)
    thread.start()

    def at(part: float, what: str, do) -> None:
        while len(acknowledged) < part * options.jobs:
            time.sleep(0.1)
        print(f"{time.monotonic() - begun:6.1f} s  {len(acknowledged):5} accepted, {len(receiver.bodies):5} delivered: {what}", flush=True)
        do()

    def restart() -> None:
        broker.kill()
        time.sleep(1)
        broker.start()

    def lose() -> None:
        broker.kill()
        broker.empty()
        broker.start()

    at(0.25, "the broker is killed and started again", restart)
    at(0.5, "the broker loses its disk", lose)
    at(0.75, f"the broker stands still for {options.pause:g} s", lambda: broker.stand_still(options.pause))
    for client_thread in clients:
        client_thread.join()
    at(1.0, "all are accepted; a kill in the end", lambda: time.sleep(options.kill_every * 2))
    killing.set()
    thread.join()
    last = time.monotonic()
    while not all(name in receiver.bodies for name in list(acknowledged)) and time.monotonic() - last < PATIENCE_SECONDS:
        time.sleep(0.2)
    took = time.monotonic() - begun
    # What is still on its way comes too.
    time.sleep(3)
    for node in nodes:
        node.process.terminate()
    for node in nodes:
        node.process.wait(60)
        node.lives[-1]["killed"] = node.lives[-1]["killed"] or time.time()
    broker.kill()

    twice, runs = overlaps(nodes)
    outcomes = collections.Counter(event[4] for node in nodes for life in node.lives for event in life["events"] if event[4])
    warnings = sum((life["warnings"] for node in nodes for life in node.lives), collections.Counter())
    lost = [name for name in acknowledged if name not in receiver.bodies]
    differing = [name for name, bodies in receiver.bodies.items() if len(bodies) > 1]
    heard = collections.Counter(words_of(body) for bodies in receiver.bodies.values() for body in bodies)
    strangers = [name for name in receiver.bodies if name not in acknowledged]
    print(f"jobs {len(acknowledged)}, kills {kills}, in {took:.0f} s; clients were refused {dict(refusals)}")
    print(f"runs begun {runs}, ended {dict(outcomes)}")
    print(f"deliveries {sum(receiver.deliveries.values())} of {len(receiver.bodies)} results, most of one {max(receiver.deliveries.values(), default=0)}")
    print(f"lost {len(lost)}; results that differ {len(differing)}; one job with two workers at once {twice}; "
          f"delivered without an acknowledgement that arrived {len(strangers)}")
    print(f"words: {dict(heard.most_common(4))}")
    print(f"warnings: {dict(warnings.most_common(12))}")
    if lost or differing or twice:
        print(f"state kept in {folder}; lost: {lost[:5]}")
        sys.exit(1)
    shutil.rmtree(folder, ignore_errors=True)


main()
