#!/usr/bin/env python3
"""Writes BENCHMARKS.md, its charts and the costs in README.md from benches/results.

    ci/benchmarks.py take DIR [NAME...]    first makes benches/results from what the benches wrote to DIR, or only the files NAME.json of it
    ci/benchmarks.py                       writes
    ci/benchmarks.py --check               says whether what is there is what the results give

No figure of theirs is by hand: sentences with figures are made from the results. Why a target is missed is kept in benches/reasons.json, by
the target's words, and what the figures leave out is in the text below.
"""
import json
import sys
from math import log10
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parent))
import charts  # noqa: E402
import cost  # noqa: E402
from wording import counted, figure, markdown  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
RESULTS, CHARTS, PAGE = ROOT / "benches/results", ROOT / "benches/charts", ROOT / "BENCHMARKS.md"
README, REASONS = ROOT / "README.md", ROOT / "benches/reasons.json"
# The results of the peers in the build that servers should use. Without this file, the page has only the default build.
SERVER = "peers_server"
PROFILES = {"peers": "release", SERVER: "server"}
BENCHES = ("peers", "sketches", "policies", "rules", "cost", "layer", "redis", "serve", "resp", "accuracy", "sketch_accuracy")
COMPACT, BATCHES, KEYED = "tollgate compact", "tollgate compact, batches of 16", "tollgate keyed"
GOVERNOR = "governor + ahash"
COMPARED = ["floor", COMPACT, BATCHES, KEYED, GOVERNOR, "governor", "quota", "rate-net", "pingora-limits Rate"]


# Storing results. The stored files are small enough to be read in a diff.

def rounded(value):
    """Returns the number with four significant digits."""
    if isinstance(value, float):
        return 0.0 if value == 0 else float(f"{value:.4g}")
    if isinstance(value, dict):
        return {name: rounded(inner) for name, inner in value.items()}
    return [rounded(inner) for inner in value] if isinstance(value, list) else value


def five(summary):
    return summary and [summary[name] for name in ("min", "q1", "median", "q3", "max")]


def slim_peers(report):
    counts = {}
    for row in report["rows"]:
        counts.setdefault(row.pop("counts"), row["subject"])
        for name in ("ns_per_check", "ratio_to_floor", "ratio_to_governor", "line_transfer_ns"):
            row[name] = five(row[name])
        row["million_checks_per_s"] = row["million_checks_per_s"]["median"]
    report["counts"] = [[subject, words] for words, subject in counts.items()]
    for row in (report.get("flood") or {}).get("rows", []):
        for place in ("without", "flooded"):
            turns = row[place]
            row[place] = {"ns": {p: s["median"] for p, s in turns["ns"].items()}, "max_ns": turns["max_ns"]["median"],
                          "denied_share": turns["denied_share"]["median"], "stolen_share": turns["stolen_share"]["median"],
                          "flood_million_checks_per_s": turns["flood_million_checks_per_s"]["median"]}
    return report


def written(value, level=0):
    """Returns JSON with one row per line."""
    if isinstance(value, list) and value and isinstance(value[0], (dict, list)) and level < 3:
        return "[\n" + ",\n".join("  " + json.dumps(item, ensure_ascii=False) for item in value) + "\n]"
    if isinstance(value, dict) and level < 1:
        inner = (f"{json.dumps(name)}: {written(item, level + 1)}" for name, item in value.items())
        return "{\n" + ",\n".join(inner) + "\n}"
    return json.dumps(value, ensure_ascii=False)


def take(directory, names):
    RESULTS.mkdir(exist_ok=True)
    for name in names or (*BENCHES, SERVER, "run"):
        path = directory / f"{name}.json"
        if not path.exists():
            (RESULTS / path.name).unlink(missing_ok=True)
            continue
        report = json.loads(path.read_text())
        # A bench that ran in parts wrote a file for each.
        for more in map(json.loads, map(Path.read_text, directory.glob(f"{name}-*.json"))):
            report = more | report | {"rows": report["rows"] + more["rows"]}
        if name in PROFILES:
            report = slim_peers(report)
        (RESULTS / path.name).write_text(written(rounded(report)) + "\n")


# Reading results.

def results():
    return {name: json.loads((RESULTS / f"{name}.json").read_text())
            for name in (*BENCHES, SERVER, "run") if (RESULTS / f"{name}.json").exists()}


def wrong_profiles(data):
    """Returns a message for each results file whose build profile is not the expected one. Older files name no profile."""
    return [f"benches/results/{name}.json is of the profile {data[name]['profile']!r}, not {profile!r}"
            for name, profile in PROFILES.items() if data.get(name, {}).get("profile", profile) != profile]


def is_ours(subject):
    return subject.startswith("tollgate")


def is_peer(subject):
    return not is_ours(subject) and not subject.startswith(("floor", "quanta now"))


def ns_of(row):
    return row["ns_per_check"][2]


def tables(peers):
    """Returns the rows by scenario and number of threads, in the order of their measurement."""
    found = {}
    for row in peers["rows"]:
        found.setdefault((row["scenario"], row["threads"]), []).append(row)
    return found


def best_peer(rows):
    return min((row for row in rows if is_peer(row["subject"])), key=ns_of, default=None)


TITLES = {
    "hot": "Allowed, 1,000 keys", "hot-denied": "Denied, 1,000 keys", "idle-hot": "Allowed, 1,000 keys, each idle again before it comes back",
    "word": "Allowed, one word hit by all", "word-denied": "Denied, one word read by all", "strings-hot": "Allowed, 1,000 string keys of 24 bytes",
    "ip-hot": "Allowed, 1,000 IP addresses of both kinds", "10k": "Allowed, 10,000 keys", "100k": "Allowed, 100,000 keys",
    "1m": "Allowed, 1 M keys", "idle-1m": "Allowed, 1 M keys, each idle again before it comes back", "1m-denied": "Denied, 1 M keys",
    "strings-1m": "Allowed, 1 M string keys of 24 bytes", "ip-1m": "Allowed, 1 M IP addresses of both kinds", "10m": "Allowed, 10 M keys",
    "100m": "Allowed, 100 M keys", "first-sight": "First sight: each key new, in a store with room",
    "first-sight-idle": "First sight, in a store of keys that are idle again", "eviction": "Eviction: each key new, in a full store of keys that owe",
    "pieces": "Pieces of a check", "pieces-strings": "Pieces of a check on strings", "threads": "By threads: 1,000 keys",
    "threads-word": "By threads: one word hit by all", "denials-0": "None of 1,000 keys denied", "denials-25": "A quarter denied",
    "denials-50": "Half denied", "denials-75": "Three quarters denied", "denials-100": "All denied",
}


def title_of(scenario, threads):
    return f"{TITLES.get(scenario, scenario)} ({threads})"


# Charts.

def line_of(name, points):
    return (name, sorted(points)) if points else None


def chart_files(data):
    """Returns the names and texts of all charts for which there are enough results."""
    files = {}
    peers = data.get("peers")
    if peers:
        rows = peers["rows"]
        of = {name: {} for name in COMPARED}
        for row in rows:
            known = row["draw"] == "known keys" and row["outcome"] == "allowed" and row["kind"] == "u64"
            if known and row["threads"] == 1 and row["scenario"] in ("hot", "10k", "100k", "1m", "10m", "100m") and row["subject"] in of:
                of[row["subject"]][row["keys"]] = ns_of(row)
        lines = [line for line in (line_of(name, list(points.items())) for name, points in of.items()) if line]
        if lines:
            files["keys.svg"] = charts.chart(
                "What a check costs, by number of keys", "Lower is better. One thread, allowed, clock reading included; both axes logarithmic.",
                lines, "distinct keys, drawn uniformly", "nanoseconds a check", x_log=True, y_log=True, x_text=charts.power)
        cores = peers["machine"]["cores"]
        for scenario, name, what, unit in (
            ("threads", "threads.svg", "1,000 keys", "Checks a second, by threads: 1,000 keys"),
            ("threads-word", "threads_word.svg", "one word", "Checks a second, by threads: one word hit by all"),
        ):
            of = {}
            for row in rows:
                if row["scenario"] == scenario:
                    of.setdefault(row["subject"], []).append((row["threads"], row["million_checks_per_s"]))
            lines = [(subject, sorted(points)) for subject, points in of.items()]
            if lines:
                shade = (cores * 2**0.5, f"more threads than the {cores} cores") if max(x for x, _ in lines[0][1]) > cores else None
                files[name] = charts.chart(
                    unit, "Higher is better. Of all threads together, allowed; both axes logarithmic.", lines, "threads",
                    "million checks a second", x_log=True, y_log=True, shade=shade)
        of = {}
        for row in rows:
            if row["scenario"].startswith("denials-"):
                of.setdefault(row["subject"], []).append((int(row["scenario"].removeprefix("denials-")), ns_of(row)))
        if of:
            files["denials.svg"] = charts.chart(
                "What a check costs, by share of denials", "Lower is better. One thread, 1,000 keys, a share of which has used up its limit.",
                [(subject, sorted(points)) for subject, points in of.items()], "% of checks denied", "nanoseconds a check", y_zero=True)
        flood = peers.get("flood")
        if flood:
            places = {"p50": 0.5, "p99": 0.01, "p99.9": 0.001, "p99.99": 0.0001}
            x_of = {p: -log10(share) if share < 0.5 else 1.0 for p, share in places.items()}
            text = {x_of[p]: p for p in places}
            lines, quiet = [], []
            for row in flood["rows"]:
                if row["subject"] in charts.STYLES:
                    lines.append((row["subject"], [(x_of[p], row["flooded"]["ns"][p]) for p in places]))
                    quiet.append((row["subject"], [(x_of[p], row["without"]["ns"][p]) for p in places]))
            files["flood.svg"] = charts.chart(
                "Honest keys' latency under a flood of new keys", "Lower is better. Wide: while another core floods the store. Dotted: without the flood.",
                lines, "percentile of the honest keys' checks", "nanoseconds, logarithmic", y_log=True,
                x_ticks=sorted(text), x_text=lambda x: text[x], second=quiet)
    serve = data.get("serve")
    if serve:
        of = {}
        for row in serve["rows"]:
            if row["descriptors"]:
                of.setdefault(row["subject"], []).append((row["descriptors"], row["cpu_us"][2]))
        files["serve.svg"] = charts.chart(
            "What a request to the service costs", "Lower is better. Processor time of the server; the floor answers a constant.",
            [(subject, sorted(points)) for subject, points in of.items()], "descriptors of a request", "microseconds a request", x_log=True, y_zero=True)
    if "cost" in data:
        files |= cost.chart_files(data["cost"])
    accuracy = data.get("sketch_accuracy")
    if accuracy:
        of = {}
        for point in accuracy["points"]:
            of.setdefault(point["way"], []).append((point["mebibytes"], point["denied_percent"]))
        scale = "" if accuracy["scale"] == 1 else f" At 1/{accuracy['scale']} of all of it."
        files["accuracy.svg"] = charts.chart(
            "Wrong denials, by memory", f"Lower is better. One window, limit 100, 10 M keys (Zipf 1.0), 40 M requests.{scale}",
            [(way, sorted(points)) for way, points in of.items()], "memory, MiB" + ("" if accuracy["scale"] == 1 else f" (of the full size)"),
            "% of deserving requests denied", x_log=True, y_log=True, least=1e-5, note="hollow: that or less")
    return files


# The page.

def targets(data):
    """Returns (bench, target, the same target in the server's build or None), in the order of the benches."""
    server = {target["target"]: target for target in data.get(SERVER, {}).get("targets", [])}
    return [(bench, target, server.get(target["target"]) if bench == "peers" else None)
            for bench in BENCHES for target in data.get(bench, {}).get("targets", [])]


def figure_of(target):
    """Returns the figure with its spread: the quartiles of the rounds, or the 95 % confidence interval of the pairs. Then the figure in the quiet rounds, if they are known."""
    if target is None:
        return ""
    value = target["value"]
    if "low" in value:
        return f"{figure(value['median'])} (95 %: {figure(value['low'])} to {figure(value['high'])})"
    quiet = f"; quiet: {figure(value['quiet'])} ({counted(value['quiet_rounds'], 'round')})" if "quiet" in value else ""
    return figure(value["median"]) + (f" ({figure(value['q1'])} to {figure(value['q3'])})" if "q1" in value else "") + quiet


def outcome_of(target, in_server):
    if in_server is None or target["holds"] == in_server["holds"]:
        return "met" if target["holds"] else "**missed**"
    return f"**missed** ({'thin LTO' if target['holds'] else 'default'})"


def targets_section(data, reasons):
    rows, missed, two = [], {}, SERVER in data
    for _, target, in_server in targets(data):
        outcome = outcome_of(target, in_server)
        rows.append([target["target"], figure_of(target), *([figure_of(in_server)] if two else []), figure(target["bound"]), outcome])
        if outcome != "met":
            why = reasons.get(target["target"], "See the quartiles, the number of quiet rounds, and how busy the machine was.")
            missed.setdefault(why, []).append(target["target"])
    met = len(rows) - sum(map(len, missed.values()))
    text = (f"{met} of {len(rows)} targets are met{' in both builds' if two else ''}. The column *at most* has the target. A figure is the ratio of two measurements "
            "unless its row gives a unit. Lower is better in every row. The brackets contain the quartiles over the rounds, or a 95 % confidence interval. Other programs and the host "
            "disturb some rounds. A ratio is therefore given twice: over all rounds, and over the *quiet* rounds, in which the floor, or without a floor the row that is compared with, is within 10 % of its "
            "own minimum. Three quiet rounds or more decide whether the target is met, or else all rounds do. The *floor* is a "
            "program with the least work of a check: it reads the counter of the processor, hashes the key and exchanges a known word. "
            "It is no bound where a ratio to it is below 1: the floor loads its word after it has read the counter, and the compact store fetches its bucket before that. With millions of keys, "
            "whose words are in memory and in no cache, the store then waits less.\n\n")
    text += markdown(["target", *(["default build", "thin LTO"] if two else ["figure (quartiles)"]), "at most", ""], rows)
    lines = [f"- {'; '.join(f'*{name}*' for name in names)}. {why}" for why, names in missed.items()]
    return text + ("\nThe missed targets, and why:\n\n" + "\n".join(lines) + "\n" if lines else "")


def flood_section(data):
    """Returns the ratios of figures with the flood to figures without it. The result is empty if there are no such figures."""
    builds = [data[name]["flood"]["rows"] for name in PROFILES if (data.get(name, {}).get("flood") or {}).get("rows")]
    if not builds or "ratio" not in builds[0][0]:
        return ""
    cells = lambda rows, subject: [figure_of({"value": row["ratio"][p]}) for row in rows if row["subject"] == subject for p in ("p99", "p99.9")]  # noqa: E731
    rows = [[row["subject"], *(cell for build in builds for cell in cells(build, row["subject"]))] for row in builds[0]]
    head = ["", "p99", "p99.9", "p99, thin LTO", "p99.9, thin LTO"][:1 + 2 * len(builds)]
    return ("## Under a flood\n\nOne thread checks *honest keys*, a fixed set of keys. Another thread may flood the same store with new keys. Turns without and with the flood alternate. "
            "The table has the time of the honest keys' checks with the flood, divided by the time without it. Each figure is the median of "
            f"the ratios of {builds[0][0]['rounds']} pairs of turns, with its 95 % confidence interval by order statistics.\n\n" + markdown(head, rows))


def serve_section(data):
    """Returns what the service needs beside its floor, and its latency."""
    serve = data.get("serve")
    if not serve:
        return ""
    machine = serve["machine"]
    floors = {row["shape"]: row for row in serve["rows"] if "ratio_cpu" not in row}
    percent = lambda five: f"{100 * five[2]:.0f} %"  # noqa: E731
    twice = lambda ratio: f"{figure(ratio['all'][2])}; {figure(ratio['quiet'][2])} ({ratio['quiet_rounds']})"  # noqa: E731
    rows = [[row["shape"], f"{row['requests_per_s'][2]:,.0f}", twice(row["ratio_requests_per_s"]), figure(row["cpu_us"][2]),
             figure(floors[row["shape"]]["cpu_us"][2]), twice(row["ratio_cpu"])] for row in serve["rows"] if "ratio_cpu" in row]
    milliseconds = lambda five: figure(five[2] / 1e3)  # noqa: E731
    late = [[f"{figure(100 * row['share'])} %" + (f", {row['reloads']} reloads of 10,000 rules" if row["reloads"] else ""), row["subject"], f"{row['rate']:,}",
             *(milliseconds(row[name]) for name in ("p50_us", "p99_us", "p99_9_us", "worst_us", "pause_us")), twice(row["ratio_p99_9"]) if "ratio_p99_9" in row else "",
             percent(row["server_busy"]), f"{100 * row['server_waits'][2]:.1f} %", f"{row['later_than_20_ms']:,} of {row['requests']:,}"] for row in serve["latency"]]
    urgent = ("The load and the thread of each server that answers have real-time priority."
              if machine["real_time"] else "The system did not permit real-time priority.")
    return ("## The service\n\n`tollgate serve` is measured beside a *floor*: a server of tonic with the same messages, which answers a constant and decides nothing. It is no lower bound: the "
            "program serves its connections itself, instead of by tonic's server, so it can be faster than the floor. `h2load` "
            "loads them in turns over 8 connections with 32 concurrent requests each. The server has one core, and the load has another. Each ratio is of two runs that follow each other, "
            f"and each server is first in half of the {serve['rounds']} pairs of {serve['requests']:,} requests each. A ratio is given twice: over all pairs, and over the quiet ones, whose number is in brackets. "
            f"{urgent} The bytes of all answers are checked. This bench ran on {machine['date']} (load average before: {machine['load_average']}).\n\n"
            + markdown(["request", "requests a second", "of the floor's", "CPU, µs", "the floor's, µs", "CPU against the floor"], rows)
            + "\nThe latency at steady rates over a Unix socket, in milliseconds. 100 % is the most requests with one descriptor in the table above. `benches/serve/load.rs` asks at even distances, and counts from "
            "the time at which a request is due. The client never sleeps, and *pause* is the longest time in which it did not run. The requests that were due or on their way while it did not run for a millisecond are not counted. Each figure is "
            "the median of the rounds. *Busy* is the share of the time in which the server ran, and *waits* the share in which the thread that answers was ready but did not have its core. Compare the ratios: "
            "a pause of the machine delays both servers alike. Here a round is quiet if the floor's p50 is within 10 % of its own minimum.\n\n"
            + markdown(["load", "server", "requests a second", "p50", "p99", "p99.9", "latest", "pause", "p99.9 against the floor", "busy", "waits", "later than 20 ms"], late, 2))


def resp_section(data):
    """Returns what the service does for Redis clients, beside other servers that speak their protocol."""
    resp = data.get("resp")
    if not resp:
        return ""
    rows = [[row["command"], str(row["pipeline"]), f"{row['requests_per_s'][2]:,.0f}", figure(row["cpu_us"][2])] for row in resp["rows"]]
    return ("\n### Redis clients\n\n`redis-benchmark` asks the face for Redis clients with 64 connections and 100,000 keys, in turns with `redis-server` and with `throttlecrab-server`, a limiter that speaks the same protocol. "
            "`h2load` asks the faces for gRPC and JSON with 64 requests at a time. "
            f"Each row is the median of {resp['rounds']} rounds of {resp['requests']:,} commands, and each round has all rows. The server has one core, and the load has another. Without pipelines the load is the limit of all "
            "rows, so compare the processor time of the server. It contains what the system does for a command: one read and one write on a socket, which no server of this list avoids. "
            f"This bench ran on {resp['machine']['date']} (load average before: {resp['machine']['load_average']}); `ci/serve_bench.py --resp` repeats it.\n\n"
            + markdown(["request", "in a pipeline", "requests a second", "CPU, µs"], rows))


def ours(subject):
    return subject.removeprefix("tollgate ")


def lost(data, build):
    """Returns (ratio, words) for each row of ours that is worse than the row of the best peer, in one build."""
    found = []
    for (scenario, threads), rows in tables(data[build]).items():
        best = best_peer(rows)
        if not best or scenario.startswith("pieces"):
            continue
        for row in rows:
            if is_ours(row["subject"]) and ns_of(row) > ns_of(best):
                ratio = ns_of(row) / ns_of(best)
                found.append((ratio, [ours(row["subject"]), title_of(scenario, threads), f"{figure(ns_of(row))} ns",
                                      f"{best['subject']}, {figure(ns_of(best))} ns", figure(ratio)]))
    for row in (data[build].get("flood") or {}).get("rows", []):
        others = [other for other in data[build]["flood"]["rows"] if is_peer(other["subject"]) and other["subject"] != "clock alone"]
        for p, own in row["flooded"]["ns"].items() if is_ours(row["subject"]) and others else ():
            best = min(others, key=lambda other: other["flooded"]["ns"][p])
            if own > best["flooded"]["ns"][p]:
                ratio = own / best["flooded"]["ns"][p]
                found.append((ratio, [ours(row["subject"]), f"Honest keys under a flood, {p}", f"{figure(own)} ns",
                                      f"{best['subject']}, {figure(best['flooded']['ns'][p])} ns", figure(ratio)]))
    resident = {}
    for row in data[build]["resident"]:
        resident.setdefault((row["kind"], row["keys"]), []).append(row)
    for (kind, keys), rows in resident.items():
        others = [row for row in rows if is_peer(row["subject"]) and not row["subject"].startswith("pingora")]
        best = min(others, key=lambda row: row["bytes_per_key"], default=None)
        for row in rows:
            if best and is_ours(row["subject"]) and row["bytes_per_key"] > best["bytes_per_key"]:
                ratio = row["bytes_per_key"] / best["bytes_per_key"]
                found.append((ratio, [ours(row["subject"]), f"Memory, {keys:,} keys ({kind})", f"{figure(row['bytes_per_key'])} B a key",
                                      f"{best['subject']}, {figure(best['bytes_per_key'])} B", figure(ratio)]))
    for bench, other in (("sketches", ("pingora", "fastbloom")), ("policies", ("throttle-net",))) if build == "peers" else ():
        scenes = {}
        for row in data.get(bench, {}).get("rows", []):
            scenes.setdefault((row["table"], row["threads"]), []).append(row)
        for (table, threads), rows in scenes.items():
            theirs = [row for row in rows if row["subject"].startswith(other)]
            for row in rows:
                best = min(theirs, key=lambda peer: peer["median_ns"], default=None)
                if best and row not in theirs and row["median_ns"] > best["median_ns"]:
                    ratio = row["median_ns"] / best["median_ns"]
                    found.append((ratio, [row["subject"], f"{bench}: {table} ({threads})", f"{figure(row['median_ns'])} ns",
                                          f"{best['subject']}, {figure(best['median_ns'])} ns", figure(ratio)]))
    return found


def beside_minimal(tables):
    """Returns the tables of the bench `redis/own.rs`, which has the script that a user would write."""
    tables = [table for table in tables if table["title"].startswith("Beside the script that a user would write")]
    if not tables:
        return ""
    text = ("The *minimal script* is what a user would write otherwise: GCRA with one number in one key, `TIME` and `SET` with `PX`, called by EVALSHA over a multiplexed connection of "
            "the same client library, with the library's own settings. The rows took turns. The first three figures are microseconds per check: elapsed, and the processor time of "
            "the client and of the server. The ratios are to the minimal script in the same round: the median of all rounds, and in brackets that of the quiet rounds, in which the "
            "minimal script took at most 10 % more than in its best round. `cargo bench --features redis --bench redis -- --own` repeats it, and `--threads 2` gives the client two "
            "threads.\n\n")
    for table in tables:
        rows = [[row["check"], *map(figure, row["us"]), *(f"{figure(every)} ({figure(still)})" for every, still in zip(row["ratios"], row["quiet"]))] for row in table["rows"]]
        callers, count = table["title"].rpartition(", ")[2], f"{table['quiet_rounds']} of {table['rounds']} rounds were quiet"
        text += (f"With {callers}; {count}:\n\n"
                 + markdown(["check", "µs", "client, µs", "server, µs", "throughput", "client's time", "server's time"], rows) + "\n")
    return text


def shared_section(data):
    """Returns the script times of shared limits, and the two kinds of logs. The result is empty if there are no such figures."""
    tables = data.get("redis", {}).get("tables", [])
    found = {table["title"]: table["rows"] for table in tables if "rows" in table}
    scripts, logs = found.get("Script time on the server"), found.get("Sliding log: ring and sorted set")
    if not scripts or not logs:
        return ""
    rows = [[row["limit"], *(figure(row[name]) for name in ("us", "bare_us", "factor"))] for row in scripts]
    text = "## Shared limits\n\n" + beside_minimal(tables)
    text += ("Redis counts the time of each call of a script (`INFO commandstats`), without the network. A *bare script* receives the same arguments, calls the same "
            "commands with as many bytes, and gives the same reply. The factor is the ratio of the two: the cost of the decision. Each time is the best of several rounds, in which "
            "the scripts took turns.\n\n" + markdown(["limit", "script, µs", "bare script, µs", "factor"], rows))
    names = [f"{kind}_{what}" for what in ("us", "denied_us", "bytes") for kind in ("ring", "sorted_set")]
    rows = [[f"{row['units']:,}", *(f"{row[name]:,}" if name.endswith("bytes") else figure(row[name]) for name in names)] for row in logs]
    return text + ("\nA shared sliding log stores its times in a ring. The usual script stores them in a sorted set. Both logs are full. In the first two columns, one unit "
                   "leaves as one enters. The bytes are those of `MEMORY USAGE` for one key.\n\n"
                   + markdown(["units", "ring, µs", "sorted set, µs", "denied: ring, µs", "sorted set, µs", "ring, bytes", "sorted set, bytes"], rows))


def losses(data):
    """Returns the words for each row of ours that is worse than the row of the best peer, with the worst ratio first. With two builds, uses the figures of the worse build."""
    if SERVER not in data:
        return [words for _, words in sorted(lost(data, "peers"), key=lambda item: (-item[0], item[1]))]
    builds = [{tuple(words[:2]): (ratio, words) for ratio, words in lost(data, build)} for build in PROFILES]
    worst = []
    for row in dict.fromkeys(row for build in builds for row in build):
        ratio, words = max(build[row] for build in builds if row in build)
        ratios = [build[row][1][-1] if row in build else "" for build in builds]
        worst.append((ratio, [*words[:-1], *ratios]))
    return [words for _, words in sorted(worst, key=lambda item: (-item[0], item[1]))]




def noise(peers):
    rows = peers["rows"]
    spreads = sorted((row["ns_per_check"][3] - row["ns_per_check"][1]) / ns_of(row) for row in rows)
    stolen = [row["stolen_share"] for row in rows]
    transfers = [row["line_transfer_ns"][2] for row in rows if row["line_transfer_ns"]]
    at = lambda share: figure(100 * spreads[min(len(spreads) - 1, int(share * len(spreads)))], 2)  # noqa: E731
    text = (f"Each figure is the median of its rounds. In half of the {len(rows)} rows, the distance between the quartiles is below {at(0.5)} % of the median. "
            f"It is below {at(0.9)} % in nine tenths of the rows, and {at(1.0)} % in the widest. The scheduler ran other programs for {figure(100 * median(stolen), 2)} % of "
            f"the time in the median row and {figure(100 * max(stolen), 2)} % in the worst.")
    if transfers:
        text += (f" The transfer of a cache line from one core to the other took {figure(min(transfers))} to {figure(max(transfers))} ns, depending on where the host "
                 "placed the two cores. Every row in which threads share a line depends on this time.")
    return text + "\n"


ABOUT = {
    "keys.svg": "Cost by number of keys", "threads.svg": "Checks a second by threads, 1,000 keys", "threads_word.svg": "Checks a second by threads, one word",
    "denials.svg": "Cost by share of denials", "accuracy.svg": "Wrong denials by memory", "flood.svg": "Latency under a flood",
    "serve.svg": "Cost of a request to the service by number of descriptors",
}


def page(data, reasons, pictures):
    peers, run = data["peers"], data["run"]
    machine, versions = peers["machine"], peers["versions"]
    parts = ["# Benchmarks\n",
             "<!-- Written by ci/benchmarks.py from benches/results: do not edit. -->\n",
             "This page compares Tollgate with its *peers*, other Rust crates that limit or count. One run on one machine measured all figures"
             + (", except those of the service" if "serve" in data else "") + ". The benches of this repository "
             "call each peer as its documentation recommends. A run has several rounds, and each round measures all subjects of a scenario. Each ratio is taken within one round, "
             "so trust the ratios more than the nanoseconds. `benches/results` has every row as JSON; `counts` in `peers.json` describes what each row measures.\n"]
    two = SERVER in data
    if two:
        parts.append("The peers were measured in two builds. *Default* is cargo's release profile. *Thin LTO* is the profile `server` of `Cargo.toml`, with thin link-time optimization "
                     "and one codegen unit. The charts and all other benches use the default build.\n")
    if run["quick"]:
        parts.append("**This was a quick run, with few and short rounds. It only tests the machinery.**\n")
    parts.append(costs_section(data))
    parts.append("## Targets\n\n" + targets_section(data, reasons))
    parts.append("## Charts\n\n" + "\n".join(f"![{ABOUT[name]}](benches/charts/{name})\n" for name in ABOUT if name in pictures))
    if "cost" in data:
        parts.append(cost.section(data["cost"]))
    flood = flood_section(data)
    if flood:
        parts.append(flood)
    shared = shared_section(data)
    if shared:
        parts.append(shared)
    service = serve_section(data) + resp_section(data)
    if service:
        parts.append(service)
    losing = losses(data)
    parts.append("## Where we lose\n\nThis table has each row in which Tollgate is slower than the best peer of its scenario, or uses more memory. The worst row is first. Some peers do less. "
                 "pingora-limits counts in fixed memory and never denies. governor never removes a key by itself. The figure in brackets is the number of threads."
                 + (" The times are those of the build with the worse ratio. If a build has no ratio, Tollgate did not lose in it or it was not measured." if two else "") + "\n\n"
                 + (markdown(["ours", "where", "ours takes", "the best peer", *(["ratio, default", "ratio, thin LTO"] if two else ["ratio"])], losing, 2)
                    if losing else "No row lost in this run.\n"))
    parts.append("## Noise\n\n" + noise(peers) + (f"\nThin LTO: {noise(data[SERVER])}" if two else ""))
    parts.append("""## Limits of these figures

- Each loop contains only checks, so the processor overlaps the end of one check with the clock reading of the next. Inside a server a check costs
  more, and the differences are smaller.
- Keys are drawn uniformly. In real traffic a few keys are much more frequent. This helps every cache, and slows down words that many threads write.
- Where some checks are denied, the outcome is random. These rows therefore contain branch mispredictions that regular traffic would not have.
- Both threads ran on one socket. Nothing here describes two sockets. With more threads than cores, threads take turns.
- On a virtual machine the host moves the virtual processors between cores. Compare rows of one scenario, not rows of two scenarios.
- Compact rows have four slots a key unless the row gives another number. The rows "12 B a key" have the least memory that the documentation recommends.
- *First sight* is the first check of a key. Resident memory is measured after it. A table that has just doubled has more unused memory than a table that
  is about to double.
""")
    parts.append("## Machine and commands\n\n" + markdown(["", ""], [
        ["date", run["date"]], ["processor", f"{machine['cpu']}, {machine['cores']} seen"], ["memory", f"{machine['memory_gib']} GiB"],
        ["system", machine["os"]], ["clock source", f"{machine['clocksource']}; limiters read the time-stamp counter through quanta unless their row says otherwise"],
        ["compiler", machine["rustc"]], ["allocator", machine["allocator"]],
        ["hashers", "ahash with random keys (ours, \"+ ahash\"); SipHash (governor's default); each other peer's own"],
        ["priority", run["priority"]], ["load before", machine["load_average"]],
        ["versions", ", ".join(f"{name} {version}" for name, version in versions.items() if name != "tollgate")],
    ], 2))
    parts.append("`ci/benchmarks.sh" + (" --quick" if run["quick"] else "") + f"` ran these commands, in this order, in {figure(run['seconds'] / 60, 2)} minutes:\n\n```sh\n"
                 + "\n".join(run["commands"]) + "\n```\n")
    parts.append("To repeat it:\n\n```sh\nci/benchmarks.sh            # runs all of it and writes this page\nci/benchmarks.sh --quick    # a short trial\n"
                 "ci/benchmarks.py --check    # checks that this page is what benches/results gives\nci/instructions.sh          # counts instructions, which a busy neighbour does not change\n```\n")
    return "\n".join(parts)


# The costs in short: tables for the page, a sentence and the lost rows for the README. All ratios are medians of ratios within a round.

BEGIN, END = "<!-- Costs: written by ci/benchmarks.py -->\n", "<!-- End of costs -->\n"
# The stores as their constructors build them.
STORES = (COMPACT, KEYED, "tollgate sketch", "tollgate direct")
# The README lists rows from this ratio on. Smaller losses are within the noise of a run; the page lists them.
LOST_FROM = 1.2
SHORT = {"first-sight": "The first check of each key"}


def builds_of(data):
    """Returns the tables of each build. The server's build comes first, because governor gains more from it."""
    return {name: tables(data[name]) for name in (SERVER, "peers") if name in data}


def ratio_of(rows, subject):
    """Returns the median ratio of a subject's time to governor's, or None."""
    return next((row["ratio_to_governor"][2] for row in rows or [] if row["subject"] == subject and row["ratio_to_governor"]), None)


def heads(builds, *columns):
    return ["", *([f"{column}, thin LTO" for column in columns] if len(builds) == 2 else []), *columns]


def costs_section(data):
    """Returns the costs in short, for the page."""
    builds, versions = builds_of(data), data["peers"]["versions"]

    def cell(build, scenario, subject, threads):
        rows = builds[build].get((scenario, threads), [])
        ns = next((figure(ns_of(row)) for row in rows if row["subject"] == subject), "")
        ratio = None if subject == GOVERNOR else ratio_of(rows, subject)
        return ns if ratio is None else f"{ns} ({ratio:.2f})"

    rows = [("compact, allowed", "hot", COMPACT), ("compact, in batches of 16, allowed", "hot", BATCHES), ("keyed, allowed", "hot", KEYED),
            (f"quota {versions['quota']}, allowed", "hot", "quota"), ("governor + ahash, allowed", "hot", GOVERNOR), ("compact, denied", "hot-denied", COMPACT),
            ("keyed, denied", "hot-denied", KEYED), ("governor + ahash, denied", "hot-denied", GOVERNOR)]
    many = [("compact", COMPACT), ("compact, in batches of 16", BATCHES), ("keyed", KEYED), ("governor + ahash", GOVERNOR)]
    return (
        "## In short\n\nNanoseconds per check with 1,000 keys, including the clock reading. Each figure is the median of the rounds. The number in brackets is the ratio to "
        f"governor {versions['governor']} with ahash for the same outcome.\n\n"
        + markdown(heads(builds, "one thread", "two threads"),
                   [[name, *(cell(build, scenario, subject, threads) for build in builds for threads in (1, 2))] for name, scenario, subject in rows])
        + "\nWith many keys, all checks admitted, one thread:\n\n"
        + markdown(heads(builds, "1 M keys", "10 M keys"),
                   [[name, *(cell(build, scenario, subject, 1) for build in builds for scenario in ("1m", "10m"))] for name, subject in many]))


def lost_to_governor(data):
    """Returns the rows in which a store takes at least `LOST_FROM` times as long as governor with ahash: store, checks, and the ratios in the builds with one and with two threads."""
    builds, found = builds_of(data), {}
    for scenario in dict.fromkeys(scenario for build in builds.values() for scenario, _ in build if scenario in TITLES):
        for subject in STORES:
            found[ours(subject), SHORT.get(scenario, TITLES[scenario])] = [
                [ratio for build in builds.values() if (ratio := ratio_of(build.get((scenario, threads)), subject))] for threads in (1, 2)]
    floods = [{row["subject"]: row["flooded"]["ns"]["p99"] for row in (data[build].get("flood") or {}).get("rows", [])} for build in builds]
    capped = "tollgate keyed, capped"
    found["keyed, full", "Known keys during a flood of new keys, 99th percentile"] = [
        [], [flood[capped] / flood[GOVERNOR] for flood in floods if {capped, GOVERNOR} <= flood.keys()]]
    worst = lambda ratios: max((ratio for threads in ratios for ratio in threads), default=0)  # noqa: E731
    lost = [(ratios, words) for words, ratios in found.items() if worst(ratios) >= LOST_FROM]
    return [[*words, *map(span, ratios)] for ratios, words in sorted(lost, key=lambda row: -worst(row[0]))]


def span(values, shown=figure):
    """Returns the smallest and the largest value, or the only one."""
    return " to ".join(dict.fromkeys(map(shown, sorted(values)[:: max(1, len(values) - 1)])))


def readme(data):
    builds, peers = builds_of(data), data["peers"]
    against = lambda scenario, threads: span(  # noqa: E731
        [ratio for build in builds.values() if (ratio := ratio_of(build.get((scenario, threads)), COMPACT))], lambda ratio: f"{ratio:.2f}")
    ns = span([ns_of(row) for build in builds.values() for row in build.get(("hot", 1), []) if row["subject"] == COMPACT], "{:.0f}".format)
    text = (
        f"With 1,000 keys, a check of the compact store takes {ns} ns on an {peers['machine']['cpu']}, including the clock reading. [governor](https://docs.rs/governor) {peers['versions']['governor']} with ahash takes\n"
        f"longer: the ratio of the two times is {against('hot', 1)} on one thread and {against('hot', 2)} on two. With a million keys it is {against('1m', 1)} on one thread. In these cases Tollgate\n"
        f"takes {LOST_FROM} times as long as governor with ahash, or longer. Two numbers are the ratios of two builds: with thin LTO, and cargo's default.\n\n"
        + markdown(["store", "checks", "1 thread", "2 threads"], lost_to_governor(data), 2))
    before, rest = README.read_text().split(BEGIN)
    return before + BEGIN + text + END + rest.split(END)[1]


def main():
    arguments = sys.argv[1:]
    if arguments[:1] == ["take"]:
        take(Path(arguments[1]), arguments[2:])
    data = results()
    if wrong := wrong_profiles(data):
        sys.exit("\n".join(wrong))
    reasons = json.loads(REASONS.read_text())
    pictures = chart_files(data)
    files = {PAGE: page(data, reasons, pictures), README: readme(data)} | {CHARTS / name: text for name, text in pictures.items()}
    if "--check" in arguments:
        wrong = [path for path, text in files.items() if not path.exists() or path.read_text() != text]
        wrong += [path for path in CHARTS.glob("*.svg") if path not in files]
        unknown = set(reasons) - {target["target"] for _, target, _ in targets(data)}
        for path in wrong:
            print(f"{path.relative_to(ROOT)} is not what benches/results gives: run ci/benchmarks.py", file=sys.stderr)
        for name in sorted(unknown):
            print(f"benches/reasons.json: no target of the results is called {name!r}", file=sys.stderr)
        sys.exit(1 if wrong or unknown else 0)
    CHARTS.mkdir(exist_ok=True)
    for path, text in files.items():
        path.write_text(text)
    print(f"{PAGE.relative_to(ROOT)}, {len(pictures)} charts, and the costs of {README.relative_to(ROOT)}")


main()
