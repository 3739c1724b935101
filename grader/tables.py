"""The tables of a measurement, read back from `results/*.csv`: what plots are drawn from, and nothing else.

A file that is not there is an empty table. One that is garbled is said so, by file and line.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from grader import records
from grader.report import Machine

Count = Annotated[int, msgspec.Meta(ge=0)]
Positive = Annotated[int, msgspec.Meta(ge=1)]
Time = Annotated[float, msgspec.Meta(ge=0)]
Mode = Literal["cached", "uncached"]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Step:
    """How long a step takes where the text has `position` positions, in ms: median and interval."""

    model: str
    device: str
    dtype: str
    mode: Mode
    position: Positive
    ms_median: Time
    ms_low: Time
    ms_high: Time
    samples: Positive


@dataclass(frozen=True, slots=True)
class Held:
    """The bytes that a cache of so many positions holds, and what the allocator has given out."""

    model: str
    dtype: str
    position: Positive
    cache_bytes: Count
    formula_bytes: Count
    allocator_bytes: Count | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """One step at a length of text: operations and seconds, with the cache and without."""

    model: str
    context: Positive
    flops_cached: Positive
    flops_uncached: Positive
    s_cached: Time
    s_uncached: Time


@dataclass(frozen=True, slots=True)
class Total:
    """The whole text, in seconds; `sampled` where they were added up from steps at some positions."""

    model: str
    mode: Mode
    n_new: Positive
    seconds: Time
    sampled: Literal["yes", "no"]


@dataclass(frozen=True, slots=True)
class Tables:
    """A measurement: its tables, and, where it says so, the hardware profile and the machine."""

    latency: tuple[Step, ...] = ()
    memory: tuple[Held, ...] = ()
    work: tuple[Work, ...] = ()
    total: tuple[Total, ...] = ()
    profile: str = ""
    machine: str = ""


def load(folder: Path) -> Tables:
    """Read the tables of a folder.

    Raises ValueError with the file and the line for one that can't be read.
    """
    found = records.load(folder)
    return Tables(
        _read(folder / "latency.csv", Step),
        _read(folder / "memory.csv", Held),
        _read(folder / "work.csv", Work),
        _read(folder / "total.csv", Total),
        found.profile if found else "",
        _words(found.machine) if found else "",
    )


def parse(text: str, name: str, row: type[T]) -> tuple[T, ...]:
    """Read a table of such rows; columns may come in any order, and further ones are passed over.

    Raises ValueError with the file and the line.
    """
    lines = csv.DictReader(text.splitlines(keepends=True), strict=True)
    rows = []
    try:
        missing = [f.name for f in fields(row) if f.name not in (lines.fieldnames or ())]  # type: ignore[arg-type]
        if missing:
            raise ValueError(f"there is no column `{missing[0]}`")
        for cells in lines:
            rows.append(_row(cells, row))
    except (csv.Error, ValueError) as error:
        raise ValueError(f"`{name}`, line {max(lines.reader.line_num, 1)}: {error}") from error
    return tuple(rows)


def _read(path: Path, row: type[T]) -> tuple[T, ...]:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise ValueError(f"`{path}` can't be read: {error.strerror}") from error
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ValueError(f"`{path}`, line {line}: it is not UTF-8") from error
    return parse(text, str(path), row)


def _row(cells: dict[str | Any, str | Any], row: type[T]) -> T:
    if None in cells or None in cells.values():
        raise ValueError("it has more or fewer cells than the header")
    try:
        found = msgspec.convert(dict(_filled(cells, row)), row, strict=False)
    except msgspec.ValidationError as error:
        what, _, place = str(error).partition(" - at `$.")
        name = place.rstrip("`")
        raise ValueError(f"`{name}` is `{cells[name]}`: {what}" if name else what) from error
    for name in (field.name for field in fields(row)):  # type: ignore[arg-type]
        if isinstance(value := getattr(found, name), float) and not math.isfinite(value):
            raise ValueError(f"`{name}` is `{cells[name]}`, which is no number")
    return found


def _filled(cells: dict[str, str], row: type[Any]) -> Iterator[tuple[str, str]]:
    """The cells that a row has a field for and that are not empty."""
    for field in fields(row):
        if cells[field.name] != "":
            yield field.name, cells[field.name]


def _words(machine: Machine) -> str:
    return f"{machine.cpu}, {machine.cores} cores" if machine.cpu and machine.cores else machine.cpu
