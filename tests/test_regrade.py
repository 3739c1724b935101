"""`grade regrade`: old and new points side by side, and nothing written before somebody says so."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from grader import __version__, batch, destination, regrade
from grader import course as courses
from grader.changes import Change, between, to_csv
from grader.cli import cli
from grader.course import Course, Stage
from grader.gradebook import Gradebook, Row, State
from grader.hardware import FALLBACK
from grader.marking import Done, Job
from grader.outcome import Check, Outcome, Part, Verdict, Visibility
from grader.render import changed
from grader.report import Machine, Report, StageResult, from_json
from grader.session import Options
from grader.submission import Submission

FILE = "stage1_part.py"
MANIFEST = f"""
[course]
title = "Tiny"
version = "1"
[[stage]]
slug = "stage1"
title = "Stage 1"
file = "{FILE}"
points = 10
hidden_points = 0
summary = "s"
hints = ["a", "b", "c"]
"""


@pytest.fixture
def course(tmp_path: Path) -> Course:
    root = tmp_path / "course"
    for folder in ("exercises", "tests_public", "hardware_profiles"):
        (root / folder).mkdir(parents=True)
    (root / "exercises" / "stages.toml").write_text(MANIFEST)
    write_check(root, "1")
    return courses.load(root)


def write_check(root: Path, right: str) -> None:
    """The check as the course's author has it: which answer it takes."""
    (root / "tests_public" / "test_stage1_part.py").write_text(right)


class FakeSession:
    """Gives all points where the file says what the check has in it; remembers whom it graded."""

    graded: list[str]

    def __init__(self, course: Course, options: Options) -> None:
        self.course, self.options = course, options

    def grade(self, submission: Submission, stages: Sequence[Stage], part: Part) -> Report:
        self.graded.append(submission.info.id)
        (stage,) = stages
        check_text = self.course.public_tests(stage).read_text()
        if check_text == "broken":
            raise KeyError("a fault of ours")
        right = submission.files[FILE].decode() in check_text
        check = Check("stage1.answer", "The answer", Visibility.PUBLIC)
        outcome = Outcome(check, Verdict.PASS if right else Verdict.FAIL, 0.5)
        result = StageResult("stage1", "Stage 1", FILE, 10.0 * right, 10.0, (outcome,))
        return Report(
            submission.info, "Tiny", "1", self.course.digest, __version__, f"given:{self.options.seed}",
            Machine(), FALLBACK, "confined", {}, False, "2026-11-29T10:00:00+00:00", 2.0, (result,),
        )  # fmt: skip


@pytest.fixture
def graded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Who is graded, in order; the test clears it."""
    seen: list[str] = []

    def run(
        course: Course, options: Options, work: Callable[..., Done], items: Iterable[Job], **_: object
    ) -> Iterator[tuple[Job, Done]]:
        for job in items:
            yield job, work(FakeSession(course, options), job)

    monkeypatch.setattr(FakeSession, "graded", seen, raising=False)
    monkeypatch.setattr("grader.session.level_of", lambda wanted: "confined")
    monkeypatch.setattr(batch.pool, "run", run)
    return seen


@pytest.fixture
def results(course: Course, tmp_path: Path, graded: list[str]) -> Path:
    """A graded class, ada right and bob wrong; then the check is mended, and bob is right and ada wrong."""
    for name, says in (("ada", "1"), ("bob", "2"), ("cyd", "3")):
        (tmp_path / "class" / name).mkdir(parents=True)
        (tmp_path / "class" / name / FILE).write_text(says)
    words = ["batch", str(tmp_path / "class"), "--out", str(tmp_path / "out"), "--seed", "s"]
    done = CliRunner().invoke(cli, ["--course", str(course.root), *words])
    assert done.exit_code == 1, done.output
    graded.clear()
    write_check(course.root, "2")
    return tmp_path / "out"


def again(course: Course, results: Path, *options: str) -> Result:
    words = ["--course", str(course.root), "regrade", str(results), *options]
    return CliRunner().invoke(cli, words)


def files(folder: Path) -> dict[str, bytes]:
    found = [path for path in folder.rglob("*") if path.is_file() and regrade.STAGED not in path.parts]
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def totals(results: Path) -> dict[str, str]:
    rows = csv.DictReader((results / "scores.csv").read_text(encoding="utf-8").splitlines())
    return {row["student"]: row["total"] for row in rows}


def test_old_and_new_points_are_shown_and_nothing_is_written_unasked(
    course: Course, results: Path, graded: list[str]
) -> None:
    before = files(results)
    done = again(course, results)
    assert done.exit_code == 1, done.output
    assert done.stdout.splitlines() == [
        "ada  stage1  10 -> 0",
        "ada  total  10 -> 0",
        "bob  stage1  0 -> 10",
        "bob  total  0 -> 10",
        "3 new reports; points change for 2 of 3",
    ]
    assert "nothing is written" in done.stderr
    assert files(results) == before
    assert graded == ["ada", "bob", "cyd"]


def test_with_yes_the_new_reports_are_taken_and_the_old_ones_kept(course: Course, results: Path) -> None:
    before = files(results)
    assert again(course, results, "--yes").exit_code == 1
    assert totals(results) == {"ada": "0", "bob": "10", "cyd": "0"}
    report = from_json((results / "bob" / "report.json").read_text())
    assert (report.earned, report.course_digest) == (10, courses.load(course.root).digest)
    kept = results / "bob" / "before" / "2026-11-29T10-00-00"
    for name in ("report.json", "report.html", "student.html"):
        assert (kept / name).read_bytes() == before[f"bob/{name}"]
    assert (results / "scores.before.csv").read_bytes() == before["scores.csv"]
    assert not (results / regrade.STAGED).exists()


def test_what_was_graded_unasked_is_not_graded_once_more(
    course: Course, results: Path, graded: list[str]
) -> None:
    again(course, results)
    graded.clear()
    again(course, results, "--yes")
    assert graded == []
    assert totals(results)["bob"] == "10"


def test_the_batch_goes_on_from_what_a_regrade_wrote(
    course: Course, results: Path, graded: list[str], tmp_path: Path
) -> None:
    again(course, results, "--yes")
    graded.clear()
    done = again(course, results)
    assert (graded, done.exit_code) == ([], 1)
    assert done.stdout == "nothing to grade again: 3 students, every report still holds\n"
    assert not (results / regrade.STAGED).exists()


@pytest.mark.parametrize("stop", [1, 3, 5, 10, 12])
def test_taking_that_is_stopped_is_finished_by_the_next_one(
    stop: int, course: Course, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every file is moved by one `os.replace`; it is stopped before each of them in turn."""
    before, real, calls = files(results), os.replace, []

    def replace_until(source: object, target: object) -> None:
        if regrade.STAGED in str(source) and regrade.STAGED not in str(target):
            calls.append(target)
            if len(calls) == stop:
                raise KeyboardInterrupt
        real(source, target)  # type: ignore[arg-type]

    monkeypatch.setattr(regrade.os, "replace", replace_until)
    assert again(course, results, "--yes").exit_code == 130
    monkeypatch.setattr(regrade.os, "replace", real)
    again(course, results, "--yes")
    assert totals(results) == {"ada": "0", "bob": "10", "cyd": "0"}
    for name in ("ada", "bob", "cyd"):
        kept = results / name / "before" / "2026-11-29T10-00-00"
        assert {path.name: path.read_bytes() for path in kept.iterdir()} == {
            page: before[f"{name}/{page}"] for page in ("report.json", "report.html", "student.html")
        }


def test_a_check_that_breaks_takes_no_points_and_is_not_called_fine(course: Course, results: Path) -> None:
    before = files(results)
    write_check(course.root, "broken")
    done = again(course, results, "--yes")
    assert done.exit_code == 3
    assert "0 new reports; points change for 0 of 3; 3 broke by the grader's own fault" in done.stdout
    assert files(results) == before


def test_the_changes_are_written_as_csv(course: Course, results: Path, tmp_path: Path) -> None:
    again(course, results, "--csv", str(tmp_path / "changes.csv"))
    rows = list(csv.reader((tmp_path / "changes.csv").read_text().splitlines()))
    assert rows[:2] == [["student", "stage", "before", "after"], ["ada", "stage1", "10", "0"]]


def test_submissions_that_moved_are_asked_for(course: Course, results: Path, tmp_path: Path) -> None:
    (tmp_path / "class").rename(tmp_path / "moved")
    done = again(course, results)
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert f"not at `{tmp_path / 'class'}` any more: `grade regrade {results} PATH`" in done.stderr
    assert again(course, results, str(tmp_path / "moved"), "--yes").exit_code == 1
    assert json.loads((results / "batch.json").read_text())["path"] == str(tmp_path / "moved")


def test_the_order_is_that_of_the_batch(course: Course, results: Path, graded: list[str]) -> None:
    order = json.loads((results / "batch.json").read_text())
    assert (order["seed"], order["on_duplicate"], order["isolation"]) == ("s", "latest", "auto")
    again(course, results, "--yes")
    assert from_json((results / "ada" / "report.json").read_text()).seed_id == "given:s"


@pytest.mark.parametrize(
    "text", ["", "{}", '{"schema": "kvgrade/batch/v9"}', '{"schema": "kvgrade/batch/v1", "path": 3}']
)
def test_results_that_do_not_say_how_they_came_about_are_one_line(
    text: str, course: Course, results: Path
) -> None:
    (results / "batch.json").write_text(text)
    done = again(course, results)
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert "does not say how it was graded" in done.stderr


def test_who_has_gone_or_come_is_shown_too() -> None:
    def book(*rows: Row) -> Gradebook:
        return Gradebook("t", rows, {"stage1": 10.0})

    gone, come = (Row(name, State.GRADED, name, stages={"stage1": 3.0}) for name in ("=gone", "come"))
    changes = between(book(gone), book(come))
    assert changes == (
        Change("=gone", "stage1", 3.0, None),
        Change("=gone", "total", 3.0, None),
        Change("come", "stage1", None, 3.0),
        Change("come", "total", None, 3.0),
    )
    assert "'=gone,stage1,3," in to_csv(changes)


def test_the_table_has_old_and_new_side_by_side() -> None:
    text = changed.table([Change("[red]ada", "stage1", None, 2.5)], 60, colour=False)
    assert text.splitlines()[1].split() == ["[red]ada", "stage1", "-", "2.5"]
    assert "\x1b[" in changed.table([Change("ada", "stage1", 1.0, 2.5)], 60, colour=True)


def test_a_regrade_and_a_batch_do_not_disturb_each_other(
    course: Course, results: Path, tmp_path: Path, graded: list[str]
) -> None:
    words = ["batch", str(tmp_path / "class"), "--out", str(results), "--seed", "s"]
    with destination.held(results):
        for command in (words, ["regrade", str(results), "--yes"]):
            done = CliRunner().invoke(cli, ["--course", str(course.root), *command])
            assert done.exit_code == 2
            assert "is at work in" in done.stderr
    assert graded == []
    assert not (results / regrade.STAGED).exists()
