"""The report: one value that says everything a grading run found, and its JSON form."""

from __future__ import annotations

import json
import math
import os
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from grader.errors import CourseError
from grader.outcome import Outcome, Verdict, Visibility

SCHEMA = "kvgrade/report/v1"
SCHEMA_FILE = Path(__file__).with_name("report_schema.json")
WITHHELD = "hidden check; look again at: "
EXIT_PASSED, EXIT_FAILED, EXIT_USAGE, EXIT_BROKEN = 0, 1, 2, 3


@dataclass(frozen=True, slots=True)
class SubmissionInfo:
    """Who handed in what: `id` is the folder's or archive's name, `digest` SHA-256 over the stage files."""

    id: str
    digest: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Machine:
    """Where the run took place; `load_1m` is the load average at its start, `threads` what torch used.

    `power` is `mains` or `battery`, empty where there is no telling.
    """

    system: str = ""
    cpu: str = ""
    cores: int = 0
    memory_gib: float = 0.0
    python: str = ""
    torch: str = ""
    load_1m: float = 0.0
    threads: int = 1
    power: str = ""


@dataclass(frozen=True, slots=True)
class StageResult:
    """One stage's points and outcomes; `scored` is false where a check was `broken`."""

    slug: str
    title: str
    file: str
    earned: float
    possible: float
    outcomes: tuple[Outcome, ...]
    scored: bool = True
    hidden_points: float = 0.0

    @property
    def passed(self) -> bool:
        return bool(self.outcomes) and all(o.verdict is Verdict.PASS for o in self.outcomes)


@dataclass(frozen=True, slots=True)
class Report:
    """A whole run. `for_student` tells which of the two renderings this is."""

    submission: SubmissionInfo
    course_title: str
    course_version: str
    course_digest: str
    grader_version: str
    seed_id: str
    machine: Machine
    profile: str
    isolation: str
    layers: dict[str, str]
    public_only: bool
    started: str
    seconds: float
    stages: tuple[StageResult, ...]
    for_student: bool = False
    notes: tuple[str, ...] = field(default=())

    @property
    def earned(self) -> float:
        return math.fsum(stage.earned for stage in self.stages)

    @property
    def possible(self) -> float:
        return math.fsum(stage.possible for stage in self.stages)

    def stage(self, slug: str) -> StageResult | None:
        """The result of a stage; None where it was not graded."""
        return next((stage for stage in self.stages if stage.slug == slug), None)

    @property
    def diagnoses(self) -> tuple[str, ...]:
        """Names of the known bugs that its messages name, each once."""
        outcomes = [outcome for stage in self.stages for outcome in stage.outcomes]
        return tuple(sorted({str(o.metrics["diagnosis"]) for o in outcomes if "diagnosis" in o.metrics}))

    @property
    def exit_status(self) -> int:
        """0 all passed (skip and inconclusive set aside), 1 some did not, 3 anything was our own fault."""
        verdicts = [o.verdict for stage in self.stages for o in stage.outcomes]
        if Verdict.BROKEN in verdicts or not all(stage.scored for stage in self.stages):
            return EXIT_BROKEN
        return EXIT_FAILED if any(v.counts_against for v in verdicts) else EXIT_PASSED


def student_view(report: Report) -> Report:
    """The same report with what a student must not see of hidden checks taken out.

    A hidden check keeps its id's place, title, verdict, weight and its hint's category; its message,
    traceback, output, metrics and seconds are withheld. Ids of hidden checks are numbered anew, so that a
    test's name tells nothing.
    """
    return replace(report, stages=tuple(map(student_stage, report.stages)), for_student=True)


def student_stage(stage: StageResult) -> StageResult:
    """One stage of `student_view`."""
    return replace(stage, outcomes=tuple(withheld(o, n) for n, o in enumerate(stage.outcomes, 1)))


def withheld(outcome: Outcome, number: int) -> Outcome:
    """What a student may see of an outcome, the `number`-th of its stage; a public one stays as it is."""
    check = outcome.check
    if check.visibility is Visibility.PUBLIC:
        return outcome
    stage = check.id.partition(".")[0]
    title = f"{check.shared_title} ({number})" if check.variant else check.title
    message = "" if outcome.verdict is Verdict.PASS or not check.category else WITHHELD + check.category
    return Outcome(replace(check, id=f"{stage}.hidden{number}", title=title), outcome.verdict, 0.0, message)


def to_dict(report: Report) -> dict[str, Any]:
    """The report as plain JSON values, in the contract's shape."""
    return {
        "schema": SCHEMA,
        "earned": report.earned,
        "possible": report.possible,
        "exit_status": report.exit_status,
        "submission": msgspec.to_builtins(report.submission),
        "course": {
            "title": report.course_title,
            "version": report.course_version,
            "digest": report.course_digest,
        },
        "grader_version": report.grader_version,
        "seed_id": report.seed_id,
        "machine": msgspec.to_builtins(report.machine),
        "profile": report.profile,
        "isolation": {"level": report.isolation, "layers": report.layers},
        "public_only": report.public_only,
        "for_student": report.for_student,
        "started": report.started,
        "seconds": round(report.seconds, 3),
        "notes": list(report.notes),
        "stages": [_stage_dict(stage) for stage in report.stages],
    }


def _stage_dict(stage: StageResult) -> dict[str, Any]:
    return {
        "slug": stage.slug,
        "title": stage.title,
        "file": stage.file,
        "earned": stage.earned,
        "possible": stage.possible,
        "hidden_points": stage.hidden_points,
        "scored": stage.scored,
        "checks": [
            {
                "id": o.check.id,
                "title": o.check.title,
                "visibility": str(o.check.visibility),
                "weight": o.check.weight,
                "category": o.check.category,
                "verdict": str(o.verdict),
                "seconds": round(o.seconds, 4),
                "message": o.message,
                "traceback": o.traceback,
                "output": o.output,
                "metrics": {k: _finite(v) for k, v in o.metrics.items()},
            }
            for o in stage.outcomes
        ],
    }


def _finite(value: float | int | str | bool) -> float | int | str | bool:
    """JSON has no NaN or Infinity: such a figure becomes its name."""
    return value if not isinstance(value, float) or math.isfinite(value) else str(value)


def to_json(report: Report) -> str:
    """The report as JSON text, never with NaN or Infinity."""
    return json.dumps(to_dict(report), ensure_ascii=False, indent=1, allow_nan=False) + "\n"


def schema() -> dict[str, Any]:
    """The JSON Schema that `to_dict` keeps to, as it ships with the package."""
    loaded: dict[str, Any] = json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))
    return loaded


def from_json(text: str) -> Report:
    """Read a report back.

    Raises CourseError where the text is not a report of this schema.
    """
    try:
        data = json.loads(text)
        if data["schema"] != SCHEMA:
            raise CourseError(f"not a report of schema `{SCHEMA}`: it says `{data['schema']}`")
        return _report_from(data)
    except (ValueError, KeyError, TypeError, msgspec.ValidationError) as error:
        raise CourseError(f"not a readable report: {type(error).__name__}: {error}") from error


def _report_from(data: dict[str, Any]) -> Report:
    stages = []
    for stage in data["stages"]:
        outcomes = []
        for check in stage["checks"]:
            parts = {"check": {k: check[k] for k in ("id", "title", "visibility", "weight", "category")}}
            parts |= {
                k: check[k] for k in ("verdict", "seconds", "message", "traceback", "output", "metrics")
            }
            outcomes.append(parts)
        stages.append({**{k: v for k, v in stage.items() if k != "checks"}, "outcomes": outcomes})
    flat = {k: data[k] for k in Report.__slots__ if k in data}
    course, isolation = data["course"], data["isolation"]
    flat |= {f"course_{k}": course[k] for k in ("title", "version", "digest")}
    flat |= {"isolation": isolation["level"], "layers": isolation["layers"], "stages": stages}
    return msgspec.convert(flat, Report)


def write(path: Path, text: str | bytes, mode: int = 0o644) -> None:
    """Write a whole file or nothing: through a temporary file beside it, then a rename.

    A lone surrogate, as in an undecodable file name, is written as an escape, which JSON reads back.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    content = text if isinstance(text, bytes) else text.encode("utf-8", "backslashreplace")
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
