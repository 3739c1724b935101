"""The roster: who is in the class, and which of them a name in a download means."""

from __future__ import annotations

import csv
import io
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from grader.errors import CourseError

COLUMNS = {
    "id": ("id", "student", "student_id", "sid", "username", "login", "sis login id", "org defined id"),
    "name": ("name", "full name", "student name"),
    "email": ("email", "e-mail", "email address", "mail"),
    "extension": ("extension", "extension_hours", "extension hours", "extended until"),
}


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Student:
    """One line of the roster; `extension` is so many hours more, or a due time of their own."""

    id: str
    name: str = ""
    email: str = ""
    extension: str = ""


@dataclass(frozen=True)
class Roster:
    """The class, in the roster's order; an empty one knows nobody."""

    students: tuple[Student, ...] = ()

    def find(self, names: Iterable[str], number: str = "") -> Student | None:
        """The one student whom the names mean: by id, else by email, mailbox or name; None if unsure.

        A platform's `number` may be the id, but is so only where no name speaks against it.
        """
        wanted = {fold(name) for name in names} - {""}
        for student in self._known[0].get(fold(number), ()):
            if not _names(student) or not wanted.isdisjoint(_names(student)):
                return student
        for known in self._known:
            found = {student for name in wanted for student in known.get(name, ())}
            if found:
                return found.pop() if len(found) == 1 else None
        return None

    @cached_property
    def _known(self) -> tuple[dict[str, list[Student]], ...]:
        """Who goes by what: by id, by email, by its first part, by name."""
        indices = []
        for keys in (_ids, _emails, _mailboxes, _names):
            index: dict[str, list[Student]] = {}
            for student in self.students:
                for key in keys(student):
                    index.setdefault(key, []).append(student)
            indices.append(index)
        return tuple(indices)


def load(path: Path) -> Roster:
    """Read a roster: CSV with a header that names at least `id`, in UTF-8, with or without BOM and CRLF.

    Raises CourseError where it can't be read, lacks an id, or names one twice.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise CourseError(f"the roster `{path}` can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CourseError(f"the roster `{path}` can't be read as UTF-8: {error}") from error
    try:
        return parse(text)
    except (CourseError, csv.Error) as error:
        raise CourseError(f"the roster `{path}`: {error}") from error


def parse(text: str) -> Roster:
    """Make a roster of CSV text.

    Raises CourseError saying which line is wrong.
    """
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    place = _places(next(reader, []))
    students: dict[str, Student] = {}
    for row in reader:
        cells = {column: row[at].strip() if at < len(row) else "" for column, at in place.items()}
        if not any(cell.strip() for cell in row):
            continue
        if not cells["id"]:
            raise CourseError(f"line {reader.line_num} has no id")
        if fold(cells["id"]) in students:
            raise CourseError(f"line {reader.line_num}: id `{cells['id']}` is there twice")
        students[fold(cells["id"])] = Student(**cells)
    if not students:
        raise CourseError("nobody is on it")
    return Roster(tuple(students.values()))


def fold(name: str) -> str:
    """A name as it is compared: one Unicode form, one case, single spaces."""
    return " ".join(unicodedata.normalize("NFC", name).casefold().split())


def by_name(things: Mapping[str, T]) -> Callable[[str], T | None]:
    """Find a thing by its own name, else by one that differs in case, spaces or Unicode's form alone."""
    folded = {fold(name): thing for name, thing in things.items()}
    return lambda name: things.get(name, folded.get(fold(name)))


def _places(header: Sequence[str]) -> dict[str, int]:
    heads = [fold(head).replace("\ufeff", "") for head in header]
    found = {
        column: next(at for at, head in enumerate(heads) if head in names)
        for column, names in COLUMNS.items()
        if any(head in names for head in heads)
    }
    if "id" not in found:
        raise CourseError(f"no column `id` in its header `{','.join(header)[:80]}`")
    return found


def _ids(student: Student) -> set[str]:
    return {fold(student.id)}


def _emails(student: Student) -> set[str]:
    return {fold(student.email)} - {""}


def _mailboxes(student: Student) -> set[str]:
    return {fold(student.email).partition("@")[0]} - {""}


def _names(student: Student) -> set[str]:
    return names_of(student.name)


def names_of(name: str) -> set[str]:
    """A name as it stands, and as Canvas writes it: `Doe, Jane` or `Jane Doe` becomes `doejane`."""
    if not name.strip():
        return set()
    last, comma, first = name.partition(",")
    words = [*first.split(), *last.split()] if comma else name.split()
    if not words:
        return {fold(name)}
    orders = (words, [*words[-1:], *words[:-1]], [words[-1], words[0]])
    plain = {"".join(c for c in fold("".join(order)) if c.isalnum()) for order in orders}
    return {fold(name), fold(" ".join(words)), *plain} - {""}
