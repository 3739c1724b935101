"""What a student was given: every file with its digest, and each stub's text, kept in `.grade/given/`."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import msgspec

from grader import report as reports
from grader.faults import Mistake

FOLDER = Path(".grade") / "given"
MANIFEST = FOLDER / "given.json"
SCHEMA = "kvgrade/given/v1"
DECIDING = ("exercises/", "grader/", "hardware_profiles/", "tests_public/")


class Given(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The files of a release by path with their SHA-256, and which of them are stage files."""

    schema: str = SCHEMA
    course: str = ""
    version: str = ""
    files: dict[str, str] = {}
    stages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Release:
    """A release in memory: what it says of itself, and its files."""

    given: Given
    files: dict[str, bytes] = field(repr=False)


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def stub_of(folder: Path, name: str) -> Path:
    """Where the text of a stage file as it was given is kept."""
    return folder / FOLDER / PurePosixPath(name).name


def write(folder: Path, given: Given) -> None:
    """Write what was given, in one go."""
    reports.write(folder / MANIFEST, msgspec.json.format(msgspec.json.encode(given), indent=1) + b"\n")


def load(folder: Path) -> Given | None:
    """Read what `folder` was given; None where nothing says so.

    Raises Mistake where it can't be read, or is a newer release's.
    """
    path = folder / MANIFEST
    if not path.is_file():
        return None
    try:
        return parse(path.read_bytes())
    except (OSError, ValueError) as error:
        raise Mistake(f"`{path}`: {error}") from error


def changed(folder: Path) -> list[str]:
    """Files that decide on grades and are not as they were given; none where nothing says what was."""
    before = load(folder) or Given()
    deciding = [name for name in before.files if name.startswith(DECIDING) and name not in before.stages]
    return [name for name in sorted(deciding) if not _is_as_given(folder / name, before.files[name])]


def _is_as_given(path: Path, wanted: str) -> bool:
    return path.is_file() and digest(path.read_bytes()) == wanted


def parse(content: bytes) -> Given:
    """Raises ValueError for what is nothing of the kind, newer, or names a place outside of its folder."""
    given = msgspec.json.decode(content, type=Given)
    if given.schema != SCHEMA:
        raise ValueError(f"it has the form `{given.schema}`, not `{SCHEMA}`: use the newer release's `grade`")
    for name in (*given.files, *given.stages):
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or "\\" in name or not path.parts:
            raise ValueError(f"`{name}` is no place in a course's folder")
    return given


def whole(files: dict[str, bytes], name: str) -> Release:
    """Make a release of its files by path.

    Raises Mistake where that is none, or a file is missing or changed.
    """
    manifest = files.get(MANIFEST.as_posix())
    if manifest is None:
        raise Mistake(f"`{name}` is no release of a course: it has no `{MANIFEST}`")
    try:
        given = parse(manifest)
    except ValueError as error:
        raise Mistake(f"`{name}`: `{MANIFEST}`: {error}") from error
    for path, expected in given.files.items():
        if path not in files:
            raise Mistake(f"`{name}` is not whole: `{path}` is missing; fetch it again")
        if digest(files[path]) != expected:
            raise Mistake(f"`{name}`: `{path}` is not as it was released; fetch it again")
    return Release(given, {path: files[path] for path in given.files})
