"""The doctor: says what this machine and this copy of the course can do, area by area."""

from __future__ import annotations

import platform
import sys
from importlib import metadata

from grader import hardware
from grader.course import Course
from grader.errors import CourseError, SandboxError

Finding = tuple[str, str, str]
"""An area, how it is (`ok`, `warn`: works with less, `off`: does not work), and what that means."""

NEEDED = (
    "torch",
    "numpy",
    "safetensors",
    "pytest",
    "click",
    "rich",
    "jinja2",
    "msgspec",
    "psutil",
    "watchfiles",
)
OPTIONAL = {"transformers": "hf", "matplotlib": "plots", "nbgrader": "nbgrader"}
OLDEST_PYTHON = (3, 11)
BUSY_PER_CORE = 0.5
FREE_MEMORY_GIB = 1.0


def examine(course: Course) -> list[Finding]:
    """Look at everything a run needs, and at what it can use where it is there."""
    return [
        _python(),
        *_packages(),
        *_course(course),
        *_isolation(),
        *_machine(),
        _profile(course),
        *_devices(),
    ]


def _profile(course: Course) -> Finding:
    try:
        profile, reason = hardware.choose(hardware.load_all(course.profiles), hardware.this_machine())
    except CourseError as error:
        return "profile", "off", str(error)
    return "profile", "ok", f"`{profile.name}` ({reason}): {profile.summary}"


def _python() -> Finding:
    version = platform.python_version()
    if sys.version_info < OLDEST_PYTHON:
        return "python", "off", f"{version}; the course needs 3.11 or later"
    return "python", "ok", f"{version} at {sys.executable}"


def _packages() -> list[Finding]:
    missing = [name for name in NEEDED if not _version(name)]
    found: list[Finding] = [
        ("packages", "ok", ", ".join(f"{n} {_version(n)}" for n in NEEDED if n not in missing))
    ]
    if missing:
        found.append(
            ("packages", "off", f"missing: {', '.join(missing)}; run `pip install -e .` in the course")
        )
    for name, extra in OPTIONAL.items():
        version = _version(name)
        advice = f"not installed, and only needed by the extra `{extra}`: `pip install -e '.[{extra}]'`"
        found.append((name, "ok" if version else "warn", version or advice))
    return found


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def _course(course: Course) -> list[Finding]:
    found: list[Finding] = [("course", "ok", f"{course.title} {course.version} at {course.root}")]
    needed = [course.given, *(course.public_tests(stage) for stage in course.stages)]
    for path in needed:
        if not path.is_file():
            found.append(("course", "off", f"`{path}` is missing; restore it from the course"))
    unwritten = [stage.file for stage in course.stages if not (course.exercises / stage.file).is_file()]
    if unwritten:
        found.append(("exercises", "warn", f"missing: {', '.join(unwritten)}; restore them from the course"))
    hidden = sum(course.has(course.hidden_tests(stage)) for stage in course.stages)
    text = f"for {hidden} of {len(course.stages)} stages" if hidden else "not here: this is a student's copy"
    return [*found, ("hidden checks", "ok", text)]


def _isolation() -> list[Finding]:
    """What confines a worker on this machine, found out by confining one."""
    from grader.session import missing_layers

    if missing := missing_layers():
        return [("isolation", "warn", f"`process`, since `confined` can't be had: {missing}")]
    try:
        layers = _layers_of_a_worker()
    except SandboxError as error:
        return [("isolation", "off", f"{error}; `--isolation process` does with less")]
    whole = all(state.startswith("on") for state in layers.values())
    summary = "`confined`" if whole else "`confined`, but not by every layer"
    found: list[Finding] = [("isolation", "ok" if whole else "warn", summary)]
    for name, state in layers.items():
        found.append((f"isolation: {name}", "ok" if state.startswith("on") else "warn", state))
    return found


def _layers_of_a_worker() -> dict[str, str]:
    from grader.sandbox.confine import probe_layers

    return probe_layers()


def _machine() -> list[Finding]:
    import psutil

    cores = psutil.cpu_count() or 1
    load = psutil.getloadavg()[0]
    free_gib = psutil.virtual_memory().available / 2**30
    system = f"{platform.system()} {platform.machine()}, {cores} cores"
    busy = load > BUSY_PER_CORE * cores
    return [
        ("machine", "ok", system),
        ("load", "warn" if busy else "ok", f"{load:.2f}" + ("; timings will be noisy" if busy else "")),
        ("memory", "ok" if free_gib >= FREE_MEMORY_GIB else "warn", f"{free_gib:.1f} GiB free"),
    ]


def _devices() -> list[Finding]:
    """What torch can run on besides the CPU; the one finding that has to import torch."""
    try:
        import torch
    except ImportError as error:
        return [("torch", "off", f"can't be imported: {error}")]
    if torch.cuda.is_available():
        return [("device", "ok", f"cuda: {torch.cuda.get_device_name()}")]
    if torch.backends.mps.is_available():
        return [("device", "ok", "mps: Apple GPU")]
    return [("device", "ok", f"cpu only, {torch.get_num_threads()} threads")]
