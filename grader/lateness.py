"""Late days: when something was handed in, by how much that is late, and what is taken off for it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from grader.faults import Mistake
from grader.gradebook import Gradebook, Row
from grader.roster import Student

DAY_S, HOUR_S = 86_400, 3_600
MOST_HOURS = 2_400  # of an extension: a telephone's in a column of that name is more
ZONE = re.compile(r"\s*(?P<zone>Z|UTC|[+-]\d\d:?\d\d)\Z")
EXAMPLE = "2026-12-01T23:59+01:00"
TAKEN = {"none": 0.0, "zero": 100.0}
NOT_KNOWN = "not known when it was handed in, so nothing is taken off for lateness"
MARKED_LATE = "; the platform marked it late"


@dataclass(frozen=True, slots=True)
class Deadline:
    """When everybody's work is due, and how many percent of the points earned each day begun costs."""

    due: datetime
    percent: float

    def of(self, extension: str) -> datetime:
        """When the work of a student with this extension is due: their own time, or so many hours later.

        Raises ValueError where it is neither.
        """
        if not extension:
            return self.due
        try:
            hours = float(extension)
        except ValueError:
            return instant(extension)
        if not 0 <= hours <= MOST_HOURS:
            raise ValueError(f"`{extension}` hours can't be, {MOST_HOURS} at most")
        return self.due + timedelta(hours=hours)

    def judged(self, row: Row, extension: str = "") -> Row:
        """The row with how late it is and the share taken off; nothing is where its time is not known."""
        if not row.folder:
            return row
        if not row.submitted_at:
            return replace(row, notes=(*row.notes, NOT_KNOWN + MARKED_LATE * row.late))
        late_s = max(0.0, (instant(row.submitted_at) - self.of(extension)).total_seconds())
        hours = math.ceil(late_s / HOUR_S * 100) / 100
        share = min(1.0, math.ceil(late_s / DAY_S) * self.percent / 100)
        return replace(row, late=late_s > 0, hours_late=hours, penalty=share)


def instant(text: str) -> datetime:
    """Parse a point in time with its zone: ISO 8601, or as Ruby writes it.

    Raises ValueError where it is none, or has no zone.
    """
    found = ZONE.search(text.strip())
    try:
        if not re.search(r"\d[T ]\d", text):
            raise ValueError("a day without a time")
        plain = datetime.fromisoformat(text.strip()[: found.start()] if found else text.strip())
    except ValueError as error:
        raise ValueError(f"`{text}` is not a time such as `{EXAMPLE}`") from error
    if not found:
        raise ValueError(f"`{text}` has no time zone: add it, as in `{EXAMPLE}`, or `Z` for UTC")
    zone = "+00:00" if found["zone"] in ("Z", "UTC") else found["zone"]
    return datetime.fromisoformat(f"{plain.isoformat()}{zone}")


def known(text: str) -> str:
    """A platform's point in time as ISO 8601 in UTC, empty where there is no telling what is meant."""
    try:
        return instant(text).astimezone(UTC).isoformat()
    except (ValueError, OverflowError):
        return ""


def deadline(due: str | None, policy: str) -> Deadline | None:
    """What the options `--due` and `--late` say.

    Raises Mistake where they say nothing that can be meant.
    """
    try:
        percent = TAKEN[policy] if policy in TAKEN else float(policy.removesuffix("%"))
    except ValueError:
        percent = math.nan
    if not 0 <= percent <= 100:
        raise Mistake(f"`--late {policy}`: it is `none`, `zero`, or how many percent a day costs, 0 to 100")
    if due is None:
        if percent:
            raise Mistake(f"`--late {policy}` needs to know when the work is due: `--due {EXAMPLE}`")
        return None
    try:
        return Deadline(instant(due), percent)
    except ValueError as error:
        raise Mistake(f"`--due`: {error}") from error


def vet(deadline: Deadline | None, students: Iterable[Student]) -> None:
    """Raise Mistake for the first extension on the roster that can't be read."""
    if deadline is None:
        return
    for student in students:
        try:
            deadline.of(student.extension)
        except ValueError as error:
            raise Mistake(
                f"the roster: the extension of `{student.id}`: {error}; give hours, or a time of their own"
            ) from error


def judged(book: Gradebook, deadline: Deadline, extensions: Mapping[str, str]) -> Gradebook:
    """The class's grades with everybody held against the due date; `extensions` by the rows' `student`."""
    rows = tuple(deadline.judged(row, extensions.get(row.student, "")) for row in book.rows)
    extended = [f"{row.student} ({own})" for row in book.rows if (own := extensions.get(row.student))]
    remarks = [*_remarks(rows), *[f"extended: {', '.join(extended)}"] * bool(extended)]
    said = {"due": deadline.due.isoformat(), "late": f"{deadline.percent:g} % off for each day begun"}
    return replace(book, rows=rows, remarks=(*book.remarks, *remarks), conditions=book.conditions | said)


def _remarks(rows: tuple[Row, ...]) -> list[str]:
    handed_in = [row for row in rows if row.folder]
    unknown = [row.student for row in handed_in if not row.submitted_at]
    late = sum(row.hours_late is not None and row.late for row in rows)
    less = sum(row.penalty > 0 for row in rows)
    lines = [f"{late} late, {less} of them with points taken off"] * (len(unknown) < len(handed_in))
    if unknown:
        who = "anybody" if len(unknown) == len(handed_in) else ", ".join(unknown)
        lines.append(
            f"not known when handed in, nothing taken off: {who}; `--file-times` goes by the files' own times"
        )
    return lines
