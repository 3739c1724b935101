"""How stable stage 3's verdicts by the clock are: right and cheating samples in turn, idle and loaded.

    python benchmarks/latency.py --runs 200            # nothing else running
    python benchmarks/latency.py --runs 200 --busy 2   # both cores kept busy

A run grades one sample by the clock. Right ones: the solutions, and every unusual but right stage 1 or 2 that
does a cached step's work and no more. Cheats: the wrong samples of stage 3 that bring a stage 1 or 2 of their
own; their other checks, which count and give the same answer each time, are graded once. A right one must
never `fail`, a cheat never pass every check.
"""

from __future__ import annotations

import collections
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

import click
from busy import kept_busy

from grader import course as courses
from grader import samples, selfcheck, submission
from grader.course import Course
from grader.outcome import Part, Verdict
from grader.session import Options, Session

ROOT = Path(__file__).resolve().parents[1]
# Right in stage 1, and slow: loops in Python, over the prompt too, or everything copied twice.
SLOW = ("tiled_online_softmax", "query_by_query", "fused_qkv_permute")
RIGHT, CHEAT = "right", "cheat"


def candidates(course: Course) -> Iterator[tuple[str, str, dict[str, bytes]]]:
    """Right ones and cheats in turn, for ever: kind, name, files."""
    ours = {name: (course.solutions / name).read_bytes() for name in _files(course)}
    right = [s for s in samples.load_all(course, "correct") if s.stage in ("stage1", "stage2")]
    right = [s for s in right if s.name not in SLOW]
    cheats = [s for s in samples.load_all(course, "wrong") if s.stage == "stage3" and len(s.files) > 1]
    rights = itertools.cycle([("solutions", ours), *((s.name, ours | s.handed_in) for s in right)])
    wrongs = itertools.cycle([(s.name, ours | s.handed_in) for s in cheats])
    for (name, files), (cheat, others) in zip(rights, wrongs):
        yield RIGHT, name, files
        yield CHEAT, cheat, others


def _files(course: Course) -> list[str]:
    return [course.stage(slug).file for slug in ("stage1", "stage2", "stage3")]


@click.command()
@click.option("--runs", default=200, show_default=True)
@click.option("--busy", default=0, show_default=True, help="Processes that do nothing but spin.")
def main(runs: int, busy: int) -> None:
    """Count the verdicts by the clock; exit 1 if a right one fails or a cheat passes."""
    course = courses.load(ROOT)
    verdicts: dict[str, collections.Counter[Verdict]] = {
        kind: collections.Counter() for kind in (RIGHT, CHEAT)
    }
    faults, counted_right = [], dict[str, bool]()
    with kept_busy(busy), Session(course, Options(seed=f"latency-{busy}")) as session:
        for number, (kind, name, files) in enumerate(itertools.islice(candidates(course), runs), 1):
            handed_in, stages = submission.of_files(name, files), [course.stage("stage3")]
            if kind == CHEAT and name not in counted_right:
                counted_right[name] = session.grade(handed_in, stages, Part.UNTIMED).exit_status == 0
            by_clock = session.grade(handed_in, stages, Part.TIMED).stages[0].outcomes
            verdicts[kind].update(o.verdict for o in by_clock)
            if kind == RIGHT and any(o.verdict not in selfcheck.RIGHT for o in by_clock):
                faults.append(f"right `{name}`: {'; '.join(o.message for o in by_clock if o.message)}")
            is_passed = all(o.verdict is Verdict.PASS for o in by_clock)
            if kind == CHEAT and is_passed and counted_right[name]:
                faults.append(f"cheat `{name}` passes")
            click.echo(f"{number}/{runs} {kind} {name}: {', '.join(o.verdict for o in by_clock)}", err=True)
    for fault in faults:
        click.echo(fault)
    for kind, counted in verdicts.items():
        total = counted.total()
        told = ", ".join(f"{n} {verdict} ({n / total:.1%})" for verdict, n in counted.most_common())
        click.echo(f"{kind}: {total} verdicts by the clock: {told}")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
