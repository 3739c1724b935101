"""A newer release over a student's repository: given files renewed, what is theirs merged, nothing lost."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from grader import given, update
from grader.cli import cli

STUB = '''"""Stage 1: the first."""

import math


def one(number: int) -> int:
    """Return twice a number."""
    raise NotImplementedError("stage1: one")


def other(number: int) -> int:
    """Return its half."""
    raise NotImplementedError("stage1: other")
'''
WORK = STUB.replace('raise NotImplementedError("stage1: one")', "return number + number")
NEWER = STUB.replace("Return its half.", "Return its half, rounded down.")
MERGED = WORK.replace("Return its half.", "Return its half, rounded down.")
CLASH = STUB.replace(
    'raise NotImplementedError("stage1: one")', 'raise NotImplementedError("stage1: one, anew")'
)
STAGE = "exercises/stage1_one.py"
MANIFEST = """[course]
title = "Tiny"
version = "{version}"

[[stage]]
slug = "stage1"
title = "The first"
file = "stage1_one.py"
points = 4
hidden_points = 2
summary = "One."
hints = ["a", "b", "c"]
"""


def release(folder: Path, version: str, **changed: str) -> Path:
    """A release as `grade release` leaves it, of a few files."""
    files = {
        "exercises/stages.toml": MANIFEST.format(version=version),
        STAGE: STUB,
        "README.md": f"Tiny {version}\n",
        "tests_public/test_stage1_one.py": "def test_one(): ...\n",
        **{name.replace("__", "/").replace("_dot_", "."): text for name, text in changed.items()},
    }
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    digests = {name: given.digest(text.encode()) for name, text in files.items()}
    given.write(folder, given.Given(course="Tiny", version=version, files=digests, stages=(STAGE,)))
    given.stub_of(folder, STAGE).write_bytes(files[STAGE].encode())
    return folder


@pytest.fixture
def student(tmp_path: Path) -> Path:
    """A student's repository, begun from the first release."""
    folder = release(tmp_path / "student", "1", old_dot_md="an old page\n")
    (folder / STAGE).write_text(WORK)
    return folder


@pytest.fixture
def newer(tmp_path: Path) -> Callable[[str], Path]:
    """The second release, with this stub for its stage."""
    return lambda stub: release(tmp_path / "newer", "2", **{STAGE: stub})


def updated(student: Path, source: Path) -> Result:
    return CliRunner().invoke(cli, ["--course", str(student), "update", "--from", str(source)])


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def test_a_changed_stub_is_merged_into_the_work(student: Path, newer: Callable[[str], Path]) -> None:
    done = updated(student, newer(NEWER))
    assert done.exit_code == 0, done.output
    assert (student / STAGE).read_text() == MERGED
    assert "exercises/stage1_one.py: changes merged into your work" in done.output
    assert (student / ".grade" / "kept" / "1" / STAGE).read_text() == WORK, "and what was there is kept"


def test_line_ends_of_the_students_editor_stay(student: Path, newer: Callable[[str], Path]) -> None:
    (student / STAGE).write_bytes(WORK.replace("\n", "\r\n").encode())
    assert updated(student, newer(NEWER)).exit_code == 0
    assert (student / STAGE).read_bytes() == MERGED.replace("\n", "\r\n").encode()


def test_a_stage_not_begun_gets_its_new_stub(student: Path, newer: Callable[[str], Path]) -> None:
    (student / STAGE).write_text(STUB)
    assert updated(student, newer(NEWER)).exit_code == 0
    assert (student / STAGE).read_text() == NEWER


def test_a_stage_that_did_not_change_stays_as_it_is(student: Path, newer: Callable[[str], Path]) -> None:
    done = updated(student, newer(STUB))
    assert done.exit_code == 0
    assert (student / STAGE).read_text() == WORK
    assert STAGE not in done.output


def test_a_conflict_lies_beside_the_work_with_its_markers(
    student: Path, newer: Callable[[str], Path]
) -> None:
    done = updated(student, newer(CLASH))
    assert done.exit_code == 1
    assert (student / STAGE).read_text() == WORK
    aside = (student / f"{STAGE}.conflict").read_text()
    for line in ("<<<<<<< yours", "return number + number", "one, anew", ">>>>>>> as given now"):
        assert line in aside
    assert f"{STAGE}.conflict: conflict" in done.output


def test_an_open_conflict_is_not_written_over(student: Path, newer: Callable[[str], Path]) -> None:
    updated(student, newer(CLASH))
    (student / f"{STAGE}.conflict").write_text("half mended\n")
    done = updated(student, newer(NEWER))
    assert done.exit_code == 1
    assert "an earlier conflict is open" in done.output
    assert (student / f"{STAGE}.conflict").read_text() == "half mended\n"


def test_a_mended_conflict_is_over(student: Path, newer: Callable[[str], Path]) -> None:
    updated(student, newer(CLASH))
    mended = WORK.replace("return number + number", "return 2 * number")
    (student / f"{STAGE}.conflict").write_text(mended)
    os.replace(student / f"{STAGE}.conflict", student / STAGE)
    done = updated(student, newer(CLASH))
    assert done.exit_code == 0, done.output
    assert (student / STAGE).read_text() == mended


def test_given_files_are_renewed_and_the_students_own_left(
    student: Path, newer: Callable[[str], Path]
) -> None:
    (student / "notes.md").write_text("mine\n")
    done = updated(student, newer(STUB))
    assert (student / "README.md").read_text() == "Tiny 2\n"
    assert (student / "notes.md").read_text() == "mine\n"
    assert not (student / "old.md").exists(), "given no longer, and never touched"
    assert "Tiny 2 is in place" in done.output


def test_a_given_file_that_the_student_changed_is_kept(student: Path, newer: Callable[[str], Path]) -> None:
    for name in ("README.md", "old.md"):
        (student / name).write_text("with my remarks\n")
    done = updated(student, newer(STUB))
    assert done.exit_code == 0
    assert (student / "README.md").read_text() == "Tiny 2\n"
    assert (student / ".grade" / "kept" / "1" / "README.md").read_text() == "with my remarks\n"
    assert "README.md: replaced; yours is kept as `.grade/kept/1/README.md`" in done.output
    assert (student / "old.md").read_text() == "with my remarks\n"


def test_a_file_of_the_students_where_a_new_one_is_given_is_kept(
    student: Path, newer: Callable[[str], Path]
) -> None:
    (student / "Makefile").write_text("mine\n")
    source = newer(STUB)
    release(source, "2", Makefile="given\n")
    updated(student, source)
    assert (student / "Makefile").read_text() == "given\n"
    assert (student / ".grade" / "kept" / "1" / "Makefile").read_text() == "mine\n"


def test_two_updates_keep_apart_what_they_replace(student: Path, newer: Callable[[str], Path]) -> None:
    for round_ in ("first", "second"):
        (student / "README.md").write_text(round_)
        updated(student, newer(STUB))
    assert [(student / ".grade" / "kept" / n / "README.md").read_text() for n in "12"] == ["first", "second"]


def test_the_same_update_again_changes_nothing(student: Path, newer: Callable[[str], Path]) -> None:
    updated(student, newer(NEWER))
    before = files(student)
    assert updated(student, newer(NEWER)).exit_code == 0
    assert files(student) == before


def test_an_update_cut_short_is_finished_by_the_next(
    student: Path, newer: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(folder: Path, what: given.Given) -> None:
        raise OSError("the disk is full")

    source = newer(NEWER)
    with monkeypatch.context() as patched:
        patched.setattr("grader.given.write", dies)
        assert "the disk is full; nothing is lost" in updated(student, source).output
    assert updated(student, source).exit_code == 0
    assert (student / STAGE).read_text() == MERGED
    assert given.load(student).version == "2"  # type: ignore[union-attr]


def test_work_that_is_no_text_stays_and_the_new_stub_lies_beside(
    student: Path, newer: Callable[[str], Path]
) -> None:
    (student / STAGE).write_bytes(b"\0\1\2")
    assert updated(student, newer(NEWER)).exit_code == 1
    assert (student / STAGE).read_bytes() == b"\0\1\2"
    assert (student / f"{STAGE}.conflict").read_text() == NEWER


@pytest.mark.parametrize("content", [b"no zip", b"PK\3\4 and no more", b""], ids=["text", "cut", "empty"])
def test_a_file_that_is_no_zip_is_refused(student: Path, content: bytes) -> None:
    (student / "r.zip").write_bytes(content)
    done = updated(student, student / "r.zip")
    assert done.exit_code == 2, done.output


@pytest.mark.parametrize("top", ["", "tiny-main"], ids=["bare", "as from GitHub"])
def test_a_zip_of_a_release_will_do(student: Path, newer: Callable[[str], Path], top: str) -> None:
    source = newer(NEWER)
    root = source.parent / "zipped"
    shutil.copytree(source, root / top)
    path = shutil.make_archive(str(source.parent / "r"), "zip", root)
    done = updated(student, Path(path))
    assert done.exit_code == 0, done.output
    assert (student / STAGE).read_text() == MERGED


def spoilt(folder: Path, how: str) -> Path:
    match how:
        case "cut":
            (folder / "README.md").unlink()
        case "changed":
            (folder / STAGE).write_text(WORK)
        case "bare":
            shutil.rmtree(folder / ".grade")
        case "newer":
            text = (folder / given.MANIFEST).read_text().replace("given/v1", "given/v9")
            (folder / given.MANIFEST).write_text(text)
        case "outside":
            text = (folder / given.MANIFEST).read_text().replace("README.md", "../README.md")
            (folder / given.MANIFEST).write_text(text)
        case "another":
            text = (folder / given.MANIFEST).read_text().replace("Tiny", "Sorting")
            (folder / given.MANIFEST).write_text(text)
    return folder


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("cut", "`README.md` is missing"),
        ("changed", "is not as it was released"),
        ("bare", "is no release of a course"),
        ("newer", "given/v9"),
        ("outside", "is no place in a course's folder"),
        ("another", "is of the course `Sorting`"),
    ],
)
def test_what_is_no_whole_release_is_refused_and_nothing_is_touched(
    student: Path, newer: Callable[[str], Path], how: str, why: str
) -> None:
    before = files(student)
    done = updated(student, spoilt(newer(NEWER), how))
    assert done.exit_code == 2, done.output
    assert why in done.output
    assert files(student) == before


def test_the_course_itself_is_never_updated(student: Path, newer: Callable[[str], Path]) -> None:
    (student / "solutions").mkdir()
    done = updated(student, newer(NEWER))
    assert done.exit_code == 2
    assert "is the course itself" in done.output


def test_without_git_a_merge_is_refused_before_anything_is_written(
    student: Path, newer: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, before = newer(NEWER), files(student)
    monkeypatch.setenv("PATH", "")
    done = updated(student, source)
    assert done.exit_code == 2
    assert "needs `git`" in done.output
    assert files(student) == before


def test_a_copy_that_knows_nothing_of_what_it_was_given_loses_nothing(
    student: Path, newer: Callable[[str], Path]
) -> None:
    shutil.rmtree(student / ".grade")
    done = updated(student, newer(NEWER))
    assert done.exit_code == 1
    assert (student / STAGE).read_text() == WORK
    assert "rounded down" in (student / f"{STAGE}.conflict").read_text()


def test_the_merge_is_git_merge_files() -> None:
    text, is_clean = update.merged(b"a\nB\n", b"a\nb\n", b"a\nb\n")
    assert (text, is_clean) == (b"a\nB\n", True)
