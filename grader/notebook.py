"""Stage files out of an nbgrader notebook: the answer's cell, and what it needs of the student's other cells.

A notebook is hostile input: its JSON is decoded into the few fields that are looked at and the rest of it,
outputs foremost, is skipped without being built. No code in it is ever run.

An answer stands in the code cell whose `grade_id` is the stage file's name without `.py`; all other cells of
that stage have ids that begin with it and `-`. Cells without an id are the student's own.
"""

from __future__ import annotations

import hashlib
import io
import re
import tokenize
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import msgspec

from grader import names
from grader.errors import SubmissionError

if TYPE_CHECKING:
    from grader.course import Course

SUFFIX = ".ipynb"
MAX_BYTES = 16 << 20
MOST_CELLS = 10_000
MOST = 20  # notebooks of one submission that are looked at
MAJOR = 4  # of the format; 4.0 to 4.5 are alike in what is read here
SETUP, HELPERS = "-setup", "-helpers"  # ids of an answer's cells that may stand above it, or belong to it
REST = "-grader"  # of the cell for the points of all that the grader alone checks
HIDDEN = "-hidden-"  # in the id of a hidden check's cell, before a mark that does not tell its name
PYTHON_MAGICS = {"capture", "prun", "time", "timeit"}  # `%%time` and the like: what follows is Python
ENCODINGS = {"ascii", "cp1252", "iso-8859-1", "iso-8859-15"}  # those that a file may name, beside UTF-8
CELL_MAGIC = re.compile(r"\s*%%(\w*)")
MAGIC = re.compile(r"([ \t]*)((?:[%!?]|[\w.]+\?{1,2}[ \t]*(?![^\r\n]))[^\r\n]*)")
TOKEN = re.compile(
    r"""("{3}|'{3})(?:\\.|(?!\1).)*+\1?|"(?:\\.|[^"\\\r\n])*+"?|'(?:\\.|[^'\\\r\n])*+'?"""
    r"""|\#[^\r\n]*+|\\\r?\n|\r\n|[\r\n()\[\]{}]""",
    re.DOTALL,
)
STARTS = re.compile(r"^[ \t]*(?:[%!?]|[\w.]+\?)", re.MULTILINE)


class _Grading(msgspec.Struct, frozen=True, gc=False):
    grade_id: str = ""


class _About(msgspec.Struct, frozen=True, gc=False):
    nbgrader: _Grading | None = None


class Cell(msgspec.Struct, frozen=True, gc=False):
    """One cell, as far as it is looked at."""

    cell_type: str
    source: str | list[str] = ""
    metadata: _About = _About()

    @property
    def text(self) -> str:
        return self.source if isinstance(self.source, str) else "".join(self.source)

    @property
    def grade_id(self) -> str:
        return self.metadata.nbgrader.grade_id if self.metadata.nbgrader else ""


class _Format(msgspec.Struct, frozen=True):
    nbformat: int


class _Notebook(msgspec.Struct, frozen=True):
    cells: list[Cell]


@dataclass(frozen=True, slots=True)
class Extracted:
    """Stage files by name, and what to say: of a stage that could not be taken, why."""

    files: dict[str, bytes]
    notes: tuple[str, ...] = ()


def cell_id(stem: str, check: str, *, hidden: bool = False) -> str:
    """The id of the cell that runs a check of the stage file `stem.py`."""
    return f"{stem}{HIDDEN}{hashlib.sha256(check.encode()).hexdigest()[:8]}" if hidden else f"{stem}-{check}"


def parse(data: bytes) -> tuple[Cell, ...]:
    """Read a notebook's cells.

    Raises SubmissionError where it is not JSON, not whole, no notebook, or not of format 4.
    """
    data = data.removeprefix(b"\xef\xbb\xbf")
    again = "open it in Jupyter, clear all outputs, save it and hand that in"
    try:
        major = msgspec.json.decode(data, type=_Format).nbformat
        if major != MAJOR:
            raise SubmissionError(f"it is of notebook format `{major}`, not {MAJOR}; {again}")
        cells = tuple(msgspec.json.decode(data, type=_Notebook).cells)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SubmissionError(f"it is not a whole notebook: {error}; {again}") from error
    if len(cells) > MOST_CELLS:
        raise SubmissionError(f"it has `{len(cells)}` cells, and at most {MOST_CELLS} are read")
    return cells


def extract(data: bytes, course: Course) -> Extracted:
    """Take every stage file that a notebook holds out of it.

    A stage whose cells were changed in a way that leaves open what its answer is has a line in the notes, and
    no file. Raises SubmissionError where the notebook itself can't be read.
    """
    cells, read = parse(data), cache(names.pieces)
    files, notes = {}, []
    for stage in course.stages:
        try:
            at = _answer(cells, stage.name)
            if at is None:
                continue
            text, said = stage_file(cells, at, read)
        except SubmissionError as error:
            notes.append(str(error))
            continue
        files[stage.file] = _encoded(text)
        notes += [f"cell `{stage.name}`: {line}" for line in said]
    return Extracted(files, tuple(notes))


def gather(books: Mapping[str, Callable[[], bytes]], have: Sequence[str], course: Course) -> Extracted:
    """Take the stage files of a submission's notebooks, by name, that lie beside the stage files it has.

    A stage file that is there itself goes first; of two notebooks that hold the same stage the one that is
    named after it, `stage2.ipynb`, and where there is none neither is taken. All of that is said.
    """
    files: dict[str, bytes] = {}
    notes, held = [], _held(books, course)
    for stage in course.stages:
        holders = [name for name, book in held.items() if stage.file in book.files]
        own = [name for name in holders if name == stage.slug + SUFFIX]
        if stage.file in have:
            notes += [_passed_over(name, stage.name, stage.file) for name in holders]
        elif len(holders) == 1 or own:
            taken = (own or holders)[0]
            files[stage.file] = held[taken].files[stage.file]
            notes += [_passed_over(name, stage.name, taken) for name in holders if name != taken]
        elif holders:
            both = " and ".join(f"`{fit(name)}`" for name in holders[:3])
            notes.append(f"cell `{stage.name}` is in {both}: hand in one of them")
    notes += [f"`{fit(name)}`: {note}" for name, book in held.items() for note in book.notes]
    if len(books) > MOST:
        notes.append(f"of `{len(books)}` notebooks the first {MOST} are read")
    return Extracted(files, tuple(notes))


def _passed_over(book: str, cell: str, taken: str) -> str:
    return f"`{fit(book)}` holds `{cell}` too: not taken, `{fit(taken)}` is"


def fit(text: str) -> str:
    """A name out of a submission, fit to be shown."""
    return ascii(text)[1:-1][:80]


def _held(books: Mapping[str, Callable[[], bytes]], course: Course) -> dict[str, Extracted]:
    """What each notebook holds; of one that can't be read, why."""
    held = {}
    for name in sorted(books)[:MOST]:
        try:
            held[name] = extract(books[name](), course)
        except SubmissionError as error:
            held[name] = Extracted({}, (str(error),))
    return held


def _answer(cells: Sequence[Cell], name: str) -> int | None:
    """The place of an answer's cell; None where the notebook is not about that stage.

    Raises SubmissionError, naming the cell, where it is gone, twice there, no code, or below its checks.
    """
    found = [at for at, cell in enumerate(cells) if cell.grade_id == name]
    others = [at for at, cell in enumerate(cells) if cell.grade_id.startswith(f"{name}-")]
    fresh = "take a fresh copy of the notebook and paste your code into that cell"
    if not found:
        if others:
            other = fit(cells[others[0]].grade_id)
            raise SubmissionError(f"cell `{name}` is gone, though `{other}` is there; {fresh}")
        return None
    if len(found) > 1:
        places = " and ".join(str(at + 1) for at in found[:3])
        raise SubmissionError(f"cell `{name}` is there more than once, as cells {places}; delete all but one")
    (at,) = found
    if cells[at].cell_type != "code":
        raise SubmissionError(f"cell `{name}` is of type `{fit(cells[at].cell_type)}`; make it code again")
    checks = [o for o in others if not cells[o].grade_id.endswith((SETUP, HELPERS))]
    above = [other for other in checks if other < at and cells[other].cell_type == "code"]
    if above:
        other = fit(cells[above[0]].grade_id)
        raise SubmissionError(f"cell `{name}` is below `{other}`; move it back above it")
    magic = CELL_MAGIC.match(cells[at].text)
    if magic and magic[1] not in PYTHON_MAGICS:
        raise SubmissionError(f"cell `{name}` begins with `%%{fit(magic[1])}`, so it is not Python")
    return at


def stage_file(
    cells: Sequence[Cell], at: int, read: Callable[[str], tuple[names.Piece, ...]] = names.pieces
) -> tuple[str, list[str]]:
    """The text of a stage file, and what was done to the cell for it; `read` reads other cells."""
    text, left_out = without_magics(cells[at].text)
    said = [f"lines left out, being IPython's (`%`, `!`, `?`): {left_out}"] * bool(left_out)
    along = names.joined(text, _own(cells, at), read)
    if along.names:
        shown = ", ".join(f"`{name}`" for name in along.names[:5])
        more = f" and {len(along.names) - 5} more" if len(along.names) > 5 else ""
        said.append(f"taken along from other cells: {shown}{more}")
    return _ended(along.text), said


def _own(cells: Sequence[Cell], answer: int) -> Iterator[tuple[bool, str]]:
    """The Python in the student's own cells, and in the answer's one for helpers; whether it is above."""
    left = names.MAX_PARSED
    for at, cell in enumerate(cells):
        is_own = not cell.grade_id or cell.grade_id == cells[answer].grade_id + HELPERS
        if at == answer or cell.cell_type != "code" or not is_own:
            continue
        left -= len(cell.text)
        if left < 0:
            return
        magic = CELL_MAGIC.match(cell.text)
        if not magic or magic[1] in PYTHON_MAGICS:
            yield at < answer, without_magics(cell.text)[0]


def _ended(text: str) -> str:
    return text if not text or text.endswith(("\n", "\r")) else f"{text}\n"


def _encoded(text: str) -> bytes:
    """The text as bytes that Python reads as that text: by the encoding that its first lines name, if any."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(text.encode()).readline)
        return text.encode(encoding if encoding in ENCODINGS else "utf-8")
    except (SyntaxError, UnicodeEncodeError):
        return text.encode()


def without_magics(source: str) -> tuple[str, int]:
    """Make a comment of each line that begins a statement and is IPython's, not Python's; say how many.

    Those begin with `%`, `!` or `?`, or are a name and `?`. All else stays as it is, to the byte: what looks
    like one inside of a string, of brackets, or behind a backslash is none.
    """
    if not STARTS.search(source):
        return source, 0
    parts, at, count = [], 0, 0
    while at < len(source):
        if magic := MAGIC.match(source, at):
            parts.append(f"{magic[1]}pass  # {magic[2]}")
            at, count = magic.end(), count + 1
            end = _line_end(source, at)
        else:
            end = _statement_end(source, at)
        parts.append(source[at:end])
        at = end
    return "".join(parts), count


def _line_end(source: str, at: int) -> int:
    """Just behind the end of the line, at which `at` is."""
    return at + (2 if source.startswith("\r\n", at) else 1)


def _statement_end(source: str, begin: int) -> int:
    """Just behind the line on which a statement ends: not inside of a string or of brackets."""
    depth = 0
    for token in TOKEN.finditer(source, begin):
        if token[0] in ("(", "[", "{"):
            depth += 1
        elif token[0] in (")", "]", "}"):
            depth -= 1
        elif token[0] in ("\n", "\r", "\r\n") and depth <= 0:
            return token.end()
    return len(source)
