"""What a built notebook calls in its own kernel: what the answer may import, and one public check at a time.

The check runs as under plain pytest on a laptop: beside the student's code, in one process. So it is a help
and no verdict; the grade is the grader's, which takes the answer out of the notebook and believes no kernel.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from grader import course as courses
from grader import names, notebook, submission
from grader.course import MANIFEST, Course, Stage
from grader.errors import SubmissionError

SHOWN_LINES = 20  # of what the student's code printed
BARE = ("-c", os.devnull, "--noconftest", "--disable-plugin-autoload", "-p", "grader.pytest_plugin")
QUIET = (
    "--assert=plain",
    "--import-mode=importlib",
    "--capture=no",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:terminal",
)


class NotPassed(AssertionError):
    """A check did not pass, and why."""


def begin(slug: str) -> None:
    """Put in reach what a stage's answer may import: `gpt2`, and the student's own earlier stages it uses."""
    course = courses.find(Path.cwd())
    sys.path.insert(0, str(course.exercises))
    if own := _own(course, course.stage(slug)):
        folder = tempfile.mkdtemp(prefix="kvgrade-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        for name, content in own.items():
            (Path(folder) / name).write_bytes(content)
        sys.path.insert(0, folder)


def check(
    name: str, answer: Sequence[str], executed: Sequence[str] | None = None, *, hidden: str = ""
) -> None:
    """Run one public check, `stage2.first_mismatch`, on the last cell run that defines all of `answer`.

    `hidden` is the text of the file that a hidden check is in. Raises NotPassed with the check's message;
    otherwise returns nothing, for which nbgrader gives all points.
    """
    course = courses.find(Path.cwd())
    slug, _, function = name.partition(".")
    stage = course.stage(slug)
    text = _answer(_executed() if executed is None else executed, answer, stage)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        _lay_out(course, stage, root, {**_own(course, stage), stage.file: text.encode()})
        tests = course.hidden_tests(stage) if hidden else course.public_tests(stage)
        file = root / tests.relative_to(course.root)
        if hidden:
            file.parent.mkdir()
            file.write_text(hidden, encoding="utf-8")
        fault, said = _run(root, f"{file}::test_{function}")
    if said:
        print("\n".join(said.splitlines()[-SHOWN_LINES:]))
    if fault:
        raise NotPassed(fault) from None


def _executed() -> list[str]:
    """What was executed in this kernel so far, as it was typed."""
    shell = vars(sys.modules["__main__"])["get_ipython"]()
    return list(shell.history_manager.input_hist_raw)


def _answer(executed: Sequence[str], answer: Sequence[str], stage: Stage) -> str:
    for at in reversed(range(len(executed))):
        if set(answer) <= names.bound(notebook.without_magics(executed[at])[0]):
            return notebook.stage_file([notebook.Cell("code", text) for text in executed], at)[0]
    wanted = ", ".join(f"`{name}`" for name in answer)
    raise NotPassed(f"no cell that was run defines {wanted}: run the cell `{stage.name}` first")


def _own(course: Course, stage: Stage) -> dict[str, bytes]:
    """The student's own earlier stages that this one builds on, from the notebooks beside it."""
    needed = {course.stage(slug).file for slug in (*stage.uses, *stage.runs)}
    if not needed:
        return {}
    try:
        return {
            name: data for name, data in submission.load(Path.cwd(), course).files.items() if name in needed
        }
    except SubmissionError:
        return {}


def _lay_out(course: Course, stage: Stage, root: Path, files: dict[str, bytes]) -> None:
    """A course of its own for one check: the answer in its exercises, the manifest and the checks."""
    (root / MANIFEST).parent.mkdir()
    given = [path for path in (course.given, *course.profiles.glob("*.toml")) if path.is_file()]
    for path in (course.root / MANIFEST, course.public_tests(stage), *given):
        copy = root / path.relative_to(course.root)
        copy.parent.mkdir(exist_ok=True)
        shutil.copyfile(path, copy)
    (root / "exercises" / "small").symlink_to(course.exercises / "small")
    for name, content in files.items():
        (root / "exercises" / name).write_bytes(content)


class _Ending:
    """How the check ended: what it raised, and how often it was run to its end."""

    def __init__(self) -> None:
        self.errors: list[BaseException] = []
        self.calls = 0

    def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> None:
        if call.excinfo:
            self.errors.append(call.excinfo.value)
        elif call.when == "call":
            self.calls += 1


def _run(root: Path, where: str) -> tuple[str, str]:
    """Run one test function; why it did not pass, empty if it did, and what was printed."""
    from grader.pytest_plugin import judge

    ending, said = _Ending(), io.StringIO()
    with _untouched(), contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        status = pytest.main([*BARE, f"--rootdir={root}", *QUIET, where], plugins=[ending])
    if ending.errors:
        verdict, message, _ = judge(ending.errors[0])
        return f"{verdict}: {message}", said.getvalue()
    is_passed = status is pytest.ExitCode.OK and ending.calls > 0
    return "" if is_passed else f"the check was not run: {status!r}", said.getvalue()


@contextlib.contextmanager
def _untouched() -> Iterator[None]:
    """Leave the kernel's modules, paths and environment as they were."""
    modules, path, addopts = dict(sys.modules), list(sys.path), os.environ.pop("PYTEST_ADDOPTS", None)
    try:
        yield
    finally:
        ours = [name for name in sys.modules if name == "gpt2" or name.startswith(("stage", "test_stage"))]
        for name in ours:
            _put_back(name, modules.get(name))
        sys.path[:] = path
        if addopts is not None:
            os.environ["PYTEST_ADDOPTS"] = addopts


def _put_back(name: str, module: Any) -> None:
    if module is None:
        del sys.modules[name]
    else:
        sys.modules[name] = module
