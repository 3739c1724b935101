"""A batch that is killed, at whatever write, goes on as if it had not been. See `benchmarks/batch.py`."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

TOY = Path(__file__).with_name("test_batch.py")
LIFE = """
import importlib.util, os, pathlib, signal, sys
from grader import session
spec = importlib.util.spec_from_file_location("toy", sys.argv[1])
toy = sys.modules["toy"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(toy)
log, writes_left, replace = open(sys.argv[2], "a"), int(sys.argv[3]), os.replace

class Log(list):
    def __iadd__(self, lines):
        print(*lines, sep="\\n", file=log, flush=True)
        return self

def last_but_so_many(*paths):
    global writes_left
    writes_left -= 1
    if not writes_left:
        os.kill(os.getpid(), signal.SIGKILL)
    replace(*paths)

root = pathlib.Path(sys.argv[4])
if not root.exists():
    toy.lay_course(root)
toy.FakeSession.graded = Log()
toy.batch.pool.run = toy.one_by_one()
session.level_of = lambda wanted: "confined"
os.replace = last_but_so_many
toy.cli(["--course", *sys.argv[4:]])
"""
FOREVER = 1000
KILLS = (2, 4, 7)  # in the midst of a student's files, of another's, of the third's or the class's


@pytest.fixture
def class_(tmp_path: Path) -> Path:
    """Three students of a toy course, whose work says how it is to be judged."""
    for name, says in (("ada", "pass"), ("bob", "fail"), ("cyd", "timeout")):
        (tmp_path / "class" / name).mkdir(parents=True)
        (tmp_path / "class" / name / "stage1_part.py").write_text(says)
    return tmp_path / "class"


def live(class_: Path, out: str, jobs: int, writes: int = FOREVER) -> int:
    """Run `grade batch` up to so many writes; its exit status."""
    words = [
        str(class_.parent / "course"),
        "batch",
        str(class_),
        "--out",
        str(class_.parent / out),
        "--seed",
        "s",
    ]
    script = [sys.executable, "-c", LIFE, str(TOY), str(class_.parent / f"{out}.log"), str(writes)]
    done = subprocess.run([*script, *words, "--jobs", str(jobs)], capture_output=True, text=True)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode


def files(folder: Path) -> dict[str, bytes]:
    """Every file of the results but those that tell how long it took."""
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {name: content for name, content in found.items() if name not in ("summary.json", "index.html")}


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_batch_killed_three_times_ends_as_one_undisturbed(jobs: int, class_: Path) -> None:
    assert live(class_, "undisturbed", jobs) == 1
    for writes in KILLS:
        assert live(class_, "killed", jobs, writes) == -signal.SIGKILL
    assert live(class_, "killed", jobs) == 1

    assert files(class_.parent / "killed") == files(class_.parent / "undisturbed")
    once, again = ((class_.parent / f"{out}.log").read_text().split() for out in ("undisturbed", "killed"))
    in_flight = len(once) // 3 if jobs == 1 else 1  # stages of the one submission that a kill can cost
    assert set(again) == set(once)
    assert len(again) <= len(once) + in_flight * len(KILLS)
