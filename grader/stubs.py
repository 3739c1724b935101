"""Stubs: what a student starts from, made from the solutions by taking out what is to be written.

A solution marks each part that a student writes:

    ### BEGIN SOLUTION
    ...
    ### END SOLUTION

Inside a function the part becomes one line, `raise NotImplementedError("stage1: Attention.forward")`, in
BEGIN's place: the stage's slug and the function's qualified name. Outside of any function it becomes nothing
(imports or helpers of the solution's own). All other lines stay as they are, to the byte.
"""

from __future__ import annotations

import ast
import io
from dataclasses import dataclass
from pathlib import Path

from grader.course import Course, Stage
from grader.errors import CourseError

BEGIN = "### BEGIN SOLUTION"
END = "### END SOLUTION"


@dataclass(frozen=True, slots=True)
class Region:
    """One solution region: the line numbers, from 1, of its two markers."""

    begin: int
    end: int


def stub_text(solution_source: str, stage_slug: str) -> str:
    """Make the stub's text from a solution's.

    Raises CourseError where a marker is nested, unclosed or stray, where nothing is marked, or where what is
    left is not Python.
    """
    tree = _parse(solution_source, f"solution of `{stage_slug}`")
    lines = list(io.StringIO(solution_source, newline=""))
    regions = find_regions(solution_source, stage_slug)
    if not regions:
        raise CourseError(
            f"solution of `{stage_slug}`: nothing is marked; put `{BEGIN}` … `{END}` around a part"
        )
    for region in reversed(regions):  # from the end, so that line numbers before it still hold
        name = enclosing_function(tree, region)
        todo = f'raise NotImplementedError("{stage_slug}: {name}")'
        kept = [lines[region.begin - 1].replace(BEGIN, todo)] if name else []
        lines[region.begin - 1 : region.end] = kept
    stub = "".join(lines)
    _parse(stub, f"stub of `{stage_slug}`")
    return stub


def of_stage(course: Course, stage: Stage) -> str:
    """Make a stage's stub afresh.

    Raises CourseError where there is no solution, or it can't be made a stub.
    """
    path = course.solutions / stage.file
    if not path.is_file():
        raise CourseError(f"`{path}` is not there, and stubs are made from solutions")
    return stub_text(path.read_bytes().decode(), stage.slug)  # not read_text: that would hide a CRLF


def write_stubs(course_root: Path, *, force: bool = False) -> list[Path]:
    """Write every stub into `exercises/`; return the files that changed.

    Raises CourseError, before anything is written, where a file that is there differs from its stub and
    `force` is not given: it may hold somebody's work.
    """
    stale = {path: text for path, text in _stubs(course_root).items() if not _is_fresh(path, text)}
    for path in stale:
        if path.exists() and not force:
            raise CourseError(f"`{path}` is not its stub and may hold somebody's work; force overwrites it")
    for path, text in stale.items():
        path.write_bytes(text.encode())
    return list(stale)


def stale_stubs(course_root: Path) -> list[Path]:
    """Name the stubs in `exercises/` that are missing or differ by a byte from what the solutions make."""
    return [path for path, text in _stubs(course_root).items() if not _is_fresh(path, text)]


def _stubs(course_root: Path) -> dict[Path, str]:
    """Make every stub; map its place in `exercises/` to its text."""
    stubs = {}
    for solution in sorted((course_root / "solutions").glob("stage*_*.py")):
        slug = solution.stem.partition("_")[0]
        source = solution.read_bytes().decode()  # not read_text: that would hide a CRLF
        stubs[course_root / "exercises" / solution.name] = stub_text(source, slug)
    return stubs


def _is_fresh(path: Path, text: str) -> bool:
    return path.is_file() and path.read_bytes() == text.encode()


def find_regions(solution_source: str, slug: str) -> list[Region]:
    """Pair the markers up.

    Raises CourseError with the line of the first one that has no partner.
    """
    lines = list(io.StringIO(solution_source, newline=""))  # lines as the parser counts them
    regions = []
    begin: int | None = None
    for number, line in enumerate(lines, start=1):
        marker = line.strip()
        where = f"solution of `{slug}`, line `{number}`"
        if marker == BEGIN:
            if begin is not None:
                raise CourseError(f"{where}: `{BEGIN}` inside the region of line `{begin}`; close that first")
            begin = number
        elif marker == END:
            if begin is None:
                raise CourseError(f"{where}: `{END}` without a `{BEGIN}` before it")
            if not any(_is_code(inner) for inner in lines[begin : number - 1]):
                raise CourseError(f"{where}: the region begun on line `{begin}` holds no code")
            regions.append(Region(begin, number))
            begin = None
        elif BEGIN in line or END in line:
            raise CourseError(f"{where}: a marker must stand alone on its line")
    if begin is not None:
        raise CourseError(f"solution of `{slug}`, line `{begin}`: `{BEGIN}` is never closed; add `{END}`")
    return regions


def _is_code(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def enclosing_function(tree: ast.Module, region: Region) -> str | None:
    """Return the qualified name of the innermost function around a region, None outside of any."""
    found = None
    scopes: list[tuple[ast.AST, str]] = [(tree, "")]
    while scopes:
        scope, prefix = scopes.pop()
        for node in ast.iter_child_nodes(scope):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                scopes.append((node, prefix))
                continue
            last = node.end_lineno or node.lineno
            # An END marker is a comment, so it lies beyond the last statement of the function that it closes.
            if node.lineno < region.begin <= last:
                name = f"{prefix}{node.name}"
                scopes = [(node, f"{name}.")]
                found = name if not isinstance(node, ast.ClassDef) else found
                break
    return found


def _parse(source: str, what: str) -> ast.Module:
    try:
        return ast.parse(source)
    except SyntaxError as error:
        raise CourseError(f"{what}, line `{error.lineno}`: not Python: {error.msg}") from error
