"""What counts for a student in the end: points earned or given by hand, less what lateness costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from grader.gradebook import Row, State, less


@dataclass(frozen=True, slots=True)
class Mark:
    """One student's points as they are handed on; `total` is None where there is nothing to hand on.

    `stages` are the points before any penalty; `by_hand` says in words what a person changed.
    """

    row: Row
    stages: dict[str, float]
    total: float | None
    by_hand: tuple[str, ...] = ()

    @property
    def student(self) -> str:
        return self.row.student


def mark(
    row: Row,
    possible: Mapping[str, float],
    given: Mapping[str, float],
    *,
    raw: bool,
    by_hand: tuple[str, ...] = (),
) -> Mark:
    """What a row comes to with the points of some stages given by hand, and with `raw` without any penalty.

    Where our own fault left a stage without points there is no total: a fault of ours overwrites no grade.
    """
    stages = {
        slug: points for slug in possible if (points := given.get(slug, row.stages.get(slug))) is not None
    }
    is_whole = len(stages) == len(possible) or row.state is not State.BROKEN
    total = less(sum(stages.values()), 0 if raw else row.penalty) if stages and is_whole else None
    return Mark(row, stages, total, by_hand)
