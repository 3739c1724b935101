"""Predictions: what a student expects before measuring, given as options or asked for."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from grader.faults import Mistake

QUESTIONS = {
    "speedup": "How many times faster is a step with the cache, at 1,000 positions (500 for `small`)?",
    "ms": "How many milliseconds does that step take, with the cache?",
    "bytes": "How many bytes does the cache grow by with every position?",
    "batch": "With sixteen texts at once: how many times more tokens a second than with one?",
}


def collect(given: Sequence[str]) -> dict[str, float]:
    """Read those given as `ms=8`; on a terminal ask for the others, of which none need be answered.

    Raises Mistake for an unknown name or something that is not a positive number.
    """
    found = dict(map(parse, given))
    on_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    for name in [name for name in QUESTIONS if name not in found and on_terminal]:
        answer = click.prompt(f"{QUESTIONS[name]} (enter: no idea)", default="", show_default=False)
        if number := positive(answer):
            found[name] = number
    return found


def parse(text: str) -> tuple[str, float]:
    """Read `ms=8`."""
    name, _, value = text.partition("=")
    if name not in QUESTIONS:
        raise Mistake(f"no prediction `{name}`: there are {', '.join(QUESTIONS)}")
    number = positive(value)
    if number is None:
        raise Mistake(f"`{text}` predicts no positive number; write `{name}=8`")
    return name, number


def positive(text: str) -> float | None:
    """The positive number that a text is, with or without commas; None where it is none."""
    try:
        number = float(text.replace(",", "").strip())
    except ValueError:
        return None
    return number if 0 < number < float("inf") else None
