#!/usr/bin/env python3
"""Measures `tollgate serve` beside other servers, in turns: the server on one core, the load on another.

    ci/serve_bench.py            beside its floor, a server of tonic with the same messages that answers a constant (benches/serve)
    ci/serve_bench.py --resp     with Redis clients, beside redis-server and throttlecrab-server (TOLLGATE_THROTTLECRAB, or on the PATH)
    ci/serve_bench.py --swaps    answers of a service of 10,000 rules during swaps of rules and drains, beside a busy core

Only ratios within a round are compared, and each server is first in half of the rounds. A ratio is given twice: over all rounds, and over
the quiet ones, in which the other server's figure is within 10 % of its own best. If the system permits it, the load and the thread of each
server that answers have real-time priority; a thread that loads rules has not. A gRPC error looks like a success to h2load, so each run
checks the bytes of the answers. Without h2load (Debian's nghttp2-client), prints a line that begins with SKIPPED.

With `--swaps`, most late answers are those of the scheduler, because a core is busy. So each answer is given twice: how long it took, and
how long without the time in which the thread that answers, or the one that asks, was ready while something else had its core. The second
figure is what the service costs: work, locks and waits in the kernel.
"""
import argparse
import datetime
import http.client
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
OURS, FLOOR, LOAD = "tollgate serve", "floor", "load"
PROGRAMS = {OURS: "tollgate", FLOOR: "tollgate-serve-floor", LOAD: "tollgate-serve-load"}
METHOD = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
GRPC = ["h2load", "-t", 1, "-H", "content-type: application/grpc", "-H", "te: trailers"]
LIMIT, NAME = 1_000_000_000, "per-address"
SERVER_CORE, LOAD_CORE = min(os.sched_getaffinity(0)), max(os.sched_getaffinity(0))


# What is asked, and by which rules it is answered.

def field(number, value):
    """Returns a field of a protobuf message: a number, a text, or a message."""
    def varint(value):
        return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)

    if isinstance(value, int):
        return varint(number << 3) + varint(value) if value else b""
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def request(*descriptors, domain="bench"):
    entries = [b"".join(field(1, field(1, key) + field(2, value)) for key, value in pairs) for pairs in descriptors]
    return field(1, domain) + b"".join(field(2, descriptor) for descriptor in entries)


def answer(count=1, code=1, limit=LIMIT, unit=3, left=LIMIT - 1, seconds=1):
    """Returns an answer whose descriptors all have the same status."""
    rule = field(2, field(1, limit) + field(2, unit) + field(3, NAME))
    return field(1, code) + field(2, field(1, code) + rule + field(3, left) + field(4, field(1, seconds))) * count


def rule(limit=LIMIT, unit="hour", **more):
    return {"rate_limit": {"unit": unit, "requests_per_unit": limit, "algorithm": "gcra", "name": NAME, **more}}


def nested(leaf, keys=("remote_address",)):
    """Returns the rules of descriptors whose entries have these keys, as JSON, which is YAML too."""
    for key in reversed(keys):
        leaf = {"descriptors": [{"key": key, **leaf}]}
    return json.dumps({"domain": "bench", "tollgate": {}, **leaf})


def many(limit=LIMIT):
    """Returns rules for 10,000 tenants."""
    tenants = [{"key": "tenant", "value": f"tenant-{number}", **rule(limit)} for number in range(10_000)]
    return json.dumps({"domain": "bench", "tollgate": {}, "descriptors": tenants})


def pairs(count, number):
    """Returns a descriptor with this many entries."""
    entries = {"route": "checkout", "method": "POST", "user": "alice@example.org", "remote_address": f"192.0.2.{number}"}
    return list(entries.items())[-count:]


KEYS = [key for key, _ in pairs(4, 0)]
ONE = request(pairs(1, 17))
# Names, rules, requests, answers, and programs without which they cannot be measured.
SHAPES = [
    ("1 descriptor of 1 entry", nested(rule()), ONE, answer(), "h2load"),
    ("4 descriptors of 2 entries", nested(rule(), KEYS[2:]), request(*(pairs(2, number) for number in range(4))), answer(4), "h2load"),
    ("16 descriptors of 4 entries", nested(rule(), KEYS), request(*(pairs(4, number) for number in range(16))), answer(16), "h2load"),
    ("all refused", nested(rule(1, "day")), ONE, answer(1, 2, 1, 4, 0, 86_000), "h2load"),
    ("unknown domain", nested(rule()), request(pairs(1, 17), domain="other"), field(1, 1) + field(2, field(1, 1)), "h2load"),
    ("10,000 rules", many(), request([("tenant", "tenant-7777")]), answer(), "h2load"),
    ("TLS", nested(rule()), ONE, answer(), "openssl"),
    ("leases from Redis", nested(rule(store="redis")), ONE, answer(), "redis-server"),
]


def real_time(thread=0):
    """Gives a thread real-time priority, or this process, if the system permits it."""
    with suppress(PermissionError):
        os.sched_setscheduler(thread, os.SCHED_FIFO, os.sched_param(1))


def pinned(core, urgent=False):
    return {"preexec_fn": lambda: (os.sched_setaffinity(0, {core}), urgent and real_time())}


def run(command, urgent=False):
    """Runs the load, and returns what it prints."""
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, **pinned(LOAD_CORE, urgent))
    if done.returncode or "Error" in done.stdout:
        sys.exit(f"{command}: {done.stdout[-500:]}{done.stderr[-500:]}")
    return done.stdout


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def schedstat(task):
    """Returns how long a thread ran, and how long it was ready while something else had its core, in seconds."""
    return [int(word) / 1e9 for word in Path(task, "schedstat").read_text().split()[:2]]


class Server:
    """A server at a port or the path of a Unix socket, which is pinned to its core."""

    def __init__(self, command, address, core=SERVER_CORE):
        self.address, self.lines, self.answering = address, [], None
        self.child = subprocess.Popen([*map(str, command)], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
                                      env={"PATH": os.environ["PATH"]}, **pinned(core))
        threading.Thread(target=lambda: self.lines.extend(self.child.stderr), daemon=True).start()
        family, place = (socket.AF_INET, ("127.0.0.1", address)) if isinstance(address, int) else (socket.AF_UNIX, str(address))
        end = time.monotonic() + 30
        while socket.socket(family).connect_ex(place):
            if self.child.poll() is not None or time.monotonic() > end:
                self.child.kill()
                sys.exit(f"{command[0]} does not listen: {''.join(self.lines)}")
            time.sleep(0.02)

    def threads(self):
        return {task: schedstat(task) for task in Path(f"/proc/{self.child.pid}/task").iterdir()}

    def watch(self, ask):
        """Asks the server, and remembers the thread that answers: the one that runs most meanwhile."""
        before = self.threads()
        ask()
        now = self.threads()
        self.answering = max(now, key=lambda task: now[task][0] - before.get(task, (0,))[0])

    def used_s(self):
        """Returns the processor time of the server, and how long the thread that answers waited for its core."""
        fields = Path(f"/proc/{self.child.pid}/stat").read_text().rsplit(")", 1)[1].split()
        waited = schedstat(self.answering)[1] if self.answering else 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), waited

    def close(self):
        self.child.kill()
        self.child.wait()


def redis_server(folder, core):
    port = free_port()
    return Server(["redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", folder], port, core)


def replace(stack, rules, seconds):
    """Replaces all rules again and again, in a process of its own, because threads of Python would wait for each other."""
    for number in (0, 1):
        rules.with_suffix(f".{number}").write_text(many(LIMIT + 1 + number))
    script = 'n=0; while sleep "$2"; do cp "${1%.yaml}.$n" "$1.new" && mv "$1.new" "$1"; n=$((1 - n)); done'
    stack.callback(subprocess.Popen(["sh", "-c", script, "sh", rules, str(seconds)]).kill)


def spread(values):
    """Returns the least value, the quartiles and the greatest value."""
    return [min(values), *quantiles(values, n=4, method="inclusive"), max(values)] if len(values) > 1 else values * 5


def spreads(turns):
    return {name: spread([turn[name] for turn in turns]) for name in turns[0]}


def turns_of(rounds, rows, turn):
    """Returns the turns of each row: in half of the rounds, the last row is first."""
    turns = {row: [] for row in rows}
    for number in range(rounds):
        for row in rows if number % 2 == 0 else reversed(rows):
            turns[row].append(turn(row))
    return turns


def ratio(ours, floor, name, quiet_by=None, most=False):
    """Returns the ratios of a figure of our turns to that of another row's, over all rounds and over the quiet ones.

    `quiet_by` is the figure that tells which rounds are quiet. The tail of a latency cannot: it is short in the rounds in which the floor
    was lucky. `most` says that more is better.
    """
    signs = [turn[quiet_by or name] for turn in floor]
    best = (max if most else min)(signs)
    ratios = [mine[name] / other[name] for mine, other in zip(ours, floor)]
    quiet = [ratio for ratio, sign in zip(ratios, signs) if max(best, sign) <= 1.1 * min(best, sign)]
    return {"all": spread(ratios), "quiet": spread(quiet), "quiet_rounds": len(quiet)}


def shown(row):
    """Prints a row, with the median of each figure, and returns it."""
    fives = {name: value["all"] if isinstance(value, dict) else value for name, value in row.items() if isinstance(value, (dict, list))}
    medians = {name: five[2] for name, five in fives.items()}
    texts = (f"{name} {value:,.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in (row | medians).items())
    print(", ".join(texts), flush=True)
    return row


def target(name, bound, ratio, inverse=False):
    """Returns a target. Three quiet rounds or more decide whether it holds, or else all rounds."""
    every, quiet = ([1 / value for value in reversed(five)] if inverse else five for five in (ratio["all"], ratio["quiet"]))
    value = {"q1": every[1], "median": every[2], "q3": every[3], "quiet": quiet[2], "quiet_rounds": ratio["quiet_rounds"]}
    holds = value["quiet" if value["quiet_rounds"] >= 3 else "median"] <= bound
    print(f"{'met' if holds else 'MISSED'}: {name}: {value['median']:.3f} (quiet: {value['quiet']:.3f}), at most {bound:.3f}")
    return {"target": name, "bound": bound, "value": value, "holds": holds}


# Beside the floor.

def pair(stack, shape, *, sockets=False):
    """Starts the floor and our server for a shape. Returns them and the folder of their files."""
    _, rules, asked, answered, needs = shape
    folder = Path(stack.enter_context(TemporaryDirectory()))
    (folder / "rules.yaml").write_text(rules)
    (folder / "body").write_bytes(b"\0" + len(asked).to_bytes(4, "big") + asked)
    ours, floor = (folder / "ours", folder / "floor") if sockets else (free_port(), free_port())
    where = ["--grpc-socket", ours] if sockets else ["--grpc", f"127.0.0.1:{ours}"]
    commands = {FLOOR: [PROGRAMS[FLOOR], floor if sockets else f"127.0.0.1:{floor}", answered.hex()],
                OURS: [PROGRAMS[OURS], "serve", folder / "rules.yaml", *where, "--http", "off", "--debug", "off", "--log", "info"]}
    if needs == "openssl":
        cert, key = folder / "cert.pem", folder / "key.pem"
        run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj",
             "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-out", cert, "-keyout", key])
        commands[FLOOR] += [cert, key]
        commands[OURS] += ["--tls-cert", cert, "--tls-key", key]
    if needs == "redis-server":
        commands[OURS] += ["--redis", f"redis://127.0.0.1:{stack.enter_context(closing(redis_server(folder, LOAD_CORE))).address}"]
    return {name: stack.enter_context(closing(Server(commands[name], address))) for name, address in ((FLOOR, floor), (OURS, ours))}, folder


def beside(shape, rounds, turn, *, sockets=False, reload=False):
    """Returns the turns of the floor and of our server, and how often ours loaded its rules again."""
    with ExitStack() as stack:
        servers, folder = pair(stack, shape, sockets=sockets)
        for server in servers.values():
            server.watch(lambda: turn(server, folder))
            real_time(int(server.answering.name))
        if reload:
            replace(stack, folder / "rules.yaml", 2)
        turns = turns_of(rounds, [FLOOR, OURS], lambda name: turn(servers[name], folder))
        reloads = sum("the rules changed" in line for line in servers[OURS].lines)
    if reload and not reloads:
        sys.exit("no reload happened")
    return turns, reloads


def measure(shape, rounds, requests):
    """Returns the rows of both servers for a shape."""
    title, _, _, answered, needs = shape

    def turn(server, folder):
        url = f"{'https' if needs == 'openssl' else 'http'}://127.0.0.1:{server.address}{METHOD}"
        before = server.used_s()
        said = run([*GRPC, "-c", 8, "-m", 32, "-d", folder / "body", "-n", requests, url], urgent=True)
        cpu, waited = (now - then for now, then in zip(server.used_s(), before))
        succeeded, data = int(re.search(r"(\d+) succeeded", said)[1]), int(re.search(r"\((\d+)\) data", said)[1])
        expected = requests * (5 + len(answered))
        # A process that leases units knows how many of its own units are left, so the number has fewer digits.
        if succeeded != requests or not expected * (0.9 if needs == "redis-server" else 1) <= data <= expected:
            sys.exit(f"{title}: {succeeded} of {requests} requests succeeded, with {data} bytes instead of {expected}")
        amount, unit = re.search(r"finished in ([\d.]+)(us|ms|s),", said).groups()
        seconds = float(amount) * {"us": 1e-6, "ms": 1e-3, "s": 1.0}[unit]
        return {"requests_per_s": requests / seconds, "cpu_us": 1e6 * cpu / requests, "server_busy": cpu / seconds,
                "server_waits": waited / seconds}

    turns, _ = beside(shape, rounds, turn)
    count = int(title.split()[0]) if " of " in title else None
    rows = [{"shape": title, "descriptors": count, "subject": name} | spreads(found) for name, found in turns.items()]
    rows[1]["ratio_requests_per_s"] = ratio(turns[OURS], turns[FLOOR], "requests_per_s", most=True)
    rows[1]["ratio_cpu"] = ratio(turns[OURS], turns[FLOOR], "cpu_us")
    return [*map(shown, rows)]


def latency(shape, share, most, rounds, reload):
    """Returns the latency of both servers at a share of the most requests, in turns, in microseconds."""
    rate = int(share * most)

    def turn(server, _):
        before, began = server.used_s(), time.monotonic()
        said = run([PROGRAMS[LOAD], server.address, shape[2].hex(), rate, 2, len(shape[3])], urgent=True)
        shares = [(now - then) / (time.monotonic() - began) for now, then in zip(server.used_s(), before)]
        return json.loads(said) | dict(zip(("server_busy", "server_waits"), shares))

    turns, reloads = beside(shape, rounds, turn, sockets=True, reload=reload)
    rows = [{"subject": name, "share": share, "rate": rate, "reloads": reloads if name == OURS else 0} | spreads(found)
            | {count: sum(turn[count] for turn in found) for count in ("requests", "later_than_20_ms")} for name, found in turns.items()]
    rows[1]["ratio_p99_9"] = ratio(turns[OURS], turns[FLOOR], "p99_9_us", quiet_by="p50_us")
    return [*map(shown, rows)]


def beside_floor(quick):
    """Measures all shapes beside the floor, and the latency at steady rates."""
    rounds, requests, rows, late, targets = 2 if quick else 10, 5_000 if quick else 50_000, [], [], []
    for shape in SHAPES:
        if shutil.which(shape[-1]):
            rows += measure(shape, rounds, requests)
        else:
            print(f"SKIPPED: {shape[0]} needs {shape[-1]}")
    for row in (row for row in rows if row["subject"] == OURS and row["descriptors"]):
        name = f"serve, {row['shape']}"
        targets.append(target(f"{name}: the floor's requests per second against ours", 1 / 0.9, row["ratio_requests_per_s"], inverse=True))
        targets.append(target(f"{name}: CPU time per request against the floor's", 1.1, row["ratio_cpu"]))
    most = rows[1]["requests_per_s"][2]
    for shape, share, reload in ((SHAPES[0], 0.25, False), (SHAPES[0], 0.5, False), (SHAPES[0], 0.75, False), (SHAPES[5], 0.5, True)):
        late += latency(shape, share, most, rounds, reload)
        where = "while 10,000 rules are loaded again" if reload else f"at {100 * share:.0f} % of the most requests"
        targets.append(target(f"serve, {where}: p99.9 against the floor's", 1.1, late[-1]["ratio_p99_9"]))
    return {"rounds": rounds, "requests": requests, "rows": rows, "latency": late, "targets": targets}


# Redis clients.

KEY, QUOTA = "key:__rand_int__", [99, 1_000_000, 3600]
OTHER, REDIS = "THROTTLE of throttlecrab-server", ("INCR of redis-server", "GET of redis-server")
COMMANDS = {
    "CL.THROTTLE": (OURS, ["CL.THROTTLE", KEY, *QUOTA]), "TOLLGATE.CHECK": (OURS, ["TOLLGATE.CHECK", "bench", "remote_address", KEY]),
    OTHER: ("throttlecrab", ["THROTTLE", KEY, *QUOTA]), REDIS[0]: ("redis", ["INCR", KEY]), REDIS[1]: ("redis", ["GET", KEY]),
}


def redis_clients(quick):
    """Measures the commands of Redis clients beside other servers, and gRPC and JSON."""
    rounds, requests, rows, targets = 1 if quick else 10, 20_000 if quick else 200_000, {}, []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        (folder / "rules.yaml").write_text(nested(rule()))
        (folder / "grpc").write_bytes(b"\0" + len(ONE).to_bytes(4, "big") + ONE)
        entry = {"key": "remote_address", "value": "192.0.2.17"}
        (folder / "json").write_text(json.dumps({"domain": "bench", "descriptors": [{"entries": [entry]}]}))
        at = {endpoint: free_port() for endpoint in ("resp", "grpc", "http", "throttlecrab")}
        flags = [word for endpoint in ("resp", "grpc", "http") for word in (f"--{endpoint}", f"127.0.0.1:{at[endpoint]}")]
        servers = {OURS: Server([PROGRAMS[OURS], "serve", folder / "rules.yaml", *flags, "--debug", "off"], at["resp"]),
                   "redis": redis_server(folder, SERVER_CORE)}
        if other := os.environ.get("TOLLGATE_THROTTLECRAB") or shutil.which("throttlecrab-server"):
            command = [other, "--redis", "--redis-host", "127.0.0.1", "--redis-port", at["throttlecrab"]]
            servers["throttlecrab"] = Server(command, at["throttlecrab"])
        else:
            print("SKIPPED: throttlecrab-server cannot be found")
        for server in servers.values():
            stack.enter_context(closing(server))
        for pipeline in (1, 16):
            for name, (subject, words) in COMMANDS.items():
                if subject in servers:
                    rows[name, pipeline] = servers[subject], ["redis-benchmark", "-p", servers[subject].address, "-c", 64, "-P", pipeline,
                                                              "-r", 100_000, "-q", "-n", requests, *words]
        if shutil.which("h2load"):
            grpc, http1 = f"http://127.0.0.1:{at['grpc']}{METHOD}", f"http://127.0.0.1:{at['http']}/json"
            rows["gRPC", 1] = servers[OURS], [*GRPC, "-c", 8, "-m", 8, "-d", folder / "grpc", "-n", requests, grpc]
            rows["JSON", 1] = servers[OURS], ["h2load", "--h1", "-t", 1, "-c", 64, "-d", folder / "json", "-n", requests, http1]

        def turn(row):
            server, command = rows[row]
            before = server.used_s()[0]
            said = run(command)
            cpu = server.used_s()[0] - before
            rate = re.findall(r"([\d.]+) (?:requests per second|req/s)", said.replace("\r", "\n"))[-1]
            return {"requests_per_s": float(rate), "cpu_us": 1e6 * cpu / requests}

        turns = turns_of(rounds, list(rows), turn)
    found = [shown({"command": name, "pipeline": pipeline} | spreads(those)) for (name, pipeline), those in turns.items()]
    for ours in ("CL.THROTTLE", "TOLLGATE.CHECK"):
        for other, pipeline in ((OTHER, 1), (REDIS[0], 1), (REDIS[1], 1), (OTHER, 16), (REDIS[0], 16)):
            if (other, pipeline) in turns:
                name = f"serve, {ours}, {f'pipelines of {pipeline}' if pipeline > 1 else 'no pipelines'}"
                both = turns[ours, pipeline], turns[other, pipeline]
                most = 1.25 if (other, pipeline) == (REDIS[0], 16) else 1
                rates = ratio(*both, "requests_per_s", most=True)
                targets.append(target(f"{name}: requests per second of {other} against ours", most, rates, inverse=True))
                if (other, pipeline) == (OTHER, 1):
                    targets.append(target(f"{name}: CPU time against {other}", 0.8, ratio(*both, "cpu_us")))
    return {"rounds": rounds, "requests": requests, "rows": found, "targets": targets}


# Swaps and drains.

def answers(server, seconds, *, drains=False):
    """Asks 400 times a second, or until the service drains. Returns how long each answer took, and how long without waits, in ms."""
    client, began, found = http.client.HTTPConnection("127.0.0.1", server.address, timeout=10), time.monotonic(), []

    def now():
        return time.monotonic(), server.used_s()[1] + schedstat("/proc/thread-self")[1]

    for number in range(int(400 * seconds)):
        time.sleep(max(0, began + number / 400 - time.monotonic()))
        entry = {"key": "tenant", "value": f"tenant-{number * 7_919 % 10_000}"}
        body = json.dumps({"domain": "bench", "descriptors": [{"entries": [entry]}]}).encode()
        try:
            before = now()
            client.request("POST", "/json", body, {"content-type": "application/json"})
            # An answer that was cut raises an error that nothing here expects.
            client.getresponse().read()
            took, waited = (1e3 * (after - then) for after, then in zip(now(), before))
            found.append((took, took - waited))
        except (OSError, http.client.NotConnected):
            if not drains:
                raise
            break
        client.auto_open = 0
    client.close()
    return found


def swaps(quick):
    """Measures answers during swaps of rules and drains."""
    count, drains, port, found, rows = 3 if quick else 60, 2 if quick else 20, free_port(), {}, []
    with ExitStack() as stack:
        stack.callback(subprocess.Popen(["sh", "-c", "while :; do :; done"], **pinned(SERVER_CORE)).kill)
        rules = Path(stack.enter_context(TemporaryDirectory())) / "rules.yaml"
        rules.write_text(many())
        command = [PROGRAMS[OURS], "serve", rules, "--http", f"127.0.0.1:{port}", "--grpc", "off", "--debug", "off", "--threads", 1,
                   "--log", "info", "--drain", "300ms"]
        with closing(Server(command, port)) as server:
            server.watch(lambda: answers(server, 1))
            found["no swaps"] = answers(server, count)
            with ExitStack() as swapping:
                replace(swapping, rules, 1)
                found[f"{count} swaps"] = answers(server, count)
            found["no swaps again"] = answers(server, count)
            loads = sum("the rules changed" in line for line in server.lines)
        if not 0 < loads <= count:
            sys.exit(f"{loads} of {count} swaps were loads")
        for _ in range(drains):
            with closing(Server(command, port)) as server:
                server.watch(lambda: answers(server, 0.2))
                threading.Timer(0.01, server.child.terminate).start()
                found.setdefault(f"{drains} drains", []).extend(answers(server, 5, drains=True))
                server.child.wait(10)
    for phase, times in found.items():
        for name, values in zip(("as asked", "without waits for a core"), map(sorted, zip(*times))):
            late, p99_9 = sum(value > 5 for value in values), values[len(values) * 999 // 1_000]
            rows.append(shown({"phase": phase, "times": name, "answers": len(times), "later_than_5_ms": late, "p50_ms": median(values),
                               "p99_9_ms": p99_9, "worst_ms": values[-1]}))
    return {"loads": loads, "rows": rows}


def main():
    parser = argparse.ArgumentParser(description="Measures `tollgate serve` beside its floor.")
    parser.add_argument("--quick", action="store_true", help="few and short rounds, which only test the steps")
    parser.add_argument("--json", type=Path, help="where the figures are written")
    parser.add_argument("--resp", action="store_true", help="measure the endpoint for Redis clients instead")
    parser.add_argument("--swaps", action="store_true", help="measure answers during swaps of rules and drains instead")
    parser.add_argument("--release", type=Path, help="the folder of the programs, instead of a build")
    arguments = parser.parse_args()
    bench, needs = (swaps, "sh") if arguments.swaps else (redis_clients, "redis-benchmark") if arguments.resp else (beside_floor, "h2load")
    if needs != "sh" and (SERVER_CORE == LOAD_CORE or not shutil.which(needs)):
        print(f"SKIPPED: this bench of the service needs {needs} and two cores")
        return
    for package in () if arguments.release else ("tollgate-cli --features serve", "tollgate-serve-floor"):
        subprocess.run(["cargo", "build", "--quiet", "--release", "-p", *package.split()], cwd=ROOT, check=True)
    built = arguments.release or Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"
    PROGRAMS.update({name: built / program for name, program in PROGRAMS.items()})
    real_time()
    machine = {"date": datetime.date.today().isoformat(), "real_time": os.sched_getscheduler(0) == os.SCHED_FIFO,
               "load_average": " ".join(Path("/proc/loadavg").read_text().split()[:3])}
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    report = {"machine": machine, "quick": arguments.quick} | bench(arguments.quick)
    if arguments.json:
        arguments.json.write_text(json.dumps(report))


main()
