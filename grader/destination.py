"""Where results and exports go: never over somebody's work, and by one command at a time."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from grader import intake
from grader.course import Course
from grader.faults import Mistake
from grader.results import ORDER, SCORES, SIMILARITY, SUMMARY
from grader.submission import is_junk

LOCK = ".lock"
COURSES = (
    "exercises",
    "solutions",
    "grader",
    "docs",
    "hardware_profiles",
)  # and whatever begins with `tests`
PACKAGE = Path(__file__).parent
MADE_BY_A_BATCH = {
    ORDER: '"schema": "kvgrade/batch/',
    SUMMARY: '"schema": "kvgrade/summary/',
    SCORES: "student,name,email,state",
}
HEAD = 200  # characters, in which a file of ours says what it is


def vet(course: Course, path: Path, out: Path) -> None:
    """Raise Mistake where a batch's results would lie among submissions, the course, or another's files."""
    try:
        wrong = _among_submissions(course, path, out) or _in_the_course(course, out) or _not_ours(out)
    except OSError as error:
        raise Mistake(f"`{error.filename or out}` can't be looked into: {error.strerror}") from error
    if wrong:
        raise Mistake(f"`--out {out}` {wrong}: name another folder")


def _among_submissions(course: Course, path: Path, out: Path) -> str:
    there, given = out.resolve(), path.resolve()
    if given.is_relative_to(there):
        return "is where the submissions are" if given == there else "holds the submissions"
    if not there.is_relative_to(given) or not given.is_dir():
        return ""
    root = intake.root(path, course, out).resolve()
    if there.is_relative_to(root):
        is_beside = there.parent == root
    else:  # beside nbgrader's `submitted/` nothing is taken for a submission
        is_beside = there.parent == given or intake.is_nbgraders(root)
    return "" if is_beside else "lies inside of what is taken for a submission"


def _in_the_course(course: Course, out: Path) -> str:
    there, root = out.resolve(), course.root.resolve()
    top = there.relative_to(root).parts[:1] if there.is_relative_to(root) else ()
    is_its_own = any(name in COURSES or name.startswith("tests") for name in top)
    return "is in the course's own folders" if is_its_own or there.is_relative_to(PACKAGE) else ""


def _not_ours(out: Path) -> str:
    """Whether a folder holds anything, and nothing that a batch would have left there."""
    if not out.is_dir() or any(_begins(out / name, text) for name, text in MADE_BY_A_BATCH.items()):
        return ""
    left = (LOCK, *SIMILARITY)  # a batch that was killed at its first write leaves a lock and half a file
    strange = (p.name for p in out.iterdir() if p.name not in left and not p.name.startswith(f".{ORDER}."))
    return "is not empty and no batch made it" if not all(map(is_junk, strange)) else ""


def _begins(path: Path, text: str) -> bool:
    if not path.is_file():
        return False
    with path.open(encoding="utf-8", errors="replace") as file:
        return text in file.read(HEAD)


@contextmanager
def held(out: Path) -> Iterator[None]:
    """Keep other batches out of a folder of results while this one is at work; a killed one holds nothing.

    Raises Mistake where another is at work there, or the folder can't be made.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        file = (out / LOCK).open("a")
    except OSError as error:
        raise Mistake(f"`{out}` can't be written: {error.strerror}") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            busy = f"another `grade batch` or `grade regrade` is at work in `{out}`"
            raise Mistake(f"{busy}: wait for it, or name another folder") from error
        except OSError:  # a file system without locks, where two are the instructor's to tell apart
            pass
        yield


def vet_export(out: Path, results: Path, given: Mapping[str, Path | None], *, force: bool) -> None:
    """Raise Mistake where an export would be written over the results, what it is made of, or other files."""
    there = out.resolve()
    if there.is_relative_to(results.resolve()):
        raise Mistake(f"`--out {out}` lies in the results, which are kept: name another place")
    for what, path in given.items():
        if path and there == path.resolve():
            raise Mistake(f"`--out {out}` is the {what} itself, which is kept: name another file")
    vet_new(out, force=force)


def vet_new(out: Path, *, force: bool) -> None:
    """Raise Mistake where something is there already that nobody said to write over."""
    is_there = any(out.iterdir()) if out.is_dir() else out.is_file() and out.stat().st_size
    if is_there and not force:
        raise Mistake(f"`{out}` is there already: add `--force` to write over it, or name another")
