"""`grade batch` against what a course would otherwise do, and against SIGKILL; each prints its table.

    python benchmarks/batch.py throughput --count 4
    python benchmarks/batch.py throughput --count 40 --stages stage4
    python benchmarks/batch.py nbgrader
    python benchmarks/batch.py interruption

`throughput`: one `pytest` process a submission, with the same checks and as many side by side. `nbgrader`:
`nbgrader autograde`, in a virtual environment that is made for it, on notebooks with the same asserts.
`interruption`: the batch is killed at random moments and started again; results must be what they are
undisturbed, and nothing that was done is done twice. How far memory grows, and that verdicts are those of
sessions of their own, see `soak.py`.
"""

from __future__ import annotations

import csv
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import class_of
import click
import notebooks
from class_of import Files

from grader import report as reports
from grader.course import Course
from grader.outcome import Outcome, Verdict
from grader.report import Report
from grader.results import PARTIAL, REPORT

JOBS = os.cpu_count() or 1
HARMLESS = ("correct", "wrong")  # what may run in process, unconfined
QUICK = ("stage4", "stage3")  # to grade
INTERRUPTED = ("stage1", "stage2", *QUICK)  # stage 3 may run the two
PATIENCE_S = 600
PEERS: dict[str, tuple[str, dict[str, str]]] = {  # pytest's tracebacks, and what the environment says
    "plain": ("auto", {}),  # torch takes a thread a core in each process
    "tuned": ("no", {"OMP_NUM_THREADS": "1"}),  # as the graders have it
}


@dataclass(frozen=True, slots=True)
class Lap:
    """What one way of grading took, for how many submissions."""

    name: str
    count: int
    wall_s: float

    @property
    def a_minute(self) -> float:
        return 60 * self.count / self.wall_s


@contextmanager
def workplace() -> Iterator[Path]:
    """A folder for all of it, and how busy the machine is before and after."""
    with tempfile.TemporaryDirectory(prefix="batch-") as folder:
        click.echo(f"load before: {os.getloadavg()[0]:.1f}", err=True)
        yield Path(folder)
        click.echo(f"load after: {os.getloadavg()[0]:.1f}", err=True)


def command(course: Course, class_: Path, out: Path, jobs: int) -> list[str]:
    """The words of `grade batch`."""
    grade = [str(Path(sys.executable).with_name("grade")), "--course", str(course.root), "batch", str(class_)]
    return [*grade, "--out", str(out), "--jobs", str(jobs), "--seed", "7"]


def batch(course: Course, class_: Path, out: Path, jobs: int = JOBS) -> float:
    """Run `grade batch`; its seconds. Raises RuntimeError where the grader itself failed."""
    begun = time.perf_counter()
    done = subprocess.run(command(course, class_, out, jobs), capture_output=True, text=True)
    if done.returncode not in (0, 1, 2) or not (out / "summary.json").is_file():
        raise RuntimeError(done.stderr)
    return time.perf_counter() - begun


def phases(out: Path, jobs: int) -> Iterator[tuple[str, float]]:
    """Each phase's share of the graders' time; the rest is their start and what they wait for each other."""
    seconds = json.loads((out / "summary.json").read_text(encoding="utf-8"))["seconds"]
    whole = seconds.pop("wall") * jobs
    yield from ((name, part / whole) for name, part in seconds.items())
    yield "start and waiting", 1 - sum(seconds.values()) / whole


def table(laps: Sequence[Lap], rows: Iterator[tuple[str, float]]) -> None:
    for lap in laps:
        ratio = laps[0].a_minute / lap.a_minute
        said = f"{lap.count:5} in {lap.wall_s:7.1f} s {lap.a_minute:8.1f} a minute"
        click.echo(f"{lap.name:34} {said}   grade batch is {ratio:.2f} × as fast")
    for name, share in rows:
        click.echo(f"    {name:30} {share:6.1%} of the graders' time")


# One pytest process a submission


def in_process(course: Course, files: Files, folder: Path, peer: str) -> None:
    """Run the same checks by plain pytest on the submission's files in a course's `exercises/`."""
    for name in class_of.COURSE:
        if name not in ("exercises", "solutions"):
            shutil.copytree(course.root / name, folder / name)
    shutil.copytree(course.exercises, folder / "exercises", ignore=shutil.ignore_patterns("stage*_*.py"))
    for name, content in files.items():
        (folder / "exercises" / name).write_bytes(content)
    tb, more = PEERS[peer]
    words = ["-m", "pytest", "-q", f"--tb={tb}", "-p", "grader.pytest_plugin", "--import-mode=importlib"]
    done = subprocess.run(
        [sys.executable, *words, "tests_public", "tests_hidden"],
        cwd=folder, env=os.environ | more, capture_output=True, timeout=PATIENCE_S,
    )  # fmt: skip
    if done.returncode not in (0, 1):  # all passed, some failed
        raise RuntimeError(done.stdout.decode())


def pytests(course: Course, works: Sequence[Files], folder: Path, peer: str) -> float:
    """One process a submission, as many side by side as there are graders; their seconds."""
    begun = time.perf_counter()
    folders = [folder / str(number) for number in range(len(works))]
    for one in folders:
        one.mkdir(parents=True)
    with ThreadPoolExecutor(JOBS) as pool:
        list(pool.map(lambda files, one: in_process(course, files, one, peer), works, folders))
    return time.perf_counter() - begun


@click.group()
def main() -> None:
    """Measure `grade batch`."""


@main.command()
@click.option("--count", default=4, show_default=True)
@click.option("--stages", default="", help="Only these, a comma between.  [default: all]")
@click.option(
    "--peers", default=",".join(PEERS), show_default=True, help="How pytest is run, a lap for each."
)
def throughput(count: int, stages: str, peers: str) -> None:
    """Submissions a minute against one pytest process each, and where a batch's time goes."""
    with workplace() as here:
        course = class_of.course_copy(here / "course", stages=stages.split(",") if stages else ())
        works = class_of.drawn(course, count, kinds=HARMLESS, whole=True)
        class_of.write(works, here / "class")
        laps = [Lap("grade batch", count, batch(course, here / "class", here / "out"))]
        for peer in peers.split(","):
            wall_s = pytests(course, works, here / f"pytest-{peer}", peer)
            laps.append(Lap(f"a pytest process each, {peer}", count, wall_s))
        table(laps, phases(here / "out", JOBS))


# nbgrader


@main.command()
@click.option("--count", default=60, show_default=True)
@click.option("--peer", default=8, show_default=True, help="So many of them are enough for nbgrader.")
@click.option("--stage", default="stage4", show_default=True, help="One whose checks need nothing given.")
@click.option("--venv", type=click.Path(path_type=Path), default=Path("/tmp/nbgrader-venv"))
def nbgrader(count: int, peer: int, stage: str, venv: Path) -> None:
    """Submissions a minute against `nbgrader autograde` on notebooks with the same asserts."""
    with workplace() as here:
        course = class_of.course_copy(here / "course", stages=[stage])
        works = class_of.drawn(course, count, kinds=HARMLESS, whole=True)
        class_of.write(works, here / "class")
        ours = Lap("grade batch", count, batch(course, here / "class", here / "out"))
        tool = notebooks.installed(venv)
        notebooks.lay(tool, here / "nbgrader", course, course.stages[0], works[:peer])
        begun = time.perf_counter()
        grades = notebooks.autograded(tool, here / "nbgrader")
        table(
            [ours, Lap("nbgrader autograde", peer, time.perf_counter() - begun)], phases(here / "out", JOBS)
        )
        click.echo(f"checks passed by nbgrader {grades}, by grade batch {passed(here / 'out', peer)}")


def passed(out: Path, count: int) -> list[int]:
    """How many checks each of the first submissions passed."""
    with (out / "scores.csv").open(encoding="utf-8", newline="") as file:
        rows = sorted(csv.DictReader(file), key=lambda row: row["student"])
    return [int(row["pass"]) for row in rows[:count]]


# Interruption


@main.command()
@click.option("--count", default=90, show_default=True)
@click.option("--kills", default=10, show_default=True)
@click.option("--seed", default=0, show_default=True)
def interruption(count: int, kills: int, seed: int) -> None:
    """Kill the batch again and again; exit 1 if results differ or anything done was done twice."""
    with workplace() as here:
        course = class_of.course_copy(here / "course", stages=INTERRUPTED, check_s=2.0)
        class_of.write(class_of.drawn(course, count, stages=QUICK, seed=seed), here / "class")
        since = time.time()
        whole_s = batch(course, here / "class", here / "undisturbed")
        first = min(datetime.fromisoformat(when).timestamp() for when in begun(here / "undisturbed").values())
        start_s = max(first - since, 0.5)
        draw, mean_s = random.Random(seed), (whole_s - start_s) / (kills + 1)
        lives = [start_s + draw.uniform(0, 2 * mean_s) for _ in range(kills)]
        words = command(course, here / "class", here / "killed", JOBS)
        killed, twice = killed_at(words, here / "killed", lives)
        differ = differences(here / "undisturbed", here / "killed")
    click.echo(f"{count} submissions, undisturbed {whole_s:.0f} s; killed {killed} times, then let go on")
    click.echo(
        f"{len(differ)} results differ {differ}, {len(twice)} graded again after they were done {twice}"
    )
    sys.exit(1 if differ or twice or not killed else 0)


def killed_at(words: Sequence[str], out: Path, lives_s: Sequence[float]) -> tuple[int, list[str]]:
    """Run a command, kill it after so many seconds, again and again, then let it end.

    Returns how often it was killed, and whose work was begun again though it was done.
    """
    done: dict[str, str] = {}
    killed, twice = 0, []
    for life_s in (*lives_s, None):
        running = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        with suppress(subprocess.TimeoutExpired):
            running.communicate(timeout=life_s)
        if running.poll() is None:
            killed += 1
            running.kill()
            running.communicate()  # its graders have this pipe too, and end what they have in hand
        now = begun(out)
        twice += [name for name, when in done.items() if now.get(name) != when]
        done |= now
    return killed, twice


def begun(out: Path) -> dict[str, str]:
    """When the grading of each student began who has a report, or the part of one that lacks the timings."""
    parts = {path.parent.name: path for name in (PARTIAL, REPORT) for path in out.glob(f"*/{name}")}
    return {
        student: json.loads(path.read_text(encoding="utf-8"))["started"] for student, path in parts.items()
    }


def differences(one: Path, other: Path) -> list[str]:
    """Who has not the same report in both, times and processes' numbers aside, or the same line of scores."""
    names = sorted({path.parent.name for out in (one, other) for path in out.glob(f"*/{REPORT}")})
    differ = [f"{name}: {said}" for name in names if (said := _first_difference(one / name, other / name))]
    return differ + ["scores.csv"] * (
        (one / "scores.csv").read_bytes() != (other / "scores.csv").read_bytes()
    )


def _first_difference(one: Path, other: Path) -> str:
    """What the first check that differs says in both; empty where none does."""
    here, there = _timeless(one), _timeless(other)
    if here is None or there is None:
        return "there is no report"
    pairs = zip(*([o for stage in report.stages for o in stage.outcomes] for report in (here, there)))
    for was, now in pairs:
        if was != now:
            return (
                f"{was.check.id} {was.verdict} `{was.message[:80]}`, then {now.verdict} `{now.message[:80]}`"
            )
    return "" if here == there else "something beside the checks"


def _timeless(shelf: Path) -> Report | None:
    if not (shelf / REPORT).is_file():
        return None
    report = reports.from_json((shelf / REPORT).read_text(encoding="utf-8"))
    stages = []
    for stage in report.stages:
        checks = [replace(o, seconds=0.0, metrics={}, message=_plain(o.message)) for o in stage.outcomes]
        stages.append(replace(stage, outcomes=tuple(replace(o, output=_printed(o)) for o in checks)))
    same = {"machine": reports.Machine(), "started": "", "seconds": 0.0}
    return replace(report, stages=tuple(stages), **same)


def _printed(outcome: Outcome) -> str:
    """What a check printed; how far it got until its time was up is chance."""
    return "" if outcome.verdict is Verdict.TIMEOUT else _plain(outcome.output)


def _plain(text: str) -> str:
    """The text less its figures: seconds and numbers of processes differ from run to run."""
    return re.sub(r"\d+", "0", text)


if __name__ == "__main__":
    main()
