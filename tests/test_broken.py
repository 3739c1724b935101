"""Our own faults: broken, exit status 3, never a zero; and whoever comes next is graded as ever."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest
from click.testing import CliRunner

from grader import cli, expect, submission
from grader import course as courses
from grader.course import Course, Limits, Stage
from grader.errors import SandboxError
from grader.outcome import Outcome, Verdict
from grader.report import EXIT_BROKEN, EXIT_PASSED, Report
from grader.sandbox import confine, folder
from grader.sandbox.host import ForkServer
from grader.sandbox.launch import launch
from grader.session import Options, Session, missing_layers
from grader.stage_host import StageHost
from grader.submission import Submission

needs_confinement = pytest.mark.skipif(bool(missing_layers()), reason=missing_layers() or "it can be had")

COURSE = courses.load(Path(__file__).resolve().parents[1])
STAGE = msgspec.structs.replace(COURSE.stage("stage4"), limits=Limits(check_s=5.0, import_s=10.0))
GONE_S = 20.0


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(COURSE, Options("auto", seed="7")) as session:
        yield session


@pytest.fixture(autouse=True)
def temp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of our own for temporary ones, to see that they go."""
    (tmp_path / "temp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temp"))
    return tmp_path / "temp"


def honest() -> Submission:
    return submission.of_files("good", {STAGE.file: (COURSE.solutions / STAGE.file).read_bytes()})


def verdicts(report: Report) -> list[Verdict]:
    return [outcome.verdict for outcome in report.stages[0].outcomes]


def test_a_check_that_breaks_is_no_zero(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(expect, "bytes_are", lambda *_: {}["nothing there"])
        report = session.grade(honest(), [STAGE])

    assert set(verdicts(report)) == {Verdict.BROKEN}
    assert report.exit_status == EXIT_BROKEN
    assert not report.stages[0].scored
    assert session.grade(honest(), [STAGE]).exit_status == EXIT_PASSED


@needs_confinement
def test_a_fork_server_that_dies_breaks_one_submission_and_no_more(session: Session, temp: Path) -> None:
    def kill(stage: Stage, outcome: Outcome) -> None:
        assert session._started
        session._started.process.kill()
        session._started.process.wait()  # else the next check may still find it

    report = session.grade(honest(), [STAGE], on_outcome=kill)

    assert verdicts(report)[0] is Verdict.PASS
    assert set(verdicts(report)[1:]) == {Verdict.BROKEN}
    assert "fork server is gone" in report.stages[0].outcomes[-1].message
    assert report.exit_status == EXIT_BROKEN
    assert list(temp.iterdir()) == []
    again = session.grade(honest(), [STAGE])
    assert (again.exit_status, again.earned) == (EXIT_PASSED, STAGE.points)


@needs_confinement
def test_a_worker_that_cannot_be_confined_is_our_fault(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(ForkServer, "open", refuse_to_confine)
        report = session.grade(honest(), [STAGE])

    assert set(verdicts(report)) == {Verdict.BROKEN}
    assert "could not be confined" in report.stages[0].outcomes[0].message
    assert session.grade(honest(), [STAGE]).exit_status == EXIT_PASSED


def refuse_to_confine(*args: object, **kwargs: object) -> None:
    raise SandboxError("the worker could not be confined: `landlock` is off")


# ---- reports that are there already


@pytest.fixture
def course(tmp_path: Path) -> Course:
    """A course with one stage, solved."""
    root = tmp_path / "course"
    for name in ("exercises", "tests_public", "hardware_profiles"):
        (root / name).symlink_to(COURSE.root / name) if name != "exercises" else (root / name).mkdir(
            parents=True
        )
    for name in ("gpt2.py", "stages.toml"):
        (root / "exercises" / name).write_bytes((COURSE.exercises / name).read_bytes())
    (root / "exercises" / STAGE.file).write_bytes((COURSE.solutions / STAGE.file).read_bytes())
    return courses.load(root)


class Replay:
    """A session that gives one report, again and again."""

    report: Report

    def __init__(self, *_: object) -> None:
        pass

    def __enter__(self) -> Replay:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def grade(self, *_: object, **__: object) -> Report:
        return self.report


def test_a_broken_report_is_written_beside_a_good_one(
    session: Session, course: Course, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    good = session.grade(honest(), [STAGE])
    with monkeypatch.context() as patch:
        patch.setattr(expect, "bytes_are", lambda *_: {}["nothing there"])
        bad = session.grade(honest(), [STAGE])
    monkeypatch.setattr("grader.session.Session", Replay)
    files = [tmp_path / name for name in ("a.json", "a.html", "a.xml")]
    command = ["--course", str(course.root), "stage4", "--json", str(files[0]), "--html", str(files[1])]
    command += ["--junit", str(files[2])]
    last = course.root / "results" / "last.json"

    statuses, kept = [], []
    for report in (good, bad, bad, good):
        monkeypatch.setattr(Replay, "report", report, raising=False)
        statuses.append(CliRunner().invoke(cli.cli, command).exit_code)
        kept.append([path.read_bytes() for path in (last, *files)])

    assert statuses == [EXIT_PASSED, EXIT_BROKEN, EXIT_BROKEN, EXIT_PASSED]
    assert kept[0] == kept[1] == kept[2]
    beside = [path.with_name(f"{path.stem}.broken{path.suffix}") for path in (last, *files)]
    assert json.loads(beside[0].read_text())["exit_status"] == EXIT_BROKEN
    assert all(path.is_file() for path in beside)


# ---- a grader that is killed


GRADER = """
import sys
from pathlib import Path
from grader import course, submission
from grader.session import Options, Session
import tempfile
tempfile.tempdir = sys.argv[1]
c = course.load(Path(sys.argv[2]))
source = b"import os, time\\nos.fork()\\nwhile True: time.sleep(1)\\n"
with Session(c, Options("confined", seed="7", namespaces=sys.argv[3] == "True")) as session:
    print(session._started.process.pid, flush=True)
    session.grade(submission.of_files("s", {"stage4_memory.py": source}), [c.stage("stage4")])
"""


@needs_confinement
@pytest.mark.parametrize("namespaces", [True, False])
def test_a_grader_that_is_killed_leaves_nothing(namespaces: bool, temp: Path) -> None:
    grader = subprocess.Popen(
        [sys.executable, "-c", GRADER, str(temp), str(COURSE.root), str(namespaces)], stdout=subprocess.PIPE
    )
    with grader:
        assert grader.stdout
        server = psutil.Process(int(grader.stdout.readline()))
        wait_for(lambda: len(server.children(recursive=True)) >= 2)
        below = server.children(recursive=True)
        grader.send_signal(signal.SIGKILL)

    wait_for(lambda: not any(process.is_running() for process in (server, *below)))
    assert list(temp.iterdir()) == []


def wait_for(condition: object) -> None:
    deadline = time.monotonic() + GONE_S
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.02)


@needs_confinement
def test_a_fork_server_that_is_killed_takes_its_hosts_along(temp: Path) -> None:
    source = textwrap.dedent("""
        import os, time
        if os.fork() == 0:
            time.sleep(600)
        def f(): return 1
    """)
    server = ForkServer(launch("main"))
    work = submission.of_files("s", {STAGE.file: source.encode()})
    host = StageHost(COURSE, work, STAGE, server, namespaces=True)
    try:
        assert host.student(None).f() == 1
        below = psutil.Process(server.process.pid).children(recursive=True)
        assert below
        os.kill(server.process.pid, signal.SIGKILL)
        wait_for(lambda: not any(process.is_running() for process in below))
    finally:
        host.close()
        server.close()


# ---- folders


@pytest.mark.parametrize("depth", [0, 1, 1500])
def test_a_workers_folder_goes_whatever_is_in_it(depth: int, temp: Path) -> None:
    place = folder.make()
    (place / "scratch" / "locked").mkdir(mode=0)
    (place / "scratch" / "link").symlink_to(COURSE.root)
    open(os.fsencode(place / "scratch") + b"/\xff\n", "w").close()
    here = os.open(place / "scratch", os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)

    folder.remove(place)

    assert list(temp.iterdir()) == []
    assert COURSE.exercises.is_dir(), "no link is followed"
    folder.remove(place)  # once more does no harm


def test_the_limits_on_one_process_are_below_those_on_all() -> None:
    assert confine.MAX_FILE_BYTES <= confine.SCRATCH_MIB << 20
