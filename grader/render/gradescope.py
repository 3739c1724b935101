"""Gradescope's `results.json`: a test with points for each stage, below it its checks without any.

So the points possible add up to the assignment's exactly, whatever the checks weigh. A hidden check stands
as its student may see it: Gradescope hides everybody's total where any test is hidden, so ours are visible.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from grader.outcome import Outcome, Verdict, Visibility
from grader.render.prose import one_line, points, printable
from grader.report import EXIT_BROKEN, Report, StageResult, student_view

VISIBILITIES = ("visible", "hidden", "after_due_date", "after_published")
OUR_FAULT = (
    "The grader failed, by its own fault: this is no judgement of your work, and it has no score. "
    "Your instructor has to look at it."
)


def render(report: Report, *, score: float | None = None, hidden: str = "visible", remark: str = "") -> str:
    """The results of one submission; `score` is the report's unless given, `remark` stands above it.

    A report that our own fault spoilt has no score, so that it overwrites none.
    """
    if report.exit_status == EXIT_BROKEN and score is None:
        return failed()
    view = student_view(report)
    tests = [test for number, stage in enumerate(view.stages, 1) for test in _stage(stage, number, hidden)]
    results = {
        "score": round(report.earned if score is None else score, 2),
        "execution_time": math.ceil(report.seconds),
        "output": printable("\n".join(filter(None, (remark, *view.submission.notes, *view.notes)))),
        "output_format": "text",
        "test_output_format": "text",
        "test_name_format": "text",
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "tests": tests,
    }
    return _json(results)


def failed() -> str:
    """The results where our own fault spoilt everything: no score at all."""
    return _json({"output": OUR_FAULT, "output_format": "text", "visibility": "visible"})


def unreadable(why: str) -> str:
    """The results of a submission that could not be read: no points, and what to hand in instead."""
    return _json({"score": 0, "output": printable(why), "output_format": "text", "visibility": "visible"})


def _stage(stage: StageResult, number: int, hidden: str) -> list[dict[str, Any]]:
    summed: dict[str, Any] = {
        "name": one_line(f"{stage.slug}: {stage.title}"),
        "number": str(number),
        "score": round(stage.earned, 2),
        "max_score": stage.possible,
        "status": "passed" if stage.earned >= stage.possible else "failed",
        "output": f"{points(stage.earned)} of {points(stage.possible)} points",
        "visibility": "visible",
    }
    return [summed, *(_check(o, f"{number}.{n}", hidden) for n, o in enumerate(stage.outcomes, 1))]


def _check(outcome: Outcome, number: str, hidden: str) -> dict[str, Any]:
    is_hidden = outcome.check.visibility is Visibility.HIDDEN
    said = filter(None, (outcome.message, outcome.traceback, outcome.output))
    status = (
        {}
        if outcome.verdict in (Verdict.SKIP, Verdict.INCONCLUSIVE)
        else {"status": "passed" if outcome.verdict is Verdict.PASS else "failed"}
    )
    return {
        "name": one_line(outcome.check.title),
        "number": number,
        "output": printable("\n\n".join((str(outcome.verdict), *said))),
        "visibility": hidden if is_hidden else "visible",
        **status,
    }


def _json(results: Mapping[str, Any]) -> str:
    return json.dumps(results, ensure_ascii=False, indent=1, allow_nan=False) + "\n"
