"""What a student handed in: find the stage files, vet them, hold them as bytes with a digest.

Only files that the manifest names are taken, so nothing else that lies in a submission (a planted
`conftest.py`, `torch.py`, `*.pth`) ever reaches a worker. Archives are read in memory, never unpacked to
disk.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

from grader import archive, notebook
from grader import report as reports
from grader.course import Course
from grader.errors import SubmissionError
from grader.faults import Mistake
from grader.report import SubmissionInfo

EXERCISES = "exercises"
MAX_FILE_BYTES = 1 << 20
JUNK = {"__MACOSX", "__pycache__", ".git", ".venv", "venv", "node_modules", ".ipynb_checkpoints"}
LISTED = 1000  # entries of a folder that are looked at to say what it holds instead
ARCHIVES = (".zip", ".tar.gz", ".tgz", ".tar")
COPY = re.compile(r"(?:-(?P<canvas>\d+)| ?\((?P<browser>\d+)\))(?=\.\w+\Z)")


@dataclass(frozen=True, slots=True)
class Submission:
    """The stage files of one student by name, as bytes."""

    info: SubmissionInfo
    files: dict[str, bytes]


def load(path: Path, course: Course) -> Submission:
    """Read a submission: a folder, a `.zip`, a `.tar.gz`, one stage file or a notebook.

    Raises SubmissionError where it can't be read, is too large, or holds no stage file.
    """
    wanted = {stage.file for stage in course.stages}
    if not path.exists():
        raise SubmissionError(f"`{path}` does not exist")
    if path.is_dir():
        found, notes = _from_folder(path, course)
    elif path.suffix == ".py":
        found, notes = _from_file(path, wanted)
    elif path.suffix == notebook.SUFFIX:
        found, notes = _with_notebooks({}, {path.name: lambda: read(path, notebook.MAX_BYTES)}, course)
    elif path.name.lower().endswith(ARCHIVES):
        found, notes = _from_archive(path, course)
    else:
        raise SubmissionError(f"`{path.name}` is no folder, .zip, .tar.gz, stage file or notebook")
    if not found and notes and path.suffix == notebook.SUFFIX:
        raise SubmissionError(notes[0])
    if not found:
        raise SubmissionError(
            f"`{path}` holds no stage file (such as `{course.stages[0].file}`)"
            f" and no notebook with its cell (`{course.stages[0].name}`){_hint(notes)}"
        )
    name = path.name.split(".")[0] if path.is_file() else path.resolve().name
    return Submission(SubmissionInfo(name, digest(found), tuple(notes)), found)


def of_files(name: str, files: dict[str, bytes]) -> Submission:
    """A submission made of files in hand."""
    return Submission(SubmissionInfo(name, digest(files)), files)


def write(work: Submission, out: Path, *, force: bool = False) -> list[Path]:
    """Write a submission's stage files into a folder; return those that changed.

    Raises Mistake, before anything is written, where another file is there and `force` is not given.
    """
    changed = {out / name: data for name, data in work.files.items() if not _is_there(out / name, data)}
    for path in changed:
        if path.exists() and not force:
            raise Mistake(f"`{path}` is there and differs; name another folder, or say --force")
    for path, content in changed.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        reports.write(path, content)
    return list(changed)


def _is_there(path: Path, data: bytes) -> bool:
    return path.is_file() and path.read_bytes() == data


def digest(files: dict[str, bytes]) -> str:
    """SHA-256 over names and contents, in name order."""
    sha = hashlib.sha256()
    for name in sorted(files):
        sha.update(name.encode() + b"\0" + hashlib.sha256(files[name]).digest())
    return sha.hexdigest()


def _hint(notes: list[str]) -> str:
    return f": {notes[0]}" if notes else ""


def _from_file(path: Path, wanted: set[str]) -> tuple[dict[str, bytes], list[str]]:
    plain = original(path.name)
    name = next((w for w in sorted(wanted) if plain == w or plain.endswith("_" + w)), None)
    if name is None:
        raise SubmissionError(
            f"`{path.name}` is not named as a stage file; expected one of {', '.join(sorted(wanted))}"
        )
    return {name: read(path)}, []


def _with_notebooks(
    found: dict[str, bytes], books: Mapping[str, Callable[[], bytes]], course: Course
) -> tuple[dict[str, bytes], list[str]]:
    """The stage files found, and those out of the notebooks beside them; what to say."""
    held = notebook.gather(books, tuple(found), course)
    fitting, notes = _fitting(held.files)
    return found | fitting, [*held.notes, *notes]


def _fitting(found: Mapping[str, bytes]) -> tuple[dict[str, bytes], list[str]]:
    """The stage files that are not too large; of those that are, what to say."""
    fitting, notes = {}, []
    for name, content in found.items():
        try:
            _vet_size(name, len(content), MAX_FILE_BYTES)
            fitting[name] = content
        except SubmissionError as error:
            notes.append(f"{error}: not taken")
    return fitting, notes


def _from_folder(root: Path, course: Course) -> tuple[dict[str, bytes], list[str]]:
    """Take stage files from a folder, its `exercises/` (a whole course), or the one folder in it."""
    notes: list[str] = []
    of_books: list[str] = []
    wanted = {stage.file for stage in course.stages}
    for folder in [place for top in (root, *_only_folder(root)) for place in (top, top / EXERCISES)]:
        if folder.is_symlink():
            continue
        found: dict[str, bytes] = {}
        names = _names_in(folder, wanted)
        there, said = _under_any_name(names, wanted)
        notes += said
        for name, lying in there.items():
            path = folder / lying
            mode = path.lstat().st_mode
            if not stat.S_ISREG(mode) or path.lstat().st_nlink > 1:
                notes.append(f"`{lying}` is a link or not a plain file: not taken")
                continue
            try:
                found[name] = read(path)
            except SubmissionError as error:
                notes.append(f"{error}: not taken")
        books = {n: partial(_notebook, folder / n) for n in names if n.endswith(notebook.SUFFIX)}
        found, said = _with_notebooks(found, books, course)
        of_books += said
        if found or notes:
            return found, [*notes, *of_books]
    return {}, [*of_books, *_looks_like(sorted(p.name for p in itertools.islice(root.iterdir(), LISTED)))]


def _notebook(path: Path) -> bytes:
    """A notebook's bytes; of a link, or what else is no file of its own, none."""
    if path.is_symlink() or path.lstat().st_nlink > 1:
        raise SubmissionError("it is a link: not taken")
    return read(path, notebook.MAX_BYTES)


def original(name: str) -> str:
    """A file's name without the mark of a copy: `-1` of Canvas, ` (1)` of a browser."""
    return COPY.sub("", name)


def copies(name: str) -> int:
    """Which copy a file's name says that it is; 0 for the first."""
    found = COPY.search(name)
    return int((found["canvas"] or found["browser"])[:9]) if found else 0


def _names_in(folder: Path, wanted: set[str]) -> set[str]:
    """The names of a folder's files, stage files first should there be too many to list."""
    exact = {name for name in wanted if os.path.lexists(folder / name)}
    if not folder.is_dir():
        return exact
    return exact | {path.name for path in itertools.islice(folder.iterdir(), archive.MAX_MEMBERS)}


def _under_any_name(names: Iterable[str], wanted: set[str]) -> tuple[dict[str, str], list[str]]:
    """Each stage file that is there and the name it has: its own, else that of its latest copy; what to say.

    The own name goes first, since a copy beside it is as often a backup or the stub once more.
    """
    rivals: dict[str, list[str]] = {}
    for name in sorted(names, key=lambda name: (name not in wanted, -copies(name))):
        if original(name) in wanted:
            rivals.setdefault(original(name), []).append(name)
    there = {file: rivals[file][0] for file in sorted(rivals)}
    notes = [f"`{name}` is taken for `{file}`" for file, name in there.items() if name != file]
    notes += [f"`{n}` is not taken: `{there[file]}` is" for file in there for n in rivals[file][1:]]
    return there, notes


def _looks_like(names: list[str]) -> list[str]:
    """Say which Python files there are, where none has a stage file's name."""
    python = [f"`{ascii(name)[1:-1][:60]}`" for name in names if name.endswith(".py")]
    return [f"there is {', '.join(python[:3])}; a stage file must have just its own name"] if python else []


def _only_folder(root: Path) -> list[Path]:
    """The single real folder inside, junk aside."""
    entries = itertools.islice(root.iterdir(), archive.MAX_MEMBERS)
    inside = [p for p in entries if p.is_dir() and not p.is_symlink() and not is_junk(p.name)]
    return inside if len(inside) == 1 else []


def is_junk(name: str) -> bool:
    """Whether a file or folder of this name is no part of the work, but left there by some program."""
    return name in JUNK or name.startswith(("._", "."))


def plain_files(top: Path) -> Iterator[Path]:
    """The files of a folder in order, without links and what programs left there."""
    for path in sorted(top.rglob("*")):
        is_left = any(is_junk(part) for part in path.relative_to(top).parts)
        if path.is_file() and not path.is_symlink() and not is_left:
            yield path


def read(path: Path, limit: int = MAX_FILE_BYTES) -> bytes:
    """Read a plain file without following a link that was put there meanwhile."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise SubmissionError(f"`{path.name}` can't be read: {error.strerror}") from error
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise SubmissionError(f"`{path.name}` is not a plain file")
        data = file.read(limit + 1)
    _vet_size(path.name, len(data), limit)
    return data


def _vet_size(name: str, size: int, limit: int) -> None:
    if size > limit:
        raise SubmissionError(f"`{name[:80]}` is more than {limit} bytes, which is the most that is read")


def _from_archive(path: Path, course: Course) -> tuple[dict[str, bytes], list[str]]:
    packed = read(path, archive.MAX_UNPACKED_BYTES)
    try:
        members = {member.name: member for member in archive.members(packed)}
        found, notes = _from_members(members, course)
    except SubmissionError as error:
        raise SubmissionError(f"`{path.name}`: {error}") from error
    except Exception as error:  # a parser may raise anything over hostile bytes
        what = f"`{path.name}` is not a readable archive"
        raise SubmissionError(f"{what}: {type(error).__name__}: {error}") from error
    fitting, large = _fitting(found)
    return fitting, [*notes, *large]


def _from_members(
    members: Mapping[str, archive.Member], course: Course
) -> tuple[dict[str, bytes], list[str]]:
    """Take stage files from the first place in an archive that holds any, as files or in notebooks."""
    clean, notes = _clean(members, {stage.file for stage in course.stages})
    of_books: list[str] = []
    for inside in _places(clean):
        there, said = _under_any_name(inside, {stage.file for stage in course.stages})
        found = {file: members[inside[name]].read(MAX_FILE_BYTES + 1) for file, name in there.items()}
        books = {n: partial(_unpacked, members[inside[n]]) for n in inside if n.endswith(notebook.SUFFIX)}
        found, told = _with_notebooks(found, books, course)
        of_books += told
        if found:
            return found, [*notes, *said, *of_books]
    return {}, [*notes, *of_books, *_looks_like([parts[-1] for parts, _ in clean])]


def _unpacked(member: archive.Member) -> bytes:
    data = member.read(notebook.MAX_BYTES + 1)
    _vet_size(PurePosixPath(member.name).name, len(data), notebook.MAX_BYTES)
    return data


def _clean(names: Iterable[str], wanted: set[str]) -> tuple[list[tuple[tuple[str, ...], str]], list[str]]:
    """The names in an archive that may be taken, by their parts; what to say of the others.

    Absolute, `..` and backslashed names are never taken, and said.
    """
    notes, clean = [], []
    for name in names:
        parts = PurePosixPath(name).parts
        if name.startswith("/") or ".." in parts or "\\" in name or not name.isprintable():
            if PurePosixPath(name.replace("\\", "/")).name in wanted:
                notes.append(f"`{ascii(name)[:80]}` has a path that is not taken")
            continue
        if not any(is_junk(part) for part in parts):
            clean.append((parts, name))
    return clean, notes


def _places(clean: list[tuple[tuple[str, ...], str]]) -> Iterator[dict[str, str]]:
    """Each place where stage files may lie, as its files' names and full names: the root, the one folder."""
    tops = {parts[0] for parts, _ in clean if len(parts) > 1}
    outer: list[tuple[str, ...]] = [(), *((top,) for top in tops if len(tops) == 1)]
    for place in [place for top in outer for place in (top, (*top, EXERCISES))]:
        yield {parts[-1]: name for parts, name in clean if parts[:-1] == place}
