"""The stages of one submission, two abreast: their reports come one by one and make one.

Checks by the clock come last and alone, as in a batch.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from grader.course import Course, Stage
from grader.outcome import Outcome, Part, Visibility
from grader.report import Report, StageResult
from grader.scoring import earned_points

if TYPE_CHECKING:
    from grader.session import Options, Session
    from grader.submission import Submission

LANES = 2  # more would gain little, since one stage takes as long as the rest, and cost 600 MB each


def worthwhile(stages: Sequence[Stage], options: Options) -> bool:
    """Whether there is enough to do, and room: in process (`none`) a debugger or a GPU may be in use."""
    return len(stages) > LANES and options.isolation != "none" and (os.cpu_count() or 1) >= LANES


def grade(
    course: Course,
    options: Options,
    submission: Submission,
    stages: Sequence[Stage],
    on_stage: Callable[[Stage, Sequence[Outcome]], None],
    on_count: Callable[[int, int], None] = lambda count, total: None,
) -> Report:
    """Grade stages as `Session.grade` does; `on_stage` hears of each when it is over, in their order.

    `on_count` hears how many parts of how many are done.

    Raises what `pool.run` and `Session.grade` raise.
    """
    from grader import pool

    begun = time.monotonic()
    clocked = [stage for stage in stages if stage in course.timed]
    items, alone = (
        [(submission, stage.slug, part) for stage in some]
        for some, part in (([*stages[-1:], *stages[:-1]], Part.UNTIMED), (clocked, Part.TIMED))
    )
    done: dict[str, list[Report]] = {stage.slug: [] for stage in stages}
    waiting, count = list(stages), 0
    for (_, slug, _), report in pool.run(course, options, _graded, items, alone=alone, jobs=LANES):
        done[slug].append(report)
        while waiting and len(done[waiting[0].slug]) == 1 + (waiting[0] in clocked):
            stage = waiting.pop(0)
            on_stage(stage, joined(course, done[stage.slug]).stages[0].outcomes)
        on_count(count := count + 1, len(items) + len(alone))
    whole = joined(course, [report for stage in stages for report in done[stage.slug]])
    return replace(whole, seconds=time.monotonic() - begun)


def _graded(session: Session, item: tuple[Submission, str, Part]) -> Report:
    submission, slug, part = item
    return session.grade(submission, [session.course.stage(slug)], part)


def joined(course: Course, parts: Sequence[Report]) -> Report:
    """Make one report of several on parts of one submission's checks; the machine is the last one's."""
    by_slug: dict[str, StageResult] = {}
    for result in (stage for part in parts for stage in part.stages):
        before = by_slug.get(result.slug)
        by_slug[result.slug] = _scored(course, before, result) if before else result
    ordered = tuple(by_slug[stage.slug] for stage in course.stages if stage.slug in by_slug)
    about = {note for part in parts for note in _about_stages(course, part.stages)}
    notes = [
        note for note in dict.fromkeys(note for part in parts for note in part.notes) if note not in about
    ]
    return replace(
        parts[-1],
        stages=ordered,
        layers={name: state for part in parts for name, state in part.layers.items()},
        started=min(part.started for part in parts),
        seconds=sum(part.seconds for part in parts),
        notes=(*notes, *_about_stages(course, ordered)),
    )


def _scored(course: Course, first: StageResult, second: StageResult) -> StageResult:
    """One result of two on different checks of a stage, public ones first as ever."""
    if not (first.outcomes and second.outcomes):
        return first if first.outcomes else second
    outcomes = (*first.outcomes, *second.outcomes)
    ordered = tuple(sorted(outcomes, key=lambda outcome: outcome.check.visibility is Visibility.HIDDEN))
    stage = course.stage(first.slug)
    earned = earned_points(stage, ordered, hidden=first.possible == stage.points)
    return replace(first, outcomes=ordered, earned=earned, scored=first.scored and second.scored)


def _about_stages(course: Course, stages: Sequence[StageResult]) -> tuple[str, ...]:
    from grader.session import not_carried_forward

    return not_carried_forward([course.stage(stage.slug) for stage in stages], stages)
