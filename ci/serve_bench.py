#!/usr/bin/env python3
"""Measures `tollgate serve` beside its floor, a server of tonic with the same messages that answers a constant (benches/serve).

    ci/serve_bench.py [--quick] [--json FILE] [--shape WORDS]
    ci/serve_bench.py --resp [--quick] [--json FILE] [--rounds N] [--release DIR]
    ci/serve_bench.py --swaps [--quick] [--json FILE] [--rounds N] [--release DIR]

Builds both, and loads them in turns with h2load (Debian's nghttp2-client): the server on one core, the load on another. A gRPC error looks
like a success to h2load, so each run checks the bytes of the answers. For latency, benches/serve/load.rs asks at a fixed rate over a Unix
socket. Without h2load, prints a line that begins with SKIPPED.

Each round is a pair: one turn of each server, and each server is first in half of the rounds. Only ratios within a pair are compared. A ratio
is given twice: over all rounds, and over the quiet ones, in which the floor's figure is within 10 % of its own best. If the system permits
it, the load and the thread of each server that answers have real-time priority; a thread that loads rules has not. Each row has the share of
the time in which the server ran, and in which the thread that answers waited for its core (/proc/PID/task/*/schedstat).

With `--resp`, redis-benchmark asks the face for Redis clients with 64 connections, without pipelines and with pipelines of 16, in turns with
redis-server (INCR, GET) and throttlecrab-server (`cargo install throttlecrab-server`; on the PATH, or named in TOLLGATE_THROTTLECRAB). The
same table has gRPC and JSON by h2load, with 64 requests at a time.

With `--swaps`, asks a service of 10,000 rules 400 times a second beside a busy core: without swaps, while all rules are replaced each second, without
swaps again, and from SIGTERM to the end of the connection. On such a machine most late answers are the scheduler's. So each answer is
given twice: how long it took, and how long without the time in which the thread that answers, or the one that asks, was ready while something
else had its core. The second figure is what the service costs: work, locks and waits in the kernel.
"""
import argparse
import datetime
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median, quantiles

ROOT = Path(__file__).resolve().parent.parent
METHOD = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
OURS, FLOOR, LOAD = "tollgate serve", "floor", "load"
LIMIT, NAME = 1_000_000_000, "per-address"
OK, OVER_LIMIT = 1, 2
HOUR, DAY = 3, 4
CLIENTS, STREAMS = 8, 32
TICKS = os.sysconf("SC_CLK_TCK")
QUIET, ENOUGH = 1.1, 3
SERVER_CORE, LOAD_CORE = sorted(os.sched_getaffinity(0))[0], sorted(os.sched_getaffinity(0))[-1]
RELOAD_EVERY = 2.0


# Messages.

def varint(value):
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value) if value else b""
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def request(descriptors, domain="bench"):
    entries = lambda pairs: b"".join(field(1, field(1, key) + field(2, value)) for key, value in pairs)  # noqa: E731
    return field(1, domain) + b"".join(field(2, entries(pairs)) for pairs in descriptors)


def answer(code, statuses):
    return field(1, code) + b"".join(field(2, status) for status in statuses)


def status(code, limit, unit, left, seconds, name=NAME):
    return field(1, code) + field(2, field(1, limit) + field(2, unit) + field(3, name)) + field(3, left) + field(4, field(1, seconds))


PASSED = status(OK, LIMIT, HOUR, LIMIT - 1, 1)


# Shapes: what is asked, and by which rules it is answered.

def rule(limit=LIMIT, unit="hour", more=""):
    return f"rate_limit: {{ unit: {unit}, requests_per_unit: {limit}, algorithm: gcra, name: {NAME}{more} }}"


def nested(keys, leaf):
    """Returns the rules of descriptors whose entries have these keys."""
    text = "domain: bench\ntollgate: {}\ndescriptors:\n"
    for depth, key in enumerate(keys):
        pad = "  " * (2 * depth + 1)
        text += f"{pad}- key: {key}\n" + (f"{pad}  descriptors:\n" if depth + 1 < len(keys) else f"{pad}  {leaf}\n")
    return text


def many(count, limit=LIMIT):
    tenants = "".join(f"  - key: tenant\n    value: tenant-{i}\n    {rule(limit)}\n" for i in range(count))
    return "domain: bench\ntollgate: {}\ndescriptors:\n" + tenants


KEYS = ["route", "method", "user", "remote_address"]
ADDRESS = ("remote_address", "192.0.2.17")


def pairs(count, index):
    values = ["checkout", "POST", "alice@example.org"]
    return [*zip(KEYS[-count:-1], values), ("remote_address", f"192.0.2.{index}")]


class Shape:
    def __init__(self, name, rules, asked, answered, *, tls=False, redis=False):
        self.name, self.rules, self.tls, self.redis = name, rules, tls, redis
        self.request, self.answer = asked, answered


ONE, FOUR, SIXTEEN = "1 descriptor of 1 entry", "4 descriptors of 2 entries", "16 descriptors of 4 entries"
DESCRIPTORS = {ONE: 1, FOUR: 4, SIXTEEN: 16}
SHAPES = [
    Shape(ONE, nested(KEYS[-1:], rule()), request([[ADDRESS]]), answer(OK, [PASSED])),
    Shape(FOUR, nested(KEYS[-2:], rule()), request([pairs(2, i) for i in range(4)]), answer(OK, [PASSED] * 4)),
    Shape(SIXTEEN, nested(KEYS, rule()), request([pairs(4, i) for i in range(16)]), answer(OK, [PASSED] * 16)),
    Shape("all refused", nested(KEYS[-1:], rule(1, "day")), request([[ADDRESS]]),
          answer(OVER_LIMIT, [status(OVER_LIMIT, 1, DAY, 0, 86_000)])),
    Shape("unknown domain", nested(KEYS[-1:], rule()), request([[ADDRESS]], "other"), answer(OK, [field(1, OK)])),
    Shape("10,000 rules", many(10_000), request([[("tenant", "tenant-7777")]]), answer(OK, [PASSED])),
    Shape("TLS", nested(KEYS[-1:], rule()), request([[ADDRESS]]), answer(OK, [PASSED]), tls=True),
    Shape("leases from Redis", nested(KEYS[-1:], rule(more=", store: redis")), request([[ADDRESS]]), answer(OK, [PASSED]), redis=True),
]


# Processes.

def real_time(thread=0):
    """Gives a thread real-time priority, or this process. Returns whether the system permits it."""
    try:
        os.sched_setscheduler(thread, os.SCHED_FIFO, os.sched_param(1))
    except (AttributeError, PermissionError):
        return False
    return True


def permits_real_time():
    if not real_time():
        return False
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    return True


def pinned(core, urgent=False):
    def prepare():
        os.sched_setaffinity(0, {core})
        if urgent:
            real_time()
    return {"preexec_fn": prepare}


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Process:
    """A server that is pinned to its core, and stopped at the end."""

    def __init__(self, command, address, **options):
        self.address, self.lines, self.answering = address, [], None
        self.child = subprocess.Popen([*map(str, command)], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, **options)
        threading.Thread(target=lambda: self.lines.extend(self.child.stderr), daemon=True).start()
        end = time.monotonic() + 30
        while True:
            try:
                return self.connect().close()
            except OSError:
                if self.child.poll() is not None or time.monotonic() > end:
                    self.stop()
                    sys.exit(f"{command[0]} does not listen: {''.join(self.lines)}")
                time.sleep(0.02)

    def connect(self):
        """Connects to a port, or to the path of a Unix socket."""
        if isinstance(self.address, int):
            return socket.create_connection(("127.0.0.1", self.address), 1)
        client = socket.socket(socket.AF_UNIX)
        client.connect(str(self.address))
        return client

    def threads(self):
        """Returns for each thread how long it ran, and how long it was ready while something else had its core, in nanoseconds."""
        tasks = Path(f"/proc/{self.child.pid}/task").glob("*/schedstat")
        return {int(task.parent.name): tuple(map(int, task.read_text().split()[:2])) for task in tasks}

    def hurry(self, before):
        """Gives the thread that answers real-time priority. It is the one that ran most since `before`."""
        now = self.threads()
        self.answering = max(now, key=lambda thread: now[thread][0] - before.get(thread, (0, 0))[0])
        real_time(self.answering)

    def waited_s(self):
        return self.threads()[self.answering][1] / 1e9 if self.answering else 0.0

    def cpu_s(self):
        fields = Path(f"/proc/{self.child.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def stop(self):
        self.child.kill()
        self.child.wait()


class Scene:
    """One shape: both servers, and the body of a request."""

    def __init__(self, shape, folder, *, sockets=False):
        self.shape, self.folder = shape, folder
        self.rules, self.body = folder / "rules.yaml", folder / "body"
        self.rules.write_text(shape.rules)
        self.body.write_bytes(b"\0" + len(shape.request).to_bytes(4, "big") + shape.request)
        self.redis = None
        ours, floor = (folder / "ours", folder / "floor") if sockets else (free_port(), free_port())
        command = {
            OURS: [BINARIES[OURS], "serve", self.rules, *(["--grpc-socket", ours] if sockets else ["--grpc", f"127.0.0.1:{ours}"]),
                   "--http", "off", "--debug", "off", "--log", "info"],
            FLOOR: [BINARIES[FLOOR], floor if sockets else f"127.0.0.1:{floor}", shape.answer.hex()],
        }
        if shape.tls:
            cert, key = certificate(folder)
            command[OURS] += ["--tls-cert", cert, "--tls-key", key]
            command[FLOOR] += [cert, key]
        if shape.redis:
            port = free_port()
            self.redis = Process(["redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", folder], port, **pinned(LOAD_CORE))
            command[OURS] += ["--redis", f"redis://127.0.0.1:{port}"]
        environment = {name: value for name, value in os.environ.items() if name == "PATH"}
        self.servers = {subject: Process(command[subject], address, env=environment, **pinned(SERVER_CORE))
                        for subject, address in ((OURS, ours), (FLOOR, floor))}

    def load(self, server, *options):
        """Loads a server, and returns what h2load says and its CPU time."""
        is_port = isinstance(server.address, int)
        url = f"{'https' if self.shape.tls else 'http'}://127.0.0.1:{server.address if is_port else 80}{METHOD}"
        command = ["h2load", "-t", "1", "-c", str(CLIENTS), "-m", str(STREAMS), "-H", "content-type: application/grpc", "-H", "te: trailers",
                   "-d", str(self.body), *([] if is_port else ["-B", f"unix:{server.address}"]), *map(str, options), url]
        before = os.times()
        done = subprocess.run(command, capture_output=True, text=True, check=True, **pinned(LOAD_CORE, urgent=True))
        after = os.times()
        cpu = after.children_user + after.children_system - before.children_user - before.children_system
        return done.stdout, cpu

    def turn(self, subject, requests):
        """Returns the figures of one run with a number of requests."""
        server = self.servers[subject]
        before, waited = server.cpu_s(), server.waited_s()
        said, load_cpu = self.load(server, "-n", requests)
        cpu, waited = server.cpu_s() - before, server.waited_s() - waited
        self.check(subject, said, requests)
        amount, unit = re.search(r"finished in ([\d.]+)(us|ms|s),", said).groups()
        seconds = float(amount) * {"us": 1e-6, "ms": 1e-3, "s": 1.0}[unit]
        return {"requests_per_s": requests / seconds, "cpu_us": 1e6 * cpu / requests, "server_busy": cpu / seconds, "server_waits": waited / seconds, "load_busy": load_cpu / seconds}

    def check(self, subject, said, requests):
        """Ends the program if not all requests had the expected answer."""
        succeeded = int(re.search(r"(\d+) succeeded", said).group(1))
        data = int(re.search(r"\((\d+)\) data", said).group(1))
        expected = requests * (5 + len(self.shape.answer))
        # A process that leases units knows how many of its own units are left, so the number has fewer digits.
        least = expected if not self.shape.redis else 0.9 * expected
        if succeeded != requests or not least <= data <= expected:
            sys.exit(f"{self.shape.name}, {subject}: {succeeded} of {requests} requests succeeded, with {data} bytes instead of {expected}")

    def warm_up(self, requests):
        """Asks both servers, and gives the threads that answer real-time priority."""
        for subject, server in self.servers.items():
            before = server.threads()
            self.turn(subject, requests)
            server.hurry(before)

    def stop(self):
        for process in (*self.servers.values(), self.redis):
            if process:
                process.stop()


def certificate(folder):
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj",
                    "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", cert], check=True, capture_output=True)
    return cert, key


# Measuring.

def spread(values):
    """Returns the least value, the quartiles and the greatest value."""
    if len(values) == 1:
        return values * 5
    return [min(values), *quantiles(values, n=4, method="inclusive"), max(values)]


def order(number):
    """Returns the servers in the order of a round: each is first in half of them."""
    return (FLOOR, OURS) if number % 2 == 0 else (OURS, FLOOR)


def ratio(turns, name, quiet_by=None, most=False, ours=OURS, floor=FLOOR):
    """Returns the ratios of a figure of one row to the floor's, or to that of another row, over all rounds and over the quiet ones.

    `quiet_by` is the floor's figure that tells which rounds are quiet. The tail of a latency cannot: the rounds in which it is short are
    those in which the floor was lucky. `most` says that more is better.
    """
    better = max if most else min
    quiet_by = quiet_by or name
    best = better(turn[quiet_by] for turn in turns[floor])
    ratios = [mine[name] / other[name] for mine, other in zip(turns[ours], turns[floor])]
    is_quiet = [max(best, turn[quiet_by]) <= min(best, turn[quiet_by]) * QUIET for turn in turns[floor]]
    quiet = [ratio for ratio, is_quiet in zip(ratios, is_quiet) if is_quiet]
    return {"all": spread(ratios), "quiet": spread(quiet), "quiet_rounds": len(quiet)}


def said_of(found):
    """Returns the words for a ratio."""
    return f"{found['all'][2]:.3f} (quiet: {found['quiet'][2]:.3f}, {found['quiet_rounds']} rounds)"


def measure(shape, rounds, requests):
    with tempfile.TemporaryDirectory() as folder:
        scene = Scene(shape, Path(folder))
        try:
            turns = {FLOOR: [], OURS: []}
            scene.warm_up(max(2_000, requests // 20))
            for number in range(rounds):
                for subject in order(number):
                    turns[subject].append(scene.turn(subject, requests))
        finally:
            scene.stop()
    rows = [{"shape": shape.name, "descriptors": DESCRIPTORS.get(shape.name), "subject": subject} | {name: spread([turn[name] for turn in found]) for name in found[0]}
            for subject, found in turns.items()]
    rows[1] |= {"ratio_requests_per_s": ratio(turns, "requests_per_s", most=True), "ratio_cpu": ratio(turns, "cpu_us")}
    for row in rows:
        print(f"{shape.name}, {row['subject']}: {row['requests_per_s'][2]:,.0f} requests/s, {row['cpu_us'][2]:.2f} µs of CPU, "
              f"server {row['server_busy'][2]:.0%} busy and {row['server_waits'][2]:.1%} waiting, load {row['load_busy'][2]:.0%}"
              + (f"; of the floor's requests {said_of(row['ratio_requests_per_s'])}, of its CPU time {said_of(row['ratio_cpu'])}" if row is rows[1] else ""), flush=True)
    return rows


LATE = ("p50_us", "p99_us", "p99_9_us", "worst_us", "pause_us")


def latency(shape, share, rate, rounds, seconds, reload=False):
    """Returns the latency of the floor and of ours at a rate, in turns, in microseconds."""
    with tempfile.TemporaryDirectory() as folder:
        scene = Scene(shape, Path(folder), sockets=True)
        ended = threading.Event()
        reloader = threading.Thread(target=reload_until, args=(scene.rules, ended))
        turns = {FLOOR: [], OURS: []}
        try:
            scene.warm_up(2_000)
            if reload:
                reloader.start()
            for number in range(rounds):
                for subject in order(number):
                    server = scene.servers[subject]
                    before, waited, began = server.cpu_s(), server.waited_s(), time.monotonic()
                    command = [BINARIES[LOAD], server.address, shape.request.hex(), int(rate), seconds, len(shape.answer)]
                    said = subprocess.run([*map(str, command)], stdout=subprocess.PIPE, text=True, check=True, **pinned(LOAD_CORE, urgent=True)).stdout
                    took = time.monotonic() - began
                    shares = {"server_busy": (server.cpu_s() - before) / took, "server_waits": (server.waited_s() - waited) / took}
                    turns[subject].append(json.loads(said) | shares)
            ended.set()
            reloads = sum("the rules changed" in line for line in scene.servers[OURS].lines)
        finally:
            ended.set()
            scene.stop()
    if reload and reloads == 0:
        sys.exit("no reload happened")
    rows = []
    for subject, found in turns.items():
        row = {"subject": subject, "share": share, "rate": int(rate), "reloads": reloads if subject == OURS else 0}
        row |= {name: sum(turn[name] for turn in found) for name in ("requests", "later_than_20_ms")}
        row |= {name: spread([turn[name] for turn in found]) for name in (*LATE, "server_busy", "server_waits")}
        if subject == OURS:
            row |= {f"ratio_{name}": ratio(turns, f"{name}_us", quiet_by="p50_us") for name in ("p50", "p99", "p99_9")}
        rows.append(row)
        print(f"{row['rate']:,} requests/s, {subject}: " + ", ".join(f"{name} {row[name][2]:,.0f}" for name in LATE)
              + f"; server {row['server_busy'][2]:.0%} busy and {row['server_waits'][2]:.1%} waiting; {row['later_than_20_ms']} of {row['requests']:,} later than 20 ms; {row['reloads']} reloads"
              + ("; of the floor's: " + ", ".join(f"{name} {said_of(row[f'ratio_{name}'])}" for name in ("p50", "p99", "p99_9")) if subject == OURS else ""), flush=True)
    return rows


def reload_until(rules, ended):
    """Replaces the rules again and again: each load changes all limits."""
    number = 0
    while not ended.wait(RELOAD_EVERY):
        number += 1
        changed = rules.with_suffix(".new")
        changed.write_text(many(10_000, LIMIT + number))
        changed.rename(rules)


def target(name, bound, ratio, inverse=False):
    """Returns a target. Enough quiet rounds decide whether it holds, or else all rounds."""
    turned = (lambda five: [1 / x for x in reversed(five)]) if inverse else (lambda five: five)
    every, quiet = turned(ratio["all"]), turned(ratio["quiet"])
    value = {"q1": every[1], "median": every[2], "q3": every[3], "quiet": quiet[2], "quiet_rounds": ratio["quiet_rounds"]}
    return {"target": name, "bound": bound, "value": value, "holds": value["quiet" if value["quiet_rounds"] >= ENOUGH else "median"] <= bound}


def targets(rows, latencies):
    found, ours = [], {row["shape"]: row for row in rows if row["subject"] == OURS}
    for name in DESCRIPTORS:
        if name in ours:
            found.append(target(f"serve, {name}: the floor's requests per second against ours", 1 / 0.9, ours[name]["ratio_requests_per_s"], inverse=True))
            found.append(target(f"serve, {name}: CPU time per request against the floor's", 1.1, ours[name]["ratio_cpu"]))
    for row in latencies:
        if row["subject"] == OURS:
            where = "while 10,000 rules are loaded again" if row["reloads"] else f"at {row['share']:.0%} of the most requests".replace("%", " %")
            found.append(target(f"serve, {where}: p99.9 against the floor's", 1.1, row["ratio_p99_9"]))
    return found


# Redis clients.

PIPELINES = (1, 16)
RESP_RULES = f"domain: bench\ntollgate: {{}}\ndescriptors:\n  - key: remote_address\n    {rule()}\n"
QUOTA = ["key:__rand_int__", 99, 1_000_000, 3600]
THROTTLE, CHECK, INCR, GET, OTHER = "CL.THROTTLE", "TOLLGATE.CHECK", "INCR of redis-server", "GET of redis-server", "THROTTLE of throttlecrab-server"
COMMANDS = {THROTTLE: (OURS, ["CL.THROTTLE", *QUOTA]), CHECK: (OURS, ["TOLLGATE.CHECK", "bench", "remote_address", "key:__rand_int__"]),
            OTHER: ("throttlecrab", ["THROTTLE", *QUOTA]), INCR: ("redis-server", ["INCR", "key:__rand_int__"]), GET: ("redis-server", ["GET", "key:__rand_int__"])}


def resp_servers(folder):
    """Starts the servers that exist, on one core. Returns them with their ports."""
    rules = folder / "rules.yaml"
    rules.write_text(RESP_RULES)
    ports = {name: free_port() for name in ("resp", "grpc", "http", "redis", "throttlecrab")}
    at = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
    commands = {
        OURS: ([BINARIES[OURS], "serve", rules, "--resp", at["resp"], "--grpc", at["grpc"], "--http", at["http"], "--debug", "off"], ports["resp"]),
        "redis-server": (["redis-server", "--port", ports["redis"], "--bind", "127.0.0.1", "--save", "", "--dir", folder], ports["redis"]),
    }
    other = os.environ.get("TOLLGATE_THROTTLECRAB") or shutil.which("throttlecrab-server")
    if other:
        commands["throttlecrab"] = ([other, "--redis", "--redis-host", "127.0.0.1", "--redis-port", ports["throttlecrab"]], ports["throttlecrab"])
    else:
        print("SKIPPED: throttlecrab-server cannot be found")
    environment = {name: value for name, value in os.environ.items() if name == "PATH"}
    return {name: Process(command, port, env=environment, **pinned(SERVER_CORE)) for name, (command, port) in commands.items()}, ports


def resp_rows(servers, ports, folder):
    """Returns the rows of the table: a name and a pipeline, the server, and the command that asks it."""
    rows = {}
    for pipeline in PIPELINES:
        for name, (subject, words) in COMMANDS.items():
            if subject in servers:
                command = ["redis-benchmark", "-p", servers[subject].address, "-c", 64, "-P", pipeline, "-r", 100_000, "-q", "-n", "REQUESTS", *words]
                rows[name, pipeline] = (subject, command)
    if shutil.which("h2load"):
        question = request([[("remote_address", "192.0.2.1")]])
        (folder / "grpc").write_bytes(b"\0" + len(question).to_bytes(4, "big") + question)
        entries = [{"entries": [{"key": "remote_address", "value": "192.0.2.1"}]}]
        (folder / "json").write_text(json.dumps({"domain": "bench", "descriptors": entries}))
        rows["gRPC", 1] = (OURS, ["h2load", "-t", 1, "-c", 8, "-m", 8, "-H", "content-type: application/grpc", "-H", "te: trailers", "-d", folder / "grpc",
                                  "-n", "REQUESTS", f"http://127.0.0.1:{ports['grpc']}{METHOD}"])
        rows["JSON", 1] = (OURS, ["h2load", "--h1", "-t", 1, "-c", 64, "-d", folder / "json", "-n", "REQUESTS", f"http://127.0.0.1:{ports['http']}/json"])
    return rows


def resp_targets(turns):
    """Returns the targets of the face for Redis clients: the other servers' requests against ours, and our processor time against theirs."""
    found = []
    for ours in (THROTTLE, CHECK):
        for pipeline, others in ((1, (OTHER, INCR, GET)), (PIPELINES[1], (OTHER, INCR))):
            for other in others:
                if (other, pipeline) in turns:
                    rows, how = {"ours": (ours, pipeline), "floor": (other, pipeline)}, f"pipelines of {pipeline}" if pipeline > 1 else "no pipelines"
                    found.append(target(f"serve, {ours}, {how}: requests per second of {other} against ours", 1 if pipeline == 1 or other == OTHER else 1 / 0.8,
                                        ratio(turns, "requests_per_s", most=True, **rows), inverse=True))
                    if other == OTHER and pipeline == 1:
                        found.append(target(f"serve, {ours}, {how}: CPU time against {other}", 0.8, ratio(turns, "cpu_us", **rows)))
    return found


def resp_turn(server, command, requests):
    before = server.cpu_s()
    command = [str(requests) if word == "REQUESTS" else str(word) for word in command]
    done = subprocess.run(command, capture_output=True, text=True, check=True, **pinned(LOAD_CORE))
    cpu = server.cpu_s() - before
    found = re.findall(r"([\d.]+) requests per second|, ([\d.]+) req/s", done.stdout.replace("\r", "\n"))
    if "Error" in done.stdout or not found:
        sys.exit(f"{' '.join(command)}: {done.stdout[-500:]}{done.stderr[-500:]}")
    return {"requests_per_s": float(max(found[-1])), "cpu_us": 1e6 * cpu / requests}


def resp(rounds, requests):
    with tempfile.TemporaryDirectory() as name:
        folder, servers = Path(name), {}
        try:
            servers, ports = resp_servers(folder)
            rows = resp_rows(servers, ports, folder)
            turns = {name: [] for name in rows}
            for number in range(rounds):
                for name in rows if number % 2 == 0 else reversed(rows):
                    subject, command = rows[name]
                    turns[name].append(resp_turn(servers[subject], command, requests))
        finally:
            for server in servers.values():
                server.stop()
    for (name, pipeline), found in turns.items():
        print(f"{name}, pipelines of {pipeline}: {median(turn['requests_per_s'] for turn in found):,.0f} requests/s, {median(turn['cpu_us'] for turn in found):.2f} µs of processor time for each")
    found = resp_targets(turns)
    for one in found:
        print(f"{'met' if one['holds'] else 'MISSED'}: {one['target']}: {one['value']['median']:.3f} (quiet: {one['value']['quiet']:.3f}, {one['value']['quiet_rounds']} rounds), at most {one['bound']:.3f}")
    return {"rows": [{"command": name, "pipeline": pipeline} | {key: spread([turn[key] for turn in rounds]) for key in rounds[0]} for (name, pipeline), rounds in turns.items()], "targets": found}


# Swaps and drains.

SWAP_RATE, LATE_MS = 400, 5


class Answering:
    """A service with one thread that answers, and a connection to its plain face."""

    def __init__(self, folder):
        self.rules, port = folder / "rules.yaml", free_port()
        command = [BINARIES[OURS], "serve", self.rules, "--http", f"127.0.0.1:{port}", "--grpc", "off", "--debug", "off", "--threads", 1, "--log", "info", "--drain", "300ms"]
        self.server = Process(command, port)
        tasks = sorted(Path(f"/proc/{self.server.child.pid}/task").iterdir(), key=lambda task: int(task.name))
        # Threads that may block have the same name, and start later.
        thread = next(task for task in tasks if (task / "comm").read_text() == "tollgate-serve\n")
        self.waits = [open(path, "rb", buffering=0) for path in (thread / "schedstat", "/proc/thread-self/schedstat")]
        self.stream = self.server.connect()
        self.stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def waited_ms(self):
        """Returns how long the thread that answers and this one were ready while something else had their cores."""
        try:
            return sum(int(os.pread(file.fileno(), 99, 0).split()[1]) for file in self.waits) / 1e6
        except ProcessLookupError:
            return 0.0

    def ask(self, number):
        """Returns how long an answer took, and how long without waits for a core; `None` if the service has ended the connection."""
        body = json.dumps({"domain": "bench", "descriptors": [{"entries": [{"key": "tenant", "value": f"tenant-{number * 7_919 % 10_000}"}]}]}).encode()
        waited, began, said = self.waited_ms(), time.monotonic(), b""
        try:
            self.stream.sendall(b"POST /json HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
            while not (whole := re.match(rb"HTTP/1.1 200 .*?content-length: (\d+)\r.*?\r\n\r\n", said, re.DOTALL)) or len(said) < whole.end() + int(whole[1]):
                more = self.stream.recv(65_536)
                if not more and said:
                    sys.exit(f"an answer was cut: {said}")
                if not more:
                    return None
                said += more
        except ConnectionError:
            return None
        took = 1e3 * (time.monotonic() - began)
        return took, took - max(0, self.waited_ms() - waited)

    def ask_for(self, seconds, ends=False):
        """Asks at the rate for a time, or until the service ends the connection, if it `ends`."""
        began, found = time.monotonic(), []
        for number in range(int(SWAP_RATE * seconds)):
            time.sleep(max(0, began + number / SWAP_RATE - time.monotonic()))
            if not (took := self.ask(number)):
                break
            found.append(took)
        if not ends and not took:
            sys.exit("the service ended the connection")
        return found

    def stop(self):
        self.server.stop()
        for file in (*self.waits, self.stream):
            file.close()


def swap_for(rules, count):
    """Replaces all rules each second. A process of its own does, because threads of Python would wait for each other."""
    texts = [rules.with_suffix(f".{number}") for number in (1, 2)]
    for number, path in enumerate(texts):
        path.write_text(many(10_000, LIMIT + 1 + number))
    code = ("import os, shutil, sys, time\nrules, count, *texts = sys.argv[1:]\nfor number in range(int(count)):\n"
            "    time.sleep(1)\n    os.rename(shutil.copy(texts[number % 2], rules + '.new'), rules)")
    return subprocess.Popen([sys.executable, "-c", code, rules, str(count), *texts])


def swaps(count, drains):
    found = {}
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"], **pinned(SERVER_CORE))
    try:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "rules.yaml").write_text(many(10_000))
            service = Answering(folder)
            try:
                service.ask_for(1)
                found["no swaps"] = service.ask_for(count)
                swapping = swap_for(service.rules, count)
                found[f"{count} swaps"] = []
                while swapping.poll() is None:
                    found[f"{count} swaps"] += service.ask_for(1)
                found["no swaps again"] = service.ask_for(count)
                loads = sum("the rules changed" in line for line in service.server.lines)
            finally:
                service.stop()
            if not 0 < loads <= count:
                sys.exit(f"{loads} of {count} swaps were loads")
            found[f"{drains} drains"] = []
            for _ in range(drains):
                service = Answering(folder)
                try:
                    service.ask_for(0.2)
                    service.server.child.terminate()
                    found[f"{drains} drains"] += service.ask_for(5, ends=True)
                    service.server.child.wait(10)
                finally:
                    service.stop()
    finally:
        busy.kill()
        busy.wait()
    rows = []
    for phase, answers in found.items():
        row = {"phase": phase, "answers": len(answers), "loads": loads}
        for name, values in zip(("took", "without_waits"), map(sorted, zip(*answers))):
            row[name] = {"p50_ms": median(values), "p99_9_ms": values[len(values) * 999 // 1_000], "worst_ms": values[-1], "late": sum(value > LATE_MS for value in values)}
        rows.append(row)
        print(f"{phase}: {len(answers):,} answers; " + "; ".join(
            f"{words}: {row[name]['late']} later than {LATE_MS} ms, p50 {row[name]['p50_ms']:.3f}, p99.9 {row[name]['p99_9_ms']:.3f}, worst {row[name]['worst_ms']:.3f} ms"
            for name, words in (("took", "as asked"), ("without_waits", "without waits for a core"))), flush=True)
    return {"rows": rows}


def machine():
    models = re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    said = lambda *command: subprocess.run(command, capture_output=True, text=True).stdout.strip() if shutil.which(command[0]) else "none"  # noqa: E731
    return {"date": datetime.date.today().isoformat(), "cpu": models[0] if models else "unknown", "cores": os.cpu_count(),
            "rustc": said("rustc", "--version"), "h2load": said("h2load", "--version"), "real_time": permits_real_time(), "load_average": " ".join(Path("/proc/loadavg").read_text().split()[:3])}


parser = argparse.ArgumentParser(description="Measures `tollgate serve` beside its floor.")
parser.add_argument("--quick", action="store_true", help="few and short rounds, which only test the steps")
parser.add_argument("--json", type=Path, help="where the figures are written")
parser.add_argument("--shape", help="only the shapes whose name contains these words, and no latency")
parser.add_argument("--rounds", type=int)
parser.add_argument("--resp", action="store_true", help="measure the face for Redis clients instead")
parser.add_argument("--swaps", action="store_true", help="measure answers during swaps of rules and drains instead")
parser.add_argument("--release", type=Path, help="with --resp or --swaps: the folder of the program, instead of a build")
arguments = parser.parse_args()
if arguments.resp or arguments.swaps:
    if arguments.resp and (SERVER_CORE == LOAD_CORE or not shutil.which("redis-benchmark")):
        print("SKIPPED: the bench of Redis clients needs redis-benchmark and two cores")
        sys.exit(0)
    if not arguments.release:
        subprocess.run(["cargo", "build", "--quiet", "--release", "-p", "tollgate-cli", "--features", "serve"], cwd=ROOT, check=True)
    built = arguments.release or Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"
    BINARIES = {OURS: built / "tollgate"}
    if arguments.swaps:
        count, drains = (3, 2) if arguments.quick else (arguments.rounds or 60, 20)
        report = {"machine": machine(), "quick": arguments.quick} | swaps(count, drains)
        if arguments.json:
            arguments.json.write_text(json.dumps(report))
        sys.exit(0)
    rounds, requests = (1, 20_000) if arguments.quick else (10, 200_000)
    rounds = arguments.rounds or rounds
    report = {"machine": machine(), "quick": arguments.quick, "rounds": rounds, "requests": requests} | resp(rounds, requests)
    if arguments.json:
        arguments.json.write_text(json.dumps(report))
    sys.exit(0)
missing = [program for program in ("h2load", "openssl", "redis-server") if not shutil.which(program)]
if "h2load" in missing or SERVER_CORE == LOAD_CORE:
    print("SKIPPED: the bench of the service needs h2load (Debian's nghttp2-client) and two cores")
    sys.exit(0)
for command in (["-p", "tollgate-cli", "--features", "serve"], ["-p", "tollgate-serve-floor"]):
    subprocess.run(["cargo", "build", "--quiet", "--release", *command], cwd=ROOT, check=True)
target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"
BINARIES = {OURS: target / "tollgate", FLOOR: target / "tollgate-serve-floor", LOAD: target / "tollgate-serve-load"}
rounds, requests, seconds = (2, 5_000, 2) if arguments.quick else (10, 50_000, 2)
rounds = arguments.rounds or rounds
report = {"machine": machine(), "quick": arguments.quick, "rounds": rounds, "requests": requests, "rows": [], "latency": []}
for shape in SHAPES:
    lacks = ("openssl" if shape.tls else "redis-server" if shape.redis else "") in missing
    if lacks:
        print(f"SKIPPED: {shape.name} needs {'openssl' if shape.tls else 'redis-server'}")
    elif not arguments.shape or arguments.shape in shape.name:
        report["rows"] += measure(shape, rounds, requests)
if not arguments.shape:
    most = next(row for row in report["rows"] if row["subject"] == OURS)["requests_per_s"][2]
    for share in (0.25, 0.5, 0.75):
        report["latency"] += latency(SHAPES[0], share, share * most, rounds, seconds)
    report["latency"] += latency(SHAPES[5], 0.5, 0.5 * most, rounds, seconds, reload=True)
report["targets"] = targets(report["rows"], report["latency"])
if arguments.json:
    arguments.json.write_text(json.dumps(report))
