"""Records of a measurement: `measure.json`, which a later run goes on from, and the tables drawn from it.

Every finished measurement is one record and holds whole rows. Both are written anew after each, a whole file
or nothing, so that whatever ends a run loses only what was being measured.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

import msgspec

from grader import report as reports
from grader.report import Machine

SCHEMA = "kvgrade/measure/v1"
FILE = "measure.json"
COLUMNS = {
    "latency": ("model", "device", "dtype", "mode", "position", "ms_median", "ms_low", "ms_high", "samples"),
    "memory": ("model", "dtype", "position", "cache_bytes", "formula_bytes", "allocator_bytes"),
    "work": ("model", "context", "flops_cached", "flops_uncached", "s_cached", "s_uncached"),
    "total": ("model", "mode", "n_new", "seconds", "sampled"),
    "cat": ("position", "ms_cat", "ms_preallocated", "bytes"),
    "batch": ("batch", "ms_step", "tokens_per_s"),
}

Cell = str | int | float | bool | None
Row = dict[str, Cell]


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One finished measurement: rows by table, figures that are in no table, and how long it took."""

    name: str
    rows: dict[str, tuple[Row, ...]] = {}
    figures: Row = {}
    seconds: float = 0.0


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is measured, and how; `code` says whose, `digest` is of that code."""

    model: str
    device: str
    dtype: str
    prompt: int
    n_new: int
    quick: bool
    code: str
    digest: str
    threads: int = 0  # of torch on the CPU


class Measurements(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A run, whole or not yet: where, under which settings, what was predicted and what was found."""

    machine: Machine
    profile: str
    settings: Settings
    predictions: dict[str, float] = {}
    records: tuple[Record, ...] = ()
    summary: Row = {}
    remarks: tuple[str, ...] = ()
    schema: str = SCHEMA

    def record(self, name: str) -> Record | None:
        """The record of this name, if that much is done."""
        return next((record for record in self.records if record.name == name), None)

    def table(self, name: str) -> tuple[Row, ...]:
        """All rows of one table, in the order in which they were measured."""
        return tuple(row for record in self.records for row in record.rows.get(name, ()))


def save(found: Measurements, folder: Path) -> None:
    """Write `measure.json`, and a CSV file for each table that has rows; a table without rows has no file."""
    reports.write(folder / FILE, msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n")
    for name in COLUMNS:
        path, rows = folder / f"{name}.csv", found.table(name)
        if rows:
            reports.write(path, to_csv(name, rows))
        else:
            path.unlink(missing_ok=True)


def to_csv(table: str, rows: Sequence[Row]) -> str:
    """The rows of a table as CSV, with a header."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS[table], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def load(folder: Path) -> Measurements | None:
    """Read what an earlier run left; None where there is nothing, or nothing that can be read."""
    try:
        return msgspec.json.decode((folder / FILE).read_bytes(), type=Measurements)
    except (OSError, msgspec.DecodeError, msgspec.ValidationError):
        return None


def resumable(earlier: Measurements | None, now: Measurements) -> bool:
    """Whether an earlier run measured the same code, on the same machine, under the same settings."""
    if earlier is None or earlier.settings != now.settings:
        return False
    return (earlier.machine.cpu, earlier.machine.torch) == (now.machine.cpu, now.machine.torch)
