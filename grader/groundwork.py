"""The student's own earlier files that a stage builds on: are they there, and are they to blame?"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence

from grader.course import Course, Stage
from grader.outcome import Verdict
from grader.sandbox.remote import StudentFault

IMPORT_ERROR = re.compile(r"(?:ImportError|ModuleNotFoundError): .*'(?P<module>\w+)'")


def files(course: Course, stage: Stage) -> tuple[str, ...]:
    """Name the earlier stage files that a stage's file may import."""
    return tuple(course.stage(slug).file for slug in stage.uses)


def beside(course: Course, stage: Stage) -> tuple[str, ...]:
    """Name the earlier stage files that lie beside a stage's: what it may import, what its checks run."""
    return tuple(course.stage(slug).file for slug in dict.fromkeys((*stage.uses, *stage.runs)))


def missing(course: Course, stage: Stage, present: Container[str]) -> StudentFault | None:
    """Say that a file which the stage builds on is not there; the check is skipped."""
    return next((_skip(f, "is not there") for f in files(course, stage) if f not in present), None)


def blamed(fault: StudentFault, used: Sequence[str]) -> StudentFault:
    """Turn the fault of an import into a skip where not the stage's file is to blame but one that it uses.

    That is where the innermost of the student's frames lies in that file, or where it lacks a name.
    """
    innermost = fault.traceback.rpartition("\n")[2]
    reason = str(fault).partition("`: ")[2] or str(fault)
    for file in used:
        if innermost.startswith(f"{file}:"):
            return _skip(file, f"can't be imported: `{innermost.split()[0].rstrip(':')}`: {reason}")
        if any(f"{module}.py" == file for module in _not_importable(reason)):
            return _skip(file, f"can't be used: {reason.partition(' (/')[0]}")
    return fault


def _not_importable(reason: str) -> Iterator[str]:
    """Name the modules that an ImportError speaks of."""
    found = IMPORT_ERROR.search(reason)
    if found:
        yield from re.findall(r"'(\w+)'", found[0])


def _skip(file: str, why: str) -> StudentFault:
    return StudentFault.of(Verdict.SKIP, f"this builds on your own `{file}`, which {why}")
