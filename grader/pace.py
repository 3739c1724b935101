"""The pace of a batch on stderr: how many are done, how fast it goes, how long is left.

On a terminal it is a bar that is redrawn whenever one more is done, in a log a plain line now and then.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING

import click

from grader.render.prose import plural

if TYPE_CHECKING:
    from rich.progress import Progress

EVERY_S = 30.0
FIRST = 3  # so many tell something of the rate


@dataclass(slots=True)
class Pace:
    """What is known of the batch while it goes on."""

    what: str
    total: int
    clock: Callable[[], float] = time.monotonic
    say: Callable[[str], None] = lambda line: click.echo(line, err=True)
    done: int = 0
    _begun_s: float = field(init=False)
    _said_s: float = field(init=False)
    _bar: Progress | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._begun_s = self._said_s = self.clock()

    def __enter__(self) -> Pace:
        if self.total and sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
            self._bar = _bar(self.what, self.total)
            self._bar.start()
        elif self.total:
            self.say(f"{self.what}: {self.total} to do")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()

    def one(self) -> None:
        """One more is done."""
        self.done += 1
        if self._bar:
            self._bar.update(self._bar.task_ids[0], completed=self.done, rate=self.rate(), refresh=True)
        elif self.clock() - self._said_s >= EVERY_S or self.done == self.total:
            self._said_s = self.clock()
            self.say(f"{self.what}: {self.done} of {self.total}{self.rate()}")

    def remark(self, line: str) -> None:
        """Say a line of its own, above the bar where there is one."""
        if self._bar:
            self._bar.console.print(line, markup=False, highlight=False)
        else:
            self.say(line)

    def rate(self) -> str:
        """How many a minute, and how long is left, once that can be told."""
        spent_s = self.clock() - self._begun_s
        if self.done < min(FIRST, self.total) or spent_s <= 0:
            return ""
        left_s = (self.total - self.done) * spent_s / self.done
        left = f", {lasting(left_s)} left" if self.done < self.total else f", {lasting(spent_s)}"
        return f", {60 * self.done / spent_s:.1f} a minute{left}"


def lasting(seconds: float) -> str:
    """A duration as a person says it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{plural(minutes // 60, 'hour')} {minutes % 60} min"


def _bar(what: str, total: int) -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed} of {task.total}{task.fields[rate]}"),
    )
    bar = Progress(*columns, console=Console(stderr=True), auto_refresh=False, transient=True)
    bar.add_task(what, total=total, rate="")
    return bar
