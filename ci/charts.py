"""Draws line charts as SVG, with only the standard library.

Made to be read at 700 pixels on light and dark pages: a ground of their own, colours of the Okabe-Ito set (distinguishable with every kind
of colour vision), a marker of its own for each line, and names at the ends of lines instead of a legend.
"""
from html import escape
from math import floor, log10

WIDTH, HEIGHT = 760, 470
LEFT, RIGHT, TOP, BOTTOM = 66, 216, 74, 52
INK, FAINT, GRID = "#1f2328", "#59636e", "#e3e6ea"

# name: colour, dash, marker, width. Ours are wide, peers narrow, the floor dashed.
STYLES = {
    "floor": ("#6e7781", "5 4", "none", 2),
    "tollgate compact": ("#0072b2", "", "disc", 3),
    "tollgate compact, batches of 16": ("#56b4e9", "", "disc", 3),
    "tollgate keyed": ("#009e73", "", "disc", 3),
    "tollgate keyed, capped": ("#009e73", "", "disc", 3),
    "tollgate direct": ("#009e73", "", "disc", 3),
    "tollgate striped": ("#0072b2", "", "disc", 3),
    "governor + ahash": ("#d55e00", "", "square", 1.6),
    "governor direct": ("#d55e00", "", "square", 1.6),
    "governor": ("#e69f00", "", "square", 1.6),
    "rate-net": ("#cc79a7", "", "triangle", 1.6),
    "rate-net direct": ("#cc79a7", "", "triangle", 1.6),
    "quota": ("#8b5a2b", "", "diamond", 1.6),
    "ratelimit": ("#8b5a2b", "", "diamond", 1.6),
    "pingora-limits Rate": ("#7d6bb0", "", "cross", 1.6),
    "plain count-min": ("#d55e00", "", "square", 1.6),
    "conservative update": ("#56b4e9", "", "disc", 3),
    "doorkeeper and conservative update": ("#0072b2", "", "disc", 3),
    "clock alone": ("#6e7781", "5 4", "none", 2),
    "tollgate serve": ("#0072b2", "", "disc", 3),
    # How cost grows.
    "tollgate compact, 12 B a key": ("#56b4e9", "", "disc", 3),
    "tollgate rules": ("#0072b2", "", "disc", 3),
    "governor, a map by tenant": ("#d55e00", "", "square", 1.6),
    "tollgate joint call": ("#0072b2", "", "disc", 3),
    "tollgate joint call, array": ("#56b4e9", "", "disc", 3),
    "tollgate, one after the other": ("#009e73", "", "disc", 3),
    "governor, one after the other": ("#d55e00", "", "square", 1.6),
    "compact, one key": ("#0072b2", "2 3", "disc", 2),
    "compact, 1,000 keys": ("#0072b2", "", "disc", 3),
    "compact, 1 M keys": ("#0072b2", "8 4", "disc", 2),
    "keyed, one key": ("#009e73", "2 3", "triangle", 2),
    "keyed, 1,000 keys": ("#009e73", "", "triangle", 3),
    "keyed, 1 M keys": ("#009e73", "8 4", "triangle", 2),
    "governor, one key": ("#d55e00", "2 3", "square", 1.6),
    "governor, 1,000 keys": ("#d55e00", "", "square", 1.6),
    "governor, 1 M keys": ("#d55e00", "8 4", "square", 1.6),
}


class Axis:
    """An axis: converts values to pixels, and chooses the places of its ticks."""

    def __init__(self, low, high, start, end, log, ticks=None, text=str):
        self.low, self.high, self.start, self.end, self.log, self.text = low, high, start, end, log, text
        self.ticks = ticks if ticks is not None else self.choose()

    def place(self, value):
        f = (lambda v: log10(v)) if self.log else (lambda v: v)
        share = (f(value) - f(self.low)) / (f(self.high) - f(self.low))
        return self.start + share * (self.end - self.start)

    def choose(self):
        if self.log:
            decades = range(floor(log10(self.low)) - 1, floor(log10(self.high)) + 2)
            for steps in ((1,), (1, 3), (1, 2, 5)):
                ticks = [s * 10.0**d for d in decades for s in steps]
                ticks = [t for t in ticks if self.low * 0.999 <= t <= self.high * 1.001]
                if len(ticks) >= 5:
                    break
            return ticks
        raw = (self.high - self.low) / 6
        step = next(s * 10.0 ** floor(log10(raw)) for s in (1, 2, 5, 10) if s * 10.0 ** floor(log10(raw)) >= raw)
        return [self.low + step * i for i in range(int((self.high - self.low) / step + 1e-9) + 1)]


def plain(value):
    """Returns the shortest text for the number of a tick."""
    if value >= 1e3 and value % 1e2 == 0:
        return f"{value / 1e6:g} M" if value >= 1e6 else f"{value / 1e3:g} k"
    return f"{value:g}" if value >= 1e-4 or value == 0 else f"{value:.5f}".rstrip("0")


def power(value):
    return "10" + str(round(log10(value))).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


def padded(values, log, zero=False):
    low, high = min(values), max(values)
    if log:
        return low / 1.18, high * 1.18
    return (0 if zero else low), high * 1.06


def marker(kind, x, y, colour, hollow=False, size=4.0):
    paint = f'fill="{"#ffffff" if hollow else colour}" stroke="{colour}" stroke-width="1.6"'
    s = size
    if kind == "disc":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{s:g}" {paint}/>'
    if kind == "square":
        return f'<rect x="{x - s:.1f}" y="{y - s:.1f}" width="{2 * s:g}" height="{2 * s:g}" {paint}/>'
    if kind == "triangle":
        return f'<path d="M{x:.1f} {y - s - 1:.1f}l{s + 1:g} {2 * s:g}h{-2 * (s + 1):g}z" {paint}/>'
    if kind == "diamond":
        t = s + 1.2
        return f'<path d="M{x:.1f} {y - t:.1f}l{t:g} {t:g}l{-t:g} {t:g}l{-t:g} {-t:g}z" {paint}/>'
    if kind == "cross":
        return (f'<path d="M{x - s:.1f} {y - s:.1f}l{2 * s:g} {2 * s:g}m0 {-2 * s:g}l{-2 * s:g} {2 * s:g}" '
                f'fill="none" stroke="{colour}" stroke-width="2"/>')
    return ""


def apart(wanted, gap, low, high):
    """Returns places near the wanted places, in the same order. No two places are closer than the gap."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    places = [wanted[i] for i in order]
    for _ in range(200):
        for i in range(1, len(places)):
            short = gap - (places[i] - places[i - 1])
            if short > 0:
                places[i - 1] -= short / 2
                places[i] += short / 2
        shift = max(0, low - places[0]) - max(0, places[-1] - high)
        if abs(shift) > 0.01:
            places = [p + shift for p in places]
    result = [0.0] * len(wanted)
    for place, i in zip(places, order):
        result[i] = place
    return result


def chart(title, better, lines, x_name, y_name, *, x_log=False, y_log=False, x_ticks=None, x_text=plain, y_zero=False,
          least=None, note="", shade=None, second=None):
    """Returns the text of an SVG.

    lines: (name, [(x, y)]) in drawing order. second: the same, drawn dashed and thin in the colour of the first of that name.
    least: what is below it (a zero, on a logarithmic axis) is drawn hollow on it. shade: (from x, words) greys what is beyond.
    """
    lift = (lambda y: max(y, least)) if least else (lambda y: y)
    second = second or []
    everything = [(x, lift(y)) for _, points in lines + second for x, y in points]
    xs = sorted({x for x, _ in everything})
    x_range = (xs[0], xs[-1]) if x_ticks or not x_log else (xs[0], xs[-1])
    x_axis = Axis(*x_range, LEFT + 14, WIDTH - RIGHT - 10, x_log, x_ticks or xs, x_text)
    y_axis = Axis(*padded([y for _, y in everything], y_log, y_zero), HEIGHT - BOTTOM, TOP, y_log, None, plain)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" '
        f'aria-label="{escape(title)}" font-family="system-ui, -apple-system, \'Segoe UI\', Helvetica, Arial, sans-serif" '
        f'font-size="12.5" fill="{INK}">',
        f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="8" fill="#ffffff" stroke="#d1d9e0"/>',
        f'<text x="18" y="29" font-size="16.5" font-weight="600">{escape(title)}</text>',
        f'<text x="18" y="49" fill="{FAINT}">{escape(better)}</text>',
    ]
    if shade:
        edge = x_axis.place(shade[0])
        out.append(f'<rect x="{edge:.1f}" y="{TOP}" width="{WIDTH - RIGHT - edge:.1f}" height="{HEIGHT - BOTTOM - TOP}" '
                   f'fill="#f1f3f5"/>')
        out.append(f'<text x="{edge:.1f}" y="{TOP - 6}" font-size="11.5" fill="{FAINT}">{escape(shade[1])}</text>')
    for tick in y_axis.ticks:
        y = y_axis.place(tick)
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="{GRID}"/>')
        out.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end" fill="{FAINT}">{y_axis.text(tick)}</text>')
    foot = HEIGHT - BOTTOM
    out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{foot}" y2="{foot}" stroke="#8c959f"/>')
    for tick in x_axis.ticks:
        x = x_axis.place(tick)
        out.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{foot}" y2="{foot + 5}" stroke="#8c959f"/>')
        out.append(f'<text x="{x:.1f}" y="{foot + 20}" text-anchor="middle" fill="{FAINT}">{x_axis.text(tick)}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    out.append(f'<text x="{middle:.0f}" y="{HEIGHT - 11}" text-anchor="middle">{escape(x_name)}</text>')
    centre = (TOP + foot) / 2
    out.append(f'<text x="17" y="{centre:.0f}" text-anchor="middle" transform="rotate(-90 17 {centre:.0f})">{escape(y_name)}</text>')
    if note:
        out.append(f'<text x="{WIDTH - 16}" y="{HEIGHT - 11}" text-anchor="end" font-size="11" fill="{FAINT}">{escape(note)}</text>')

    def path(points):
        return "M" + "L".join(f"{x_axis.place(x):.1f} {y_axis.place(lift(y)):.1f}" for x, y in points)

    for name, points in second:
        colour = STYLES[name][0]
        out.append(f'<path d="{path(points)}" fill="none" stroke="{colour}" stroke-width="1.3" stroke-dasharray="2 3"/>')
    # Our lines are drawn last, above the others.
    for name, points in sorted(lines, key=lambda line: line[0].startswith("tollgate")):
        colour, dash, kind, width = STYLES[name]
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        out.append(f'<path d="{path(points)}" fill="none" stroke="{colour}" stroke-width="{width}" stroke-linejoin="round"{dashes}/>')
        for x, y in points:
            hollow = bool(least) and y < least
            out.append(marker(kind, x_axis.place(x), y_axis.place(lift(y)), colour, hollow))
    ends = [(points[-1][0], lift(points[-1][1])) for _, points in lines]
    wanted = [y_axis.place(y) for _, y in ends]
    label_x = WIDTH - RIGHT + 22
    for (name, _), (end_x, _), at, label in zip(lines, ends, wanted, apart(wanted, 16, TOP + 6, foot - 4)):
        colour, _, kind, width = STYLES[name]
        start = x_axis.place(end_x) + 6
        early = end_x < x_axis.high
        dots = ' stroke-dasharray="1 4"' if early else ""
        out.append(f'<path d="M{start:.1f} {at:.1f}L{WIDTH - RIGHT + 4} {at:.1f}L{label_x - 4} {label:.1f}" fill="none" '
                   f'stroke="{colour}" stroke-width="0.9" stroke-opacity="0.8"{dots}/>')
        weight = ' font-weight="600"' if width >= 3 else ""
        dash = f'<path d="M{label_x - 4} {label:.1f}h12" stroke="{colour}" stroke-width="2" stroke-dasharray="5 2"/>'
        out.append(dash if kind == "none" else marker(kind, label_x + 3, label, colour))
        words = short(name) + (f" (to {x_axis.text(end_x)})" if early else "")
        out.append(f'<text x="{label_x + 13}" y="{label + 4:.1f}"{weight}>{escape(words)}</text>')
    return "\n".join(out) + "\n</svg>\n"


def short(name):
    """Returns a name that is short enough for the side of a chart."""
    return {
        "tollgate compact, batches of 16": "tollgate, batches of 16",
        "tollgate compact, 12 B a key": "12 B a key",
        "tollgate, one after the other": "tollgate, single checks",
        "governor, one after the other": "governor, single checks",
        "doorkeeper and conservative update": "tollgate sketch store",
        "conservative update": "tollgate CountMin",
        "plain count-min": "count-min (pingora)",
        "clock alone": "no limiter (the timing)",
        "floor": "floor (no keys kept)",
        "pingora-limits Rate": "pingora-limits (counts)",
    }.get(name, name)
