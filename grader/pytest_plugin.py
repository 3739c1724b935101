"""The marker for checks, and the bridge from pytest's items to outcomes.

When `session.grade` runs pytest, it registers a `Grading` plugin. What a check is handed is in `fixtures`.
"""

from __future__ import annotations

import hashlib
import hmac
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from grader.outcome import Check, Outcome, Part, Verdict, Visibility
from grader.timing import Inconclusive

if TYPE_CHECKING:
    from grader.course import Course, Stage
    from grader.diagnosis import Doctor
    from grader.hardware import HardwareProfile
    from grader.machine import Machine

PUBLIC_SEED = b"public"
SEED_BYTES = 7
GRADING = pytest.StashKey["Grading"]()
METRICS = pytest.StashKey[dict[str, Any]]()
REPLAY = pytest.StashKey["Replay"]()

pytest_plugins = ("grader.fixtures",)


class Replay:
    """A clock for pytest-benchmark: two readings of it are as far apart as what was measured already."""

    def __init__(self) -> None:
        self.now_s, self.seconds, self.running = 0.0, list[float](), False

    def __call__(self) -> float:
        if self.running:
            self.now_s += self.seconds.pop(0)
        self.running = not self.running
        return self.now_s


class Grading:
    """What one grading run tells the fixtures, and what it hears back from pytest."""

    def __init__(
        self,
        course: Course,
        stages: dict[Path, Stage],
        student: Callable[[Stage, Machine | None], Any],
        finish: Callable[[], str],
        seed: Callable[[str], int],
        profile: HardwareProfile,
        part: Part,
        on_planned: Callable[[dict[str, list[Check]]], None],
        on_outcome: Callable[[Stage, Outcome], None],
    ) -> None:
        self.course, self.stages, self.student, self.finish, self.seed = course, stages, student, finish, seed
        self.profile, self.part = profile, part
        self.on_planned, self.on_outcome = on_planned, on_outcome
        self.checks: dict[str, tuple[Stage, Check]] = {}
        self.collect_errors: list[str] = []
        self.found: set[str] = set()
        self.interrupted = False
        self.failure: BaseException | None = None
        self._begun = 0.0
        self._ended: dict[str, Outcome] = {}
        self._doctors: dict[str, Doctor] = {}

    def pytest_configure(self, config: pytest.Config) -> None:
        config.stash[GRADING] = self
        config.option.tbstyle = "native"  # nobody reads it, and pytest's own parses a file for every frame

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        self.interrupted = excinfo.type is KeyboardInterrupt  # pytest's own Interrupted is a subclass

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            lines = report.longreprtext.strip().splitlines()
            reasons = [line[1:].strip() for line in lines if line.startswith("E ")]
            self.collect_errors.append(f"`{report.nodeid}`: {(reasons or lines or ['no reason given'])[-1]}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_ignore_collect(self) -> bool:
        """Pass over whatever lies beside the files that pytest was told, of which it does not ask."""
        return True

    @pytest.hookimpl(trylast=True)  # after the public ones
    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> Unsealed | None:
        """Collect a stage's hidden checks with its public ones, where those are nowhere on disk."""
        stage = self.stages.get(file_path)
        hidden = self.course.hidden_tests(stage) if stage else None
        if hidden is None or hidden not in self.stages or self.course.unsealed(hidden) is None:
            return None
        name = f"{hidden.parent.name}/{hidden.name}"  # pytest wants the path that it was told
        return Unsealed.from_parent(parent, path=file_path, nodeid=name, source=self.course.read(hidden))

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        self.found = {self.stages[item.path].slug for item in items}
        if self.part is not Part.ALL:
            items[:] = [item for item in items if _by_the_clock(item) is (self.part is Part.TIMED)]

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        planned: dict[str, list[Check]] = {stage.slug: [] for stage in self.stages.values()}
        for item in session.items:
            stage = self.stages[item.path]
            check = check_of(item, stage, self.course)
            self.checks[item.nodeid] = stage, check
            planned[stage.slug].append(check)
        self.on_planned(planned)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self) -> None:
        self._begun = time.perf_counter()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
        """Judge each phase; the first that did not pass decides."""
        from grader import diagnosis

        report = yield
        stage, check = self.checks[item.nodeid]
        if call.excinfo is not None and item.nodeid not in self._ended:
            verdict, message, trace = judge(call.excinfo.value)
            if verdict is Verdict.FAIL and not stage.uses:  # there a known bug is what is asked for
                doctor = self._doctors.setdefault(stage.slug, diagnosis.Doctor())
                check, message, trace = explain(doctor, call.excinfo.value, item, check, message, trace)
            self._ended[item.nodeid] = Outcome(check, verdict, 0.0, message, trace)
        if call.when == "teardown":
            self._finish(item, stage, check)
        return report

    def _finish(self, item: pytest.Item, stage: Stage, check: Check) -> None:
        seconds = time.perf_counter() - self._begun
        found = self._ended.pop(item.nodeid, Outcome(check, Verdict.PASS))
        metrics = item.stash.get(METRICS, {})
        outcome = Outcome(
            check, found.verdict, seconds, found.message, found.traceback, self.finish(), metrics
        )
        try:
            self.on_outcome(stage, outcome)
        except (Exception, SystemExit) as error:  # nobody listens; pytest would call it an internal error
            self.failure = error
            item.session.shouldstop = "nobody listens"


class Unsealed(pytest.Module):
    """A file of checks that is in memory only."""

    def __init__(self, *, source: bytes, **settings: Any) -> None:
        super().__init__(**settings)
        self.source = source

    def _getobj(self) -> ModuleType:
        module = ModuleType(self.nodeid.removesuffix(".py").replace("/", "."))
        try:
            exec(compile(self.source, self.nodeid, "exec", dont_inherit=True), vars(module))
        except Exception as error:
            raise self.CollectError(f"E {type(error).__name__}: {error}") from error
        return module


def _by_the_clock(item: pytest.Item) -> bool:
    marker = item.get_closest_marker("check")
    return bool(marker and marker.kwargs.get("clock"))


def judge(error: BaseException) -> tuple[Verdict, str, str]:
    """Say whose fault an exception in a check is: its verdict, the message and the traceback to keep."""
    from grader.sandbox.remote import StudentFault

    where = _test_line(error)
    if isinstance(error, StudentFault):
        return error.verdict, str(error), "\n".join(filter(None, (error.traceback, where)))
    if isinstance(error, Inconclusive):
        return Verdict.INCONCLUSIVE, str(error), where
    if isinstance(error, pytest.skip.Exception):
        return Verdict.SKIP, str(error), ""
    if isinstance(error, AssertionError | pytest.fail.Exception):
        return Verdict.FAIL, str(error) or "the check's condition does not hold", where
    if isinstance(error, NotImplementedError):
        return Verdict.TODO, str(error), where
    full = "".join(traceback.format_exception(error))
    return Verdict.BROKEN, f"the check itself failed: {type(error).__name__}: {error}", full


def explain(
    doctor: Doctor, error: BaseException, item: pytest.Item, check: Check, message: str, trace: str
) -> tuple[Check, str, str]:
    """Add the known bug that explains a failed check, if there is one; a fault in looking costs nothing.

    A hidden check's category, which a student may see, becomes the bug's kind.
    """
    try:
        found = doctor.diagnose(error)
    except Exception as fault:
        return check, message, f"{trace}\n(no diagnosis: {type(fault).__name__}: {fault})"
    if found is None:
        return check, message, trace
    item.stash.setdefault(METRICS, {})["diagnosis"] = found.name
    if check.visibility is Visibility.HIDDEN:
        check = replace(check, category=found.kind)
    return check, f"{message}\nThis is a known bug: {found.words}.", trace


def _test_line(error: BaseException) -> str:
    """The line of the test file that an exception passed through."""
    frames = [
        f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).name.startswith("test_")
    ]
    return (
        f"{Path(frames[-1].filename).parent.name}/{Path(frames[-1].filename).name}:{frames[-1].lineno}"
        if frames
        else ""
    )


def check_of(item: pytest.Item, stage: Stage, course: Course) -> Check:
    """Read a test item as a check: id from its name, title from its docstring, weight from its marker."""
    marker = item.get_closest_marker("check")
    options = dict(marker.kwargs) if marker else {}
    name = getattr(item, "originalname", item.name).removeprefix("test_")
    variant = item.callspec.id if hasattr(item, "callspec") else ""
    doc = (getattr(item, "function", None).__doc__ or name.replace("_", " ")).strip()
    title = doc.splitlines()[0].rstrip(".") + (f" ({variant})" if variant else "")
    hidden = item.path == course.hidden_tests(stage) or item.getparent(Unsealed) is not None
    return Check(
        f"{stage.slug}.{name}" + (f"[{variant}]" if variant else ""),
        title,
        Visibility.HIDDEN if hidden else Visibility.PUBLIC,
        float(options.get("weight", 1)),
        str(options.get("category", "")),
    )


def seed_number(secret: bytes, submission_digest: str, check_id: str) -> int:
    """HMAC-SHA-256 of digest and check id: unpredictable without the secret, the same on a regrade."""
    mac = hmac.new(secret, f"{submission_digest}\0{check_id}".encode(), hashlib.sha256)
    return int.from_bytes(mac.digest()[:SEED_BYTES], "little")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "check(weight, category, clock): a graded check; clock: by the clock")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Skip, in an editor, what a noisy machine could not judge: pytest has no verdict for it."""
    try:
        return (yield)
    except Inconclusive as error:
        if GRADING in item.config.stash:
            raise
        pytest.skip(str(error))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let a student's warnings be, as grading does, however strict the course's own tests are.

    And let pytest-benchmark, where it is there, carry the checks by the clock.
    """
    if GRADING in config.stash:
        return
    for item in items:
        if item.path.parent.name in ("tests_public", "tests_hidden"):
            item.add_marker(pytest.mark.filterwarnings("default"))
            if _by_the_clock(item) and config.pluginmanager.hasplugin("pytest-benchmark"):
                item.stash[REPLAY] = Replay()
                item.add_marker(pytest.mark.benchmark(timer=item.stash[REPLAY], group="latency"))
                item.fixturenames.append("benchmark")  # type: ignore[attr-defined]
