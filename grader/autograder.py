"""Gradescope's autograder zip: the course and the grader, with `setup.sh` and `run_autograder` at its root.

It holds the hidden checks and the seed secret, and no solutions: it is for Gradescope alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from grader import archive, destination, session, submission
from grader.course import Course
from grader.faults import written
from grader.session import Options

HERE = Path(__file__).parent
SETUP, RUN = HERE / "gradescope_setup.sh", HERE / "gradescope_run.sh"
FOLDERS = ("exercises", "tests_public", "tests_hidden", "hardware_profiles")
FILES = ("pyproject.toml", "README.md", "LICENSE")
LEVEL = "isolation=confined"


def build(course: Course, out: Path, isolation: str, *, force: bool = False) -> tuple[str, ...]:
    """Write the zip; give what to say of it. The same course gives the same bytes.

    Raises Mistake where it can't be written or, without `force`, is there already, CourseError where
    the course has no readable seed secret.
    """
    destination.vet_new(out, force=force)
    session.secret_of(course, Options())  # makes it, so that every submission there is graded with the same
    data = _packed(course, isolation)
    written(out, data, 0o600)
    points = sum(stage.points for stage in course.stages)
    return (
        f"wrote {out}: {len(data) >> 10} KiB, isolation `{isolation}`",
        "it holds the hidden checks and the seed secret: upload it to Gradescope and give it to nobody",
        f"set the assignment's points to {points:g}, and take a container with 2 CPUs and 3 GB at least",
    )


def _packed(course: Course, level: str) -> bytes:
    run = RUN.read_text(encoding="utf-8").replace(LEVEL, f"isolation={level}")
    scripts = {"setup.sh": SETUP.read_bytes(), "run_autograder": run.encode()}
    return archive.packed(
        scripts | {f"course/{name}": path.read_bytes() for name, path in sorted(_files(course))},
        executable=tuple(scripts),
    )


def _files(course: Course) -> Iterator[tuple[str, Path]]:
    """What is packed: where it goes, and where it lies."""
    for name in FILES:
        path = next((place / name for place in (course.root, HERE.parent) if (place / name).is_file()), None)
        if path:
            yield name, path
    for top in (*(course.root / folder for folder in FOLDERS), HERE):
        for path in submission.plain_files(top):
            yield f"{top.name}/{path.relative_to(top)}", path
