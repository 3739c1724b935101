"""The student's repository: what is in it, what never is, and what becomes of one that is there already."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from ruamel.yaml import YAML

from grader import course as courses
from grader import given, leaks, release, scaffold
from grader.cli import cli
from grader.course import Course
from grader.faults import Mistake

ROOT = Path(__file__).resolve().parent.parent
COURSE = courses.load(ROOT)
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
GIT = ("git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
DOUBLED = """    twice_as_much = sum([number] * 2)
    return twice_as_much
"""


@pytest.fixture
def course(tiny: Course) -> Course:
    """The tiny course with solutions and hidden checks of its own, and not the words of `grade dev new`."""
    for stage in tiny.stages:
        solution, hidden = tiny.solutions / stage.file, tiny.hidden_tests(stage)
        own = solution.read_text().replace("    return 2 * number\n", DOUBLED)
        solution.write_text(own.replace(scaffold.PROMPT, "Twice as much"))
        text = (
            hidden.read_text().replace("other_numbers", "far_from_nought").replace("other numbers", "far out")
        )
        begin = text.index("    for number in")
        own = f"""    far_out = student.{stage.name.partition("_")[2]}(-10**15)
    expect.that(far_out == -2 * 10**15, f"not {{far_out}}, so far from nought")
"""
        text = text[:begin] + own
        hidden.write_text(
            text.replace("Of any other number, too, it is twice that number", "Far from nought")
        )
    return courses.load(tiny.root)


def grade(course: Course, *arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["--course", str(course.root), *map(str, arguments)], prog_name="grade")


def released(course: Course, out: Path, *options: str) -> Result:
    return grade(course, "release", "--out", out, "--no-smoke", *options)


def names(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def git(folder: Path, *arguments: str) -> None:
    subprocess.run([*GIT, *arguments], cwd=folder, check=True, capture_output=True)


def test_it_holds_what_a_student_needs_and_no_more(course: Course, tmp_path: Path) -> None:
    out = tmp_path / "out" / "student"
    done = released(course, out)
    assert done.exit_code == 0, done.output
    there = names(out)
    assert {
        "exercises/stages.toml", "exercises/stage1_one.py", "tests_public/test_stage1_one.py",
        ".github/workflows/grade.yml", "grader/cli.py", "grader/handout/grade.yml", ".grade/given/given.json",
        ".grade/given/stage1_one.py",
    } <= there  # fmt: skip
    assert {name.partition("/")[0] for name in there} == {
        "exercises", "tests_public", "grader", "pyproject.toml", "LICENSE", "README.md", "Makefile",
        ".gitignore", ".gitattributes", ".gitlab-ci.yml", ".github", ".grade",
    }  # fmt: skip
    assert (out / "exercises" / "stage1_one.py").read_text().count("NotImplementedError") == 1
    assert os.listdir(out.parent) == ["student"], "nothing else is left there"


def test_stubs_are_made_afresh_whatever_lies_in_exercises(course: Course, tmp_path: Path) -> None:
    (course.exercises / "stage1_one.py").write_text((course.solutions / "stage1_one.py").read_text())
    assert released(course, tmp_path / "student").exit_code == 0
    assert "twice_as_much" not in (tmp_path / "student" / "exercises" / "stage1_one.py").read_text()


def test_the_manifest_has_every_file_with_its_digest(course: Course, tmp_path: Path) -> None:
    out = tmp_path / "student"
    released(course, out)
    files = given.load(out).files  # type: ignore[union-attr]
    rest = {name for name in names(out) if name.startswith(".grade/given/")}
    assert set(files) == names(out) - rest
    assert all(given.digest((out / name).read_bytes()) == digest for name, digest in files.items())


def test_a_leak_is_named_and_nothing_is_put_in_place(course: Course, tmp_path: Path) -> None:
    (course.exercises / "notes.md").write_text("one\nthink of twice_as_much = sum([number] * 2)\n")
    done = released(course, tmp_path / "student")
    assert done.exit_code == 1
    assert "exercises/notes.md:2: is `solutions/stage1_one.py:14`" in done.output
    assert "tests/quoted.toml" in done.output
    assert not (tmp_path / "student").exists()


def test_a_hidden_checks_name_is_a_leak(course: Course, tmp_path: Path) -> None:
    (course.root / "tests_public" / "conftest.py").write_text("# unlike test_far_from_nought\n")
    done = released(course, tmp_path / "student")
    assert done.exit_code == 1
    assert "tests_public/conftest.py:1: `test_far_from_nought` is a name of" in done.output


def test_what_is_rightly_quoted_passes(course: Course, tmp_path: Path) -> None:
    (course.exercises / "notes.md").write_text("think of twice_as_much = sum([number] * 2)\n")
    quoted = 'file = "exercises/notes.md"\nlines = ["twice_as_much = sum([number] * 2)"]\nwhy = "a hint"\n'
    (course.root / leaks.QUOTED).write_text("[[quoted]]\n" + quoted)
    assert released(course, tmp_path / "student").exit_code == 0


def test_a_leak_in_the_history_of_the_place_is_found(course: Course, tmp_path: Path) -> None:
    out = tmp_path / "student"
    out.mkdir()
    git(out, "init")
    shutil.copyfile(course.solutions / "stage1_one.py", out / "draft.py")
    git(out, "add", ".")
    git(out, "commit", "-m", "A draft")
    git(out, "rm", "draft.py")
    git(out, "commit", "-m", "Never mind")
    done = released(course, out)
    assert done.exit_code == 1
    assert re.search(r"git blob \w+, draft.py:14: is `solutions/stage1_one.py:14`", done.output)
    assert os.listdir(out) == [".git"]


def test_what_an_earlier_release_gave_is_no_leak(course: Course, tmp_path: Path) -> None:
    out = tmp_path / "student"
    test_what_is_rightly_quoted_passes(course, tmp_path)
    git(out, "init")
    git(out, "add", ".")
    git(out, "commit", "-m", "As given")
    (course.exercises / "notes.md").write_text("think\n")
    (course.root / leaks.QUOTED).unlink()
    done = released(course, out)
    assert done.exit_code == 0, done.output


def test_a_solution_in_its_stages_place_is_a_leak(course: Course, tmp_path: Path) -> None:
    out = tmp_path / "student"
    released(course, out)
    shutil.copyfile(course.solutions / "stage2_two.py", out / "exercises" / "stage2_two.py")
    done = released(course, out)
    assert done.exit_code == 1
    assert "exercises/stage2_two.py:1: is `solutions/stage2_two.py`" in done.output


def test_a_second_release_renews_what_was_given_and_leaves_work_alone(course: Course, tmp_path: Path) -> None:
    out = tmp_path / "student"
    released(course, out)
    mine = (out / "exercises" / "stage1_one.py").read_text().replace("raise NotImpl", "return 6  # NotImpl")
    (out / "exercises" / "stage1_one.py").write_text(mine)
    (out / "exercises" / "mine.md").write_text("my notes\n")
    public = course.public_tests(course.stages[0])
    public.write_text(public.read_text() + "\n# one more remark\n")
    done = released(course, out)
    assert done.exit_code == 0, done.output
    assert (out / "exercises" / "stage1_one.py").read_text() == mine
    assert (out / "exercises" / "mine.md").read_text() == "my notes\n"
    assert "one more remark" in (out / "tests_public" / public.name).read_text()
    assert "somebody's work" in done.output


@pytest.mark.parametrize("place", ["full", "course", "file"])
def test_a_place_that_is_somebody_elses_is_refused(course: Course, tmp_path: Path, place: str) -> None:
    (tmp_path / "full").mkdir()
    for name in ("full/thesis.tex", "file"):
        (tmp_path / name).write_text("mine")
    done = released(course, course.root if place == "course" else tmp_path / place)
    assert done.exit_code == 2, done.output
    assert "name another folder" in done.output or "is a file" in done.output


def test_sealed_checks_go_along_where_asked_and_open(course: Course, tmp_path: Path) -> None:
    done = released(course, tmp_path / "student", "--seal")
    assert done.exit_code == 0, done.output
    assert "hidden.sealed" in given.load(tmp_path / "student").files  # type: ignore[union-attr]
    key = (course.root / "tests_hidden" / "seal.key").read_text()
    everything = b"".join(path.read_bytes() for path in (tmp_path / "student").rglob("*") if path.is_file())
    assert key.strip().encode() not in everything


@pytest.mark.parametrize(
    ("untouched", "solved", "why"),
    [
        ({"earned": 2}, "pass", "untouched stubs earn 2 points"),
        ({"earned": 0}, "fail", "the solution: `stage1.a`: fail"),
        ({"earned": 0}, "skip", "the solution: `stage1.a`: skip"),
    ],
)
def test_a_copy_that_grades_wrongly_is_not_put_in_place(
    course: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, untouched: object, solved: str, why: str
) -> None:
    checks = [{"id": "stage1.a", "verdict": solved}, {"id": "stage1.b", "verdict": "inconclusive"}]
    reports = iter([untouched, {"earned": 4, "stages": [{"checks": checks}]}])
    monkeypatch.setattr("grader.release._graded", lambda copy: next(reports))
    done = grade(course, "release", "--out", tmp_path / "student")
    assert done.exit_code == 1, done.output
    assert f"{why}\nnot released" in done.output
    assert not (tmp_path / "student").exists()


def test_a_copy_that_cannot_grade_at_all_is_said_and_not_put_in_place(
    course: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "python").write_text("#!/bin/sh\necho 'grade: no torch here' >&2\nexit 3\n")
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    done = grade(course, "release", "--out", tmp_path / "student")
    assert done.exit_code == 2, done.output
    assert "in the student's copy: exit status 3: grade: no torch here" in done.output
    assert not (tmp_path / "student").exists()


def test_a_right_copy_is_tried_out_by_itself(course: Course, tmp_path: Path) -> None:
    done = grade(course, "release", "--out", tmp_path / "student")
    assert done.exit_code == 0, done.output
    assert "tried out: stubs 0, solutions 4 public points" in done.output
    assert not [name for name in names(tmp_path / "student") if name.endswith(".pyc")]


def test_this_course_can_be_handed_out(tmp_path: Path) -> None:
    out = tmp_path / "student"
    done = released(COURSE, out)
    assert done.exit_code == 0, done.output
    assert not {"solutions", "tests_hidden", "tests", "tools", "benchmarks"} & set(os.listdir(out))
    assert "docs/instructors.md" not in names(out)
    dead = [
        f"{page.name}: {link}"
        for page in (out / "README.md", *(out / "docs").glob("*.md"))
        for link in LINK.findall(page.read_text())
        if "://" not in link and not (page.parent / link).exists()
    ]
    assert dead == []
    assert 'testpaths = ["tests_public"]' in (out / "pyproject.toml").read_text()


SCHEMAS = {"grade.yml": "vendor.github-workflows", "gitlab-ci.yml": "vendor.gitlab-ci"}


def checked(path: Path, schema: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, str(path)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_template_is_what_its_platform_takes(name: str, tmp_path: Path) -> None:
    done = checked(release.HANDOUT / name, SCHEMAS[name])
    assert done.returncode == 0, done.stdout
    wrong = (
        (release.HANDOUT / name).read_text().replace("run: .venv", "runs: .venv").replace("script:", "scrap:")
    )
    (tmp_path / name).write_text(wrong)
    assert checked(tmp_path / name, SCHEMAS[name]).returncode == 1, "the check sees nothing"


@pytest.mark.skipif(not shutil.which("actionlint"), reason="no actionlint on this machine")
def test_actionlint_has_nothing_to_say() -> None:
    subprocess.run(["actionlint", release.HANDOUT / "grade.yml"], check=True)


def commands_of(name: str) -> list[str]:
    """The commands that a template runs, in their order."""
    template = YAML(typ="safe").load(release.HANDOUT / name)
    job = template["jobs"]["grade"] if "jobs" in template else template["grade"]
    return job["script"] if "script" in job else [step["run"] for step in job["steps"] if "run" in step]


def stand_ins(folder: Path) -> Path:
    """A `python` whose environments are this one: it installs nothing, and writes down what it was asked."""
    grade, log = shlex.quote(str(folder / "grade")), shlex.quote(str(folder / "asked"))
    real = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c "from grader.cli import main; main()" "$@"\n'
    script = f"""\
        #!/bin/sh
        echo "$*" >> {log}
        case "$1 $2" in
          "-m venv") mkdir -p "$3/bin"; cp "$0" "$3/bin/python";;
          "-m pip") cp {grade} .venv/bin/grade;;
          *) exit 64;;
        esac
        """
    folder.mkdir()
    for name, text in (("python", textwrap.dedent(script)), ("grade", real)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_commands_of_a_template_grade_a_students_repository(
    course: Course, tmp_path: Path, name: str
) -> None:
    out = tmp_path / "student"
    released(course, out, "--seal")
    for stage in course.stages:
        shutil.copyfile(course.solutions / stage.file, out / "exercises" / stage.file)
    bin_ = stand_ins(tmp_path / "bin")
    key = (course.root / "tests_hidden" / "seal.key").read_text().strip()
    environment = {"PATH": f"{bin_}:{os.environ['PATH']}", "GRADE_KEY": key, "HOME": str(tmp_path)}
    script = "\n".join(commands_of(name))
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", script], cwd=out, env=environment, capture_output=True
    )
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
    report = json.loads((out / "results" / "report.json").read_text())
    assert (report["earned"], report["possible"]) == (8, 8), "sealed checks and all"
    asked = (bin_ / "asked").read_text()
    assert "-e .[ci]" in asked
    assert "download.pytorch.org/whl/cpu" in asked


def test_a_stage_that_is_still_the_scaffold_is_not_handed_out(tiny: Course, tmp_path: Path) -> None:
    with pytest.raises(Mistake, match="stage1 is still as `grade dev new` made it"):
        release.release(tiny, release.Wanted(tmp_path / "out"), print)
