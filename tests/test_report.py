"""The report: JSON both ways, its schema, and what a student's view withholds."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grader import report as reports
from grader.errors import CourseError
from grader.outcome import Check, Outcome, Verdict, Visibility
from grader.report import Machine, Report, StageResult, SubmissionInfo

settings.register_profile("calm", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("calm")  # a busy machine is no failure

VALIDATOR = jsonschema.Draft202012Validator(reports.schema())
SECRET = "tok3n-of-the-hidden-test"

amounts = st.integers(0, 10**6).map(lambda n: n / 1000)
words = st.text(max_size=12)
figures = st.floats() | st.integers(-(2**63), 2**63 - 1) | words | st.booleans()


def checks(visibility: st.SearchStrategy[Visibility]) -> st.SearchStrategy[Check]:
    return st.builds(Check, words.map("stage1.{}".format), words, visibility, amounts, words)


outcomes = st.builds(
    Outcome,
    checks(st.sampled_from(Visibility)),
    st.sampled_from(Verdict),
    amounts,
    words,
    words,
    words,
    st.dictionaries(words, figures, max_size=3),
)
stages = st.builds(
    StageResult,
    words,
    words,
    words,
    amounts,
    amounts,
    st.lists(outcomes, max_size=4).map(tuple),
    st.booleans(),
    amounts,
)
machines = st.builds(Machine, words, words, st.integers(0, 999), amounts, words, words, amounts)
notes = st.lists(words, max_size=2).map(tuple)
any_report = st.builds(
    Report,
    submission=st.builds(SubmissionInfo, words, words, notes),
    course_title=words,
    course_version=words,
    course_digest=words,
    grader_version=words,
    seed_id=words,
    machine=machines,
    profile=words,
    isolation=words,
    layers=st.dictionaries(words, words, max_size=3),
    public_only=st.booleans(),
    started=words,
    seconds=amounts,
    stages=st.lists(stages, max_size=3).map(tuple),
    for_student=st.booleans(),
    notes=notes,
)


def finite(report: Report) -> Report:
    """The report with every NaN or infinite metric as its name, as JSON must have it."""

    def mend(value: float | int | str | bool) -> float | int | str | bool:
        return str(value) if isinstance(value, float) and not math.isfinite(value) else value

    def mended(outcome: Outcome) -> Outcome:
        return replace(outcome, metrics={k: mend(v) for k, v in outcome.metrics.items()})

    changed = (replace(stage, outcomes=tuple(map(mended, stage.outcomes))) for stage in report.stages)
    return replace(report, stages=tuple(changed))


def make_report(*ran: Outcome, scored: bool = True) -> Report:
    stage = StageResult("stage1", "First", "stage1_first.py", 1.0, 2.0, ran, scored, 1.0)
    return Report(
        submission=SubmissionInfo("ada", "d" * 64),
        course_title="T",
        course_version="1",
        course_digest="c",
        grader_version="0",
        seed_id="s",
        machine=Machine(),
        profile="",
        isolation="none",
        layers={},
        public_only=False,
        started="2026-01-02T03:04:05Z",
        seconds=1.0,
        stages=(stage,),
    )


def ended(verdict: Verdict, visibility: Visibility = Visibility.PUBLIC) -> Outcome:
    return Outcome(Check("stage1.a", "t", visibility), verdict)


@given(any_report)
@settings(max_examples=60)
def test_json_brings_a_report_back_whole(report: Report) -> None:
    assert reports.from_json(reports.to_json(report)) == finite(report)


@given(any_report)
@settings(max_examples=60)
def test_every_report_keeps_to_the_schema_in_both_views(report: Report) -> None:
    for view in (report, reports.student_view(report)):
        VALIDATOR.validate(json.loads(reports.to_json(view)))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_json_has_no_nan_or_infinity(value: float) -> None:
    text = reports.to_json(make_report(replace(ended(Verdict.PASS), metrics={"gap": value})))

    def refuse(name: str) -> None:
        raise AssertionError(f"`{name}` in the JSON")

    json.loads(text, parse_constant=refuse)


@given(any_report)
@settings(max_examples=60)
def test_a_students_view_of_a_hidden_check_keeps_title_verdict_weight_and_category(report: Report) -> None:
    view = reports.student_view(report)

    pairs = zip(
        (o for stage in report.stages for o in stage.outcomes),
        (o for stage in view.stages for o in stage.outcomes),
    )
    for ours, theirs in pairs:
        if ours.check.visibility is Visibility.PUBLIC:
            assert theirs == ours
        else:
            has_variant = "[" in ours.check.id  # whose name goes out of the title, for a number
            title = theirs.check.title if has_variant else ours.check.title
            assert theirs.check == replace(ours.check, id=theirs.check.id, title=title)
            assert (theirs.verdict, theirs.traceback, theirs.output) == (ours.verdict, "", "")
            assert (theirs.metrics, theirs.seconds) == ({}, 0.0)


@pytest.mark.parametrize("verdict", Verdict)
def test_a_students_view_leaks_nothing_of_a_hidden_check(verdict: Verdict) -> None:
    check = Check(f"stage1.{SECRET}", "A plain title", Visibility.HIDDEN, 2.0, "positions")
    outcome = Outcome(check, verdict, 1.234, SECRET, SECRET, SECRET, {SECRET: SECRET})

    text = reports.to_json(reports.student_view(make_report(ended(Verdict.PASS), outcome)))

    assert SECRET not in text
    assert "1.234" not in text
    assert "A plain title" in text


def test_a_students_view_of_a_students_view_is_the_same() -> None:
    view = reports.student_view(make_report(ended(Verdict.FAIL, Visibility.HIDDEN), ended(Verdict.FAIL)))

    assert reports.student_view(view) == view


@pytest.mark.parametrize(
    ("verdicts", "status"),
    [
        ([], 0),
        ([Verdict.PASS, Verdict.SKIP, Verdict.INCONCLUSIVE], 0),
        ([Verdict.PASS, Verdict.TODO], 1),
        ([Verdict.PASS, Verdict.PROTOCOL], 1),
        ([Verdict.FAIL, Verdict.BROKEN], 3),
    ],
)
def test_the_exit_status_follows_the_verdicts(verdicts: list[Verdict], status: int) -> None:
    assert make_report(*map(ended, verdicts)).exit_status == status


def test_a_stage_that_is_not_scored_is_the_graders_fault() -> None:
    assert make_report(ended(Verdict.PASS), scored=False).exit_status == 3


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '"kvgrade/report/v1"',
        "{}",
        '{"schema": "kvgrade/report/v2"}',
        '{"schema": "kvgrade/report/v1", "stages": []}',
        '{"schema": "kvgrade/report/v1", "stages": [{}]}',
        '{"schema": "kvgrade/report/v1", "stages": 7}',
    ],
)
def test_what_is_not_a_report_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(CourseError) as caught:
        reports.from_json(text)

    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value"), [("verdict", "won"), ("seconds", "soon"), ("metrics", [1]), ("title", 3)]
)
def test_a_report_with_a_wrong_field_is_refused(key: str, value: object) -> None:
    data = json.loads(reports.to_json(make_report(ended(Verdict.PASS))))
    data["stages"][0]["checks"][0][key] = value

    with pytest.raises(CourseError, match="not a readable report"):
        reports.from_json(json.dumps(data))


def test_writing_makes_the_folder_and_replaces_the_file_whole(tmp_path: Path) -> None:
    path = tmp_path / "results" / "last.json"
    reports.write(path, "old")
    reports.write(path, "new")

    assert path.read_text(encoding="utf-8") == "new"
    assert [p.name for p in path.parent.iterdir()] == ["last.json"]


def test_a_failed_write_leaves_the_old_file_and_no_litter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "last.json"
    reports.write(path, "old")

    def full(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(OSError, match="no space"):
        reports.write(path, b"new")

    assert path.read_text(encoding="utf-8") == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["last.json"]


def test_a_file_name_that_is_no_text_survives_the_file(tmp_path: Path) -> None:
    report = replace(make_report(), submission=SubmissionInfo("ada\udcff", ""))
    reports.write(tmp_path / "r.json", reports.to_json(report))

    assert reports.from_json((tmp_path / "r.json").read_text(encoding="utf-8")) == report
