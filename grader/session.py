"""The one path from a submission to a report, for a student, a batch and CI."""

from __future__ import annotations

import datetime
import gc
import hashlib
import os
import platform
import secrets
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from grader import __version__, hardware
from grader.computer import machine_info
from grader.course import Course, Stage
from grader.errors import CourseError, SandboxError
from grader.outcome import Check, Outcome, Part, Verdict
from grader.report import Report, StageResult
from grader.sandbox.launch import launch
from grader.scoring import earned_points, possible_points
from grader.submission import Submission, of_files

if TYPE_CHECKING:
    from grader.machine import Machine
    from grader.sandbox.host import Launcher
    from grader.stage_host import StageHost

UNUSED_PLUGINS = (
    *("cacheprovider", "terminal", "faulthandler", "logging", "warnings", "unraisableexception"),
    *("threadexception", "junitxml", "doctest", "legacypath", "pastebin", "setuponly", "setupplan"),
    *("stepwise", "unittest"),
)
LEVELS = ("auto", "confined", "process", "none")


@dataclass(frozen=True, slots=True)
class Options:
    """How to grade: `namespaces` false confines without them, as on kernels that forbid them."""

    isolation: str = "auto"
    public_only: bool = False
    seed: str | None = None
    profile: str | None = None
    namespaces: bool = True


def _unheard(stage: Stage, what: object) -> None:
    """What nobody wants to hear of a run while it goes on."""


@dataclass(slots=True)
class _Run:
    """What is known so far of one call of `Session.grade`."""

    submission: Submission
    stages: Sequence[Stage]
    part: Part = Part.ALL
    on_start: Callable[[Stage, int], None] = _unheard
    on_outcome: Callable[[Stage, Outcome], None] = _unheard
    planned: dict[str, list[Check]] = field(default_factory=dict)
    outcomes: dict[str, list[Outcome]] = field(default_factory=dict)


class Session:
    """A grader that is warm: torch imported on both sides, ready for one submission after another.

    Use as a context manager. Starting it launches the untrusted side, which loads while the rest does.
    """

    def __init__(self, course: Course, options: Options) -> None:
        self.course, self.options = course, options
        self.level = level_of(options.isolation)
        self.notes = _said_out_loud(options.isolation, self.level)
        if self.level == "confined":
            _vet_place(course.root)
        self._started = launch("main") if self.level == "confined" else None  # loads while the rest does
        self._launcher: Launcher | None = None
        self._host: StageHost | None = None
        try:
            self.secret, self.seed_id = secret_of(course, options)
            here = hardware.this_machine()
            self.profile, _ = hardware.choose(hardware.load_all(course.profiles), here, options.profile)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every process of the untrusted side."""
        self._close_host()
        if self._launcher:
            self._launcher.close()
            self._launcher = None
        elif self._started:
            self._started.control.close()
            self._started.process.kill()
            self._started.process.communicate()
        self._started = None

    def grade(
        self,
        submission: Submission,
        stages: Sequence[Stage],
        part: Part = Part.ALL,
        *,
        on_start: Callable[[Stage, int], None] = _unheard,
        on_outcome: Callable[[Stage, Outcome], None] = _unheard,
    ) -> Report:
        """Run the stages' checks against a submission, or a part of them.

        Raises SandboxError where the untrusted side fails, CourseError where a stage has no checks;
        KeyboardInterrupt passes.
        """
        begun, started = time.monotonic(), datetime.datetime.now(datetime.UTC)
        machine = machine_info()
        run = _Run(submission, stages, part, on_start, on_outcome)
        try:
            self._run_pytest(run)
        finally:
            layers = self._close_host()
        results = tuple(self._result(run, stage) for stage in stages)
        return Report(
            submission=submission.info,
            course_title=self.course.title,
            course_version=self.course.version,
            course_digest=self.course.digest,
            grader_version=__version__,
            seed_id=self.seed_id,
            machine=machine,
            profile=self.profile.name,
            isolation=self.level,
            layers=layers,
            public_only=self.options.public_only,
            started=started.isoformat(timespec="seconds"),
            seconds=time.monotonic() - begun,
            stages=results,
            notes=(*self.notes, *not_carried_forward(stages, results)),
        )

    def planned(self, stages: Sequence[Stage], part: Part = Part.ALL) -> dict[str, list[Check]]:
        """The checks that would run, by stage, or a part of them; none is run.

        Raises CourseError where a stage has no checks.
        """
        run = _Run(of_files("nobody", {}), stages, part)
        self._run_pytest(run, "--collect-only")
        return run.planned

    def first_failure(self, submission: Submission, stage: Stage) -> Outcome | None:
        """Run a stage's checks, but for those by the clock, up to the first that does not pass; return it."""
        run = _Run(submission, [stage], Part.UNTIMED)
        try:
            self._run_pytest(run, "--exitfirst")
        finally:
            self._close_host()
        return next((o for o in run.outcomes[stage.slug] if o.verdict is not Verdict.PASS), None)

    # One pytest run

    def _run_pytest(self, run: _Run, *switches: str) -> None:
        _import_torch()
        import pytest

        from grader.pytest_plugin import Grading, seed_number

        files = {
            path: stage
            for stage in run.stages
            for path in self.course.tests(stage, public_only=self._public(stage))
        }
        for path, stage in files.items():
            if not self.course.has(path):
                raise CourseError(f"stage `{stage.slug}` has no checks: `{path}` is missing")
        grading = Grading(
            self.course,
            files,
            student=partial(self._student, run),
            finish=self._finish_check,
            seed=partial(seed_number, self.secret, self._seeded_by(run.submission)),
            profile=self.profile,
            part=run.part,
            on_planned=partial(_plan, run),
            on_outcome=partial(_note, run),
        )
        for path in files:  # pytest would take a module of this name from another course or an older file
            sys.modules.pop(f"{path.parent.name}.{path.stem}", None)
        with warnings.catch_warnings():  # a warning quotes the line that it comes from, of a hidden check too
            warnings.simplefilter("ignore")
            on_disk = [path for path in files if self.course.unsealed(path) is None]
            status = pytest.main([*_arguments(self.course.root, on_disk), *switches], plugins=[grading])
        if grading.interrupted:
            raise KeyboardInterrupt
        if grading.failure:
            raise grading.failure
        if grading.collect_errors:
            raise CourseError(f"the checks can't be collected: {_quotable(grading.collect_errors[0])}")
        for stage in run.stages:
            if stage.slug not in grading.found:
                raise CourseError(f"stage `{stage.slug}` has no checks")
        endings = pytest.ExitCode
        if status not in (endings.OK, endings.TESTS_FAILED, endings.NO_TESTS_COLLECTED):
            raise SandboxError(f"pytest stopped with status {int(status)}")

    def _seeded_by(self, submission: Submission) -> str:
        """What else the seeds hang on: the submission, or nothing where the secret is public anyway.

        So a student's figures stay the same from save to save, an instructor's differ by student.
        """
        return "" if self.seed_id == "public" else submission.info.digest

    def _public(self, stage: Stage) -> bool:
        return self.options.public_only

    def _student(self, run: _Run, stage: Stage, pretend: Machine | None) -> Any:
        """What the `student` fixture hands to a check: the stage's file behind the chosen transport."""
        from grader.stage_host import StageHost

        if self._host is None or self._host.stage is not stage:
            layers = self._close_host()
            self._host = StageHost(
                self.course, run.submission, stage, self._open_launcher(), self.options.namespaces
            )
            self._host.layers |= layers
        return self._host.student(pretend)

    def _finish_check(self) -> str:
        return self._host.finish_check() if self._host else ""

    def _close_host(self) -> dict[str, str]:
        if self._host is None:
            return {}
        layers, host = self._host.layers, self._host
        self._host = None
        host.close()
        return layers

    def _open_launcher(self) -> Launcher | None:
        if self._launcher and self._launcher.lost:  # what one submission may have done ends no batch
            self._launcher.close()
            self._launcher, self._started = None, launch("main")
        if self._launcher is None and self.level != "none":
            from grader.sandbox.host import ForkServer, Spawner

            self._launcher = ForkServer(self._started) if self._started else Spawner()
        return self._launcher

    def _result(self, run: _Run, stage: Stage) -> StageResult:
        hidden = len(self.course.tests(stage, public_only=self._public(stage))) > 1
        ended = {o.check.id: o for o in run.outcomes.get(stage.slug, [])}
        missing = partial(Outcome, verdict=Verdict.BROKEN, message="the check did not run")
        outcomes = tuple(ended.get(check.id) or missing(check) for check in run.planned[stage.slug])
        return StageResult(
            stage.slug,
            stage.title,
            stage.file,
            earned_points(stage, outcomes, hidden=hidden),
            possible_points(stage, hidden=hidden),
            outcomes,
            scored=not any(o.verdict is Verdict.BROKEN for o in outcomes),
            hidden_points=stage.hidden_points,
        )


@cache
def _import_torch() -> None:
    """Import torch for the trusted side, for its checks' tiny tensors on one thread."""
    gc.disable()  # nothing of an import is garbage, nor worth looking through later
    import torch

    gc.freeze()
    gc.enable()
    torch.set_num_threads(1)


def not_carried_forward(stages: Sequence[Stage], results: Sequence[StageResult]) -> tuple[str, ...]:
    """Say which stages lose points of their own and none for an earlier stage's faults."""
    notes = []
    for number, (stage, result) in enumerate(zip(stages, results, strict=True)):
        wrong = [
            r.slug for r in results[:number] if not r.passed and r.slug not in (*stage.uses, *stage.runs)
        ]
        if wrong and any(o.verdict.counts_against and o.verdict is not Verdict.TODO for o in result.outcomes):
            notes.append(
                f"What {stage.slug} loses is its own: it is graded with the grader's model, so that the "
                f"faults in {', '.join(wrong)} cost nothing there."
            )
    return tuple(notes)


def _plan(run: _Run, planned: dict[str, list[Check]]) -> None:
    run.planned = planned


def _note(run: _Run, stage: Stage, outcome: Outcome) -> None:
    if stage.slug not in run.outcomes:
        run.outcomes[stage.slug] = []
        run.on_start(stage, len(run.planned[stage.slug]))
    run.outcomes[stage.slug].append(outcome)
    run.on_outcome(stage, outcome)


def _quotable(collect_error: str) -> str:
    """What may be said of a file of checks that can't be read: of a hidden one not even its name."""
    if collect_error.lstrip("`").startswith("tests_hidden"):
        return "a hidden file is at fault, `pytest --collect-only tests_hidden` says why"
    return collect_error


def _arguments(root: Path, files: list[Path]) -> list[str]:
    """Pytest as bare as it gets: no configuration, conftest, plugin or cache of anyone's."""
    os.environ["PYTEST_ADDOPTS"] = ""
    switches = [word for name in UNUSED_PLUGINS for word in ("-p", f"no:{name}")]
    return [
        *("-c", os.devnull, f"--rootdir={root}", "--noconftest", "--disable-plugin-autoload"),
        *(
            "-p",
            "grader.pytest_plugin",
            "--assert=plain",
            "--import-mode=importlib",
            "--capture=no",
            *switches,
        ),
        *map(str, files),
    ]


def level_of(wanted: str) -> str:
    """The isolation level to use.

    Raises CourseError for an unknown one, SandboxError where `confined` is asked for and can't be had.
    """
    if wanted not in LEVELS:
        raise CourseError(f"no isolation level `{wanted}`: choose one of {', '.join(LEVELS)}")
    if wanted not in ("auto", "confined"):
        return wanted
    missing = missing_layers()
    if wanted == "confined" and missing:
        raise SandboxError(f"`confined` can't be had here: {missing}; `--isolation process` does with less")
    return "process" if missing else "confined"


def _vet_place(root: Path) -> None:
    """Raise SandboxError where a course lies in a folder that workers can read, such as Python's library."""
    from grader.sandbox.confine import readable_roots

    for folder in readable_roots():
        if root.resolve().is_relative_to(folder.resolve()):
            raise SandboxError(
                f"every worker can read `{folder}`, and the course `{root}` lies in it: move it"
            )


def _said_out_loud(wanted: str, level: str) -> tuple[str, ...]:
    """What a report says of an isolation level that is not the best there is."""
    if wanted == "auto" and level == "process":
        return (f"isolation is `process`, since `confined` can't be had here: {missing_layers()}",)
    return ()


def missing_layers() -> str:
    """Why `confined` can't be had on this machine; empty where it can."""
    if sys.platform != "linux":
        return f"it needs Linux, this is {sys.platform}"
    from grader.sandbox import landlock, seccomp

    if not landlock.abi():
        return "the kernel has no Landlock (5.13 or later, enabled)"
    return "" if seccomp.supported() else f"no seccomp tables for {platform.machine()}"


def secret_of(course: Course, options: Options) -> tuple[bytes, str]:
    """The seed secret and its public name: given, the fixed public one, or the course's own file."""
    from grader.pytest_plugin import PUBLIC_SEED

    if options.seed is not None:
        return options.seed.encode(), f"given:{options.seed}"
    path = course.seed_secret
    if options.public_only or not (course.sealed or path.parent.is_dir()):
        return PUBLIC_SEED, "public"
    if not course.has(path):
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(secrets.token_hex(32).encode())
        except OSError:
            pass
    try:
        secret = course.read(path).strip()
    except OSError as error:
        raise CourseError(f"the seed secret `{path}` can't be read: {error.strerror}") from error
    return secret, "secret:" + hashlib.sha256(b"id" + secret).hexdigest()[:12]
