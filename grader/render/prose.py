"""Text that came from a student's process, made fit to show, and its telling parts found."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum

ESCAPE_SEQUENCE = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?)")
UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
TELLING = re.compile(r"`?(?P<place>[\w./\\-]*\w\.py:\d+)\b`?|`(?P<code>[^`\n]+)`")


class Kind(StrEnum):
    """What a part of a message is: plain text, a `file:line`, or code in backticks."""

    TEXT = "text"
    PLACE = "place"
    CODE = "code"


def printable(text: str) -> str:
    """Take out terminal escapes, control and direction characters, lone surrogates; keep newlines, tabs.

    What is left is legal in XML 1.0 and does nothing to a terminal.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return UNPRINTABLE.sub("", ESCAPE_SEQUENCE.sub("", text))


def one_line(text: str) -> str:
    """The printable text with every run of white space made one space."""
    return " ".join(printable(text).split())


def parts(message: str) -> Iterator[tuple[Kind, str]]:
    """Split a message into plain text, places and code; joined, they are the message less its backticks."""
    message = printable(message)
    end = 0
    for match in TELLING.finditer(message):
        if match.start() > end:
            yield Kind.TEXT, message[end : match.start()]
        if place := match["place"]:
            yield Kind.PLACE, place
        else:
            yield Kind.CODE, match["code"]
        end = match.end()
    if end < len(message):
        yield Kind.TEXT, message[end:]


def first_place(message: str) -> str:
    """The first `file:line` that a message names, or nothing."""
    return next((text for kind, text in parts(message) if kind is Kind.PLACE), "")


def plural(number: int, noun: str) -> str:
    """A number and its noun: `1 check`, `3 checks`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def points(value: float) -> str:
    """Points as a person writes them: at most two decimals, no trailing zeros."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
