"""The stages of one submission, two abreast: their reports come one by one and make one.

Stages with checks by the clock come last and alone, as in a batch.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from grader.course import Course, Stage
from grader.outcome import Outcome
from grader.report import Report, StageResult

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
    on_count: Callable[[int], None] = lambda count: None,
) -> Report:
    """Grade stages as `Session.grade` does; `on_stage` hears of each when it is over, in their order.

    `on_count` hears how many are over, in whatever order.

    Raises what `pool.run` and `Session.grade` raise.
    """
    from grader import pool

    begun = time.monotonic()
    clocked = [s for s in stages if course.by_the_clock(s, public_only=options.public_only)]
    rest = [stage for stage in stages if stage not in clocked]
    items, alone = ([(submission, stage.slug) for stage in some] for some in (rest[-1:] + rest[:-1], clocked))
    done: dict[str, Report] = {}
    waiting = list(stages)
    for (_, slug), report in pool.run(course, options, _graded, items, alone=alone, jobs=LANES):
        done[slug] = report
        while waiting and waiting[0].slug in done:
            stage = waiting.pop(0)
            on_stage(stage, done[stage.slug].stages[0].outcomes)
        on_count(len(done))
    whole = joined(course, [done[stage.slug] for stage in stages])
    return replace(whole, seconds=time.monotonic() - begun)


def _graded(session: Session, item: tuple[Submission, str]) -> Report:
    submission, slug = item
    return session.grade(submission, [session.course.stage(slug)])


def joined(course: Course, parts: Sequence[Report]) -> Report:
    """Make one report of several on different stages of one submission; the machine is the last one's."""
    by_slug = {stage.slug: stage for part in parts for stage in part.stages}
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


def _about_stages(course: Course, stages: Sequence[StageResult]) -> tuple[str, ...]:
    from grader.session import not_carried_forward

    return not_carried_forward([course.stage(stage.slug) for stage in stages], stages)
