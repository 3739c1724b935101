"""`grade pack`: a student's stage files and results in one zip to hand in."""

from __future__ import annotations

import ast
import warnings
import zipfile
from dataclasses import dataclass
from pathlib import Path

import msgspec

from grader import __version__, archive, given, submission
from grader.course import Course
from grader.errors import SubmissionError
from grader.faults import Mistake, written

SCHEMA = "kvgrade/pack/v1"
ABOUT, FILE = "pack.json", "handin.zip"
RESULTS = "results"
MAX_RESULTS_BYTES = 16 << 20


class About(msgspec.Struct, frozen=True):
    """What the zip says of itself: the submission's digest is what `grade batch` writes into the report."""

    course: str
    version: str
    course_digest: str
    digest: str
    files: dict[str, str]
    schema: str = SCHEMA
    grader: str = __version__


@dataclass(frozen=True, slots=True)
class Packed:
    """A zip's bytes, what it says of itself, why it should not be handed in yet, and what else to remark."""

    content: bytes
    about: About
    reasons: tuple[str, ...]
    remarks: tuple[str, ...]


def pack(course: Course) -> Packed:
    """Put a student's stage files and results into a zip; the same files give the same bytes.

    Raises SubmissionError where there is no stage file at all, or one that can't be taken.
    """
    handed_in = submission.load(course.exercises, course)
    work, reasons = handed_in.files, []
    for stage in course.stages:
        if stage.file not in work:
            reasons.append(f"`exercises/{stage.file}` is missing")
        elif wrong := _unparsed(work[stage.file], f"exercises/{stage.file}"):
            reasons.append(wrong)
    results, left_out = _results(course.root / RESULTS)
    remarks = (*handed_in.info.notes, *left_out)
    files = {**{f"exercises/{name}": content for name, content in sorted(work.items())}, **results}
    digests = {name: given.digest(content) for name, content in files.items()}
    about = About(course.title, course.version, course.digest, handed_in.info.digest, digests)
    told = msgspec.json.format(msgspec.json.encode(about), indent=1) + b"\n"
    return Packed(archive.packed({ABOUT: told, **files}), about, tuple(reasons), remarks)


def write(packed: Packed, out: Path, *, force: bool) -> None:
    """Write the zip, whole or not at all.

    Raises Mistake where there are reasons against it and it is not forced, or it can't be written.
    """
    if packed.reasons and not force:
        raise SubmissionError("not packed: mend what is named above, or pack it as it is with `--force`")
    if out.exists() and not _is_pack(out):
        raise Mistake(f"`{out}` is there, and no pack: nothing was written; name another file with `--out`")
    written(out, packed.content)


def _is_pack(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as packed:
            return ABOUT in packed.namelist()
    except (OSError, zipfile.BadZipFile):
        return False


def _unparsed(content: bytes, name: str) -> str:
    """Say where a file is not Python; nothing where it is."""
    try:
        with warnings.catch_warnings(action="ignore"):  # such as of an odd escape: not what is asked here
            ast.parse(content)
    except SyntaxError as error:
        return f"`{name}:{error.lineno or 1}`: {error.msg}"
    except (ValueError, RecursionError, MemoryError) as error:
        return f"`{name}:1`: {error or 'too deep to be read'}"
    return ""


def _results(folder: Path) -> tuple[dict[str, bytes], list[str]]:
    """The files of `results/`, as far as they are plain and not too much; say what is left out."""
    found: dict[str, bytes] = {}
    left, room = [], MAX_RESULTS_BYTES
    for path in submission.plain_files(folder):
        name = f"{RESULTS}/{path.relative_to(folder).as_posix()}"
        try:
            content = submission.read(path, room)
        except SubmissionError as error:
            left.append(f"left out `{name}`: {error}")
            continue
        found[name] = content
        room -= len(content)
    return found, left
