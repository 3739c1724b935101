"""Canvas: the instructor's own exported gradebook with one assignment's column filled in."""

from __future__ import annotations

import re
from collections.abc import Sequence

from grader.marks import Mark
from grader.render import gradesheet
from grader.render.gradesheet import Column, Filled, Keys, Sheet
from grader.render.prose import points

KEYS = Keys(
    "canvas",
    number=("ID",),
    id=("SIS User ID", "Integration ID"),
    login=("SIS Login ID",),
    name=("Student", "FirstName", "LastName"),
)
NEVER_OURS = (
    "Student",
    "LastName",
    "FirstName",
    "ID",
    "SIS User ID",
    "SIS Login ID",
    "Integration ID",
    "Section",
)
POSSIBLE, READ_ONLY, EXCUSED = "points possible", "(read only)", "EX"
CANVAS_ID = re.compile(r" \(\d+\)\Z")


def fill(sheet: Sheet, marks: Sequence[Mark], column: str, possible: float) -> Filled:
    """Fill the assignment `column`, or make it; `possible` is what our points are out of.

    Lines without an ID (Points Possible, Manual Posting) and all other columns stay as they are. Raises
    ValueError where the table is no gradebook, or the column is not to be filled.
    """
    if "ID" not in sheet.header:
        raise ValueError("no column `ID` in its header: export the gradebook from Canvas")
    at = sheet.header.index("ID")
    students = [line for line in range(1, len(sheet.lines)) if sheet.cell(line, at)]
    worth = [
        line for line in range(1, min(4, len(sheet.lines))) if sheet.cell(line, 0).casefold() == POSSIBLE
    ]
    place = _place(sheet, column)
    if place is None:
        made = {0: column} | {line: points(possible) for line in worth}
        done = gradesheet.filled(sheet, students, KEYS, marks, Column(len(sheet.header), made))
        return Filled(done.text, (f"made the column `{column}`, out of {points(possible)}", *done.remarks))
    theirs = [sheet.cell(line, place) for line in worth]
    if READ_ONLY in theirs:
        raise ValueError(f"the column `{sheet.header[place]}` is read only: Canvas works it out itself")
    odd = gradesheet.other_worth("Canvas", theirs, possible)
    excused = frozenset(line for line in students if sheet.cell(line, place) == EXCUSED)
    done = gradesheet.filled(sheet, students, KEYS, marks, Column(place, kept=excused))
    return Filled(done.text, (f"filled the column `{sheet.header[place]}`", *odd, *done.remarks))


def _place(sheet: Sheet, column: str) -> int | None:
    """The column of this name, with or without the number that Canvas puts behind it."""
    if column in NEVER_OURS:
        raise ValueError(f"the column `{column}` is no assignment")
    exact = [at for at, head in enumerate(sheet.header) if head == column]
    found = exact or [at for at, head in enumerate(sheet.header) if CANVAS_ID.sub("", head) == column]
    if len(found) > 1:
        named = ", ".join(f"`{sheet.header[at]}`" for at in found)
        raise ValueError(f"more than one column is called so: {named}; give `--column` the whole name")
    return found[0] if found else None
