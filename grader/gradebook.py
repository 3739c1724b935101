"""The class's grades: a row a student, what the class as a whole got wrong, and both as CSV and JSON."""

from __future__ import annotations

import csv
import io
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from grader.errors import CourseError
from grader.outcome import Outcome, Verdict
from grader.report import EXIT_BROKEN, Report

SCHEMA = "kvgrade/summary/v2"
FORMULA = ("=", "+", "-", "@", "\t", "\r")


class State(StrEnum):
    """What became of a student's work: graded, not readable, not there, or spoilt by our own fault."""

    GRADED = "graded"
    UNREADABLE = "unreadable"
    MISSING = "missing"
    BROKEN = "broken"


def less(points: float, penalty: float) -> float:
    """Points less the share of them that lateness costs."""
    return round(points * (1 - penalty), 2)


@dataclass(frozen=True, slots=True)
class Row:
    """One student: `folder` names theirs in the results; `stages` holds earned points where they count.

    `failed` and `unwritten` hold ids of checks, `diagnoses` names of known bugs, each once. `submitted_at` is
    ISO 8601, empty where it is not known; `hours_late` is None where nothing was held against a due date;
    `account` is the course platform's own for them, `canvas:NUMBER:NAME`, where it named what was handed in.
    `penalty` is the share of the points that lateness costs. `checks_s` of `report_s` was spent in checks.
    """

    student: str
    state: State
    folder: str = ""
    name: str = ""
    email: str = ""
    on_roster: bool = True
    late: bool = False
    account: str = ""
    stages: dict[str, float] = field(default_factory=dict)
    verdicts: dict[str, int] = field(default_factory=dict)
    failed: tuple[str, ...] = ()
    unwritten: tuple[str, ...] = ()
    diagnoses: tuple[str, ...] = ()
    digest: str = ""
    submitted_at: str = ""
    hours_late: float | None = None
    penalty: float = 0.0
    graded_at: str = ""
    report_s: float = 0.0
    checks_s: float = 0.0
    notes: tuple[str, ...] = ()

    @property
    def total(self) -> float | None:
        """Points earned, or None where nothing was graded."""
        return sum(self.stages.values()) if self.stages else None

    @property
    def after_penalty(self) -> float | None:
        """Points less what lateness costs, or None where nothing was graded."""
        return None if self.total is None else less(self.total, self.penalty)


@dataclass(frozen=True, slots=True)
class Often:
    """Something that many ran into: a check or a known bug, how many, and how many had not begun it."""

    name: str
    students: int
    title: str = ""
    unwritten: int = 0


@dataclass(frozen=True, slots=True)
class Gradebook:
    """All rows in order, the stages with their points possible, the titles of checks, and how the batch went.

    `remarks` are lines a person should read: duplicates, what was left aside. `seconds` is time by phase.
    """

    title: str
    rows: tuple[Row, ...]
    possible: dict[str, float]
    titles: dict[str, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    conditions: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def totals(self) -> list[float]:
        return [row.total for row in self.rows if row.total is not None]

    def count(self, state: State) -> int:
        return sum(row.state is state for row in self.rows)

    @property
    def malformed(self) -> list[Row]:
        """Those whose process sent an answer that could not be read: an accident or an attempt."""
        return [row for row in self.rows if row.verdicts.get(Verdict.PROTOCOL)]

    def checks(self) -> list[Often]:
        """The checks that anybody failed, most often failed first."""
        failed = Counter(check for row in self.rows for check in row.failed)
        unwritten = Counter(check for row in self.rows for check in row.unwritten)
        return [
            Often(check, students, self.titles.get(check, ""), unwritten[check])
            for check, students in sorted(failed.items(), key=lambda item: (-item[1], item[0]))
        ]

    def diagnoses(self) -> list[Often]:
        """The known bugs that anybody has, most often made first."""
        made = Counter(bug for row in self.rows for bug in row.diagnoses)
        return [Often(bug, students) for bug, students in sorted(made.items(), key=lambda i: (-i[1], i[0]))]


def row_of(report: Report, folder: str, state: State = State.GRADED) -> Row:
    """The row that a report amounts to; points only where they count."""
    outcomes = [outcome for stage in report.stages for outcome in stage.outcomes]
    if state is State.GRADED and report.exit_status == EXIT_BROKEN:
        state = State.BROKEN
    wrong = outcomes if state is not State.UNREADABLE else []
    scored = [stage for stage in report.stages if stage.scored and state is not State.UNREADABLE]
    return Row(
        student=report.submission.id,
        state=state,
        folder=folder,
        stages={stage.slug: stage.earned for stage in scored},
        verdicts=dict(Counter(str(outcome.verdict) for outcome in outcomes)),
        failed=_ids(o for o in wrong if o.verdict.counts_against and o.verdict is not Verdict.TODO),
        unwritten=_ids(o for o in wrong if o.verdict is Verdict.TODO),
        diagnoses=report.diagnoses,
        digest=report.submission.digest,
        graded_at=report.started,
        report_s=report.seconds,
        checks_s=sum(outcome.seconds for outcome in outcomes),
        notes=report.submission.notes,
    )


def to_csv(book: Gradebook) -> str:
    """`scores.csv`: a line a student, a column a stage, the total, how many checks ended each way.

    Points are blank where nothing was graded. No cell can be taken for a formula.
    """
    verdicts = [str(verdict) for verdict in Verdict]
    lines = io.StringIO(newline="")
    table = csv.writer(lines)
    table.writerow(
        [
            "student",
            "name",
            "email",
            "state",
            "late",
            *book.possible,
            "total",
            "possible",
            "submitted at",
            "hours late",
            "after penalty",
            *verdicts,
            "remarks",
        ]
    )
    for row in book.rows:
        table.writerow(
            [
                *(harmless(text) for text in (row.student, row.name, row.email)),
                row.state,
                "late" if row.late else "",
                *(said(row.stages.get(slug)) for slug in book.possible),
                said(row.total),
                said(sum(book.possible.values())),
                row.submitted_at,
                said(row.hours_late),
                said(row.after_penalty),
                *(row.verdicts.get(verdict, 0) if row.folder else "" for verdict in verdicts),
                harmless("; ".join(row.notes)),
            ]
        )
    return lines.getvalue()


def to_dict(book: Gradebook) -> dict[str, object]:
    """`summary.json`: the class in figures, what to look at, and where the time went."""
    totals = book.totals
    return {
        "schema": SCHEMA,
        "course": book.title,
        "conditions": book.conditions,
        "students": {str(state): book.count(state) for state in State},
        "possible": sum(book.possible.values()),
        "stages": book.possible,
        "median": statistics.median(totals) if totals else None,
        "mean": round(statistics.fmean(totals), 2) if totals else None,
        "not_on_roster": [row.student for row in book.rows if not row.on_roster],
        "missing": [row.student for row in book.rows if row.state is State.MISSING],
        "unreadable": _with_notes(book.rows, State.UNREADABLE),
        "broken": _with_notes(book.rows, State.BROKEN),
        "protocol": [row.student for row in book.malformed],
        "remarks": list(book.remarks),
        "checks": [{"id": o.name, "failed": o.students, "todo": o.unwritten} for o in book.checks()],
        "diagnoses": {often.name: often.students for often in book.diagnoses()},
        "seconds": {phase: round(seconds, 2) for phase, seconds in book.seconds.items()},
        "titles": book.titles,
        "rows": msgspec.to_builtins(book.rows),
    }


class _Kind(msgspec.Struct):
    schema: str = ""


class _Summary(msgspec.Struct):
    course: str
    rows: tuple[Row, ...]
    stages: dict[str, float]
    titles: dict[str, str]
    remarks: tuple[str, ...]
    conditions: dict[str, str]
    seconds: dict[str, float]


def from_json(text: str) -> Gradebook:
    """Read a gradebook back from its `summary.json`.

    Raises CourseError where the text is none, is another version's, or holds points that can't be.
    """
    try:
        schema = msgspec.json.decode(text, type=_Kind).schema
        if schema != SCHEMA:
            raise CourseError(f"it says `{schema[:80]}`, not `{SCHEMA}`: another version wrote it")
        read = msgspec.json.decode(text, type=_Summary)
    except msgspec.DecodeError as error:
        raise CourseError(f"it is no summary of a batch: {error}") from error
    for row in read.rows:
        wrong = [s for s, earned in row.stages.items() if not 0 <= earned <= read.stages.get(s, -1.0)]
        if wrong or set(row.folder) & set("/\\\0") or row.folder in (".", ".."):
            raise CourseError(f"the row of `{row.student}` can't be: stages {wrong}, folder `{row.folder}`")
    return Gradebook(
        read.course, read.rows, read.stages, read.titles, read.remarks, read.conditions, read.seconds
    )


def _with_notes(rows: Sequence[Row], state: State) -> dict[str, list[str]]:
    return {row.student: list(row.notes) for row in rows if row.state is state}


def _ids(outcomes: Iterable[Outcome]) -> tuple[str, ...]:
    return tuple(outcome.check.id for outcome in outcomes)


def visible(text: str) -> str:
    """The text with a mark in the place of every character that does not show, line breaks too."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def said(points: float | None) -> str:
    """Points as they stand in a table; blank where nothing was graded."""
    return "" if points is None else f"{round(points, 2):g}"


def harmless(text: str) -> str:
    """Text that a spreadsheet takes for text: one line, and never a formula."""
    line = visible(" ".join(text.split()))
    return "'" + line if line.startswith(FORMULA) else line
