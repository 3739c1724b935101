"""A table that somebody else made, in which one column is filled and all else stays byte for byte."""

from __future__ import annotations

import re
import unicodedata
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
KINDS = ("number", "id", "login", "email", "name")


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

    platform: str
    number: tuple[str, ...] = ()
    id: tuple[str, ...] = ()
    login: tuple[str, ...] = ()
    email: tuple[str, ...] = ()
    name: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Matched:
    """Whose line is whose, and in words what could be meant twice and is left as it was."""

    lines: dict[int, Mark]
    unsure: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Claim:
    """A student's claim to lines; what is exact goes before what is not, the roster before strangers."""

    mark: Mark
    lines: frozenset[int]
    rank: int

    @property
    def weight(self) -> tuple[int, bool]:
        return self.rank, not self.mark.row.on_roster


@dataclass(frozen=True)
class _Index:
    """The lines under each key of each kind, and what their names are made of."""

    platform: str
    of: Mapping[str, Mapping[str, set[int]]]
    letters: Mapping[int, set[str]]

    def claim(self, mark: Mark) -> _Claim:
        """The lines that the strongest of a student's keys names; of several those with their name."""
        row = mark.row
        student, email = fold(row.student), fold(row.email)
        _, _, account = _account(row)
        by_name = _under(self.of["name"], names_of(row.name or account))
        exact = _under(self.of["id"], {student}) | _under(self.of["login"], {student, email})
        exact |= _under(self.of["email"], {student, email}) | self._by_number(row)
        by_mailbox = _under(self.of["login"], {email.partition("@")[0]})
        for rank, found in enumerate((exact, by_mailbox, by_name)):
            if found:
                return _Claim(mark, frozenset(found if len(found) == 1 else found & by_name or found), rank)
        return _Claim(mark, frozenset(), 0)

    def _by_number(self, row: Row) -> set[int]:
        """The lines whose number is the student's: by the platform's word or the roster's, and by name.

        A number in a name that anybody could have given a file is nobody's.
        """
        platform, number, account = _account(row)
        names = {_letters(row.name)} - {""}
        numbers = [(fold(row.student), names)] if row.name or row.email else []
        if platform == self.platform:
            numbers.append((number, names | {_letters(account)}))
        found = [(line, own) for key, own in numbers for line in _under(self.of["number"], {key})]
        return {line for line, own in found if not self.letters or own & self.letters[line]}


def matched(sheet: Sheet, lines: Sequence[int], keys: Keys, marks: Sequence[Mark]) -> Matched:
    """Match students and lines; who is in one and not in the other is left out.

    A line that could be two students', or a student who could be two lines, is no guess and no reason to keep
    everybody else's points. Raises ValueError where the table has none of the columns.
    """
    index = _index(sheet, lines, keys)
    claims = [index.claim(mark) for mark in marks]
    unsure = [
        f"`{c.mark.student}` could be line {_either(n + 1 for n in sorted(c.lines))}"
        for c in claims
        if len(c.lines) > 1
    ]
    found: dict[int, Mark] = {}
    for line in lines:
        here = [claim for claim in claims if line in claim.lines]
        best = [claim for claim in here if claim.weight == min(claim.weight for claim in here)]
        if len(best) > 1:
            unsure.append(f"line {line + 1} could be {_either(f'`{claim.mark.student}`' for claim in best)}")
        elif best and len(best[0].lines) == 1:
            found[line] = best[0].mark
    return Matched(found, tuple(unsure))


def _index(sheet: Sheet, lines: Sequence[int], keys: Keys) -> _Index:
    places = {
        kind: [sheet.header.index(head) for head in getattr(keys, kind) if head in sheet.header]
        for kind in KINDS
    }
    if not any(places.values()):
        wanted = ", ".join(f"`{head}`" for kind in KINDS for head in getattr(keys, kind))
        raise ValueError(f"its header has none of the columns {wanted}")
    of: dict[str, dict[str, set[int]]] = {kind: {} for kind in KINDS}
    letters: dict[int, set[str]] = {}
    for line in lines:
        for kind, columns in places.items():
            cells = [sheet.cell(line, column) for column in columns]
            for key in {key for text in cells for key in _keys(kind, text)}:
                of[kind].setdefault(key, set()).add(line)
            if kind == "name" and columns:
                letters[line] = {_letters(text) for text in (*cells, "".join(cells))} - {""}
    return _Index(keys.platform, of, letters)


def _keys(kind: str, text: str) -> set[str]:
    return names_of(text) if kind == "name" else {fold(text).removeprefix(PARTICIPANT)} - {""}


def _account(row: Row) -> tuple[str, str, str]:
    """The platform that named what was handed in, its number for the student and their name there."""
    platform, _, rest = row.account.partition(":")
    number, _, name = rest.partition(":")
    return platform, number, name


def _letters(name: str) -> str:
    """What a name is made of, in whichever order and with whatever between: enough beside a number."""
    return "".join(sorted(c for c in unicodedata.normalize("NFKD", name.casefold()) if c.isalnum()))


def _either(places: Iterable[object]) -> str:
    return " or ".join(map(str, places))


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
    sure = matched(sheet, lines, keys, marks)
    found = sure.lines
    given = {line: points(mark.total) for line, mark in found.items() if mark.total is not None}
    values = {line: text for line, text in given.items() if line not in column.kept}
    there = {mark.student for mark in found.values()}
    who = [sheet.header.index(head) for head in keys.name if head in sheet.header] or [0]
    unknown = [" ".join(sheet.cell(line, at) for at in who) for line in lines if line not in found]
    absent = [mark.student for mark in marks if mark.student not in there]
    kept = [found[line].student for line in given if line in column.kept]
    remarks = [f"filled in {plural(len(values), 'student')}"]
    remarks += [f"left as it was, not to be told apart: {'; '.join(sure.unsure)}"] * bool(sure.unsure)
    remarks += [f"left as it was, excused or locked there: {', '.join(kept)}"] * bool(kept)
    remarks += [f"in the table, not in the results: {'; '.join(unknown)}"] * bool(unknown)
    remarks += [f"in the results, not in the table: {'; '.join(absent)}"] * bool(absent)
    return Filled(sheet.filled(column.at, {**column.made, **values}), tuple(remarks))
