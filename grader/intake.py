"""Find what a class handed in: one entry a student, whatever course platform it came from.

Every name here is hostile input: it says whose an entry is, and is never used as a path of ours.
"""

from __future__ import annotations

import contextlib
import datetime
import itertools
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from grader import archive, gradescope, lateness, notebook, platforms, submission
from grader.course import Course
from grader.errors import SubmissionError
from grader.faults import Mistake
from grader.gradebook import visible
from grader.platforms import Named
from grader.report import SubmissionInfo
from grader.roster import Roster, Student
from grader.submission import ARCHIVES, EXERCISES, Submission

NBGRADER = "submitted"
NBGRADERS_TIME = "timestamp.txt"
CODE = (*ARCHIVES, ".py", notebook.SUFFIX)
ASIDE = (
    ".csv",
    ".txt",
    ".pdf",
    ".yml",
    ".yaml",
    ".json",
    ".md",
    ".html",
    ".xlsx",
    ".ods",
    ".db",
    ".ini",
    ".log",
)
POLICIES = ("latest", "first", "error")


@dataclass(frozen=True, slots=True)
class Piece:
    """One thing handed in: a folder, an archive or a single file; `refused` says why it can't be taken."""

    path: Path
    named: Named
    when_s: float = 0.0
    refused: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether it is a whole submission: a folder or an archive."""
        return not self.refused and (self.path.name.lower().endswith(ARCHIVES) or self.path.is_dir())

    @property
    def order(self) -> tuple[int, int, float, str]:
        """Earlier uploads come first: by the platform's numbers, then by time."""
        return (*self.named.attempt, self.when_s, self.path.name)


@dataclass(frozen=True, slots=True)
class Entry:
    """All that one student handed in and is graded, a piece over those before it, and who it is.

    `key` tells it from all others; `student` is their line of the roster; a stranger has none though there is
    a roster. `submitted_at` is ISO 8601, empty where not all of its times are known.
    """

    key: str
    pieces: tuple[Piece, ...]
    student: Student | None = None
    is_stranger: bool = False
    notes: tuple[str, ...] = ()
    submitted_at: str = ""

    @property
    def late(self) -> bool:
        return any(piece.named.late for piece in self.pieces)

    @property
    def account(self) -> str:
        """The platform's account that handed it in, where a platform wrote the names and they agree."""
        accounts = {piece.named.account for piece in self.pieces} - {""}
        return fit(accounts.pop()) if len(accounts) == 1 else ""


@dataclass(frozen=True, slots=True)
class Intake:
    """What was found: the entries, who of the roster has none, what was given twice, what was left aside."""

    entries: tuple[Entry, ...]
    missing: tuple[Student, ...] = ()
    duplicates: tuple[str, ...] = ()
    aside: tuple[str, ...] = ()


def find(
    path: Path,
    course: Course,
    roster: Roster,
    *,
    on_duplicate: str,
    out: Path,
    assignment: str | None = None,
) -> Intake:
    """Find every submission in the folder `path`; `out`, if it lies in there, is none.

    Of nbgrader's tree those of one assignment are taken. Raises SubmissionError where there is none, or with
    `on_duplicate` `error` where one was given twice; Mistake where there are several assignments and it is
    not said which, or there is no such.
    """
    if not path.is_dir():
        raise SubmissionError(f"`{path}` is not a folder; unpack the download first, one entry a student")
    stage_files = _stage_files(course)
    pieces, aside = [], []
    there = root(path, course, out)
    which = _assignment(there, out, assignment)
    for piece in _pieces(there, stage_files, out, which):
        if piece.named.student:
            pieces.append(piece)
        else:
            aside.append(piece.path.name)
    if not pieces:
        raise SubmissionError(_nothing(path, aside, stage_files))
    entries, duplicates = _entries(pieces, roster, on_duplicate)
    known = {entry.student for entry in entries}
    missing = tuple(student for student in roster.students if student not in known)
    return Intake(entries, missing, duplicates, tuple(sorted(aside)))


def root(path: Path, course: Course, out: Path) -> Path:
    """The folder whose entries are submissions: `path`, nbgrader's tree in it, or the one around all."""
    if is_nbgraders(path):
        return path
    nbgraders = path / NBGRADER
    return nbgraders if nbgraders.is_dir() else _unwrapped(path, _stage_files(course), out)


def is_nbgraders(folder: Path) -> bool:
    """Whether it is nbgrader's tree of submissions."""
    return NBGRADER in (folder.name, folder.resolve().name)


def _stage_files(course: Course) -> list[str]:
    return [name for stage in course.stages for name in (stage.file, stage.slug + notebook.SUFFIX)]


def by_file_times(found: Intake) -> Intake:
    """Where the platform tells no time, go by when the files were last written, which a student can set."""
    return replace(found, entries=tuple(map(_by_file_times, found.entries)))


def _by_file_times(entry: Entry) -> Entry:
    times = [piece.when_s for piece in entry.pieces]
    if entry.submitted_at or not all(times):
        return entry
    return replace(entry, submitted_at=datetime.datetime.fromtimestamp(max(times), datetime.UTC).isoformat())


def load(entry: Entry, course: Course, name: str) -> Submission:
    """Read what a student handed in, under a name fit to show.

    Raises SubmissionError where nothing of it can be read; what can't be beside what can is noted.
    """
    files: dict[str, bytes] = {}
    notes, refused = list(entry.notes), []
    for piece in sorted(entry.pieces, key=lambda piece: piece.path.suffix != notebook.SUFFIX):
        try:  # a stage file goes over a notebook
            read, said = _read(piece, course)
        except (SubmissionError, OSError) as error:
            refused.append(str(error).replace(str(piece.path), piece.path.name))  # for the student's eyes
            continue
        notes += [*said, *(f"`{file}` was handed in twice" for file in sorted(files.keys() & read.keys()))]
        files |= read
    if not files:
        raise SubmissionError("; ".join(refused) or "nothing was handed in")
    return Submission(SubmissionInfo(name, submission.digest(files), (*notes, *refused)), files)


def _read(piece: Piece, course: Course) -> tuple[dict[str, bytes], tuple[str, ...]]:
    if piece.refused:
        raise SubmissionError(piece.refused)
    wanted = {stage.file for stage in course.stages}
    if piece.named.file in wanted and piece.path.suffix == ".py":
        return {piece.named.file: submission.read(piece.path)}, ()
    work = submission.load(piece.path, course)
    return work.files, work.info.notes


def _assignment(root: Path, out: Path, wanted: str | None) -> str | None:
    """Which assignment of nbgrader's tree to take; None for all that is there, if it is one at most."""
    if not is_nbgraders(root):
        if wanted is not None:
            raise Mistake(f"`--assignment` is for nbgrader's `{NBGRADER}/`, and `{root}` is none")
        return None
    names: set[str] = set()
    for student in _listed(root, out):
        with contextlib.suppress(OSError):
            names |= {each.name for each in _listed(student) if each.is_dir() and not each.is_symlink()}
    told = ", ".join(f"`{fit(name)}`" for name in sorted(names)[:10]) or "none"
    if wanted is not None and wanted not in names:
        raise Mistake(f"`{root}` has no assignment `{wanted}`, it has {told}")
    if wanted is None and len(names) > 1:
        raise Mistake(f"`{root}` has several assignments: {told}; say which with `--assignment`")
    return wanted


def _pieces(root: Path, stage_files: Sequence[str], out: Path, assignment: str | None) -> Iterator[Piece]:
    """Everything in the class's folder, whichever layout it has."""
    if is_nbgraders(root):
        for student in _listed(root, out, is_junk=_left_behind):
            yield from _nbgrader(student, stage_files, assignment)
        return
    people = gradescope.submitters(root)
    for entry in _listed(root, out, is_junk=_left_behind):
        piece = _piece(entry, stage_files)
        for named in people.get(entry.name) or (piece.named,):
            yield replace(piece, named=named)


def _nbgrader(student: Path, stage_files: Sequence[str], assignment: str | None) -> Iterator[Piece]:
    """The assignment that a student has in nbgrader's `submitted/STUDENT/ASSIGNMENT/`."""
    whole = _piece(student, stage_files)
    try:
        within = [] if whole.refused or not student.is_dir() else _listed(student)
    except OSError as error:
        within, whole = [], replace(whole, refused=f"it can't be looked into: {error.strerror}")
    if assignment is not None:
        within = [path for path in within if path.name == assignment]
        if not within and not whole.refused:
            return
    folders = [_piece(path, stage_files) for path in within if path.is_dir()]
    for piece in folders or [whole]:
        name, when = (student.name, _nbgraders_time(piece.path)) if whole.named.student else ("", "")
        yield replace(piece, named=Named(name, submitted_at=when))


def _nbgraders_time(assignment: Path) -> str:
    """When an assignment was handed in, in nbgrader's own file; without a zone, nbgrader means UTC."""
    try:
        text = submission.read(assignment / NBGRADERS_TIME).decode("utf-8", "replace").strip()
    except SubmissionError:
        return ""
    return lateness.known(text) or lateness.known(f"{text}Z")


def _unwrapped(path: Path, stage_files: Sequence[str], out: Path) -> Path:
    """The folder itself, or the one folder in it, unless that is a submission."""
    inside = _listed(path, out)
    if len(inside) != 1 or inside[0].is_symlink() or not inside[0].is_dir():
        return path
    try:
        within = [entry.name for entry in _listed(inside[0], out)]
    except OSError:
        return path
    is_submission = EXERCISES in within or any(submission.original(name) in stage_files for name in within)
    return path if is_submission or len(within) < 2 else inside[0]


def _listed(
    folder: Path, out: Path | None = None, *, is_junk: Callable[[str], bool] = submission.is_junk
) -> list[Path]:
    """What lies in a folder, junk and our own results aside, in the order of names."""
    spared = out.resolve() if out else None
    entries = itertools.islice(folder.iterdir(), archive.MAX_MEMBERS)
    return sorted(e for e in entries if not is_junk(e.name) and (e.is_symlink() or e.resolve() != spared))


def _left_behind(name: str) -> bool:
    """Whether some program left it in a class's folder; what else is hidden there is told, and no student."""
    return name in submission.JUNK or name.startswith("._") or name == ".DS_Store"


def _piece(path: Path, stage_files: Sequence[str]) -> Piece:
    kind = path.lstat().st_mode
    named = platforms.parse(path.name, stage_files, is_folder=stat.S_ISDIR(kind))
    if path.name.startswith("."):
        return Piece(path, Named(""))
    if stat.S_ISLNK(kind):
        return Piece(path, named, refused="it is a symbolic link, which is not followed")
    if stat.S_ISREG(kind):
        is_aside = path.suffix.lower() in ASIDE and not named.file
        named = Named("") if is_aside and not named.aliases else named
        return Piece(path, named, path.lstat().st_mtime)
    if not stat.S_ISDIR(kind):
        return Piece(path, named, refused="it is neither a folder nor a plain file")
    try:
        inner = _only_archive(path) or path
        return Piece(inner, named, _handed_in(path))
    except OSError as error:
        return Piece(path, named, refused=f"it can't be looked into: {error.strerror}")


def _only_archive(folder: Path) -> Path | None:
    """The one archive in a folder that holds no code beside it, as a platform stores a student's file."""
    inside = [entry for entry in _listed(folder) if entry.is_dir() or entry.name.lower().endswith(CODE)]
    is_one = len(inside) == 1 and inside[0].name.lower().endswith(ARCHIVES)
    return inside[0] if is_one and stat.S_ISREG(inside[0].lstat().st_mode) else None


def _handed_in(folder: Path) -> float:
    """When the newest plain file at a folder's top was written, in seconds since 1970."""
    times = [entry.lstat().st_mtime for entry in _listed(folder) if stat.S_ISREG(entry.lstat().st_mode)]
    return max(times, default=folder.lstat().st_mtime)


def _entries(
    pieces: Sequence[Piece], roster: Roster, policy: str
) -> tuple[tuple[Entry, ...], tuple[str, ...]]:
    """One entry a student, and a line for each who gave something twice."""
    groups: dict[tuple[Student | None, str], list[Piece]] = {}
    for piece in sorted(pieces, key=lambda piece: piece.order):
        student = roster.find((piece.named.student, *piece.named.aliases), piece.named.number)
        groups.setdefault((student, student.id if student else piece.named.student), []).append(piece)
    entries, told = [], []
    for (student, key), given in groups.items():
        kept, dropped = _chosen(given, policy)
        lines = [f"`{shown(piece.path)}` is not graded: `{shown(by.path)}` is" for piece, by in dropped]
        told += [f"{fit(key)}: {line}" for line in lines]
        is_stranger = student is None and bool(roster.students)
        times = [piece.named.submitted_at for piece in kept]
        when = max(times) if all(times) else ""  # all in UTC, so they sort as text
        entries.append(Entry(key, kept, student, is_stranger, tuple(lines), when))
    if told and policy == "error":
        raise SubmissionError(f"handed in more than once: {'; '.join(told)}")
    return tuple(sorted(entries, key=lambda entry: entry.key)), tuple(told)


def _chosen(given: Sequence[Piece], policy: str) -> tuple[tuple[Piece, ...], list[tuple[Piece, Piece]]]:
    """Of whole submissions one, of files one of each name; and each that is dropped, with what is kept."""
    slots: dict[str, list[Piece]] = {}
    for piece in given:
        slot = piece.named.file or ("" if piece.is_whole else piece.path.name)
        slots.setdefault(slot, []).append(piece)
    kept, dropped = [], []
    for rivals in slots.values():
        best = rivals[0 if policy == "first" else -1]
        kept.append(best)
        dropped += [(piece, best) for piece in rivals if piece is not best]
    kept.sort(key=lambda piece: piece.order, reverse=policy == "first")
    return tuple(kept), dropped


def fit(name: str) -> str:
    """A name fit to show: no control characters, no undecodable bytes, not endless."""
    text = name.encode("utf-8", "backslashreplace").decode()
    return visible(text)[:120]


def shown(path: Path) -> str:
    """A piece's place: its folder's name and its own."""
    return fit(os.path.join(path.parent.name, path.name))


def _nothing(path: Path, aside: Sequence[str], stage_files: Sequence[str]) -> str:
    if any(submission.original(name) in stage_files for name in aside):
        return f"`{path}` is one submission, not a class's: grade it with `grade all --submission {path}`"
    return f"`{path}` holds no submissions: it should have one folder, archive or stage file a student"
