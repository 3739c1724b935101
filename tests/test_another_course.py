"""A course of another subject, made with the commands alone: no file of grader/ knows anything of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from grader.cli import cli

MANIFEST = """
[course]
title = "Sorting, by hand"
version = "1"

[[stage]]
slug = "stage1"
title = "Insert"
file = "stage1_insert.py"
points = 6
hidden_points = 2
summary = "Put a number where it belongs."
hints = ["a", "b", "c"]
"""
SOLUTION = '''"""Stage 1: insert."""


def insert(numbers: list[int], number: int) -> list[int]:
    """Return sorted numbers with one more among them."""
    ### BEGIN SOLUTION
    at = sum(other <= number for other in numbers)
    return [*numbers[:at], number, *numbers[at:]]
    ### END SOLUTION
'''
PUBLIC = '''
from grader import expect


def test_into_the_middle(student):
    """A number goes between its neighbours"""
    expect.that(student.insert([1, 4], 2) == [1, 2, 4], "2 belongs between 1 and 4")
'''
HIDDEN = '''
from grader import expect


def test_at_the_ends(student):
    """A number goes before or after all others, or into nothing"""
    for numbers, number in (([5], 7), ([5], 3), ([], 1)):
        want = sorted([*numbers, number])
        expect.that(student.insert(numbers, number) == want, f"{numbers} with {number} is {want}")
'''
SAMPLE = """
stage = "stage1"
note = "always at the end"
seen = "made up"
fails = ["stage1.into_the_middle", "stage1.at_the_ends"]

[[edit]]
old = "sum(other <= number for other in numbers)"
new = "len(numbers)"
"""


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stage 1, written by hand but for its stub."""
    files = {
        "exercises/stages.toml": MANIFEST,
        "solutions/stage1_insert.py": SOLUTION,
        "tests_public/test_stage1_insert.py": PUBLIC,
        "tests_hidden/test_stage1_insert.py": HIDDEN,
        "tests/submissions/wrong/at_the_end/sample.toml": SAMPLE,
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "tests/submissions/correct").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GRADE_COURSE", raising=False)
    return tmp_path


def grade(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments, prog_name="grade")


def test_a_course_of_two_stages_is_made_checked_and_graded(course: Path) -> None:
    assert grade("dev", "stubs").exit_code == 0
    begun = grade("dev", "new", "stage2", "--name", "merge", "--title", "Merge")
    assert begun.exit_code == 0, begun.output
    checked = grade("dev", "check")
    assert "the course is in order" in checked.stdout, checked.output

    results = course / "r.json"
    untouched = grade("all", "--json", str(results))
    assert untouched.exit_code == 1
    assert json.loads(results.read_text())["earned"] == 0
    for file in ("stage1_insert.py", "stage2_merge.py"):
        (course / "exercises" / file).write_text((course / "solutions" / file).read_text())
    written = grade("all", "--json", str(results))
    assert written.exit_code == 0, written.output
    assert json.loads(results.read_text())["earned"] == 10


def test_a_new_stage_overwrites_nothing(course: Path) -> None:
    kept = course / "solutions" / "stage2_merge.py"
    kept.write_text("mine")
    refused = grade("dev", "new", "stage2", "--name", "merge")
    assert refused.exit_code == 2
    assert "`" + str(kept) + "` is there already" in refused.stderr
    assert "stage2" not in (course / "exercises" / "stages.toml").read_text()
    assert kept.read_text() == "mine"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("stage1",), "slug `stage1` is used by more than one stage"),
        (("Stage 2",), "slug must be lower-case"),
        (("stage2", "--name", "2fast"), "`--name 2fast` is no name"),
        (("stage2", "--title", 'a "title"'), "can't be a stage"),
    ],
)
def test_a_stage_that_can_t_be_is_refused(course: Path, arguments: tuple[str, ...], why: str) -> None:
    before = (course / "exercises" / "stages.toml").read_text()
    refused = grade("dev", "new", *arguments)
    assert refused.exit_code == 2
    assert why in refused.stderr
    assert (course / "exercises" / "stages.toml").read_text() == before


def test_a_check_that_nothing_fails_is_found(course: Path) -> None:
    grade("dev", "new", "stage2")
    (course / "tests/submissions/wrong/at_the_end/sample.toml").unlink()
    (course / "tests/submissions/wrong/at_the_end").rmdir()
    grade("dev", "stubs")
    checked = grade("dev", "check")
    assert checked.exit_code == 1
    assert "check `stage1.at_the_ends` is failed by no wrong sample" in checked.stdout
