"""Whether anything secret stands in what is handed out: lines of solutions, hidden checks, a seed, a key.

A line is a run of words and signs, so neither layout nor quoting hides it: it is found in a comment, in
prose, in a notebook, in an archive. It counts where it has at least `FEWEST_WORDS` of them and the course
does not give it to students itself: a solution's line in `gpt2.py` or a stub, a hidden check's there or in
a public one. A name counts where only hidden checks use it and it is made of several words, as
`test_other_numbers` is; a plain word may stand in any text.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from grader import stubs
from grader.contents import Piece
from grader.course import Course
from grader.errors import CourseError
from grader.seal import KEY_FILE

FEWEST_WORDS = 4
QUOTED = Path("tests") / "quoted.toml"
WORD = re.compile(r"\w+|[^\w\s]")
SEVERAL_WORDS = re.compile(r"_*[^\W_]+_\w*[^\W_]|[A-Z]\w*[a-z]\w*[A-Z]\w*")


@dataclass(frozen=True, slots=True)
class Secrets:
    """What must not be handed out: lines and names, each with where it is from, and whole texts."""

    lines: Mapping[str, str]
    names: Mapping[str, str]
    texts: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Leak:
    """Something secret or doubtful, and where; `words` is the line or name that is quoted, if any."""

    place: str
    line: int
    what: str
    words: str = ""

    def __str__(self) -> str:
        return f"{self.place}:{self.line}: {self.what}" if self.line else f"{self.place}: {self.what}"


class _Quoted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Lines, or names, that a given file may hold though a solution or a hidden check has them, and why."""

    file: str
    lines: tuple[str, ...]
    why: str


class _Quotes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    quoted: tuple[_Quoted, ...] = ()


def secrets(course: Course) -> Secrets:
    """Read what is secret of a course, from its solutions and hidden tests."""
    solved = [course.solutions / stage.file for stage in course.stages]
    hidden = sorted((course.root / "tests_hidden").glob("*.py"))
    shown = _run(
        "\n".join((_text(course.given), *(stubs.of_stage(course, stage) for stage in course.stages)))
    )
    public = shown + _run("\n".join(_text(course.public_tests(stage)) for stage in course.stages))
    lines: dict[str, str] = {}
    for path, written, allowed in (
        *((path, _solved(path), shown) for path in solved),
        *((path, enumerate(_text(path).splitlines(), 1), public) for path in hidden),
    ):
        for number, line in written:
            for run in _runs_of(line):
                if run not in allowed:
                    lines.setdefault(run, f"{path.relative_to(course.root)}:{number}")
    used = {*public.split(), *(word for path in solved for word in WORD.findall(_text(path)))}
    return Secrets(lines, _names(hidden, used, course), _texts(course))


def _solved(path: Path) -> Iterator[tuple[int, str]]:
    """The lines within a solution's regions, with their numbers."""
    source = _text(path)
    written = source.splitlines()
    for region in stubs.find_regions(source, path.stem) if source else ():
        yield from ((number, written[number - 1]) for number in range(region.begin + 1, region.end))


def _runs_of(line: str) -> Iterator[str]:
    """A line as a run of words, and without its comment, where that is enough to count."""
    for part in dict.fromkeys((line, line.partition("  #")[0])):
        if len(WORD.findall(part)) >= FEWEST_WORDS:
            yield _run(part)


def _run(text: str) -> str:
    return f" {' '.join(WORD.findall(text))} "


def _text(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "replace") if path.is_file() else ""


def _names(hidden: Iterable[Path], used: set[str], course: Course) -> dict[str, str]:
    """The names that hidden tests bind and nothing else uses; a test's also as its check is called."""
    names: dict[str, str] = {}
    for path in hidden:
        for node in ast.walk(ast.parse(path.read_bytes())):
            for name in _bound(node):
                for each in (name, name.removeprefix("test_")):
                    if each not in used and SEVERAL_WORDS.fullmatch(each):
                        names.setdefault(
                            each, f"{path.relative_to(course.root)}:{getattr(node, 'lineno', 0)}"
                        )
    return names


def _bound(node: ast.AST) -> tuple[str, ...]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return (name,)
        case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
            return (name,)
    return ()


def _texts(course: Course) -> dict[str, str]:
    """The seed's secret and the seal's key, where they have been made."""
    hidden = course.root / "tests_hidden"
    found = ((path, _text(path).strip()) for path in (course.seed_secret, hidden / KEY_FILE))
    return {text: path.name for path, text in found if text}


def find(pieces: Iterable[Piece], secret: Secrets) -> list[Leak]:
    """Name every secret in these texts, and whatever of them can't be looked into."""
    needed = {run: frozenset(run.split()) for run in secret.lines}
    found: dict[Leak, None] = {}
    for piece in pieces:
        found |= dict.fromkeys(_in_piece(piece, secret, needed))
        if piece.doubt:
            found[Leak(piece.place, 0, piece.doubt)] = None
    return list(found)


def _in_piece(piece: Piece, secret: Secrets, needed: Mapping[str, frozenset[str]]) -> Iterator[Leak]:
    words = WORD.findall(piece.text)
    run, there = f" {' '.join(words)} ", set(words)
    for line, origin in secret.lines.items():
        if needed[line] <= there and line in run:
            number = _number(piece.text, run.count(" ", 0, run.index(line)))
            yield Leak(piece.place, number, f"is `{origin}`: `{line.strip()}`", line)
    for name in there & secret.names.keys():
        what = f"`{name}` is a name of `{secret.names[name]}` alone"
        yield Leak(piece.place, _number(piece.text, words.index(name)), what, _run(name))
    for text, origin in secret.texts.items():
        if text in piece.text:
            yield Leak(piece.place, piece.text.count("\n", 0, piece.text.index(text)) + 1, f"is `{origin}`")


def _number(text: str, word: int) -> int:
    """The number of the line that the word with this index stands on."""
    start = next(found.start() for i, found in enumerate(WORD.finditer(text)) if i == word)
    return text.count("\n", 0, start) + 1


def unexcused(leaks: Iterable[Leak], course: Course) -> list[Leak]:
    """Leave out what `tests/quoted.toml` allows.

    Raises CourseError where that file is wrong, or allows what is not there (any more).
    """
    allowed = {
        (quoted.file, _run(line)): line for quoted in _quotes(course) for line in quoted.lines
    }  # by file and line: nowhere else, and nothing else there
    leaks = list(leaks)
    there = {(leak.place, leak.words) for leak in leaks}
    for (file, words), line in allowed.items():
        if (file, words) not in there:
            raise CourseError(f"`{QUOTED}`: `{file}` quotes no secret line `{line}`: take it out")
    return [leak for leak in leaks if (leak.place, leak.words) not in allowed]


def _quotes(course: Course) -> tuple[_Quoted, ...]:
    path = course.root / QUOTED
    if not path.is_file():
        return ()
    try:
        quotes = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), _Quotes).quoted
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise CourseError(f"`{QUOTED}`: {error}") from error
    for quoted in quotes:
        if not quoted.why.strip():
            raise CourseError(f"`{QUOTED}`: `{quoted.file}` needs its `why`")
    return quotes
