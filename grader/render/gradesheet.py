"""A table that somebody else made, in which one column is filled and all else stays byte for byte."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from grader.gradebook import Row
from grader.marks import Mark
from grader.render.prose import plural, points
from grader.roster import fold, names_of

BOM = "\ufeff"
COMMAS = (",", ";", "\t")
CELL = r'(?P<cell>"[^"]*(?:""[^"]*)*"|[^"{comma}\r\n][^{comma}\r\n]*|)(?P<end>{comma}|\r\n|\n|\r|\Z)'
PARTICIPANT = "participant "  # before the number in a Moodle worksheet
NUMBER = re.compile(r"(?P<name>.*)_(?P<number>\d+)\Z", re.DOTALL)


@dataclass(frozen=True)
class Sheet:
    """The table's lines as raw cells, each line with its own end; `bom` and `comma` as they were."""

    lines: tuple[tuple[str, ...], ...]
    ends: tuple[str, ...]
    comma: str = ","
    bom: str = ""

    @cached_property
    def header(self) -> tuple[str, ...]:
        return tuple(self.cell(0, column) for column in range(len(self.lines[0])))

    def cell(self, line: int, column: int) -> str:
        """A cell's text, without quotes and white space around it; empty beyond the line's end."""
        cells = self.lines[line]
        raw = cells[column] if column < len(cells) else ""
        return (raw[1:-1].replace('""', '"') if raw.startswith('"') else raw).strip()

    def filled(self, column: int, values: Mapping[int, str]) -> str:
        """The table's text with these lines' cells in place of what stood there.

        A column beyond the header's is made, in every line that is not blank.
        """
        is_new = column >= len(self.lines[0])
        text = [self.bom]
        for line, cells in enumerate(self.lines):
            written = list(cells)
            if line in values or (is_new and written != [""]):
                written += [""] * (column + 1 - len(written))
                written[column] = self._quoted(values.get(line, ""))
            text += [self.comma.join(written), self.ends[line]]
        return "".join(text)

    def _quoted(self, value: str) -> str:
        special = set(value) & {'"', "\r", "\n", self.comma} or value != value.strip()
        return '"' + value.replace('"', '""') + '"' if special else value


def parse(data: bytes) -> Sheet:
    """Read a table as it lies there: UTF-8, with or without BOM, cells parted by comma, semicolon or tab.

    Raises ValueError where it is none.
    """
    text = data.decode("utf-8")
    bom, text = (BOM, text[1:]) if text.startswith(BOM) else ("", text)
    first = re.split(r"[\r\n]", text, maxsplit=1)[0]
    comma = max(COMMAS, key=first.count)
    if not first.count(comma):
        raise ValueError("it is no table with a header: its first line has a single cell")
    cell = re.compile(CELL.format(comma=comma))
    lines: list[tuple[str, ...]] = []
    ends: list[str] = []
    current: list[str] = []
    at = 0
    while at < len(text) or current:
        found = cell.match(text, at)
        if not found:
            raise ValueError(
                f"line {len(lines) + 1} is no CSV: a quote in the middle of a cell, or never closed"
            )
        current.append(found["cell"])
        at = found.end()
        if found["end"] != comma:
            lines.append(tuple(current))
            ends.append(found["end"])
            current = []
    return Sheet(tuple(lines), tuple(ends), comma, bom)


@dataclass(frozen=True, slots=True)
class Keys:
    """By which columns a platform knows a student: its number, their id, login, email, last their name."""

    number: tuple[str, ...] = ()
    id: tuple[str, ...] = ()
    login: tuple[str, ...] = ()
    email: tuple[str, ...] = ()
    name: tuple[str, ...] = ()


def matched(sheet: Sheet, lines: Sequence[int], keys: Keys, marks: Sequence[Mark]) -> dict[int, Mark]:
    """Whose line is whose; who is in one and not in the other is left out.

    Raises ValueError where the table has none of the columns, or a student could be two lines, or a line two
    students: there is no guessing with grades.
    """
    places = {
        kind: [sheet.header.index(head) for head in getattr(keys, kind) if head in sheet.header]
        for kind in keys.__slots__
    }
    if not any(places.values()):
        wanted = ", ".join(f"`{head}`" for kind in keys.__slots__ for head in getattr(keys, kind))
        raise ValueError(f"its header has none of the columns {wanted}")
    index = {kind: _index(sheet, lines, columns, kind == "name") for kind, columns in places.items()}
    found: dict[int, Mark] = {}
    for mark in marks:
        line = _line(mark.row, index)
        if line in found:
            raise ValueError(f"line {line + 1} could be `{found[line].student}` or `{mark.student}`")
        if line is not None:
            found[line] = mark
    return found


def _index(sheet: Sheet, lines: Sequence[int], columns: Sequence[int], is_name: bool) -> dict[str, set[int]]:
    index: dict[str, set[int]] = {}
    for line in lines:
        for column in columns:
            text = sheet.cell(line, column)
            for key in names_of(text) if is_name else {fold(text).removeprefix(PARTICIPANT)} - {""}:
                index.setdefault(key, set()).add(line)
    return index


def _line(row: Row, index: Mapping[str, Mapping[str, set[int]]]) -> int | None:
    """The one line that is this student's: by number, id, login or email, and else by name."""
    named = NUMBER.fullmatch(row.student)
    number = {named["number"]} if named else {fold(row.student)}
    student, email = fold(row.student), fold(row.email)
    mailbox = email.partition("@")[0]
    names = names_of(row.name or (named["name"] if named else ""))
    by_name = _under(index["name"], names)
    wanted = {"id": {student}, "login": {student, email, mailbox}, "email": {email, student}}
    found = _under(index["number"], number)
    if not named and names and index["name"]:
        found &= by_name  # an id that is somebody else's number by chance: the name speaks against it
    for kind, known in wanted.items():
        found |= _under(index[kind], known)
    if len(found) != 1:
        found = (found & by_name) or found or by_name
    if len(found) > 1:
        lines = " or ".join(str(line + 1) for line in sorted(found))
        raise ValueError(f"`{row.student}` could be line {lines}")
    return found.pop() if found else None


def _under(index: Mapping[str, set[int]], keys: set[str]) -> set[int]:
    return {line for key in keys - {""} for line in index.get(key, ())}


def other_worth(platform: str, theirs: Iterable[str], possible: float) -> list[str]:
    """Say where a platform has the assignment out of other points than ours."""
    odd = [text for text in sorted(set(theirs) - {""}) if _number(text) != possible]
    return [f"{platform} has it out of {text}, these points are out of {points(possible)}" for text in odd]


def _number(text: str) -> float | None:
    try:
        return float(text.replace(",", "."))
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class Filled:
    """A table with its column filled, and what to say of it."""

    text: str
    remarks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Column:
    """Which column to fill in: `made` are its cells that are no student's if it is new, `kept` lines stay."""

    at: int
    made: Mapping[int, str] = field(default_factory=dict)
    kept: frozenset[int] = frozenset()


def filled(sheet: Sheet, lines: Sequence[int], keys: Keys, marks: Sequence[Mark], column: Column) -> Filled:
    """Fill in everybody's total, leave alone the cells of those who have none, name who is missing where."""
    found = matched(sheet, lines, keys, marks)
    given = {line: points(mark.total) for line, mark in found.items() if mark.total is not None}
    values = {line: text for line, text in given.items() if line not in column.kept}
    there = {mark.student for mark in found.values()}
    who = [sheet.header.index(head) for head in keys.name if head in sheet.header] or [0]
    unknown = [" ".join(sheet.cell(line, at) for at in who) for line in lines if line not in found]
    absent = [mark.student for mark in marks if mark.student not in there]
    kept = [found[line].student for line in given if line in column.kept]
    remarks = [f"filled in {plural(len(values), 'student')}"]
    remarks += [f"left as it was, excused or locked there: {', '.join(kept)}"] * bool(kept)
    remarks += [f"in the table, not in the results: {'; '.join(unknown)}"] * bool(unknown)
    remarks += [f"in the results, not in the table: {'; '.join(absent)}"] * bool(absent)
    return Filled(sheet.filled(column.at, {**column.made, **values}), tuple(remarks))
