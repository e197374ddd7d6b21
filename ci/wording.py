"""Writes the numbers and the tables of pages."""
from math import floor, log10


def figure(value, digits=3):
    """Returns the number with this many significant digits, and without an exponent."""
    if value is None:
        return ""
    if value == 0:
        return "0"
    places = max(0, digits - 1 - floor(log10(abs(value))))
    return f"{value:,.{places}f}"


def counted(number, noun):
    """Returns the number with its noun: `1 round`, `2 rounds`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def markdown(head, rows, numbers_from=1):
    lines = ["| " + " | ".join(head) + " |", "|" + "|".join("---" if i < numbers_from else "---:" for i in range(len(head))) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"
