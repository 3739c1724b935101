"""How long a student waits, as ratios to `import torch` measured in turn in the same run; and how much memory
it takes.

`make bench` prints a line a figure; `docs/performance.md` quotes them with the goals.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from grader import course as courses
from grader import submission
from grader.session import Options, Session

ROOT = Path(__file__).resolve().parents[1]
ROUNDS = 5
GRADE = [str(Path(sys.executable).parent / "grade")]
TORCH = [sys.executable, "-c", "import torch"]
Say = Callable[[str], None]


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    def line(text: str) -> None:
        with capsys.disabled():
            print(f"\n  {text}")

    return line


def seconds(command: list[str]) -> float:
    begun = time.perf_counter()
    subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    return time.perf_counter() - begun


@pytest.mark.parametrize(
    ("name", "command", "goal"),
    [
        ("grade --help", ["--help"], 0.25),
        ("grade list", ["list"], 0.25),
        ("grade stage1", ["stage1", "--submission", "solutions", "--public-only"], 1.6),
    ],
)
def test_cold_start_against_import_torch(
    benchmark: BenchmarkFixture, say: Say, name: str, command: list[str], goal: float
) -> None:
    ratios = []

    def pair() -> None:
        base = seconds(TORCH)
        ratios.append(seconds(GRADE + command) / base)

    benchmark.pedantic(pair, rounds=ROUNDS, warmup_rounds=1)
    benchmark.extra_info["ratio"] = statistics.median(ratios[1:])
    low, high = min(ratios[1:]), max(ratios[1:])
    say(f"{name}: {statistics.median(ratios[1:]):.2f} × import torch ({low:.2f} … {high:.2f}; goal ≤ {goal})")


def test_save_to_verdict_in_a_warm_session(benchmark: BenchmarkFixture, say: Say, tmp_path: Path) -> None:
    course = courses.load(ROOT)
    stage = course.stages[0]
    shutil.copy(course.solutions / stage.file, tmp_path)
    with Session(course, Options(public_only=True)) as session:
        session.grade(submission.load(tmp_path, course), [stage])

        def save_and_grade() -> None:
            session.grade(submission.load(tmp_path, course), [stage])

        benchmark.pedantic(save_and_grade, rounds=10, warmup_rounds=2)
    say(f"stage1, save to verdict, warm: {benchmark.stats.stats.median:.2f} s (goal < 1 s, public checks)")


def test_peak_memory_of_grade_all(benchmark: BenchmarkFixture, say: Say) -> None:
    peaks = {"trusted": 0, "worker": 0}

    def watch() -> None:
        process = psutil.Popen(
            [*GRADE, "all", "--submission", "solutions"],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while process.poll() is None:
            sample(process, peaks)
            time.sleep(0.02)  # a sampling interval, nothing is waited for

    benchmark.pedantic(watch, rounds=1)
    trusted, worker = (peaks[name] / 1e6 for name in ("trusted", "worker"))
    say(
        f"peak memory of grade all: trusted side {trusted:.0f} MB (goal ≤ 800), "
        f"a worker {worker:.0f} MB (goal ≤ 500)"
    )


def sample(process: psutil.Process, peaks: dict[str, int]) -> None:
    try:
        peaks["trusted"] = max(peaks["trusted"], process.memory_info().rss)
        for child in process.children(recursive=True):
            peaks["worker"] = max(peaks["worker"], child.memory_info().rss)
    except psutil.Error:
        pass
