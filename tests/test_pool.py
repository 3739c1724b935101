"""Several graders side by side: each item once, whatever becomes of a grader."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from grader import course as courses
from grader import pool
from grader.errors import CourseError, SandboxError
from grader.session import Options, Session

ROOT = Path(__file__).resolve().parents[1]
OPTIONS = Options(isolation="none", seed="s")


@pytest.fixture(scope="module")
def course() -> courses.Course:
    return courses.load(ROOT)


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The graders import this file by its name."""
    monkeypatch.syspath_prepend(str(ROOT))


def square(session: Session, item: int) -> int:
    """Square an item; 13 kills the grader, 99 is the course's fault."""
    if item == 13:
        os.kill(os.getpid(), signal.SIGKILL)
    if item == 99:
        raise CourseError("no 99")
    return item * item


def lasting(session: Session, item: int) -> tuple[float, float]:
    """Say from when to when it was worked on an item."""
    begun = time.monotonic()
    sum(range(200_000))
    return begun, time.monotonic()


def lost(item: int) -> int:
    return -item


def test_every_item_comes_once_with_its_own_result(course: courses.Course) -> None:
    assert sorted(pool.run(course, OPTIONS, square, range(5), jobs=2)) == [(n, n * n) for n in range(5)]


def test_what_is_to_be_alone_begins_when_all_else_is_done(course: courses.Course) -> None:
    found = dict(pool.run(course, OPTIONS, lasting, range(6), alone=[6, 7], jobs=2))
    assert max(end for item, (_, end) in found.items() if item < 6) <= found[6][0]
    assert found[6][1] <= found[7][0]


def test_a_grader_that_dies_costs_its_item_only(course: courses.Course) -> None:
    found = dict(pool.run(course, OPTIONS, square, [1, 13, 2, 3], jobs=1, lost=lost))
    assert found == {1: 1, 13: -13, 2: 4, 3: 9}


def test_without_a_say_on_the_lost_the_run_ends(course: courses.Course) -> None:
    with pytest.raises(SandboxError, match="a grader died over item"):
        list(pool.run(course, OPTIONS, square, [13, 1], jobs=2))


def test_graders_that_die_one_after_another_end_the_run(
    course: courses.Course, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "MOST_DEATHS", 1)
    with pytest.raises(SandboxError, match="a grader died over item"):
        list(pool.run(course, OPTIONS, square, [13, 13, 13, 1], jobs=1, lost=lost))


def test_the_courses_fault_ends_the_run(course: courses.Course) -> None:
    with pytest.raises(CourseError, match="no 99"):
        list(pool.run(course, OPTIONS, square, [99], jobs=1, lost=lost))


def test_a_session_that_cannot_be_had_is_told(course: courses.Course) -> None:
    with pytest.raises(CourseError, match="no isolation level `jail`"):
        list(pool.run(course, Options(isolation="jail"), square, [1, 2], jobs=2, lost=lost))


def test_nothing_to_do_starts_nobody(course: courses.Course) -> None:
    assert list(pool.run(course, Options(isolation="jail"), square, [], lost=lost)) == []
