"""`grade batch --scheduler`: the same results from workers that differ, die, or are not there."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from grader import course as courses
from grader import marking, outpost
from grader.cli import cli
from grader.course import Course
from grader.errors import CourseError, SandboxError
from grader.faults import Mistake
from grader.outcome import Part
from grader.outpost import About, Answer, Parcel
from grader.report import Machine, Report, from_json
from grader.results import Conditions
from grader.session import Options, missing_layers
from grader.submission import of_files

distributed = pytest.importorskip("distributed", reason="the extra `cluster` is not installed")

from grader import cluster  # noqa: E402
from grader.cluster import Cluster  # noqa: E402

MANIFEST = '[course]\ntitle = "Tiny"\nversion = "1"\n' + "".join(
    f'[[stage]]\nslug = "stage{n}"\ntitle = "S"\nfile = "stage{n}_part.py"\npoints = 10\nhidden_points = 0\n'
    'summary = "s"\nhints = ["a", "b", "c"]\n'
    for n in (1, 2)
)
CHECK = '''
import os, pathlib, pytest, signal

KILLED = pathlib.Path(__file__).with_name("killed")

@pytest.mark.check(clock={clock})
def test_answer(student):
    """The answer is right; the first worker that hears 13 dies."""
    answer = student.answer()
    if answer == 13 and not KILLED.exists():
        KILLED.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    assert answer == 42, f"{{answer}} is not 42"
'''
CLASS = {"ada": 42, "bob": 42, "cyd": 13, "dan": 7, "eve": 42}
CONDITIONS = Conditions("d" * 64, "1", "given:s", "confined", "p", False)
WORK = of_files("ada", {"stage1_part.py": b""})


@pytest.fixture
def course(tmp_path: Path) -> Course:
    """Two stages, of which the second has a check by the clock."""
    root = tmp_path / "course"
    for folder in ("exercises", "tests_public", "hardware_profiles"):
        (root / folder).mkdir(parents=True)
    (root / "exercises" / "stages.toml").write_text(MANIFEST)
    (root / "exercises" / "gpt2.py").write_text("class Config:\n    pass\n")
    for number, clock in ((1, False), (2, True)):
        (root / "tests_public" / f"test_stage{number}_part.py").write_text(CHECK.format(clock=clock))
    return courses.load(root)


@pytest.fixture
def class_(tmp_path: Path) -> Path:
    for name, answer in CLASS.items():
        folder = tmp_path / "class" / name
        folder.mkdir(parents=True)
        for number in (1, 2):
            (folder / f"stage{number}_part.py").write_text(f"def answer():\n    return {answer}\n")
    return tmp_path / "class"


Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a Dask program in a folder, and wait until it says what it should."""
    started = []

    def run(program: str, *words: str, says: str, cwd: Path) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", f"distributed.cli.dask_{program}", *words, "--no-dashboard"]
        environment = {k: v for k, v in os.environ.items() if k != "GRADE_COURSE"}
        environment |= {"PYTHONPATH": str(Path(cluster.__file__).parents[1])}
        process = subprocess.Popen(command, cwd=cwd, env=environment, stderr=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stderr is not None
        assert any(says in line for line in process.stderr), f"dask {program} ended"
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def scheduler(start: Start, tmp_path: Path) -> str:
    """The address of a scheduler of our own on loopback."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    start("scheduler", "--host", "127.0.0.1", "--port", str(port), says="Scheduler at", cwd=tmp_path)
    return f"tcp://127.0.0.1:{port}"


def worker(start: Start, scheduler: str, root: Path) -> subprocess.Popen[str]:
    options = ("--nthreads", "1", "--no-nanny", "--host", "127.0.0.1")
    return start("worker", scheduler, *options, says="Registered to", cwd=root)


def grade(course: Course, class_: Path, out: str, *options: str) -> Result:
    words = ["--course", str(course.root), "batch", str(class_), "--out", str(class_.parent / out)]
    return CliRunner().invoke(cli, [*words, "--seed", "s", *options])


def reports(class_: Path, out: str) -> dict[str, Report]:
    """Everybody's report, less what differs from run to run (or where somebody edits the grader)."""
    found = {}
    for path in (class_.parent / out).glob("*/report.json"):
        report = from_json(path.read_text(encoding="utf-8"))
        stages = tuple(
            replace(stage, outcomes=tuple(replace(o, seconds=0.0) for o in stage.outcomes))
            for stage in report.stages
        )
        found[path.parent.name] = replace(
            report, stages=stages, seconds=0.0, started="", machine=Machine(), course_digest=""
        )
    return found


@pytest.mark.skipif(bool(missing_layers()), reason=f"confined can't be had: {missing_layers()}")
def test_two_workers_one_killed_half_way_grade_as_one_machine_does(
    course: Course, class_: Path, start: Start, scheduler: str
) -> None:
    workers = [worker(start, scheduler, course.root) for _ in range(2)]
    done = grade(course, class_, "there", "--scheduler", scheduler)
    assert done.exit_code == 1, done.output
    assert sorted(process.poll() or 0 for process in workers) == [-9, 0]
    assert grade(course, class_, "here", "--jobs", "1").exit_code == 1
    assert reports(class_, "there") == reports(class_, "here")
    assert {name: report.earned for name, report in reports(class_, "there").items()} == {
        name: 20.0 * (answer == 42) for name, answer in CLASS.items()
    }


def test_a_worker_of_another_course_is_refused_before_anything_is_graded(
    course: Course, class_: Path, start: Start, scheduler: str
) -> None:
    other = class_.parent / "other"
    shutil.copytree(course.root, other)
    (other / "tests_public" / "test_stage1_part.py").write_text(CHECK.format(clock=False) + "# newer\n")
    worker(start, scheduler, other)
    done = grade(course, class_, "out", "--scheduler", scheduler)
    assert done.exit_code == 2
    assert "the worker `tcp://127.0.0.1:" in done.stderr
    assert course.digest[:12] in done.stderr
    assert courses.load(other).digest[:12] in done.stderr
    assert not (class_.parent / "out").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--scheduler", "tcp://127.0.0.1:1"), "no Dask scheduler answers at `tcp://127.0.0.1:1`"),
        (("--scheduler", "nonsense"), "no Dask scheduler answers at `nonsense`"),
        (("--scheduler", "tcp://127.0.0.1:1", "--isolation", "process"), "reach the scheduler"),
    ],
    ids=["nobody", "nonsense", "isolation"],
)
def test_a_cluster_that_cannot_be_had_is_one_line(
    options: tuple[str, ...], said: str, course: Course, class_: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "ANSWERS_WITHIN_S", 0.2)
    done = grade(course, class_, "out", *options)
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert said in done.stderr


def test_without_dask_it_says_what_to_install(
    course: Course, class_: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    done = grade(course, class_, "out", "--scheduler", "tcp://127.0.0.1:1")
    assert (done.exit_code, done.stderr) == (2, f"grade: {cluster.INSTALL}\n")


# Without processes: what comes of each answer


class FakeClient:
    """Answers each task with the next of these, or raises it; None goes on until it is cancelled."""

    def __init__(self, *answers: Answer | BaseException | None) -> None:
        self.answers = list(answers)
        self.parcels: list[bytes] = []

    def submit(self, function: object, packed: bytes, **_: object) -> FakeTask:
        self.parcels.append(packed)
        return FakeTask(self.answers.pop(0))

    def cancel(self, tasks: list[FakeTask]) -> None:
        for task in tasks:
            task.cancel()


class FakeTask:
    def __init__(self, answer: Answer | BaseException | None) -> None:
        self.answer = answer
        self.is_cancelled = threading.Event()

    def result(self) -> bytes:
        if self.answer is None:
            assert self.is_cancelled.wait(10)
            raise asyncio.CancelledError
        if isinstance(self.answer, BaseException):
            raise self.answer
        return msgspec.msgpack.encode(self.answer)

    def cancel(self) -> None:
        self.is_cancelled.set()


def killed() -> BaseException:
    return distributed.KilledWorker("task", "worker", 3)


def ended(grader: marking.Grader, name: str) -> str:
    """How the grading of one submission ended that has no report."""
    with pytest.raises(SandboxError) as error:
        grader.grade(WORK, grader.course.stages[:1], Part.ALL)
    return str(error.value)


def ask(client: FakeClient, course: Course, names: str = "a") -> dict[str, str]:
    """Have each name graded by the fake workers: how it ended."""
    workers = Cluster(client, "tcp://x:1", CONDITIONS, 1)  # type: ignore[arg-type]
    return dict(workers.run(course, Options(seed="s"), ended, names, lost=lambda name: f"lost {name}"))


def test_what_kills_worker_after_worker_is_lost_and_nothing_else_is(course: Course) -> None:
    found = ask(FakeClient(killed(), Answer(failed="no room")), course, "ab")
    assert sorted(map(str, found.values())) in (["lost a", "no room"], ["lost b", "no room"])


@pytest.mark.parametrize(
    ("answer", "error", "said"),
    [
        (Answer(refused="the worker `tcp://y:2` has another course"), Mistake, "tcp://y:2"),
        (Answer(wrong_course="no checks"), CourseError, "no checks"),
        (ImportError("No module named 'grader'"), Mistake, "a worker can't run the grader"),
        (OSError("connection lost"), Mistake, "`tcp://x:1` is gone"),
    ],
    ids=["refused", "course", "import", "scheduler"],
)
def test_what_is_no_submissions_fault_ends_the_batch(
    answer: Answer, error: type[Exception], said: str, course: Course
) -> None:
    with pytest.raises(error, match=said):
        ask(FakeClient(answer, answer, answer), course, "abc")


def test_leaving_early_waits_for_nobody(course: Course) -> None:
    workers = Cluster(FakeClient(Answer(), None, None), "tcp://x:1", CONDITIONS, 1)  # type: ignore[arg-type]
    going = workers.run(course, Options(seed="s"), ended, "abc", lost=str)
    next(going)
    going.close()
    assert workers.fault is None


def test_names_and_notes_stay_here(course: Course) -> None:
    client = FakeClient(Answer(failed="x"))
    ask(client, course)
    parcel = msgspec.msgpack.decode(client.parcels[0], type=Parcel)
    assert (parcel.digest, parcel.files) == (WORK.info.digest, WORK.files)
    assert b"ada" not in client.parcels[0]


def about(**changed: object) -> bytes:
    return msgspec.msgpack.encode(About(replace(CONDITIONS, **changed)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("second", "said"),
    [
        (about(grader_version="2"), "`tcp://b:1` has another grader: `2`, here it is `1`"),
        (about(seed_id="secret:x"), "another seed secret"),
        (about(profile="q"), "--profile NAME"),
        (ModuleNotFoundError("No module named 'grader'"), "can't grade: ModuleNotFoundError"),
    ],
    ids=["version", "secret", "profile", "no grader"],
)
def test_workers_must_agree(second: object, said: str) -> None:
    with pytest.raises(Mistake, match=said):
        cluster._agreed({"tcp://a:1": about(), "tcp://b:1": second}, Options(seed="s"), CONDITIONS)


def test_the_workers_profile_counts_and_not_this_machines() -> None:
    agreed = cluster._agreed({"tcp://a:1": about(profile="q")}, Options(seed="s"), CONDITIONS)
    assert agreed.profile == "q"


def test_a_damaged_submission_is_not_graded(course: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADE_COURSE", str(course.root))
    bench = outpost.Bench()
    parcel = Parcel("0" * 64, WORK.files, ("stage1",), Part.ALL, Options(seed="s"), CONDITIONS, False)
    with pytest.raises(SandboxError, match="damaged on its way"):
        bench.grade(parcel)


def test_a_course_that_changes_under_a_worker_is_noticed(
    course: Course, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRADE_COURSE", str(course.root))
    bench = outpost.Bench()
    (course.root / "tests_public" / "test_stage1_part.py").write_text("# newer\n")
    with pytest.raises(CourseError, match="start it again"):
        bench.conditions(Options("process", seed="s"))


def test_a_worker_without_the_secret_makes_none(course: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    (course.root / "tests_hidden").mkdir()
    monkeypatch.setenv("GRADE_COURSE", str(course.root))
    with pytest.raises(CourseError, match="copy it there"):
        outpost.Bench().conditions(Options("process"))
    assert not course.seed_secret.exists()


def test_whoever_times_is_alone_on_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outpost.tempfile, "tempdir", str(tmp_path))
    with outpost._alone():
        (lock,) = tmp_path.iterdir()
        with lock.open() as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with lock.open() as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
