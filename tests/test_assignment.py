"""The course as an nbgrader assignment: what is built, what students get, what runs in their kernel."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from click.testing import CliRunner

from grader import assignment, kernel, notebook, stubs
from grader import course as courses
from grader.cli import cli
from grader.course import Course
from grader.errors import CourseError
from grader.faults import Mistake
from grader.session import Options, Session

COURSE = courses.load(Path(__file__).resolve().parents[1])
HERE = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
NBGRADER = os.environ.get("NBGRADER") or shutil.which("nbgrader", path=HERE)
RIGHT = "def one(number):\n    return number + number\n"


def wanted(out: Path, **more: Any) -> assignment.Wanted:
    return assignment.Wanted(**({"out": out, "assignment": "kv", "question_points": 2.0} | more))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("nbcourse")
    assignment.build(COURSE, wanted(out))
    return out / "source" / "kv"


def cells_of(path: Path) -> list[dict[str, Any]]:
    cells: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return cells


def text_of(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def as_released(source: str) -> str:
    """What nbgrader's ClearSolutions leaves of a cell."""
    kept, is_inside = [], False
    for line in source.split("\n"):
        if "BEGIN SOLUTION" in line:
            kept.append(line.replace(stubs.BEGIN, "raise NotImplementedError()"))
            is_inside = True
        elif "END SOLUTION" in line:
            is_inside = False
        elif not is_inside:
            kept.append(line)
    return "\n".join(kept)


@pytest.mark.parametrize("stage", COURSE.stages, ids=lambda stage: stage.slug)
def test_each_notebook_is_valid_and_its_ids_are_its_own(stage: courses.Stage, built: Path) -> None:
    path = built / f"{stage.slug}.ipynb"
    nbformat.validate(nbformat.read(path, as_version=4))

    ids = [cell["metadata"]["nbgrader"]["grade_id"] for cell in cells_of(path)]
    assert len(set(ids)) == len(ids)
    assert all(grade_id == stage.name or grade_id.startswith(f"{stage.name}-") for grade_id in ids)


@pytest.mark.parametrize("stage", COURSE.stages, ids=lambda stage: stage.slug)
def test_the_grader_gives_the_stages_points_and_people_the_questions(
    stage: courses.Stage, built: Path
) -> None:
    about = [cell["metadata"]["nbgrader"] for cell in cells_of(built / f"{stage.slug}.ipynb")]

    checks = [each["points"] for each in about if each["grade"] and not each["solution"]]
    (rest,) = (each["points"] for each in about if each["task"])
    by_hand = [each["points"] for each in about if each["grade"] and each["solution"]]
    assert round(sum(checks) + rest, 6) == stage.points
    assert sum(checks) <= stage.public_points
    assert rest >= stage.hidden_points
    assert set(by_hand) == {2.0}


@pytest.mark.parametrize("stage", COURSE.stages, ids=lambda stage: stage.slug)
def test_what_students_get_is_the_stub(stage: courses.Stage, built: Path) -> None:
    cells = cells_of(built / f"{stage.slug}.ipynb")
    (answer,) = (cell for cell in cells if cell["metadata"]["nbgrader"]["grade_id"] == stage.name)

    released = as_released(text_of(answer)).replace("\n\n\n\n", "\n\n\n")
    stub = stubs.of_stage(COURSE, stage)
    plain = "\n".join(
        line.partition("raise NotImplementedError")[0] + "raise NotImplementedError()"
        if line.lstrip().startswith("raise NotImplementedError(")
        else line
        for line in stub.splitlines()
    )
    assert released.split() == plain.split()


@pytest.mark.parametrize("stage", COURSE.stages, ids=lambda stage: stage.slug)
def test_the_solution_comes_out_of_its_notebook(stage: courses.Stage, built: Path) -> None:
    got = notebook.extract((built / f"{stage.slug}.ipynb").read_bytes(), COURSE).files[stage.file].decode()
    solution = (COURSE.solutions / stage.file).read_text(encoding="utf-8")

    assert sorted(code(got)) == sorted(code(solution))


def code(text: str) -> list[str]:
    """A file's lines, less the blank ones and the comments."""
    return [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]


def test_nothing_hidden_and_no_answer_to_a_question_lies_beside(built: Path) -> None:
    names = {str(path.relative_to(built)) for path in built.rglob("*") if path.is_file()}

    assert {"stage1.ipynb", "exercises/gpt2.py", "exercises/stages.toml"} <= names
    assert not [name for name in names if "hidden" in name or "explain" in name or "solutions" in name]


def test_an_assignment_that_is_there_is_replaced_only_by_force(tiny: Course, tmp_path: Path) -> None:
    explained(tiny)
    assignment.build(tiny, wanted(tmp_path))
    mine = tmp_path / "source" / "kv" / "mine.txt"
    mine.write_text("x")

    with pytest.raises(Mistake, match="is there"):
        assignment.build(tiny, wanted(tmp_path))
    assert mine.exists()
    assignment.build(tiny, wanted(tmp_path, force=True))
    assert [path.name for path in mine.parent.parent.iterdir()] == ["kv"]
    assert not mine.exists()


@pytest.mark.parametrize("name", ["a+b", "../x", "", "a/b", "[a]"])
def test_a_name_that_nbgrader_can_not_take_is_refused(name: str, tiny: Course, tmp_path: Path) -> None:
    with pytest.raises(Mistake, match="is no name for an assignment"):
        assignment.build(tiny, wanted(tmp_path, assignment=name))


def test_without_solutions_there_is_nothing_to_build(tiny: Course, tmp_path: Path) -> None:
    explained(tiny)
    shutil.rmtree(tiny.solutions)

    with pytest.raises(CourseError, match="notebooks are made from solutions"):
        assignment.build(tiny, wanted(tmp_path))
    assert not (tmp_path / "source").exists()


def test_a_check_is_worth_what_it_decides_in_a_report() -> None:
    with Session(COURSE, Options(isolation="none", public_only=True, seed="any")) as session:
        planned = session.planned([COURSE.stage("stage9")])["stage9"]
    bugs = [check for check in planned if check.id.startswith("stage9.names_the_bug[")]
    worth = {check.name: check.points for check in assignment.runnable(COURSE)["stage9"]}

    public = COURSE.stage("stage9").public_points
    exact = public * sum(c.weight for c in bugs) / sum(c.weight for c in planned)
    assert len(bugs) > 1
    assert worth["names_the_bug"] == pytest.approx(exact, abs=0.01)
    assert worth["names_the_bug"] <= exact + 1e-9


def test_the_command_says_what_it_wrote(tiny: Course, tmp_path: Path) -> None:
    explained(tiny)
    done = CliRunner().invoke(
        cli, ["--course", str(tiny.root), "notebook", "build", "--out", str(tmp_path), "--assignment", "ps1"]
    )

    assert done.output == "".join(f"wrote {tmp_path}/source/ps1/stage{n}.ipynb\n" for n in (1, 2))


def explained(course: Course) -> None:
    """Give a course three questions a stage."""
    each = '[[{0}]]\nquestion = "Why?"\nanswer = "So."\n'
    text = "".join(each.format(stage.slug) * 3 for stage in course.stages)
    (course.exercises / "explain.toml").write_text(text)


@pytest.fixture
def in_kernel(tiny: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, modules: None) -> str:
    """Be where a notebook of the small course runs; the name of its first check."""
    explained(tiny)
    assignment.build(tiny, wanted(tmp_path))
    monkeypatch.chdir(tmp_path / "source" / "kv")
    (check, *_) = assignment.runnable(tiny)["stage1"]
    return f"stage1.{check.name}"


def test_a_right_answer_passes_and_says_nothing(in_kernel: str, capsys: pytest.CaptureFixture[str]) -> None:
    kernel.check(in_kernel, ("one",), [RIGHT])

    assert capsys.readouterr() == ("", "")


def test_the_last_cell_that_defines_the_answer_counts(in_kernel: str) -> None:
    wrong = RIGHT.replace("+", "-")

    with pytest.raises(kernel.NotPassed):
        kernel.check(in_kernel, ("one",), [RIGHT, wrong])
    kernel.check(in_kernel, ("one",), [wrong, "%time 1", RIGHT, "x = 1"])


def test_an_answer_has_what_it_uses_of_other_cells(in_kernel: str) -> None:
    kernel.check(
        in_kernel, ("one",), ["def twice(x):\n    return 2 * x", "def one(number):\n    return twice(number)"]
    )


@pytest.mark.parametrize(
    ("executed", "said"),
    [
        ([], "run the cell `stage1_one` first"),
        (["def one(number):\n    raise NotImplementedError()"], "todo"),
        (["def one(number):\n    return number // 0"], "division"),
    ],
)
def test_what_does_not_pass_raises_why(executed: list[str], said: str, in_kernel: str) -> None:
    with pytest.raises(kernel.NotPassed, match=said):
        kernel.check(in_kernel, ("one",), executed)


def as_released_of_hidden(source: str) -> str:
    """What nbgrader's ClearHiddenTests leaves of a cell."""
    before, _, rest = source.partition("### BEGIN HIDDEN TESTS\n")
    return before + rest.partition("### END HIDDEN TESTS")[2] if rest else source


def test_hidden_checks_go_in_if_asked_and_out_of_what_is_released(tiny: Course, tmp_path: Path) -> None:
    explained(tiny)
    assignment.build(tiny, wanted(tmp_path, hidden=True))
    place = tmp_path / "source" / "kv"
    (hidden,) = (c for c in cells_of(place / "stage1.ipynb") if "HIDDEN TESTS" in text_of(c))
    about = hidden["metadata"]["nbgrader"]
    source = tiny.hidden_tests(tiny.stages[0]).read_text()

    assert repr(source) in text_of(hidden)
    assert (about["points"], about["grade"], about["locked"]) == (2.0, True, True)
    assert as_released_of_hidden(text_of(hidden)) == "# A hidden check\n"
    (rest,) = (c for c in cells_of(place / "stage1.ipynb") if c["metadata"]["nbgrader"]["task"])
    assert rest["metadata"]["nbgrader"]["points"] == 0.0
    assert not list(place.rglob("*hidden*"))
    assert "other_numbers" not in about["grade_id"]


def test_a_hidden_check_runs_from_its_text(in_kernel: str, tiny: Course) -> None:
    text = tiny.hidden_tests(tiny.stages[0]).read_text()
    kernel.check("stage1.other_numbers", ("one",), [RIGHT], hidden=text)

    with pytest.raises(kernel.NotPassed, match="is 2000000000000"):
        kernel.check(
            "stage1.other_numbers", ("one",), ["def one(n):\n    return 2 * n if n < 9 else 6"], hidden=text
        )


def test_what_the_student_prints_goes_to_stdout_alone(
    in_kernel: str, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel.check(
        in_kernel, ("one",), ["import sys, warnings\nsys.stderr.write('hello')\nwarnings.warn('w')\n" + RIGHT]
    )

    said = capsys.readouterr()
    assert ("hello" in said.out, said.err) == (True, "")


def test_a_stage_finds_the_earlier_answers_that_it_uses_in_the_notebooks_beside(
    built: Path, monkeypatch: pytest.MonkeyPatch, modules: None
) -> None:
    monkeypatch.chdir(built)
    monkeypatch.setattr(sys, "path", list(sys.path))
    kernel.begin("stage5")

    assert {path.name for path in Path(sys.path[0]).iterdir()} == {"stage1_attention.py"}
    assert sys.path[1] == str(built / "exercises")
    stage5 = (COURSE.solutions / "stage5_offset.py").read_text(encoding="utf-8")
    kernel.check("stage5.cache_grows_as_ever", ("OffsetBugGPT",), [stage5])


def test_nothing_of_a_check_stays_in_the_kernel(in_kernel: str) -> None:
    before, path = set(sys.modules), list(sys.path)
    kernel.check(in_kernel, ("one",), [RIGHT])

    assert not {name for name in set(sys.modules) - before if name.startswith("stage")}
    assert sys.path == path


@pytest.mark.skipif(
    NBGRADER is None, reason="nbgrader is not installed; NBGRADER names its command elsewhere"
)
def test_nbgrader_releases_what_was_built_without_a_solution(tmp_path: Path) -> None:
    assignment.build(COURSE, wanted(tmp_path, hidden=True))
    there = {**os.environ, "PATH": f"{Path(str(NBGRADER)).parent}{os.pathsep}{os.environ['PATH']}"}
    command = [str(NBGRADER), "generate_assignment", "kv", "--create"]
    done = subprocess.run(command, cwd=tmp_path, env=there, capture_output=True, text=True, timeout=120)

    assert done.returncode == 0, done.stderr
    for stage in COURSE.stages:
        released = (tmp_path / "release" / "kv" / f"{stage.slug}.ipynb").read_bytes()
        assert b"BEGIN SOLUTION" not in released
        assert b"HIDDEN TESTS" not in released
        assert b"hidden=" not in released
        text = notebook.extract(released, COURSE).files[stage.file].decode()
        assert set(code(text)) - {
            "    raise NotImplementedError()",
            "        raise NotImplementedError()",
        } <= set(code(stubs.of_stage(COURSE, stage)))
