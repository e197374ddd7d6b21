#!/usr/bin/env python3
"""Fills the tables of BENCHMARKS.md and README.md from benches/results. The sentences of both pages are by hand.

    ci/benchmarks.py take DIR [NAME...]    first makes benches/results from what the benches wrote to DIR, or only the files NAME.json of it
    ci/benchmarks.py targets DIR [NAME...] takes only the figures of the targets: those of another processor, or of a run that was not whole
    ci/benchmarks.py                       fills the tables
    ci/benchmarks.py --check               says which page does not have the tables of the results

A table is between the lines `<!-- table NAME -->` and `<!-- end -->`. BENCHMARKS.md lists the missed targets in italics, with the reasons:
each run of this program says which of them have no reason, and which reasons are those of other targets.
"""
import datetime
import json
import re
import sys
from math import floor, log10
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
RESULTS, PAGE, README = ROOT / "benches/results", ROOT / "BENCHMARKS.md", ROOT / "README.md"
# The figures of the targets on each processor that was measured. All other tables are those of the last run.
PROCESSORS = RESULTS / "processors"
# The results of the peers in the default build and in the build that servers should use, and the profiles of these builds.
PROFILES = {"peers": "release", "peers_server": "server"}
# Each build of the peers, and the server's beside a load: the columns of the targets.
BUILDS = {"peers": "default build", "peers_server": "thin LTO", "peers_beside": "thin LTO, beside a load"}
BENCHES = ("peers", "theirs", "sketches", "policies", "rules", "cost", "layer", "redis", "serve", "resp", "accuracy", "sketch_accuracy")
NAMES = (*BENCHES, "peers_server", "peers_beside", "run")
COMPACT, BATCHES, KEYED, CAPPED = "tollgate compact", "tollgate compact, batches of 16", "tollgate keyed", "tollgate keyed, capped"
GOVERNOR = "governor + ahash"
PEERS = ("governor", "quota", "rate-net", "ratelimit", "pingora", "fastbloom", "throttle-net", "scc ", "a ")
NO_LIMITERS = ("floor", "clock alone", "quanta now")
PLACE = re.compile(r"(<!-- table (\S+) -->\n).*?(?=<!-- end -->)", re.DOTALL)
MIB = 2**20
# The README lists rows from this ratio on. Smaller losses are within the noise of a run; BENCHMARKS.md lists them.
LOST_FROM = 1.2


def processor():
    """Returns the maker, the family and the model of this machine's processor: `AuthenticAMD-25.1`."""
    fields = dict(re.findall(r"^(.+?)\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE))
    return "{vendor_id}-{cpu family}.{model}".format(**fields)


def lines(report):
    """Returns a report as JSON with a line for each row or target, so that a diff can be read."""
    return re.sub(r"(\}+), (?=[{\"])", r"\1,\n", json.dumps(report, ensure_ascii=False)) + "\n"


def take(directory, names, whole):
    """Stores what the benches wrote, with numbers of four digits."""
    PROCESSORS.mkdir(parents=True, exist_ok=True)
    today, place = datetime.date.today().isoformat(), processor()
    known = PROCESSORS / f"{place}.json"
    targets = json.loads(known.read_text()) if known.exists() else {}
    for name in names or NAMES:
        report, stored = None, RESULTS / f"{name}.json"
        # A bench that ran in parts wrote a file for each.
        for path in (directory / stored.name, *directory.glob(f"{name}-*.json")):
            part = json.loads(path.read_text(), parse_float=lambda digits: float(f"{float(digits):.4g}")) if path.exists() else {}
            report = part | report | {rows: report[rows] + part[rows] for rows in ("rows", "counts", "targets") if rows in report} if report else part
        if report and whole:
            report["taken"] = {"date": today, "processor": place}
            stored.write_text(lines(report))
        elif whole:
            stored.unlink(missing_ok=True)
        if report and "targets" in report:
            figures = {target["target"]: {"bound": target["bound"], "value": target["value"]} for target in report["targets"]}
            targets[name] = {"date": today, "targets": figures}
    known.write_text(lines(targets))


class Number(float):
    """A number of the results, which is written with three significant digits if its place in a text has no format."""

    def __format__(self, form):
        if form == ",":
            return f"{int(self):,}"
        places = max(0, 2 - floor(log10(abs(self)))) if self else 0
        return format(float(self), form or f",.{places}f")


def figure(value):
    return f"{Number(value)}"


def read():
    """Returns the results by their names, without those that do not exist."""
    paths = (RESULTS / f"{name}.json" for name in NAMES)
    return {path.stem: json.loads(path.read_text(), parse_float=Number, parse_int=Number) for path in paths if path.exists()}


def grouped(rows, *names):
    found = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in names), []).append(row)
    return found


def ns_of(row):
    return row["ns_per_check"][2]


def title(row):
    """Returns what a row measures: `allowed, idle: 1,000 known keys`."""
    keys = row["draw"] if row["kind"] == "u64" else row["draw"].replace("keys", row["kind"])
    outcome = re.sub("(?<=allowed)(?=[wi])", ", ", row["outcome"]).replace("word", "one word")
    return f"{outcome}: {row['keys']:,} {keys}"


def ratio_of(rows, subject):
    """Returns the median ratio of a subject's time to governor's within a round, or None."""
    return next((row["ratio_to_governor"][2] for row in rows if row["subject"] == subject and row["ratio_to_governor"]), None)


def spread(value):
    """Returns the figure of a target: with the quartiles of the rounds or the 95 % confidence interval, and that of the quiet rounds."""
    if "low" in value:
        return "{median} (95 %: {low} to {high})".format(**value)
    quartiles = " ({q1} to {q3})".format(**value) if "q1" in value else ""
    quiet = "; quiet: {quiet} ({quiet_rounds:,})".format(**value) if "quiet" in value else ""
    return f"{value['median']}{quartiles}{quiet}"


def span(values):
    """Returns the smallest and the largest value, or the only one."""
    return " to ".join(dict.fromkeys(map(figure, sorted(values)[:: max(1, len(values) - 1)])))


def decisive(value):
    """Returns the figure that decides whether a target is met, as `Ratio::decisive` of benches/peers/summary.rs does."""
    return value["quiet"] if value.get("quiet_rounds", 0) >= 3 else value["median"]


def targets_of():
    """Returns each target with its newest bound, and by build the worst figure with its processor; then whether no build misses it."""
    places = {path.stem: json.loads(path.read_text(), parse_float=Number, parse_int=Number) for path in sorted(PROCESSORS.glob("*.json"))}
    for bench in BENCHES:
        builds = BUILDS if bench == "peers" else {bench: BUILDS["peers"]}
        runs = [(known[build]["date"], build, place, known[build]["targets"]) for build in builds for place, known in places.items() if build in known]
        bounds = {target: figures["bound"] for *_, targets in sorted(runs, key=lambda run: run[0]) for target, figures in targets.items()}
        for target in dict.fromkeys(target for *_, targets in runs for target in targets):
            worst = {}
            for _, build, place, targets in runs:
                one = (targets[target]["value"], place) if target in targets else None
                if one and (builds[build] not in worst or decisive(one[0]) > decisive(worst[builds[build]][0])):
                    worst[builds[build]] = one
            # The target is for quiet rounds: the figure beside a load only shows what a server may see.
            deciding = [build for build in worst if build != BUILDS["peers_beside"]]
            missed = [build for build in deciding if decisive(worst[build][0]) > bounds[target]]
            where = f"**missed** ({missed[0]})" if len(missed) == 1 < len(deciding) else "**missed**"
            yield target, bounds[target], worst, where if missed else "met" if deciding else "not measured alone"


# The tables: of each, its name, its head and its rows. A head begins with texts, and after `||` come numbers.

def peer_tables(data):
    """The tables of the peers, of which each has both builds."""
    builds = {name: grouped(data[name]["rows"], "scenario", "threads") for name in PROFILES}
    default, server = builds.values()

    def cells(*places):
        for build in (server, default):
            for scenario, subject, threads in places:
                found = build.get((scenario, threads), [])
                ns, ratio = next((figure(ns_of(row)) for row in found if row["subject"] == subject), ""), ratio_of(found, subject)
                yield ns if ratio is None or subject == GOVERNOR else f"{ns} ({ratio:.2f})"

    names = {"compact": COMPACT, "compact, in batches of 16": BATCHES, "keyed": KEYED, "quota": "quota", GOVERNOR: GOVERNOR}
    yield "1000-keys", "1,000 keys || one thread, thin LTO | two threads, thin LTO | one thread | two threads", [
        [f"{name}, {outcome}", *cells((scenario, subject, 1), (scenario, subject, 2))]
        for outcome, scenario in (("allowed", "hot"), ("denied", "hot-denied")) for name, subject in names.items()]
    del names["quota"]
    yield "many-keys", "one thread, allowed || 1 M keys, thin LTO | 10 M keys, thin LTO | 1 M keys | 10 M keys", [
        [name, *cells(("1m", subject, 1), ("10m", subject, 1))] for name, subject in names.items()]

    rows = []
    for target, bound, worst, outcome in targets_of():
        # A file without a maker in its name is of before the processors were stored.
        cells = (spread(one[0]) + f" [{one[1].rpartition('-')[2]}]" * ("-" in one[1]) if (one := worst.get(build)) else "" for build in BUILDS.values())
        rows.append([target, *cells, figure(bound), outcome])
    met = sum(row[-1] == "met" for row in rows)
    yield "targets", f"target || {' | '.join(BUILDS.values())} | at most | {met} of {len(rows)} met", rows

    floods = [data[name]["flood"]["rows"] for name in PROFILES]
    yield "flood", "subject || p99 | p99.9 | p99, thin LTO | p99.9, thin LTO", [
        [both[0]["subject"], *(spread(row["ratio"][place]) for row in both for place in ("p99", "p99.9"))] for both in zip(*floods)]

    worst = {}
    for name in PROFILES:
        for where, unit, figures in contests(data, builds, name):
            peers = {subject: value for subject, value in figures.items() if subject.startswith(PEERS)}
            best = min(peers, key=peers.get, default=None)
            for subject, value in figures.items():
                if best and not subject.startswith((*PEERS, *NO_LIMITERS)) and value > peers[best]:
                    words = f"{value} {unit}", f"{best}, {peers[best]} {unit.split()[0]}"
                    found = worst.setdefault((subject.removeprefix("tollgate "), where), {})
                    found[name] = max(found.get(name, (0, ())), (value / peers[best], words))
    yield "losses", "ours | where || ours takes | the best peer | ratio, default | ratio, thin LTO", [
        [*words, *max(found.values())[1], *(figure(found[name][0]) if name in found else "" for name in PROFILES)]
        for words, found in sorted(worst.items(), key=lambda row: (-max(row[1].values())[0], row[0]))]

    rows = []
    for name, words in zip(PROFILES, ("default", "thin LTO")):
        found = data[name]["rows"]
        spreads = sorted((row["ns_per_check"][3] - row["ns_per_check"][1]) / ns_of(row) for row in found)
        shares = spreads[len(spreads) // 2], spreads[int(0.9 * len(spreads))], spreads[-1], *(
            function(row["stolen_share"] for row in found) for function in (median, max))
        transfers = [row["line_transfer_ns"][2] for row in found if row["line_transfer_ns"]]
        rows.append([words, str(len(found)), *(f"{figure(100 * share)} %" for share in shares), span(transfers)])
    yield "noise", "build || rows | in half of them | in nine tenths | in all | others' time, median | worst | a line's transfer, ns", rows

    # What most users choose, then the rows in which a store, as its constructor builds it, is slower than governor.
    ratios = {}
    for scenario in dict.fromkeys(scenario for scenario, _ in default if not scenario.startswith("pieces")):
        for subject in (COMPACT, KEYED, "tollgate sketch", "tollgate direct"):
            both = [[ratio_of(build.get((scenario, threads), []), subject) for build in (server, default)] for threads in (1, 2)]
            row = subject.removeprefix("tollgate "), title(default[scenario, 1][0])
            ratios.setdefault(row, [[ratio for ratio in found if ratio] for found in both])
    tails = [{row["subject"]: row["flooded"]["ns"]["p99"] for row in rows} for rows in floods]
    ratios["keyed, full", "p99 of known keys under a flood of new keys"] = [[], [tail[CAPPED] / tail[GOVERNOR] for tail in tails]]
    worst = {row: max(sum(both, [0])) for row, both in ratios.items()}
    order = [("compact", "allowed: 1,000 known keys"), ("compact", "allowed: 1,000,000 known keys"),
             *sorted((row for row in worst if worst[row] >= LOST_FROM), key=worst.get, reverse=True)]
    yield "costs", "store | checks || 1 thread | 2 threads", [[*row, *map(span, ratios[row])] for row in order]


def contests(data, builds, name):
    """Returns what is compared with the peers: where, the unit, and the figure of each subject."""
    for (scenario, threads), rows in builds[name].items():
        if not scenario.startswith("pieces"):
            yield f"{title(rows[0])} ({threads:,})", "ns", {row["subject"]: ns_of(row) for row in rows}
    rows = data[name]["flood"]["rows"]
    for place in rows[0]["flooded"]["ns"]:
        yield f"Honest keys under a flood, {place}", "ns", {row["subject"]: row["flooded"]["ns"][place] for row in rows}
    for (kind, keys), rows in grouped(data[name]["resident"], "kind", "keys").items():
        sizes = {row["subject"]: row["bytes_per_key"] for row in rows if not row["subject"].startswith("pingora")}
        yield f"Memory, {keys:,} keys ({kind})", "B a key", sizes
    for (_, threads), rows in grouped(data["theirs"]["rows"], "scenario", "threads").items() if name == "peers" else ():
        yield f"{title(rows[0])} ({threads:,})", "ns", {row["subject"]: ns_of(row) for row in rows}
    if name == "peers":
        admit = (row for row in data["theirs"]["forgetful"] if row["newcomers_denied"] < 0.5)
        yield "New addresses past a cap, admitted", "ns", {row["subject"]: row["ns_per_newcomer"][2] for row in admit}
        for (_, keys), rows in grouped(data["theirs"]["resident"], "kind", "keys").items():
            yield f"Memory, {keys:,} addresses", "B a key", {row["subject"]: row["bytes_per_key"] for row in rows}
    for bench in ("sketches", "policies") if name == "peers" else ():
        for (table, threads), rows in grouped(data[bench]["rows"], "table", "threads").items():
            yield f"{bench}: {table} ({threads:,})", "ns", {row["subject"]: row["median_ns"] for row in rows}


def theirs_tables(theirs):
    times, new = ({(row["keys"], row["threads"], row["subject"]): figure(ns_of(row)) for row in theirs["rows"] if ("-cap-" in row["scenario"]) == is_new}
                  for is_new in (False, True))
    bytes_of = {(row["keys"], row["subject"]): figure(row["bytes_per_key"]) for row in theirs["resident"]}
    subjects = [row["subject"] for row in theirs["forgetful"]]
    head = "check, ns || " + " | ".join(f"{words}, {threads}" for words in ("2,048 addresses", "100,000", "1 M") for threads in ("1 thread", "2"))
    yield "theirs-time", head, [
        [subject, *(times[keys, threads, subject] for keys in (2048, 100_000, 1_000_000) for threads in (1, 2))] for subject in subjects]
    caps = sorted({(keys, threads) for keys, threads, _ in new})
    yield "theirs-caps", "a new address, ns || " + " | ".join(f"cap {keys:,}, {threads:,}" for keys, threads in caps), [
        [subject, *(new[keys, threads, subject] for keys, threads in caps)] for subject in ("tollgate keyed, Forget", "a validator's map")]
    cap, floods = theirs["forgetful"][0]["cap"], theirs["forgetful"][0]["floods"]
    head = f"cap {cap:,} || B an address, 100,000 | B an address, 1 M | units too many, {floods:,} floods | newcomers denied | a newcomer, ns"
    yield "theirs-full", head, [
        [subject := row["subject"], bytes_of[100_000, subject], bytes_of[1_000_000, subject], f"{row['units_too_many']:,}",
         f"{100 * row['newcomers_denied']:.0f} %", figure(row["ns_per_newcomer"][2])] for row in theirs["forgetful"]]


def cost_tables(cost):
    rows = []
    for (chart, subject), line in grouped((row for row in cost["rows"] if row["ratio"]), "chart", "subject").items():
        line.sort(key=lambda row: row["x"])
        places = line[0], line[-1], max(line, key=lambda row: row["ratio"])
        rows.append([chart, re.sub("^tollgate,? ", "", subject), *("{x:,}: {ns} ns ({ratio})".format(**row) for row in places)])
    yield "growth", "by | row || first | last | worst ratio", rows
    own, other = grouped((row for row in cost["rows"] if row["chart"] == "rules"), "subject").values()
    head = "rules || read and loaded, ms | resident after that, MiB | after each rule was used, MiB | governor's map, MiB"
    yield "rules-memory", head, [
        [f"{row['x']:,}", f"{row['load_ms']}", *(figure(size / MIB) for size in (row["bytes_loaded"], row["bytes"], twin["bytes"]))]
        for row, twin in zip(own, other)]

    # The model of more cores. `benches/cost/threads.rs` describes it, and measured its parts.
    model, rows, many = cost["model"], [], 64
    for load in model["loads"]:
        # The share of the load's cache lines that fit in the caches that a core has for itself.
        kept = min(1, model["own_cache"] / (64 * load["lines"]))
        two, more = ([max(alone + kept * (count - 1) / count * fetch, count * exchange / load["lines"])
                      for alone, fetch, exchange in zip(load["alone_ns"], model["fetch_ns"], model["exchange_ns"])] for count in (2, many))
        error = median(100 * (said / measured - 1) for said, measured in zip(two, load["two_ns"]))
        # Two digits, because the model is not more exact.
        rate = float(f"{1e3 * many / median(more):.2g}")
        rows.append([load["load"].removeprefix("threads, "), f"{load['lines']:,}", figure(median(load["alone_ns"])), figure(median(two)),
                     figure(median(load["two_ns"])), f"{error:+.0f} %", figure(median(more)), f"{rate:,.0f}"])
    head = "keys || lines | one core, ns | two cores: model | measured | error | 64 cores: model, ns | model: million checks a second"
    yield "cores", head, rows
    yield "cores-parts", "part || median, ns | range, ns", [[words, figure(median(model[name])), span(model[name])] for name, words in (
        ("fetch_ns", "a fetch"), ("exchange_ns", "an exchange of two cores"), ("exchange_alone_ns", "an exchange of one core"),
        ("transfer_ns", "a line that is passed back and forth, each way"))]


def redis_tables(redis):
    rows = []
    for table in redis["tables"]:
        if table["title"].startswith("Beside the script"):
            first = [table["title"].rpartition(", ")[2], "{quiet_rounds:,} of {rounds:,}".format(**table)]
            for row in table["rows"]:
                ratios = (f"{every} ({quiet})" for every, quiet in zip(row["ratios"], row["quiet"]))
                rows.append([*first, row["check"], *map(figure, row["us"]), *ratios])
    yield "own-script", "with | quiet rounds | check || µs | client, µs | server, µs | throughput | client's time | server's time", rows
    found = {table["title"]: table["rows"] for table in redis["tables"] if "rows" in table}
    yield "scripts", "limit || script, µs | bare script, µs | factor", [
        "{limit} | {us} | {bare_us} | {factor}".format(**row) for row in found["Script time on the server"]]
    yield "logs", "units || ring, µs | sorted set, µs | denied: ring, µs | sorted set, µs | ring, bytes | sorted set, bytes", [
        ("{units:,} | {ring_us} | {sorted_set_us} | {ring_denied_us} | {sorted_set_denied_us} | "
         "{ring_bytes:,} | {sorted_set_bytes:,}").format(**row)
        for row in found["Sliding log: ring and sorted set"]]


def serve_tables(serve):
    def twice(ratio):
        return "{all[2]}; {quiet[2]} ({quiet_rounds:,})".format(**ratio)

    yield "service", "request || requests a second | of the floor's | CPU, µs | the floor's, µs | CPU against the floor", [
        [row["shape"], f"{row['requests_per_s'][2]:,.0f}", twice(row["ratio_requests_per_s"]), figure(row["cpu_us"][2]),
         figure(other["cpu_us"][2]), twice(row["ratio_cpu"])] for other, row in zip(serve["rows"][::2], serve["rows"][1::2])]
    head = "load | server || requests a second | p50 | p99 | p99.9 | latest | pause | p99.9 to floor's | busy | waits | later than 20 ms"
    yield "service-latency", head, [
        [f"{row['share']:.0%}" + (f", {row['reloads']:,} reloads of 10,000 rules" if row["reloads"] else ""), row["subject"],
         f"{row['rate']:,}", *(figure(row[name][2] / 1e3) for name in ("p50_us", "p99_us", "p99_9_us", "worst_us", "pause_us")),
         twice(row["ratio_p99_9"]) if "ratio_p99_9" in row else "", f"{row['server_busy'][2]:.0%}", f"{row['server_waits'][2]:.1%}",
         "{later_than_20_ms:,} of {requests:,}".format(**row)] for row in serve["latency"]]


def resp_tables(resp):
    yield "redis-clients", "request || in a pipeline | requests a second | CPU, µs", [
        "{command} | {pipeline:,} | {requests_per_s[2]:,.0f} | {cpu_us[2]}".format(**row) for row in resp["rows"]]


def run_tables(data):
    peers, run = data["peers"], data["run"]
    machine = peers["machine"]
    days = {}
    for name, report in data.items():
        # Results of before the processors were stored are those of the last whole run.
        taken = report.get("taken", {"date": run["date"], "processor": "not recorded"})
        days.setdefault((taken["date"], taken["processor"]), []).append(name)
    rows = [*([f"{date}, {place}", ", ".join(f"`{name}`" for name in names if name != "run")] for (date, place), names in sorted(days.items())),
            ["whole run", run["date"] + (" (**a quick run, which only tests the steps**)" if run["quick"] else "")],
            ["its minutes", f"{run['seconds'] / 60:.0f}"], ["processor", "{cpu}, {cores:,} seen".format(**machine)],
            ["memory", "{memory_gib:,} GiB".format(**machine)], ["priority", run["priority"]],
            *([words, machine[name]] for words, name in (("system", "os"), ("clock source", "clocksource"), ("compiler", "rustc"),
                                                         ("allocator", "allocator"), ("load before", "load_average"))),
            ["versions", ", ".join(f"{name} {version}" for name, version in peers["versions"].items() if name != "tollgate")]]
    for bench, name in (("serve", "service"), ("resp", "Redis clients")):
        if bench in data:
            text = "{machine[date]}, load before {machine[load_average]}; {rounds:,} rounds of {requests:,} requests"
            rows.append([name, text.format(**data[bench]) + "; real-time priority" * data[bench]["machine"]["real_time"]])
    yield "machine", "machine | ", rows


def table(head, rows):
    """Returns a table whose numbers are at the right."""
    texts, _, numbers = head.partition("||")
    ruler = "|".join(["---"] * (texts.count("|") + 1) + ["---:"] * (numbers.count("|") + 1 if numbers else 0))
    lines = [f"| {row if isinstance(row, str) else ' | '.join(row)} |" for row in (head.replace("||", "|"), *rows)]
    return "\n".join([lines[0], f"|{ruler}|", *lines[1:]])


def main():
    arguments = sys.argv[1:]
    if arguments[:1] in (["take"], ["targets"]):
        take(Path(arguments[1]), arguments[2:], arguments[0] == "take")
    data = read()
    wrong = [f"benches/results/{name}.json is of the profile {data[name]['profile']}" for name, profile in PROFILES.items()
             if data[name]["profile"] != profile]
    found = [*peer_tables(data), *run_tables(data)]
    for name, tables in (("theirs", theirs_tables), ("cost", cost_tables), ("redis", redis_tables), ("serve", serve_tables), ("resp", resp_tables)):
        found += tables(data[name]) if name in data else []
    texts = {name: table(head, rows) for name, head, rows in found} | {"commands": "\n".join(["```sh", *data["run"]["commands"], "```"])}
    for page in (PAGE, README):
        text = page.read_text()
        filled = PLACE.sub(lambda place: f"{place[1]}{texts.get(place[2], 'Not measured.')}\n", text)
        if "--check" not in arguments:
            page.write_text(filled)
        elif filled != text:
            wrong.append(f"{page.name} does not have the tables of benches/results: run ci/benchmarks.py")
    missed = {target for target, *_, outcome in targets_of() if outcome.startswith("**missed")}
    reasons = {name for line in re.findall(r"^- \*.*", PAGE.read_text(), re.MULTILINE) for name in re.findall(r"\*([^*]+)\*[.;]", line)}
    wrong += [f"BENCHMARKS.md gives no reason for the missed target {name!r}" for name in sorted(missed - reasons)]
    wrong += [f"BENCHMARKS.md gives a reason for {name!r}, which is no missed target" for name in sorted(reasons - missed)]
    sys.exit("\n".join(wrong) or 0)


main()
