"""Classroom 50's `result.json` (`classroom50/result/v1`): whole numbers only, so in hundredths of a point."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass

from grader.render.prose import one_line
from grader.report import Report

SCHEMA = "classroom50/result/v1"
PER_POINT = 100


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose submission to what this is, as Classroom 50's runner says it in its environment."""

    classroom: str
    assignment: str
    owner: str
    submission: str
    commit: str
    release: str
    review: str
    kind: str = "individual"


def identity(environment: Mapping[str, str], owner: str, graded_at: str) -> Identity:
    """What the runner's environment says; outside of a runner a submission that was graded by hand.

    Raises ValueError where not even the classroom and the assignment are named.
    """
    for name in ("CLASSROOM", "ASSIGNMENT"):
        if not environment.get(name):
            raise ValueError(f"`{name}` is not set: Classroom 50 knows a result by CLASSROOM and ASSIGNMENT")
    by_hand = f"submit/manual-{_utc(graded_at).replace(':', '-')}"
    tag = environment.get("SUBMISSION_TAG") or by_hand
    commit = environment.get("COMMIT_URL") or tag
    return Identity(
        environment["CLASSROOM"],
        environment["ASSIGNMENT"],
        environment.get("OWNER") or environment.get("USERNAME") or owner,
        tag,
        commit,
        environment.get("RELEASE_URL") or tag,
        environment.get("REVIEW_URL") or commit,
        environment.get("ASSIGNMENT_TYPE") or "individual",
    )


def render(report: Report, who: Identity, *, submitted_at: str = "", share: float = 1.0) -> str:
    """The result of one submission, a test a stage; with a `share` less than 1 that part of the points.

    Raises ValueError where our own fault left a stage without points: a runner is to be told of that by an
    exit status, not by a score.
    """
    if not all(stage.scored for stage in report.stages):
        raise ValueError("a check broke by the grader's own fault, so there is no result")
    scores = [
        (math.floor(round(stage.earned * share * PER_POINT, 6)), round(stage.possible * PER_POINT))
        for stage in report.stages
    ]
    tests = [
        {
            "test-name": one_line(f"{stage.slug}: {stage.title}"),
            "passed": stage.earned >= stage.possible,
            "score": earned,
            "max-score": possible,
        }
        for stage, (earned, possible) in zip(report.stages, scores, strict=True)
    ]
    result = {
        "schema": SCHEMA,
        "classroom": who.classroom,
        "assignment": who.assignment,
        "assignment_type": who.kind,
        "owner": who.owner,
        "submission": who.submission,
        "commit": who.commit,
        "release": who.release,
        "review": who.review,
        "datetime": _utc(submitted_at or report.started),
        "graded_at": _utc(report.started),
        "score": sum(earned for earned, _ in scores),
        "max-score": sum(possible for _, possible in scores),
        "tests": tests,
    }
    return json.dumps(result, ensure_ascii=False, indent=2, allow_nan=False) + "\n"


def _utc(text: str) -> str:
    when = datetime.datetime.fromisoformat(text)
    return when.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
