"""Grade the same class by two Dask workers and by one, in turn, on this machine.

    python benchmarks/cluster.py --count 12 --rounds 5

The class is made of the samples in `tests/submissions`, each as one student's files. Both clusters are warm
before they are timed. The goal is that two workers on two cores are 1.7 times as fast.
"""

from __future__ import annotations

import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click
from distributed import Client

from grader import batch, samples
from grader import course as courses
from grader.course import Course
from grader.order import Wanted
from grader.report import EXIT_BROKEN

ROOT = Path(__file__).resolve().parents[1]
GOAL = 1.7
KINDS = ("correct", "wrong")
SETTINGS = {  # as docs/cluster.md has them: less of what Dask does all the time for its own
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",
    "DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "1s",
    "DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__INTERVAL": "5s",
}


def hand_in(course: Course, class_: Path, count: int) -> None:
    """Write a class of so many students, each with a sample's files and each different from the others."""
    drawn = [sample for kind in KINDS for sample in samples.load_all(course, kind)]
    for number, sample in enumerate(random.Random(0).sample(drawn, count)):
        folder = class_ / f"{number:03}-{sample.name}"
        folder.mkdir(parents=True)
        for name, content in sample.handed_in.items():
            (folder / name).write_bytes(content)


@contextmanager
def cluster(course: Course, workers: int) -> Iterator[str]:
    """A scheduler and so many workers with one thread each; yields the address, ends them after."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    dask = [sys.executable, "-m", "dask"]
    port = address.rpartition(":")[2]
    commands = [[*dask, "scheduler", "--host", "127.0.0.1", "--port", port, "--no-dashboard"]]
    commands += [[*dask, "worker", address, "--nthreads", "1", "--no-nanny", "--no-dashboard"]] * workers
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    there = {**os.environ, **SETTINGS}
    processes = [subprocess.Popen(command, cwd=course.root, env=there, **quiet) for command in commands]
    try:
        with Client(address, timeout=30) as client:
            client.wait_for_workers(workers, timeout=60)
        yield address
    finally:
        for process in processes:
            process.kill()  # in peace a worker waits long for its scheduler
            process.wait()


def timed(course: Course, class_: Path, out: Path, address: str) -> float:
    """Grade the class on this cluster: seconds."""
    begun = time.perf_counter()
    done = batch.run(course, Wanted(class_, out, seed="7", scheduler=address))
    if done.status == EXIT_BROKEN:
        raise click.ClickException("\n".join(done.lines))
    return time.perf_counter() - begun


@click.command()
@click.option("--count", default=12, help="Students.")
@click.option("--rounds", default=5, help="Of both, every other one backwards.")
@click.option("--workers", default=(1, 2), nargs=2, help="Of the two clusters.")
def main(count: int, rounds: int, workers: Sequence[int]) -> None:
    """Compare two clusters of workers on this machine."""
    course = courses.load(ROOT)
    with (
        tempfile.TemporaryDirectory() as folder,
        cluster(course, workers[0]) as one,
        cluster(course, workers[1]) as two,
    ):
        temp = Path(folder)
        hand_in(course, temp / "class", count)
        hand_in(course, temp / "few", 3 * max(workers))
        load = os.getloadavg()[0]
        for name, address in (("one", one), ("two", two)):
            timed(course, temp / "few", temp / f"warm-{name}", address)
        ratios = []
        for number in range(rounds):
            order = (one, two) if number % 2 == 0 else (two, one)
            took = {at: timed(course, temp / "class", temp / f"{number}-{at[-5:]}", at) for at in order}
            a, b = took[one], took[two]
            ratios.append(a / b)
            click.echo(f"{workers[0]} worker {a:.1f} s, {workers[1]} workers {b:.1f} s: {a / b:.2f} times")
    spread = f"{min(ratios):.2f} … {max(ratios):.2f}"
    click.echo(f"{statistics.median(ratios):.2f} times ({spread}), goal {GOAL}; load before {load:.1f}")


if __name__ == "__main__":
    main()
