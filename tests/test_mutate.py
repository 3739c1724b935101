"""Mutation: what is changed, and that a change the checks miss is seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from grader import course as courses
from grader import mutate
from grader.errors import CourseError
from grader.session import Options, Session

ROOT = Path(__file__).resolve().parents[1]

SOURCE = '''
SIZE = 3

def f(a, b):
    """Docstring 1."""
    ### BEGIN SOLUTION
    if a < 2 or not b:
        return a[:, 1:] + b
    return g(a, b), (a, -1)
    ### END SOLUTION
'''


def test_every_kind_of_node_in_a_region_is_changed_and_nothing_outside() -> None:
    names = {f"{m.before} → {m.after}" for m in mutate.mutants(SOURCE, "stage1")}
    assert {
        "a < 2 → a <= 2",
        "a < 2 → a >= 2",
        "2 → 3",
        "2 → 1",
        "a < 2 or not b → a < 2 and (not b)",
        "not b → not not b",
        "a[:, 1:] + b → a[:, 1:] - b",
        "1: → :",
        "g(a, b) → g(b, a)",
        "-1 → +1",
        "if a < 2 or not b → if True",
    } <= names
    assert not any("SIZE" in name or name.startswith("3 →") for name in names)


def test_mutants_are_different_programs() -> None:
    made = mutate.mutants(SOURCE, "stage1")
    assert len({m.source for m in made}) == len(made)


def test_equivalents_that_are_malformed_are_the_courses_fault(tmp_path: Path) -> None:
    course = courses.parse((ROOT / courses.MANIFEST).read_text(), tmp_path)
    (tmp_path / "tests").mkdir()
    (tmp_path / mutate.EQUIVALENTS).write_text('[[equivalent]]\nstage = "stage1"\n')
    with pytest.raises(CourseError, match=r"equivalents\.toml"):
        mutate.equivalents(course)


def test_a_mutant_is_noticed_and_the_solution_itself_is_not() -> None:
    course = courses.load(ROOT)
    stage = course.stage("stage4")
    source = (course.solutions / stage.file).read_text()
    mutant = next(m for m in mutate.mutants(source, stage.slug) if m.before == "2" and m.after == "3")
    same = mutate.Mutant(stage.slug, 1, "", "", "", source)
    with Session(course, Options()) as session:
        assert mutate.first_failure(session, mutant) is not None
        assert mutate.first_failure(session, same) is None


def test_the_score_leaves_equivalents_out() -> None:
    mutant = mutate.Mutant("stage1", 1, "x = a", "a", "b", "")
    assert mutate.Score(10, (mutant,), (mutant,)).share == pytest.approx(8 / 9)
    assert mutate.Score(0, (), ()).share == 1.0
