"""Sealed hidden checks: they grade as on disk, and a file that is not whole and ours does not open."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from grader import abreast, seal, submission
from grader import course as courses
from grader.course import Course
from grader.errors import CourseError
from grader.faults import Mistake
from grader.report import Report
from grader.seal import SealError
from grader.session import Options, Session

ROOT = Path(__file__).resolve().parents[1]
KEY, OTHER = bytes(range(32)), bytes(32)
FILES = {"tests_hidden/test_stage1_x.py": b"def test_x(student): pass\n", "tests_hidden/seed.secret": b"5eed"}


@pytest.fixture
def ours(tmp_path: Path) -> Course:
    """The course as an instructor has it."""
    return courses.load(_copied(tmp_path / "ours", "tests_hidden"))


@pytest.fixture
def theirs(tmp_path: Path) -> Course:
    """The course as a student has it."""
    return courses.load(_copied(tmp_path / "theirs"))


def _copied(root: Path, *more: str) -> Path:
    for folder in ("exercises", "tests_public", "hardware_profiles", *more):
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("seed.secret", "*.key"))
    return root


def verdicts(report: Report) -> list[tuple[str, str]]:
    return [(o.check.id, str(o.verdict)) for stage in report.stages for o in stage.outcomes]


def test_unsealed_checks_grade_as_those_on_disk(ours: Course, theirs: Course, tmp_path: Path) -> None:
    file, key = tmp_path / "hidden.sealed", tmp_path / "key"
    assert seal.seal(ours, file, key) == (file, key)
    opened = seal.unsealed(theirs, file, key.read_text())
    work, stages = submission.load(ROOT / "solutions", ours), [ours.stage("stage4")]

    with Session(ours, Options()) as session:
        on_disk = session.grade(work, stages)
    with Session(opened, Options()) as session:
        in_memory = session.grade(work, stages)

    assert verdicts(in_memory) == verdicts(on_disk)
    assert (in_memory.possible, in_memory.seed_id) == (on_disk.possible, on_disk.seed_id)
    assert opened.digest == ours.digest != theirs.digest
    assert not (theirs.root / "tests_hidden").exists()


def test_graders_side_by_side_have_the_unsealed_checks(ours: Course, theirs: Course, tmp_path: Path) -> None:
    seal.seal(ours, tmp_path / "hidden.sealed", tmp_path / "key")
    opened = seal.unsealed(theirs, tmp_path / "hidden.sealed", (tmp_path / "key").read_text())
    stages = [opened.stage(slug) for slug in ("stage4", "stage7", "stage8")]
    work = submission.of_files("nothing", {})
    report = abreast.grade(opened, Options(), work, stages, lambda stage, outcomes: None)
    assert report.possible == sum(stage.points for stage in stages)


def test_an_unsealed_file_that_is_wrong_says_nothing_of_itself(theirs: Course) -> None:
    from dataclasses import replace

    wrong = replace(theirs, sealed={"tests_hidden/test_stage4_memory.py": b"secret = 6174 +\n"})
    with Session(wrong, Options(seed="s")) as session, pytest.raises(CourseError) as told:
        session.grade(submission.of_files("nothing", {}), [wrong.stage("stage4")])
    assert "a hidden file is at fault" in str(told.value)
    assert "secret" not in str(told.value)


def test_every_changed_byte_is_noticed() -> None:
    content = seal.locked(FILES, KEY)
    assert seal.opened(content, KEY, "f") == FILES
    for at in range(len(content)):
        changed = bytes((*content[:at], content[at] ^ 1, *content[at + 1 :]))
        with pytest.raises(SealError):
            seal.opened(changed, KEY, "f")


@pytest.mark.parametrize(
    ("content", "key", "why"),
    [
        (b"PK\x03\x04", KEY, "is not a sealed file"),
        (b"", KEY, "is not a sealed file"),
        (seal.locked(FILES, KEY).replace(b"/v1\n", b"/v2\n"), KEY, "sealed by a newer grader"),
        (seal.locked(FILES, KEY), OTHER, "sealed with another key"),
        (seal.locked(FILES, KEY)[:-1], KEY, "is cut short"),
        (seal.locked(FILES, KEY)[:-1] + b"\0", KEY, "was changed"),
        (seal.locked({"../grader/cli.py": b""}, KEY), KEY, "holds more than hidden checks"),
    ],
)
def test_each_way_to_be_wrong_has_its_own_words(content: bytes, key: bytes, why: str) -> None:
    with pytest.raises(SealError, match=why):
        seal.opened(content, key, "f")


@pytest.mark.parametrize("text", ["", "hunter2", "aGVsbG8="])
def test_a_key_that_is_none_is_refused_and_not_quoted(theirs: Course, tmp_path: Path, text: str) -> None:
    (tmp_path / "f").write_bytes(seal.locked(FILES, KEY))
    with pytest.raises(SealError, match="not one of `grade seal`") as told:
        seal.unsealed(theirs, tmp_path / "f", text)
    assert not text or text not in str(told.value)


def test_nothing_readable_is_in_the_file() -> None:
    content = seal.locked(FILES, KEY)
    assert b"test_" not in content
    assert b"5eed" not in content
    assert content != seal.locked(FILES, KEY)


def test_a_key_is_kept_and_only_for_its_owner(ours: Course, tmp_path: Path) -> None:
    key = tmp_path / "key"
    seal.seal(ours, tmp_path / "one", key)
    first = key.read_text()
    assert key.stat().st_mode & 0o077 == 0
    assert seal.seal(ours, tmp_path / "two", key) == (tmp_path / "two",)
    assert key.read_text() == first


def test_there_must_be_something_to_seal(theirs: Course, tmp_path: Path) -> None:
    with pytest.raises(Mistake, match="seal where the hidden tests are"):
        seal.seal(theirs, tmp_path / "f", tmp_path / "key")
