"""Points given by hand: `overrides.csv`, kept apart from the reports, applied when grades are handed on."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from grader.faults import Mistake
from grader.gradebook import Gradebook, Row, harmless
from grader.marks import Mark, mark
from grader.outcome import Outcome, Verdict, Visibility
from grader.render.prose import one_line, points
from grader.report import Report, StageResult
from grader.roster import fold
from grader.scoring import STEPS_PER_POINT

COLUMNS = ("student", "check or stage", "points", "why")
OTHER_HEADS = {"check": "check or stage", "stage": "check or stage", "reason": "why"}


@dataclass(frozen=True, slots=True)
class Override:
    """One line of the file: whose points for what become how many, and why."""

    line: int
    student: str
    what: str
    points: float
    why: str


def load(path: Path) -> tuple[Override, ...]:
    """Read a file of overrides: CSV with a header `student, check or stage, points, why`.

    Raises Mistake naming the line that is wrong.
    """
    try:
        return parse(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise Mistake(f"`{path}` can't be read: {error.strerror}") from error
    except (ValueError, csv.Error) as error:
        raise Mistake(f"`{path}`: {error}") from error


def parse(text: str) -> tuple[Override, ...]:
    """Make overrides of CSV text; raises ValueError naming the line that is wrong."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    heads = [OTHER_HEADS.get(fold(head), fold(head)) for head in next(reader, [])]
    lacking = [column for column in COLUMNS if heads.count(column) != 1]
    if lacking:
        raise ValueError(f"its header has no column `{lacking[0]}`, or two: it needs {', '.join(COLUMNS)}")
    found: dict[tuple[str, str], Override] = {}
    for row in reader:
        if not any(cell.strip() for cell in row):
            continue
        if len(row) != len(heads):
            raise ValueError(f"line {reader.line_num} has {len(row)} cells, its header {len(heads)}")
        cells = dict(zip(heads, (cell.strip() for cell in row), strict=True))
        one = _override(cells, reader.line_num)
        key = fold(one.student), one.what
        if key in found:
            raise ValueError(
                f"line {one.line}: `{one.student}`, `{one.what}` is in line {found[key].line} too"
            )
        found[key] = one
    return tuple(found.values())


def _override(cells: Mapping[str, str], line: int) -> Override:
    for column in COLUMNS:
        if not cells[column]:
            raise ValueError(f"line {line} has no `{column}`")
    try:
        given = float(cells["points"])
    except ValueError:
        given = math.nan
    if not 0 <= given < math.inf:
        raise ValueError(f"line {line}: `{cells['points']}` points can't be")
    return Override(line, cells["student"], cells["check or stage"], given, one_line(cells["why"]))


def applied(
    book: Gradebook, overrides: Sequence[Override], report_of: Callable[[Row], Report | None], *, raw: bool
) -> tuple[Mark, ...]:
    """Everybody's marks; raises ValueError where an override names nobody or nothing, or gives too much."""
    of: dict[str, list[Override]] = {row.student: [] for row in book.rows}
    for one in overrides:
        before = of[_row(book, one).student]
        for other in before:
            if other.what == one.what:
                both = f"`{one.student}` and `{other.student}` of line {other.line} are one student"
                raise ValueError(f"line {one.line}: {both}, who has points for `{one.what}` there")
        before.append(one)
    return tuple(_mark(book, row, of[row.student], report_of, raw=raw) for row in book.rows)


def _row(book: Gradebook, one: Override) -> Row:
    """The student of an override: their id, else as `scores.csv` writes it, else their email likewise."""
    wanted = fold(one.student)
    found = [row for row in book.rows if fold(row.student) == wanted]
    found = found or [row for row in book.rows if fold(harmless(row.student)) == wanted]
    emails = [row for row in book.rows if row.email]
    found = found or [row for row in emails if wanted in (fold(row.email), fold(harmless(row.email)))]
    if len(found) != 1:
        what = "is two students" if found else "is nobody in the results"
        raise ValueError(f"line {one.line}: `{one.student}` {what}; name them as `scores.csv` does")
    return found[0]


def _mark(
    book: Gradebook,
    row: Row,
    overrides: Sequence[Override],
    report_of: Callable[[Row], Report | None],
    *,
    raw: bool,
) -> Mark:
    given: dict[str, float] = {}
    said = []
    whole = {one.what for one in overrides if one.what in book.possible}
    report = report_of(row) if any(one.what not in book.possible for one in overrides) else None
    for one in overrides:
        slug, now = _given(book, one, report, given)
        if slug in whole and one.what != slug:
            raise ValueError(f"line {one.line}: another line gives points for the whole of `{slug}`")
        said.append(f"{row.student}: {one.what} {points(one.points)} points: {one.why}")
        given[slug] = now
    return mark(row, book.possible, given, raw=raw, by_hand=tuple(said))


def _given(
    book: Gradebook, one: Override, report: Report | None, given: Mapping[str, float]
) -> tuple[str, float]:
    """The stage that an override is about, and its points with it."""
    slug = one.what.partition(".")[0]
    if one.what in book.possible:
        _vet(one, book.possible[one.what])
        return one.what, one.points
    stage = report.stage(slug) if report else None
    outcome = next((o for o in stage.outcomes if o.check.id == one.what), None) if stage else None
    if stage is None or outcome is None:
        where = (
            f"the stages are {', '.join(book.possible)}" if report else "there is no report, so name a stage"
        )
        raise ValueError(
            f"line {one.line}: `{one.what}` is no stage and no check of `{one.student}`: {where}"
        )
    if not stage.scored:
        raise ValueError(f"line {one.line}: `{slug}` was not scored, so give points for the whole stage")
    worth = share(stage, outcome)
    _vet(one, math.ceil(worth * STEPS_PER_POINT - 1e-6) / STEPS_PER_POINT)
    had = worth if outcome.verdict is Verdict.PASS else 0.0
    now = given.get(slug, stage.earned) + one.points - had
    return slug, min(max(round(now, 2), 0.0), stage.possible)


def share(stage: StageResult, outcome: Outcome) -> float:
    """The points that one check of a stage decides: its weight's part of its group's points."""
    group = [o.check.weight for o in stage.outcomes if o.check.visibility is outcome.check.visibility]
    ran_hidden = any(o.check.visibility is Visibility.HIDDEN for o in stage.outcomes)
    hidden = stage.hidden_points if ran_hidden else 0.0
    of_group = hidden if outcome.check.visibility is Visibility.HIDDEN else stage.possible - hidden
    return of_group * outcome.check.weight / math.fsum(group)


def _vet(one: Override, possible: float) -> None:
    if one.points > possible:
        raise ValueError(
            f"line {one.line}: `{one.what}` is worth {points(possible)} points, not {points(one.points)}"
        )
