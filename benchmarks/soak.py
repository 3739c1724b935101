"""Grade many mixed submissions, right, wrong and hostile, through one session, and see that nothing piles up.

    python benchmarks/soak.py --count 500

Nothing may be left: no process, no descriptor, no temporary file. Memory of the trusted side may grow by 5 %
and by 50 MB after the first fifty. Every verdict must be what the same submission gets in a session of its
own.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import click
import msgspec
import psutil

from grader import course as courses
from grader import samples, submission
from grader.course import Course, Limits, Stage
from grader.outcome import Part
from grader.report import Report
from grader.samples import Sample
from grader.session import Options, Session

ROOT = Path(__file__).resolve().parents[1]
LIMITS = Limits(check_s=2.0, import_s=5.0, memory_mib=256)
GROWTH, GROWTH_MB = 1.05, 50
STAGES = ("stage4", "stage3")  # the quickest to grade
HARMLESS_TWICE = {"deep_folder"}  # the slowest to clean up: one of it is enough
SEED = "7"
KINDS = ("correct", "wrong", "hostile")
Verdicts = dict[str, str]


@dataclass(slots=True)
class Footprint:
    """What the grader holds: descriptors, bytes of memory, processes and temporary files."""

    descriptors: int
    rss: int
    processes: int
    files: int

    @classmethod
    def now(cls, temp: Path) -> Footprint:
        process = psutil.Process()
        below = process.children(recursive=True)
        return cls(process.num_fds(), process.memory_info().rss, len(below), len(list(temp.iterdir())))


@dataclass(slots=True)
class Soak:
    """A soak's findings: what was wrong, and the footprint after the warm-up and in the end."""

    count: int = 0
    problems: list[str] = field(default_factory=list)
    before: Footprint | None = None
    after: Footprint | None = None

    @property
    def growth(self) -> float:
        """Memory in the end, as a multiple of what it was after the warm-up."""
        return self.after.rss / self.before.rss if self.before and self.after else 1.0

    @property
    def growth_mb(self) -> float:
        return (self.after.rss - self.before.rss) / 1e6 if self.before and self.after else 0.0


def mix(course: Course, count: int, *, seed: int = 0) -> Iterator[Sample]:
    """Draw samples of every kind, each kind a third of them."""
    draw = random.Random(seed)
    kinds = [
        [s for s in samples.load_all(course, kind) if s.stage in STAGES]
        for kind in ("correct", "wrong", "hostile")
    ]
    seen: set[str] = set()
    for number in range(count):
        kind = kinds[number % 3] or kinds[1]
        sample = draw.choice([s for s in kind if s.name not in seen & HARMLESS_TWICE])
        seen.add(sample.name)
        yield sample


def grade(session: Session, sample: Sample) -> Report:
    stage = session.course.stage(sample.stage)
    return session.grade(submission.of_files(sample.name, sample.handed_in), [limited(stage)], Part.UNTIMED)


def limited(stage: Stage) -> Stage:
    return msgspec.structs.replace(stage, limits=LIMITS)


def verdicts(report: Report) -> Verdicts:
    return {outcome.check.id: str(outcome.verdict) for outcome in report.stages[0].outcomes}


def soak(course: Course, count: int, warm_up: int, *, alone: bool) -> Soak:
    """Grade `count` submissions through one session; with `alone` compare with sessions of their own."""
    found, first = Soak(), {}
    with tempfile.TemporaryDirectory(prefix="soak-") as folder, suppress(KeyboardInterrupt):
        temp, tempfile.tempdir = Path(folder), folder
        options = Options("confined", seed=SEED)
        with Session(course, options) as session:
            for sample in mix(course, count):
                got = verdicts(grade(session, sample))
                if first.setdefault(sample.name, got) != got:
                    found.problems.append(f"{sample.name}: other verdicts than the first time: {got}")
                found.count += 1
                found.after = Footprint.now(temp)
                if found.count == warm_up:
                    found.before = found.after
                click.echo(f"{found.count}/{count} {sample.name} {found.after}", err=True)
        for name, got in first.items() if alone else ():
            sample = next(s for s in mix(course, count) if s.name == name)
            with Session(course, options) as session:
                if (other := verdicts(grade(session, sample))) != got:
                    found.problems.append(f"{name}: {got} among others, {other} alone")
        tempfile.tempdir = None
    found.problems += leaks(found)
    return found


def leaks(found: Soak) -> Iterator[str]:
    """Say what has piled up between the warm-up and the end."""
    before, after = found.before, found.after
    if before is None or after is None:
        yield "the soak ended before its warm-up"
        return
    for name in ("descriptors", "processes", "files"):
        if getattr(after, name) > getattr(before, name):
            yield f"{name}: {getattr(before, name)} after the warm-up, {getattr(after, name)} in the end"
    if after.files:
        yield f"{after.files} temporary files are left"
    if found.growth > GROWTH or found.growth_mb > GROWTH_MB:
        yield f"memory grew by {found.growth_mb:.1f} MB, to {found.growth:.3f} of what it was at the warm-up"


@click.command()
@click.option("--count", default=500, show_default=True)
@click.option("--warm-up", default=50, show_default=True)
@click.option("--alone/--no-alone", default=True, help="Grade each sample in a session of its own, too.")
def main(count: int, warm_up: int, alone: bool) -> None:
    """Soak the grader; exit 1 if anything piled up or differed."""
    found = soak(courses.load(ROOT), count, warm_up, alone=alone)
    for problem in found.problems:
        click.echo(problem)
    grown = f"memory × {found.growth:.3f}, {found.growth_mb:+.1f} MB"
    click.echo(f"{found.count} submissions, {grown}, {len(found.problems)} problems")
    click.echo(f"after the warm-up: {found.before}\nin the end: {found.after}")
    sys.exit(1 if found.problems else 0)


if __name__ == "__main__":
    main()
