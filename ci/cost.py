"""The section "How cost grows" of BENCHMARKS.md, and its charts, from what `benches/cost.rs` measured."""
from statistics import median

import charts
from wording import figure, markdown

COMPACT, GOVERNOR = "tollgate compact", "governor + ahash"
MIB = 2**20
# The least memory that becomes resident, in bytes.
PAGE = 4096
# Loads by the names of their charts in the results, and their words in the chart of threads.
LOADS = {"threads, one hot key": "one key", "threads, 1,000 keys": "1,000 keys", "threads, 1 M keys": "1 M keys"}
STORES = {COMPACT: "compact", "tollgate keyed": "keyed", GOVERNOR: "governor"}


def lines(cost, chart, value=lambda row: row["ns"]):
    of = {}
    for row in cost["rows"]:
        if row["chart"] == chart:
            of.setdefault(row["subject"], []).append((row["x"], value(row)))
    return list(of.items())


def chart_files(cost):
    """Returns the names and texts of the charts."""
    cores = cost["model"]["cores"]
    threads = [(f"{STORES[subject]}, {words}", [(x, 1e3 * x / ns) for x, ns in points])
               for chart, words in LOADS.items() for subject, points in lines(cost, chart)]
    log = {"x_log": True, "y_log": True}
    return {
        "cost_keys.svg": charts.chart(
            "Time of a check, by number of keys", "Lower is better. One thread; each row in a process of its own.",
            lines(cost, "keys"), "keys, drawn uniformly", "nanoseconds a check", x_text=charts.power, **log),
        "cost_memory.svg": charts.chart(
            "Resident memory, by number of keys", "Lower is better. Of the same processes, after each key was checked once.",
            lines(cost, "keys", lambda row: max(row["bytes"], PAGE) / MIB), "keys", "MiB", x_text=charts.power, **log),
        "cost_threads.svg": charts.chart(
            "Checks a second, by threads", f"Higher is better. All threads together, on {cores} cores: more threads take turns.",
            threads, "threads", "million checks a second", shade=(cores * 2**0.5, f"more threads than the {cores} cores"), **log),
        "cost_rules.svg": charts.chart(
            "Time of a check, by rules in the file", "Lower is better. A rule for each tenant, tenants drawn uniformly, one thread.",
            lines(cost, "rules"), "rules", "nanoseconds a check", x_text=charts.power, **log),
        "cost_descriptors.svg": charts.chart(
            "Time of a service call, by descriptors", "Lower is better. Through the library, without a server; one thread, 1,000 clients.",
            lines(cost, "descriptors"), "descriptors of the call", "nanoseconds a call", **log),
        "cost_limits.svg": charts.chart(
            "Time of a call, by limits", "Lower is better. Compact stores, 1,000 keys, one thread.",
            lines(cost, "limits"), "limits of the call", "nanoseconds a call", **log),
    }


# The model of more cores. `benches/cost/threads.rs` describes it, and measured its parts.

def predicted(alone, fetch, exchange, threads, lines, kept):
    """Returns the time of a check on this many cores."""
    return max(alone + kept * (threads - 1) / threads * fetch, threads * exchange / lines)


def kept_share(model, load):
    """Returns the share of a load's cache lines that fit in the caches that a core has for itself."""
    return min(1, model["own_cache"] / (64 * load["lines"]))


def predictions(model, threads=64):
    """Returns for each load: its time alone, on two cores by the model and measured, the error in per cent, and the time on more cores. Each is a median of the rounds."""
    found = []
    for load in model["loads"]:
        parts = list(zip(load["alone_ns"], model["fetch_ns"], model["exchange_ns"]))
        on = lambda cores: [predicted(*part, cores, load["lines"], kept_share(model, load)) for part in parts]  # noqa: E731
        errors = [100 * (said / measured - 1) for said, measured in zip(on(2), load["two_ns"])]
        found.append({"load": LOADS[load["load"]], "lines": load["lines"], "alone": median(load["alone_ns"]), "said": median(on(2)),
                      "measured": median(load["two_ns"]), "error": median(errors), "many": median(on(threads)), "threads": threads})
    return found


CAPTIONS = {
    "cost_keys.svg": "Each row has a process of its own, and the processes of a size take turns. Those of 100 M keys follow each other instead, because they need too much memory "
                     "together. *12 B a key* is the least memory that `Capacity::for_traffic` gives if all keys owe; the compact store otherwise has four slots a key.",
    "cost_memory.svg": "Resident memory that the limiter added to its process, from `/proc/self/statm`. A page is the least. The sketch of a compact store becomes resident only where it is written.",
    "cost_threads.svg": "**This machine has two cores.** Up to two threads, the chart shows what cores cost. Beyond, threads take turns: it shows only what happens if there are more threads "
                        "than cores. The model below says what to expect of more cores.",
    "cost_rules.svg": "A rule limits each client of one tenant. governor has no rules: a user would write a map from the tenant to a limiter.",
    "cost_descriptors.svg": "Each descriptor matches a rule of its own. governor would need one limiter for each rule, and would charge the first ones even if a later one denies.",
    "cost_limits.svg": "A joint call charges all limits or none. Single checks charge the first limits even if a later one denies. Tuples have at most eight limits; arrays have any number.",
}
ALTS = {
    "cost_keys.svg": "Time of a check by number of keys", "cost_memory.svg": "Resident memory by number of keys", "cost_threads.svg": "Checks a second by threads",
    "cost_rules.svg": "Time of a check by number of rules", "cost_descriptors.svg": "Time of a service call by number of descriptors",
    "cost_limits.svg": "Time of a call by number of limits",
}


def beside_governor(cost):
    """Returns a table of the ratios to what a user would write otherwise: at both ends of a line, and the worst."""
    of = {}
    for row in cost["rows"]:
        if row["ratio"] is not None:
            of.setdefault((row["chart"], row["subject"]), []).append(row)
    rows = []
    for (chart, subject), line in of.items():
        line.sort(key=lambda row: row["x"])
        worst = max(line, key=lambda row: row["ratio"])
        what = f"threads, {LOADS[chart]}" if chart in LOADS else chart
        rows.append([what, subject.removeprefix("tollgate ").removeprefix("tollgate, "),
                     *(f"{row['x']:,}: {figure(row['ns'])} ns ({figure(row['ratio'])})" for row in (line[0], line[-1], worst))])
    return markdown(["by", "row", "first", "last", "worst ratio"], rows, 2)


def rules_memory(cost):
    """Returns the time and the memory of a file of rules, and the memory of what a user would write otherwise."""
    of = dict(lines(cost, "rules", lambda row: row))
    own, other = (dict(points) for points in of.values())
    return markdown(["rules", "read and loaded, ms", "resident after that, MiB", "after each rule was used, MiB", "governor's map, MiB"],
                    [[f"{x:,}", figure(row["load_ms"]), *(figure(bytes / MIB) for bytes in (row["bytes_loaded"], row["bytes"], other[x]["bytes"]))] for x, row in own.items()])


def cores_text(cost):
    """Returns the model, its error on two cores, and what it says of 64."""
    model = cost["model"]
    found = predictions(model)
    hot, some = found[:2]
    many = found[2] if len(found) > 2 else None
    # Two digits, because the model is not more exact.
    total = lambda row: f"{float(format(1e3 * row['threads'] / row['many'], '.2g')):,.0f}"  # noqa: E731
    between = lambda name: f"{figure(median(model[name]))} ns ({figure(min(model[name]))} to {figure(max(model[name]))})"  # noqa: E731
    rows = [[row["load"], f"{row['lines']:,}", *(figure(row[name]) for name in ("alone", "said", "measured")), f"{row['error']:+.0f} %", figure(row["many"]), total(row)] for row in found]
    worst = max(abs(row["error"]) for row in found)
    return ("### What to expect on 64 cores\n\n"
            f"With one hot key, expect no more than about {total(hot)} million checks a second of the compact store, however many cores there are: its cache line moves from core to core, and the cores wait for it. "
            "Leases (`leases::Striped`) avoid this queue, because each core has a word of its own. "
            f"**These are figures of a model, and nothing with more than two cores was measured.** On two cores, where the model can be tested, its error is up to {worst:.0f} %. On more cores its error is not "
            "known: it assumes that a line takes as long between any two cores as between the two of this machine. "
            f"By the model, a check on 64 cores with 1,000 keys takes about {figure(some['many'], 2)} ns on each core, instead of {figure(some['alone'], 2)} ns on one: about {total(some)} million checks a "
            f"second in all (error on two cores: {some['error']:+.0f} %). "
            + (f"With a million keys it takes about {figure(many['many'], 2)} ns, as on one core, if the memory keeps up: {total(many)} million ({many['error']:+.0f} %). " if many else "")
            + "\n\n"
            + markdown(["keys", "lines", "one core, ns", "two cores: model", "measured", "error", "64 cores: model, ns", "model: million checks a second"], rows)
            + "\nBy the model, a check on *T* cores takes the larger of two times. One is the time on one core, and a *fetch* if another core wrote the cache line last. The probability of that is "
            "(*T* - 1) / *T*, times the share of the lines that a core's own caches can hold. The other is the queue at a line: *T* *exchanges*, divided by the number of lines that hold the keys. "
            "All parts were measured on this machine; the range over the rounds is in brackets. A fetch adds "
            f"{between('fetch_ns')} to a call that only reads the counter of the processor and exchanges a word. When two cores make such calls on one word, one follows the other after "
            f"{between('exchange_ns')}; one core alone needs {between('exchange_alone_ns')}. A line that two cores pass back and forth takes {between('transfer_ns')} each way. The host moves its virtual "
            "processors, and two cores with a common third-level cache are several times closer than others.\n")


def section(cost):
    parts = ["## How cost grows\n",
             "These charts show how the time of a call grows, one dimension in each. `benches/cost.rs` measured them. All rows of a size take turns in each round, and a figure is the median of "
             "the rounds. The governor rows are what a user would write otherwise, with ahash. The table has three points of each line, as *size: time (ratio to governor)*.\n",
             beside_governor(cost)]
    for name, caption in CAPTIONS.items():
        parts.append(f"![{ALTS[name]}](benches/charts/{name})\n\n{caption}\n")
        if name == "cost_rules.svg":
            parts.append(rules_memory(cost))
    parts.append(cores_text(cost))
    return "\n".join(parts)
