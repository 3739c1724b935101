"""What changed between two gradebooks: points before and after, a student and a stage each; pure."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from grader.gradebook import Gradebook, Row, harmless, said

TOTAL = "total"
HEADER = ("student", "stage", "before", "after")


@dataclass(frozen=True, slots=True)
class Change:
    """A student's points in a stage, or in all, before and after; None where there are none."""

    student: str
    stage: str
    before: float | None
    after: float | None

    @property
    def cells(self) -> tuple[str, str, str, str]:
        return self.student, self.stage, said(self.before), said(self.after)


def between(before: Gradebook, after: Gradebook) -> tuple[Change, ...]:
    """All that differs, students in the order of names and stages in the course's, a total behind each."""
    old, new = ({row.student: row for row in book.rows} for book in (before, after))
    names = sorted({*old, *new}, key=lambda name: (name.casefold(), name))
    stages = list(dict.fromkeys((*before.possible, *after.possible)))
    return tuple(change for name in names for change in _of(name, old.get(name), new.get(name), stages))


def to_csv(changes: Sequence[Change]) -> str:
    """The changes as CSV; no cell can be taken for a formula."""
    lines = io.StringIO(newline="")
    table = csv.writer(lines)
    table.writerow(HEADER)
    for change in changes:
        table.writerow([harmless(change.student), change.stage, *change.cells[2:]])
    return lines.getvalue()


def _of(name: str, old: Row | None, new: Row | None, stages: Sequence[str]) -> Iterator[Change]:
    for stage in (*stages, TOTAL):
        before, after = _points(old, stage), _points(new, stage)
        if said(before) != said(after):
            yield Change(name, stage, before, after)


def _points(row: Row | None, stage: str) -> float | None:
    if row is None:
        return None
    return row.total if stage == TOTAL else row.stages.get(stage)
