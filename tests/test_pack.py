"""`grade pack`: one zip to hand in, which `grade batch` reads back bit for bit."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from grader import intake, pack, submission
from grader.cli import cli
from grader.course import Course
from grader.roster import Roster

WORK = "def {name}(number):\n    return number + number\n"


@pytest.fixture
def student(tiny: Course) -> Course:
    """A student's copy with two stages written and something measured."""
    for folder in ("tests_hidden", "solutions", "tests"):
        shutil.rmtree(tiny.root / folder)
    for stage in tiny.stages:
        (tiny.exercises / stage.file).write_text(WORK.format(name=stage.name.partition("_")[2]))
    (tiny.root / "results" / "hf").mkdir(parents=True)
    (tiny.root / "results" / "memory.csv").write_text("positions,bytes\n1,2\n")
    (tiny.root / "results" / "hf" / "plot.png").write_bytes(b"\x89PNG\0")
    return tiny


def packed(course: Course, *arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["--course", str(course.root), "pack", *map(str, arguments)])


def about(path: Path) -> dict[str, object]:
    with zipfile.ZipFile(path) as file:
        found: dict[str, object] = json.loads(file.read(pack.ABOUT))
    return found


def test_it_holds_stage_files_and_results(student: Course) -> None:
    done = packed(student)
    assert done.exit_code == 0, done.output
    with zipfile.ZipFile(student.root / "handin.zip") as file:
        assert sorted(file.namelist()) == [
            "exercises/stage1_one.py", "exercises/stage2_two.py", "pack.json",
            "results/hf/plot.png", "results/memory.csv",
        ]  # fmt: skip
        assert file.read("results/hf/plot.png") == b"\x89PNG\0"


def test_it_says_which_course_and_which_work_it_is(student: Course, tmp_path: Path) -> None:
    packed(student, "--out", tmp_path / "a.zip")
    told = about(tmp_path / "a.zip")
    assert (told["schema"], told["course"], told["version"]) == ("kvgrade/pack/v1", "Tiny", "1")
    assert told["digest"] == submission.load(student.exercises, student).info.digest


@pytest.mark.parametrize("odd", [b"\r\n# dos\r\n", b"\xef\xbb\xbf# bom\n", b"# coding: latin-1\n# \xe9\n"])
def test_a_batch_reads_it_back_bit_for_bit(student: Course, tmp_path: Path, odd: bytes) -> None:
    path = student.exercises / "stage1_one.py"
    path.write_bytes(odd + path.read_bytes())
    here = submission.load(student.exercises, student)
    (tmp_path / "class").mkdir()
    assert packed(student, "--out", tmp_path / "class" / "ada.zip").exit_code == 0
    found = intake.find(tmp_path / "class", student, Roster(), on_duplicate="latest", out=tmp_path / "out")
    there = intake.load(found.entries[0], student, "ada")
    assert there.files == here.files
    assert there.info.digest == here.info.digest == about(tmp_path / "class" / "ada.zip")["digest"]


def test_the_same_work_gives_the_same_bytes(student: Course, tmp_path: Path) -> None:
    for name in ("a.zip", "b.zip"):
        packed(student, "--out", tmp_path / name)
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


def spoil(course: Course, how: str) -> None:
    path = course.exercises / "stage1_one.py"
    match how:
        case "missing":
            path.unlink()
        case "syntax":
            path.write_text("x = 1\nif x\n")
        case "zero":
            path.write_bytes(b"x = 1\0\n")
        case "encoding":
            path.write_bytes(b"x = '\xe9'\n")
        case "link":
            target = path.with_name("elsewhere.txt")
            path.rename(target)
            path.symlink_to(target)


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("missing", "`exercises/stage1_one.py` is missing"),
        ("syntax", "`exercises/stage1_one.py:2`: expected ':'"),
        ("zero", "`exercises/stage1_one.py:1`: "),
        ("encoding", "`exercises/stage1_one.py:1`: "),
        ("link", "`stage1_one.py` is a link"),
    ],
)
def test_what_could_not_be_graded_is_refused_with_its_reason_unless_forced(
    student: Course, how: str, why: str
) -> None:
    spoil(student, how)
    done = packed(student)
    assert done.exit_code == 2
    assert why in done.output
    assert "--force" in done.output
    assert not (student.root / "handin.zip").exists()
    forced = packed(student, "--force")
    assert forced.exit_code == 0
    assert why in forced.output
    assert (student.root / "handin.zip").exists()


def test_every_reason_is_told_at_once(student: Course) -> None:
    for stage in student.stages:
        (student.exercises / stage.file).write_text("if\n")
    done = packed(student)
    assert "stage1_one.py:1" in done.output
    assert "stage2_two.py:1" in done.output


def test_a_refused_pack_leaves_an_earlier_one_as_it_was(student: Course) -> None:
    packed(student)
    before = (student.root / "handin.zip").read_bytes()
    spoil(student, "syntax")
    packed(student)
    assert (student.root / "handin.zip").read_bytes() == before


@pytest.mark.parametrize("name", ["exercises/stage1_one.py", "README.md", "other.zip"])
def test_a_file_that_is_no_pack_is_not_written_over(student: Course, name: str) -> None:
    path = student.root / name
    before = b"PK\x03\x04" if name == "other.zip" else path.read_bytes() if path.exists() else b"mine"
    path.write_bytes(before)
    done = packed(student, "--out", str(path))
    assert done.exit_code == 2
    assert "is there, and no pack" in done.output
    assert path.read_bytes() == before


def test_a_pack_is_written_over_the_last_one(student: Course) -> None:
    assert packed(student).exit_code == packed(student).exit_code == 0


def test_results_have_their_measure(student: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack, "MAX_RESULTS_BYTES", 10)
    done = packed(student)
    assert done.exit_code == 0
    assert "left out `results/memory.csv`: " in done.output
    assert "results/hf/plot.png" in about(student.root / "handin.zip")["files"]  # type: ignore[operator]


def test_a_link_among_the_results_is_not_followed(student: Course, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("mine")
    (student.root / "results" / "link.csv").symlink_to(tmp_path / "secret")
    packed(student)
    assert "results/link.csv" not in about(student.root / "handin.zip")["files"]  # type: ignore[operator]


def test_without_any_stage_file_there_is_nothing_to_force(student: Course) -> None:
    for stage in student.stages:
        (student.exercises / stage.file).unlink()
    done = packed(student, "--force")
    assert done.exit_code == 2
    assert "holds no stage file" in done.output
