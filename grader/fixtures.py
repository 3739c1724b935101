"""What a check can ask for: the student's file, the oracle, random numbers, a pretended machine, a race.

Under plain `pytest tests_public` the student's file is imported in process, with real tracebacks. When
`session.grade` runs pytest, the same checks get a remote module that answers from the worker.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from grader.outcome import Verdict
from grader.pytest_plugin import GRADING, METRICS, PUBLIC_SEED, REPLAY, seed_number

if TYPE_CHECKING:
    import torch

    from grader.course import Course
    from grader.hardware import HardwareProfile
    from grader.latency import Race
    from grader.machine import Machine
    from grader.steps import Loop


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
    return imported(given)


def imported(path: Path) -> ModuleType:
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
def student(request: pytest.FixtureRequest) -> Iterator[Any]:
    """The student's stage file: a remote module when graded, the module itself under plain pytest."""
    if _course(request).given.is_file():
        request.getfixturevalue("oracle")  # in process the student's `import gpt2` is to find ours
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
def race(request: pytest.FixtureRequest, loop: Loop, small: Any, rng: torch.Generator) -> Iterator[Race]:
    """That loop against the uncached one, by the clock; pytest-benchmark, if there, gets its seconds."""
    import torch

    from grader.latency import Race

    carrier = request.getfixturevalue("benchmark") if REPLAY in request.node.stash else None
    threads = torch.get_num_threads()
    torch.set_num_threads(
        1
    )  # as in the worker: more would help the longer text, and hinder the single position
    timed = Race(loop, small, rng)
    yield timed
    torch.set_num_threads(threads)
    if carrier is not None and timed.seconds:
        request.node.stash[REPLAY].seconds = list(timed.seconds)
        carrier.pedantic(int, rounds=len(timed.seconds))


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
        why = (
            "is not there"
            if "FileNotFoundError" in f"{type(error)} {error}"
            else f"is not right yet: {error}"
        )
        pytest.skip(f"this builds on your own `{name}.py`, which {why}")
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
