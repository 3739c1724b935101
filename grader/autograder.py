"""Gradescope's autograder zip: the course and the grader, with `setup.sh` and `run_autograder` at its root.

It holds the hidden checks and the seed secret, and no solutions: it is for Gradescope alone.
"""

from __future__ import annotations

import io
import os
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from grader import destination, session
from grader.course import Course
from grader.faults import Mistake
from grader.session import Options

HERE = Path(__file__).parent
SETUP, RUN = HERE / "gradescope_setup.sh", HERE / "gradescope_run.sh"
FOLDERS = ("exercises", "tests_public", "tests_hidden", "hardware_profiles")
FILES = ("pyproject.toml", "README.md", "LICENSE")
JUNK = {"__pycache__", ".pytest_cache", ".DS_Store"}
EPOCH = (1980, 1, 1, 0, 0, 0)
SCRIPT, PLAIN = 0o100755 << 16, 0o100644 << 16
LEVEL = "isolation=confined"


def build(course: Course, out: Path, isolation: str, *, force: bool = False) -> tuple[str, ...]:
    """Write the zip; give what to say of it. The same course gives the same bytes.

    Raises Mistake where it can't be written or, without `force`, is there already, CourseError where
    the course has no readable seed secret.
    """
    destination.vet_new(out, force=force)
    session.secret_of(course, Options())  # makes it, so that every submission there is graded with the same
    data = _packed(course, isolation)
    try:
        _write(out, data)
    except OSError as error:
        raise Mistake(f"`{out}` can't be written: {error}") from error
    points = sum(stage.points for stage in course.stages)
    return (
        f"wrote {out}: {len(data) >> 10} KiB, isolation `{isolation}`",
        "it holds the hidden checks and the seed secret: upload it to Gradescope and give it to nobody",
        f"set the assignment's points to {points:g}, and take a container with 2 CPUs and 3 GB at least",
    )


def _packed(course: Course, level: str) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        run = RUN.read_text(encoding="utf-8").replace(LEVEL, f"isolation={level}")
        _add(archive, "setup.sh", SETUP.read_bytes(), SCRIPT)
        _add(archive, "run_autograder", run.encode(), SCRIPT)
        for name, path in sorted(_files(course)):
            _add(archive, f"course/{name}", path.read_bytes(), PLAIN)
    return packed.getvalue()


def _add(archive: zipfile.ZipFile, name: str, data: bytes, kind: int) -> None:
    info = zipfile.ZipInfo(name, EPOCH)
    info.external_attr, info.compress_type = kind, zipfile.ZIP_DEFLATED
    archive.writestr(info, data)


def _files(course: Course) -> Iterator[tuple[str, Path]]:
    """What is packed: where it goes, and where it lies."""
    for name in FILES:
        path = next((place / name for place in (course.root, HERE.parent) if (place / name).is_file()), None)
        if path:
            yield name, path
    for top in (*(course.root / folder for folder in FOLDERS), HERE):
        for path in top.rglob("*"):
            if path.is_file() and not path.is_symlink() and JUNK.isdisjoint(path.parts):
                yield f"{top.name}/{path.relative_to(top)}", path


def _write(out: Path, data: bytes) -> None:
    """Write the whole file or nothing."""
    out.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=out.parent, prefix=f".{out.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, out)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
