"""GitLab CI: a code quality report, which it shows beside the lines of a merge request."""

from __future__ import annotations

import hashlib
import json

from grader.outcome import Outcome
from grader.render.prose import first_place, one_line, printable
from grader.report import Report, StageResult

QUALITY, FIGURES = "gl-code-quality-report.json", "grade.env"


def render(report: Report, *, folder: str = "") -> str:
    """A finding for each check that did not pass, at the student's own line where the message names one."""
    findings = [
        _finding(stage, outcome, folder)
        for stage in report.stages
        for outcome in stage.outcomes
        if outcome.verdict.counts_against
    ]
    return json.dumps(findings, ensure_ascii=False, indent=1, allow_nan=False) + "\n"


def _finding(stage: StageResult, outcome: Outcome, folder: str) -> dict[str, object]:
    file, _, line = (first_place(outcome.message) or first_place(outcome.traceback)).rpartition(":")
    title, message = one_line(outcome.check.title), printable(outcome.message)
    return {
        "description": f"{stage.slug}: {title}: {message or outcome.verdict}",
        "check_name": outcome.check.id,
        "fingerprint": hashlib.sha256(outcome.check.id.encode()).hexdigest(),
        "severity": "major",
        "location": {
            "path": folder + stage.file,
            "lines": {"begin": int(line) if file == stage.file else 1},
        },
    }
