"""Moodle: an assignment's offline grading worksheet filled in, or a table for the gradebook's import."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from grader.gradebook import harmless
from grader.marks import Mark
from grader.render import gradesheet
from grader.render.gradesheet import Column, Filled, Keys, Sheet
from grader.render.prose import points

KEYS = Keys(
    "moodle",
    number=("Identifier",),
    id=("ID number",),
    login=("Username",),
    email=("Email address",),
    name=("Full name",),
)
GRADE, MAXIMUM, MAY_CHANGE = "Grade", ("Maximum Grade", "Maximum grade"), "Grade can be changed"
LOCKED = "No"


def fill(sheet: Sheet, marks: Sequence[Mark], column: str, possible: float) -> Filled:
    """Fill a worksheet's `column`; lines that Moodle has locked stay as they are.

    Raises ValueError where there is no such column.
    """
    if column not in sheet.header:
        raise ValueError(f"no column `{column}` in its header `{', '.join(sheet.header)[:200]}`")
    at = {head: sheet.header.index(head) for head in (column, MAY_CHANGE, *MAXIMUM) if head in sheet.header}
    lines = [line for line in range(1, len(sheet.lines)) if sheet.lines[line] != ("",)]
    locked = [line for line in lines if MAY_CHANGE in at and sheet.cell(line, at[MAY_CHANGE]) == LOCKED]
    theirs = {sheet.cell(line, at[head]) for head in MAXIMUM if head in at for line in lines}
    odd = gradesheet.other_worth("Moodle", theirs, possible)
    done = gradesheet.filled(sheet, lines, KEYS, marks, Column(at[column], kept=frozenset(locked)))
    return Filled(done.text, (*odd, *done.remarks))


def table(marks: Sequence[Mark], column: str) -> str:
    """A table for Grades > Import > CSV: who, and points. Who has none is left out, since an empty cell
    there takes a grade away.
    """
    lines = io.StringIO(newline="")
    writer = csv.writer(lines)
    writer.writerow(["ID number", "Email address", "Full name", harmless(column)])
    for mark in marks:
        if mark.total is not None:
            row = mark.row
            writer.writerow([*map(harmless, (row.student, row.email, row.name)), points(mark.total)])
    return lines.getvalue()
