"""`grade ci`: what the platform is told, what stays sealed, and what the push is worth."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from grader import __version__, given, seal
from grader.ci import KEY
from grader.cli import cli
from grader.course import Course
from grader.hardware import FALLBACK
from grader.outcome import Check, Outcome, Verdict, Visibility
from grader.report import Machine, Report, StageResult, SubmissionInfo
from grader.terminal import Terminal

HIDDEN = Visibility.HIDDEN
SECRET = "the secret is 6174"
INJECTION = "::set-output name=points::99"
RIGHT = "def {name}(number):\n    return number + number\n"


@pytest.fixture
def repository(tiny: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Course:
    """A student's copy: stage 2 is right, stage 1 untouched; the hidden checks lie there sealed."""
    key = tmp_path / "key"
    seal.seal(tiny, tiny.root / seal.FILE, key)
    for folder in ("tests_hidden", "solutions", "tests"):
        shutil.rmtree(tiny.root / folder)
    (tiny.exercises / "stage2_two.py").write_text(RIGHT.format(name="two"))
    monkeypatch.chdir(tiny.root)
    for name in ("GITHUB_ACTIONS", "GITLAB_CI", "CLASSROOM", "GRADE_COURSE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(KEY, key.read_text())
    return tiny


@pytest.fixture
def graded(repository: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a grading would say, at once: the first stage fails, the second passes, its hidden check too."""
    place = f"`stage1_one.py:7`: not 6\n{INJECTION}\n::error::mine"
    stages = tuple(
        StageResult(stage.slug, stage.title, stage.file, earned, 4.0, outcomes, hidden_points=2.0)
        for stage, earned, outcomes in (
            (repository.stages[0], 0.0, (outcome("stage1.a", Verdict.FAIL, place),)),
            (
                repository.stages[1],
                4.0,
                (
                    outcome("stage2.a", Verdict.PASS),
                    outcome("stage2.b", Verdict.INCONCLUSIVE, SECRET, HIDDEN),
                ),
            ),
        )
    )
    report = Report(
        SubmissionInfo("exercises", "d1"), "Tiny", "1", "c1", __version__, "public", Machine(), FALLBACK,
        "confined", {}, False, "2026-11-30T10:00:00+00:00", 2.0, stages,
    )  # fmt: skip

    def show(course: Course, stages: object, wanted: object, terminal: Terminal) -> Report:
        for stage, result in zip(course.stages, report.stages):
            terminal.stage(stage, result.outcomes)
        return report

    monkeypatch.setattr("grader.run.graded", show)


def outcome(
    check: str, verdict: Verdict, message: str = "", visibility: Visibility = Visibility.PUBLIC
) -> Outcome:
    return Outcome(Check(check, f"The title of {check}", visibility), verdict, 0.5, message, message)


@pytest.fixture
def github(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repository: Course) -> Callable[[str], str]:
    """A job on GitHub; gives what was written to one of its files."""
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(repository.root))
    for name in ("SUMMARY", "OUTPUT"):
        (tmp_path / name).write_text("of another step\n")
        monkeypatch.setenv(
            {"SUMMARY": "GITHUB_STEP_SUMMARY"}.get(name, "GITHUB_OUTPUT"), str(tmp_path / name)
        )
    return lambda name: (tmp_path / name).read_text()


def grade(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["ci", *map(str, arguments)], prog_name="grade")


def report(course: Course, name: str = "report.json") -> dict[str, object]:
    found: dict[str, object] = json.loads((course.root / "results" / name).read_text())
    return found


def test_sealed_checks_count_and_are_nowhere_to_read(repository: Course) -> None:
    done = grade()
    assert done.exit_code == 1, done.output
    assert (report(repository)["earned"], report(repository)["possible"]) == (4, 8)
    everything = done.output + "".join(path.read_text() for path in (repository.root / "results").iterdir())
    assert "10**12" not in everything
    assert "1000000000000" not in everything
    assert not (repository.root / "tests_hidden").exists()


def test_the_key_is_in_no_process_started_and_in_no_file(
    repository: Course, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[dict[str, str]] = []
    real = subprocess.Popen

    def popen(*arguments: object, **settings: object) -> object:
        environment = settings.get("env")
        seen.append(dict(os.environ if environment is None else environment))  # type: ignore[call-overload]
        return real(*arguments, **settings)  # type: ignore[call-overload]

    monkeypatch.setattr(subprocess, "Popen", popen)
    key = (tmp_path / "key").read_text().strip()
    done = grade()
    assert seen
    assert not any(key in value for environment in seen for value in environment.values())
    assert key not in done.output
    assert all(key not in path.read_text() for path in (repository.root / "results").iterdir())


def test_without_the_key_public_checks_are_graded_and_it_says_so(
    repository: Course, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(KEY)
    done = grade("--require", "stage2")
    assert done.exit_code == 0, done.output
    assert report(repository)["possible"] == 4
    assert f"stays sealed: no {KEY} here" in done.output


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda b: b[:-1], "cut short"),
        (lambda b: b[:-1] + bytes([b[-1] ^ 1]), "was changed"),
        (lambda b: b.replace(b"/v1\n", b"/v9\n"), "newer grader"),
        (lambda b: seal.locked({}, bytes(32)), "another key"),
    ],
    ids=["cut", "changed", "newer", "key"],
)
def test_a_seal_that_does_not_open_is_our_fault_and_public_results_stand(
    repository: Course, spoil: Callable[[bytes], bytes], why: str
) -> None:
    file = repository.root / seal.FILE
    file.write_bytes(spoil(file.read_bytes()))
    done = grade("--require", "stage2")
    assert done.exit_code == 3
    assert why in done.output
    assert report(repository)["earned"] == 2


def test_a_seal_stays_shut_where_a_submission_could_look(repository: Course) -> None:
    done = grade("--isolation", "process")
    assert done.exit_code == 3
    assert "stays sealed: at isolation `process`" in done.output


@pytest.mark.parametrize("points", ["nan", "-1", "9"])
def test_points_that_can_t_be_had_are_not_asked_for(graded: None, points: str) -> None:
    done = grade("--min-points", points)
    assert done.exit_code == 2
    assert "can't be asked for" in done.output


def test_a_seal_stays_shut_where_what_grades_was_changed(repository: Course) -> None:
    checks = repository.public_tests(repository.stages[0])
    files = {f"tests_public/{checks.name}": given.digest(checks.read_bytes())}
    given.write(repository.root, given.Given(files=files))
    checks.write_text(checks.read_text() + "\n# easier\n")
    done = grade()
    assert done.exit_code == 3
    assert f"not as it was given: tests_public/{checks.name}" in done.output
    assert report(repository)["possible"] == 4


def test_grading_in_process_is_refused(repository: Course) -> None:
    assert grade("--isolation", "none").exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        ((), 1),
        (("--require", "stage2"), 0),
        (("--require", "stage1,stage2"), 1),
        (("--min-points", "4"), 0),
        (("--min-points", "4.5"), 1),
        (("--require", "stage7"), 2),
    ],
)
def test_the_status_is_what_was_asked_for(graded: None, arguments: tuple[str, ...], status: int) -> None:
    assert grade(*arguments).exit_code == status


def test_github_is_told_points_summary_and_lines(graded: None, github: Callable[[str], str]) -> None:
    done = grade()
    assert github("OUTPUT") == "of another step\npoints=4\nmax-points=8\n"
    assert github("SUMMARY").startswith("of another step\n## 4 of 8 points")
    (error,) = [line for line in done.output.splitlines() if line.startswith("::error ")]
    assert "file=exercises/stage1_one.py,line=7," in error


def test_a_student_gives_github_no_command(graded: None, github: Callable[[str], str]) -> None:
    lines = [line.strip() for line in grade().output.splitlines()]
    begin = next(i for i, line in enumerate(lines) if line.startswith("::stop-commands::"))
    end = lines.index(f"::{lines[begin].rpartition('::')[2]}::")
    assert INJECTION in lines[begin:end], "the message is shown, harmlessly"
    outside = [*lines[:begin], *lines[end + 1 :]]
    assert not [line for line in outside if line.startswith(("::set-output", "::error::mine"))]
    assert "points=99" not in github("OUTPUT")


def test_gitlab_gets_findings_and_figures(
    graded: None, repository: Course, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITLAB_CI", "true")
    monkeypatch.setenv("CI_PROJECT_DIR", str(repository.root))
    grade()
    findings = json.loads((repository.root / "results" / "gl-code-quality-report.json").read_text())
    (finding,) = (found for found in findings if found["check_name"] == "stage1.a")
    assert finding["location"] == {"path": "exercises/stage1_one.py", "lines": {"begin": 7}}
    assert (repository.root / "results" / "grade.env").read_text() == "POINTS=4\nMAX_POINTS=8\n"


def test_whatever_is_written_or_said_is_the_students_view(
    graded: None, repository: Course, github: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITLAB_CI", "true")
    monkeypatch.setenv("CLASSROOM", "c")
    monkeypatch.setenv("ASSIGNMENT", "a")
    done = grade()
    written = {path.name: path.read_text() for path in (repository.root / "results").iterdir()}
    assert {"report.json", "junit.xml", "results.json", "result.json"} < set(written)
    for text in (done.output, github("SUMMARY"), *written.values()):
        assert "6174" not in text
