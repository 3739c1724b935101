"""otter-grader: `final_grades.csv` as `otter grade` writes it, a question being a stage."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence

from grader.gradebook import State, harmless
from grader.marks import Mark
from grader.render.prose import points

STATUS = {State.GRADED: "Completed"}
POSSIBLE = "points-per-question"


def render(marks: Sequence[Mark], possible: Mapping[str, float]) -> str:
    """A line a student, after one that tells the points possible; `percent_correct` is a share of 1."""
    of = sum(possible.values())
    lines = io.StringIO(newline="")
    table = csv.writer(lines)
    table.writerow(["file", *possible, "total_points_earned", "percent_correct", "grading_status"])
    table.writerow([POSSIBLE, *map(points, possible.values()), points(of), "1", ""])
    for mark in marks:
        earned = [points(mark.stages[slug]) if slug in mark.stages else "" for slug in possible]
        total, share = ("", "") if mark.total is None else (points(mark.total), f"{mark.total / of:.4g}")
        status = STATUS.get(mark.row.state, f"Failed: {mark.row.state}")
        table.writerow([harmless(mark.student), *earned, total, share, status])
    return lines.getvalue()
