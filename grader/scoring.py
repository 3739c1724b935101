"""Outcomes to points; pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from grader.course import Stage
from grader.outcome import Outcome, Verdict, Visibility

STEPS_PER_POINT = 100


def possible_points(stage: Stage, *, hidden: bool) -> float:
    """Points this run could give, from the manifest alone: all of them, or the public share."""
    return stage.points if hidden else stage.public_points


def earned_points(stage: Stage, outcomes: Sequence[Outcome], *, hidden: bool) -> float:
    """Points earned: in each group the group's points times the weight passed over the weight planned.

    `outcomes` holds one for every planned check, so what did not run counts as not passed. Rounded down to a
    hundredth so that only a full pass earns full points. A `broken` check makes the stage earn 0 (not
    scored).
    """
    if any(o.verdict is Verdict.BROKEN for o in outcomes):
        return 0.0
    groups = [(Visibility.PUBLIC, stage.public_points)]
    if hidden:
        groups.append((Visibility.HIDDEN, stage.hidden_points))
    return sum(_group_points(outcomes, visibility, points) for visibility, points in groups)


def _group_points(outcomes: Sequence[Outcome], visibility: Visibility, points: float) -> float:
    group = [o for o in outcomes if o.check.visibility is visibility]
    planned = math.fsum(o.check.weight for o in group)
    if not planned:
        return 0.0
    if all(o.verdict is Verdict.PASS for o in group):
        return points
    passed = math.fsum(o.check.weight for o in group if o.verdict is Verdict.PASS)
    return math.floor(points * passed / planned * STEPS_PER_POINT) / STEPS_PER_POINT
