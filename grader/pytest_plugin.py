"""Fixtures and the marker for checks, and the bridge from pytest's items to outcomes.

Under plain `pytest tests_public` the student's file is imported in process, with real tracebacks. When
`session.grade` runs pytest, it registers a `Grading` plugin, and the same tests get a remote module that
answers from the worker.
"""

from __future__ import annotations

import hashlib
import hmac
import sys
import time
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from grader.outcome import Check, Outcome, Verdict, Visibility
from grader.timing import Inconclusive

if TYPE_CHECKING:
    import torch

    from grader.course import Course, Stage
    from grader.diagnosis import Doctor
    from grader.hardware import HardwareProfile
    from grader.machine import Machine
    from grader.steps import Loop

PUBLIC_SEED = b"public"
SEED_BYTES = 7
GRADING = pytest.StashKey["Grading"]()
METRICS = pytest.StashKey[dict[str, Any]]()


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
        clocked: bool,
        on_planned: Callable[[dict[str, list[Check]]], None],
        on_outcome: Callable[[Stage, Outcome], None],
    ) -> None:
        self.course, self.stages, self.student, self.finish, self.seed = course, stages, student, finish, seed
        self.profile, self.clocked = profile, clocked
        self.on_planned, self.on_outcome = on_planned, on_outcome
        self.checks: dict[str, tuple[Stage, Check]] = {}
        self.collect_errors: list[str] = []
        self.interrupted = False
        self.failure: BaseException | None = None
        self._begun = 0.0
        self._ended: dict[str, Outcome] = {}
        self._doctors: dict[str, Doctor] = {}

    def pytest_configure(self, config: pytest.Config) -> None:
        config.stash[GRADING] = self

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        self.interrupted = excinfo.type is KeyboardInterrupt  # pytest's own Interrupted is a subclass

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            reasons = [line[1:].strip() for line in report.longreprtext.splitlines() if line.startswith("E ")]
            self.collect_errors.append(
                f"`{report.nodeid}`: {reasons[-1] if reasons else report.longreprtext}"
            )

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if not self.clocked:
            items[:] = [item for item in items if not _by_the_clock(item)]

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
            if verdict is Verdict.FAIL:
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
    hidden = item.path == course.hidden_tests(stage)
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


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let a student's warnings be, as grading does, however strict the course's own tests are."""
    for item in items:
        if GRADING not in config.stash and item.path.parent.name in ("tests_public", "tests_hidden"):
            item.add_marker(pytest.mark.filterwarnings("default"))


# Fixtures


def _course(request: pytest.FixtureRequest) -> Course:
    from grader import course

    grading = request.config.stash.get(GRADING, None)
    return grading.course if grading else course.find(Path(request.path).parent)


@pytest.fixture(scope="session")
def oracle(request: pytest.FixtureRequest) -> ModuleType:
    """The given, uncached GPT-2: always the course's own `exercises/gpt2.py`."""
    grading = request.config.stash.get(GRADING, None)
    from grader import course

    given = (grading.course if grading else course.find(request.config.rootpath)).given
    return _imported(given)


def _imported(path: Path) -> ModuleType:
    """Import a file of ours by its stem, once."""
    loaded = sys.modules.get(path.stem)
    if loaded is not None and loaded.__file__ == str(path):
        return loaded
    import importlib.util

    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> torch.Generator:
    """Random numbers of this check's own: the same on a regrade, unknown to the student where hidden."""
    import torch

    grading = request.config.stash.get(GRADING, None)
    if grading:
        seed = grading.seed(grading.checks[request.node.nodeid][1].id)
    else:
        seed = seed_number(PUBLIC_SEED, "", request.node.name)
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def metrics(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Figures that go into the report beside the verdict."""
    figures: dict[str, Any] = request.node.stash.setdefault(METRICS, {})
    return figures


@pytest.fixture
def machine() -> Machine:
    """A pretend machine for `timed_steps`, in place before the student's file is imported."""
    from grader.machine import Machine

    return Machine()


@pytest.fixture
def student(request: pytest.FixtureRequest, oracle: ModuleType) -> Iterator[Any]:
    """The student's stage file: a remote module when graded, the module itself under plain pytest."""
    pretend = request.getfixturevalue("machine") if "machine" in request.fixturenames else None
    grading = request.config.stash.get(GRADING, None)
    if grading:
        yield grading.student(grading.checks[request.node.nodeid][0], pretend)
    else:
        yield from _local_student(request, pretend)


@pytest.fixture
def own_stage1(request: pytest.FixtureRequest, student: Any, oracle: ModuleType) -> Any:
    """The student's own stage 1, which the stage builds on: unless it is right the check is skipped."""
    from grader import claims

    return _own(student, _course(request).stage("stage1").name, partial(claims.stage1_stands, oracle=oracle))


@pytest.fixture
def own_stage2(request: pytest.FixtureRequest, student: Any, oracle: ModuleType) -> Any:
    """The student's own stage 2, in the same way."""
    from grader import claims

    return _own(student, _course(request).stage("stage2").name, partial(claims.stage2_stands, oracle=oracle))


@pytest.fixture
def loop(own_stage1: Any, own_stage2: Any) -> Loop:
    """The student's own loop over their own model."""
    from grader.steps import Loop

    return Loop(own_stage1, own_stage2)


@pytest.fixture
def profile(request: pytest.FixtureRequest) -> HardwareProfile:
    """The hardware profile that timings are held against."""
    from grader import hardware

    grading = request.config.stash.get(GRADING, None)
    if grading:
        return grading.profile
    return hardware.choose(hardware.load_all(_course(request).profiles), hardware.this_machine())[0]


def _own(student: Any, name: str, stands: Callable[[Any], None]) -> Any:
    """Another stage file of the student's; skip unless it is right."""
    from grader.sandbox import worker
    from grader.sandbox.remote import StudentFault

    remote = getattr(student, "is_remote", False)
    faults: tuple[type[Exception], ...] = (AssertionError, StudentFault) if remote else (Exception,)
    try:
        if remote:
            own = student._beside(name)
        else:
            file = Path(student.__file__).with_name(f"{name}.py")
            own = sys.modules.get(name) or worker.import_student(file)
        stands(own)
    except faults as error:
        if isinstance(error, NotImplementedError) or getattr(error, "verdict", None) is Verdict.TODO:
            raise  # not wrong: still to be written, as is all that builds on it
        pytest.skip(f"this builds on your own `{name}.py`, which is not right yet: {error}")
    return own


def _local_student(request: pytest.FixtureRequest, pretend: Machine | None) -> Iterator[ModuleType]:
    """The stage file in `exercises/` that a test file is about; skip where what it builds on is missing."""
    from grader import groundwork

    course = _course(request)
    file = course.exercises / f"{request.path.stem.removeprefix('test_')}.py"
    used: tuple[str, ...] = ()
    for stage in course.stages:
        if stage.file == file.name:
            lack = groundwork.missing(course, stage, {path.name for path in course.exercises.iterdir()})
            if lack:
                pytest.skip(str(lack))
            used = groundwork.beside(course, stage)
    yield from local_student(file, pretend, used)


def local_student(
    file: Path, pretend: Machine | None, used: Sequence[str] = ()
) -> Generator[ModuleType, None, None]:
    """Import a stage file in this process, the pretend machine's fakes in place while it is used.

    The files that it uses lie beside it and can be imported meanwhile, afresh.
    """
    from grader.sandbox import worker

    hooks = pretend.hooks() if pretend else {}
    faked = [worker.install_fake(name, partial(_call, hook)) for name, hook in hooks.items()]
    sys.path.insert(0, str(file.parent))
    try:
        _forget(used)
        yield _imported_student(file, used)
    finally:
        _forget(used)
        sys.path.remove(str(file.parent))
        for parent, name, real in reversed(faked):
            setattr(parent, name, real)


def _forget(used: Sequence[str]) -> None:
    for file in used:
        sys.modules.pop(file.removesuffix(".py"), None)


def _imported_student(file: Path, used: Sequence[str]) -> ModuleType:
    """Import a stage file; skip where one that it uses is to blame for a failure."""
    from grader import groundwork
    from grader.sandbox import worker
    from grader.sandbox.remote import fault_from

    try:
        return worker.import_student(file)
    except Exception as error:
        fault = groundwork.blamed(fault_from(worker.describe(error, file.parent), file.name), used)
        if fault.verdict is Verdict.SKIP:
            pytest.skip(str(fault))
        raise


def _call(hook: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    return hook(*args, **kwargs)


@pytest.fixture(scope="session")
def small(oracle: ModuleType) -> torch.nn.Module:
    """The shipped small model: a trained GPT of the oracle's, float32, in eval mode."""
    model: torch.nn.Module = oracle.GPT.from_pretrained(Path(str(oracle.__file__)).parent / "small")
    return model.eval()


@pytest.fixture(scope="session")
def text() -> Callable[[Any], Any]:
    """Text to the small model's token ids and back: its vocabulary is the 256 bytes."""
    return lambda value: (
        list(value.encode()) if isinstance(value, str) else bytes(value).decode("utf-8", "replace")
    )
