"""Grade the solutions again and again, with every core kept busy, and count the checks that did not pass.

    python benchmarks/flakes.py --runs 20 --busy 2

A right solution must pass every check in every run, whatever its seed and however loaded the machine is; a
check by the clock may also be `inconclusive`, which is counted apart.
"""

from __future__ import annotations

import collections
import statistics
import sys
from pathlib import Path

import click
from busy import kept_busy

from grader import course as courses
from grader import selfcheck, submission
from grader.outcome import Verdict
from grader.session import Options, Session

ROOT = Path(__file__).resolve().parents[1]


@click.command()
@click.option("--runs", default=20, show_default=True)
@click.option("--busy", default=1, show_default=True, help="Processes that do nothing but spin.")
def main(runs: int, busy: int) -> None:
    """Count what does not pass; exit 1 if anything."""
    course = courses.load(ROOT)
    work = submission.load(course.solutions, course)
    failed: collections.Counter[str] = collections.Counter()
    unclear = 0
    seconds = []
    with kept_busy(busy):
        for number in range(runs):
            with Session(course, Options(seed=f"flake-{number}")) as session:
                report = session.grade(work, course.stages)
            outcomes = [o for stage in report.stages for o in stage.outcomes]
            failed.update(o.check.id for o in outcomes if o.verdict not in selfcheck.RIGHT)
            unclear += sum(o.verdict is Verdict.INCONCLUSIVE for o in outcomes)
            seconds.append(report.seconds)
            click.echo(f"run {number + 1}/{runs}: {report.seconds:.1f} s, {len(outcomes)} checks", err=True)
    for check_id, count in failed.most_common():
        click.echo(f"{count} of {runs}: {check_id}")
    click.echo(
        f"{runs} runs, {sum(failed.values())} checks not passed, {unclear} inconclusive, "
        f"{statistics.median(seconds):.1f} s a run"
    )
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
