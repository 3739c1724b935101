"""What other systems run: Gradescope's autograder zip by its own commands, and `--to` for one report."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from grader import autograder, session
from grader import course as courses
from grader.cli import cli
from grader.course import Course

MANIFEST = """
[course]
title = "Tiny"
version = "1"
[[stage]]
slug = "stage1"
title = "Stage 1"
file = "stage1_part.py"
points = 10
hidden_points = 4
summary = "s"
hints = ["a", "b", "c"]
"""
PUBLIC = '''
def test_answer(student):
    """The answer is right."""
    assert student.answer() == 42, f"not 42 but {student.answer()!r}"
'''
HIDDEN = '''
def test_other(student):
    """The other answer is right."""
    assert student.other() == 6174, "the secret is 6174"
'''
RIGHT = "def answer():\n    return 42\n\ndef other():\n    return 6174\n"
COMMANDS = 'def answer():\n    print("::error::owned")\n    return "\\n::error::owned\\n##[error]owned"\n'
LEVEL = "process" if session.missing_layers() else "confined"
FILE = "stage1_part.py"


@pytest.fixture
def course(tmp_path: Path) -> Course:
    root = tmp_path / "course"
    for folder in ("exercises", "tests_public", "tests_hidden", "hardware_profiles", "solutions", "tests"):
        (root / folder).mkdir(parents=True)
    (root / "exercises" / "stages.toml").write_text(MANIFEST)
    (root / "exercises" / "gpt2.py").write_text("class Config:\n    pass\n")
    (root / "exercises" / FILE).write_text("def answer():\n    raise NotImplementedError\n")
    (root / "solutions" / FILE).write_text(RIGHT)
    (root / "tests_public" / "test_stage1_part.py").write_text(PUBLIC)
    (root / "tests_hidden" / "test_stage1_part.py").write_text(HIDDEN)
    return courses.load(root)


def grade(course: Course, *words: object) -> Result:
    return CliRunner().invoke(cli, ["--course", str(course.root), *map(str, words)])


def built(course: Course, tmp_path: Path, *words: str) -> Path:
    done = grade(course, "export", "--to", "gradescope-autograder", "--out", tmp_path / "a.zip", *words)
    assert done.exit_code == 0, done.output
    assert "set the assignment's points to 10" in done.stdout
    return tmp_path / "a.zip"


def test_the_zip_has_its_scripts_at_its_root_and_no_solutions(course: Course, tmp_path: Path) -> None:
    with zipfile.ZipFile(built(course, tmp_path)) as archive:
        infos = {info.filename: info for info in archive.infolist()}
        for name in ("setup.sh", "run_autograder"):
            assert stat.S_IMODE(infos[name].external_attr >> 16) == 0o755
            assert archive.read(name).startswith(b"#!/usr/bin/env bash\n")
            assert b"\r" not in archive.read(name)
        assert "isolation=confined\n" in archive.read("run_autograder").decode()
    assert {
        "course/grader/cli.py",
        "course/grader/report_schema.json",
        "course/pyproject.toml",
    } <= infos.keys()
    assert {"course/exercises/stages.toml", "course/tests_hidden/seed.secret"} <= infos.keys()
    assert not [name for name in infos if "solutions" in name or "pycache" in name or ".." in name]
    assert {name.partition("/")[0] for name in infos} == {"setup.sh", "run_autograder", "course"}


def test_the_same_course_packs_to_the_same_bytes(course: Course, tmp_path: Path) -> None:
    first = built(course, tmp_path).read_bytes()
    assert built(course, tmp_path, "--force").read_bytes() == first
    assert built(course, tmp_path, "--isolation", "process", "--force").read_bytes() != first


def test_the_scripts_are_bash(tmp_path: Path) -> None:
    for script in (autograder.SETUP, autograder.RUN):
        assert subprocess.run(["bash", "-n", str(script)], capture_output=True).returncode == 0


@pytest.fixture
def gradescope(course: Course, tmp_path: Path) -> Path:
    """Gradescope's `/autograder`, with the zip unpacked as Gradescope does it."""
    root = tmp_path / "autograder"
    (root / "submission").mkdir(parents=True)
    with zipfile.ZipFile(built(course, tmp_path, "--isolation", LEVEL)) as archive:
        archive.extractall(root / "source")
    return root


def run_autograder(root: Path, python: str = sys.executable) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "AUTOGRADER_ROOT": str(root), "AUTOGRADER_PYTHON": python}
    command = ["bash", str(root / "source" / "run_autograder")]
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=120)


def results(root: Path) -> dict[str, object]:
    read: dict[str, object] = json.loads((root / "results" / "results.json").read_text())
    return read


def test_gradescopes_run_grades_the_submission(gradescope: Path) -> None:
    (gradescope / "submission" / FILE).write_text(RIGHT.replace("6174", "1"))
    ended = run_autograder(gradescope)
    assert ended.returncode == 0, ended.stderr
    read = results(gradescope)
    assert read["score"] == 6
    assert sum(test.get("max_score", 0) for test in read["tests"]) == 10  # type: ignore[attr-defined]
    assert "6174" not in json.dumps(read) + ended.stdout


def test_gradescopes_run_says_what_was_wrong_with_what_was_handed_in(gradescope: Path) -> None:
    (gradescope / "submission" / "part1.py").write_text(RIGHT)
    assert run_autograder(gradescope).returncode == 0
    assert results(gradescope)["score"] == 0
    assert "there is `part1.py`; a stage file must have just its own name" in str(
        results(gradescope)["output"]
    )


def test_gradescopes_run_gives_no_score_for_a_fault_of_ours(gradescope: Path) -> None:
    (gradescope / "submission" / FILE).write_text(RIGHT)
    hidden = gradescope / "source" / "course" / "tests_hidden" / "test_stage1_part.py"
    hidden.write_text(HIDDEN.replace("student.other()", "undefined"))
    assert run_autograder(gradescope).returncode == 3
    assert "score" not in results(gradescope)
    assert "by its own fault" in str(results(gradescope)["output"])


@pytest.mark.parametrize("python", ["/nonexistent/python", "/bin/false"])
def test_gradescopes_run_leaves_results_even_where_no_grader_runs(python: str, gradescope: Path) -> None:
    (gradescope / "results").mkdir()
    (gradescope / "results" / "results.json").write_text('{"score": 10}')
    run_autograder(gradescope, python)
    assert "score" not in results(gradescope)
    assert "by its own fault" in str(results(gradescope)["output"])


def runners_commands(text: str) -> list[str]:
    """The lines that GitHub's runner would take for commands."""
    found, token = [], ""
    for line in text.splitlines():
        if token:
            token = "" if line.strip() == f"::{token}::" else token
        elif line.strip().startswith("::stop-commands::"):
            token = line.strip().removeprefix("::stop-commands::")
        elif line.lstrip().startswith("::") or "##[" in line:
            found.append(line)
    assert not token, "commands are never taken again"
    return found


def test_a_student_can_give_github_no_command(
    course: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / FILE).write_text(COMMANDS)
    summary = tmp_path / "summary.md"
    summary.write_text("of another step\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    monkeypatch.chdir(tmp_path)
    done = grade(course, "all", "--submission", tmp_path / "work", "--isolation", LEVEL, "--to", "github")
    assert done.exit_code == 1, done.output
    assert "owned" in done.stdout
    lines = runners_commands(done.stdout)
    assert [line.partition("::")[2].split("::")[0] for line in lines[:1]] == [
        "error file=work/stage1_part.py,title=stage1%3A The answer is right"
    ]
    assert [
        line for line in lines if not line.startswith(("::error file=work/", "::notice title=Points"))
    ] == []
    assert summary.read_text().startswith("of another step\n## 0 of 10 points\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--to", "gradescope"], "`--to gradescope` needs a file to write: add `--out PATH`"),
        (["--out", "x.json"], "`--out x.json` needs a form to write"),
        (["--to", "classroom50", "--out", "x.json"], "`CLASSROOM` is not set"),
        (["--to", "canvas", "--out", "x.json"], "'canvas' is not one of"),
    ],
)
def test_what_cannot_be_handed_on_is_said_before_anything_is_graded(
    words: list[str], said: str, course: Course, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CLASSROOM", raising=False)
    done = grade(course, "stage1", *words)
    assert done.exit_code == 2
    assert said in done.stderr
    assert done.stdout == ""


def test_a_last_report_can_be_handed_on(course: Course, tmp_path: Path) -> None:
    assert grade(course, "all", "--isolation", LEVEL).exit_code == 1
    done = grade(course, "report", "--to", "gradescope", "--out", tmp_path / "r.json")
    assert done.exit_code == 0
    assert json.loads((tmp_path / "r.json").read_text())["score"] == 0
