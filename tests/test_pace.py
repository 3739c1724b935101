"""The pace of a batch: told now and then in a log, never a line for each submission."""

from __future__ import annotations

import pytest

from grader.pace import EVERY_S, Pace, lasting


class Clock:
    """A clock that the test sets."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def pace(total: int) -> tuple[Pace, Clock, list[str]]:
    clock, said = Clock(), list[str]()
    return Pace("graded", total, clock, said.append), clock, said


def test_a_log_has_a_line_now_and_then_and_one_at_the_end() -> None:
    one, clock, said = pace(100)
    with one:
        for _ in range(100):
            clock.now_s += EVERY_S / 10
            one.one()
    assert said[0] == "graded: 100 to do"
    assert said[1] == "graded: 10 of 100, 20.0 a minute, 4 min left"
    assert said[-1] == "graded: 100 of 100, 20.0 a minute, 5 min"
    assert len(said) == 11


def test_the_rate_is_told_only_once_it_tells_something() -> None:
    one, clock, _ = pace(10)
    clock.now_s += 60
    one.one()
    assert one.rate() == ""
    one.one()
    one.one()
    assert one.rate() == ", 3.0 a minute, 2 min left"


def test_nothing_to_do_says_nothing() -> None:
    one, _, said = pace(0)
    with one:
        pass
    assert said == []


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0 s"),
        (89, "89 s"),
        (91, "2 min"),
        (5940, "99 min"),
        (6060, "1 hour 41 min"),
        (9000, "2 hours 30 min"),
    ],
)
def test_a_duration_is_said_as_a_person_would(seconds: float, said: str) -> None:
    assert lasting(seconds) == said
